//! Every step of a commit that others can see has a name, and a process can be made to die at any of them, the
//! how-manieth time one likes, and again at another when it is back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use sidestream::tasks::Gate;

use super::nemesis;
use super::proxy::Running;
use super::world::{self, Report, Script, World};

/// Just before or after a step that reaches outside of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Point {
    BatchTaken,
    PutSent,
    PutDone,
    AppendSent,
    AppendAnswered,
    RecordsRead,
    StateWritten,
    StateSynced,
    OutcomeKnown,
    AnswerGiven,
}

impl Point {
    const ALL: [Self; 10] = [
        Self::BatchTaken,
        Self::PutSent,
        Self::PutDone,
        Self::AppendSent,
        Self::AppendAnswered,
        Self::RecordsRead,
        Self::StateWritten,
        Self::StateSynced,
        Self::OutcomeKnown,
        Self::AnswerGiven,
    ];
}

/// Where the process of the first machine dies: one point after the other, each counted from the death before.
#[derive(Default)]
pub(crate) struct Plan {
    left: Mutex<Vec<(Point, u32)>>,
}

impl Plan {
    pub(crate) fn new(mut deaths: Vec<(Point, u32)>) -> Self {
        deaths.reverse();
        Self { left: Mutex::new(deaths) }
    }

    pub(crate) fn unreached(&self) -> Vec<(Point, u32)> {
        self.left.lock().clone()
    }

    /// Whether it is time to die.
    fn is_due(&self, point: Point) -> bool {
        let mut left = self.left.lock();
        match left.last_mut() {
            Some((due, 1)) if *due == point => {
                left.pop();
                true
            }
            Some((due, times)) if *due == point => {
                *times -= 1;
                false
            }
            _ => false,
        }
    }
}

/// What stands at the points of one machine.
#[derive(Clone)]
pub(crate) struct Probe {
    world: Weak<World>,
    machine: usize,
    gate: Gate,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Probe({})", self.machine)
    }
}

impl Probe {
    pub(crate) fn of(world: &Arc<World>, running: &Running) -> Self {
        Self { world: Arc::downgrade(world), machine: running.machine, gate: running.gate.clone() }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.gate.is_ended()
    }

    /// Dies here, if it is planned; says whether it did.
    pub(crate) fn reach(&self, point: Point) -> bool {
        let Some(world) = self.world.upgrade() else { return false };
        let is_watched = self.machine == 0 && world.is_loaded() && !self.is_dead();
        let dies = is_watched && world.plan.is_due(point);
        if dies {
            world.recorder.note(format!("dies at {point:?}"));
            nemesis::crash(&world, 0, false);
        }
        dies
    }

    /// As `reach`, for those who wait: the dead wait for ever.
    pub(crate) async fn pass(&self, point: Point) {
        if self.reach(point) {
            std::future::pending::<()>().await;
        }
    }
}

/// How often a point is passed before the process dies at it.
const TIMES: [u32; 4] = [1, 2, 5, 20];

/// All deaths, single and in pairs.
pub(crate) fn all() -> Vec<Vec<(Point, u32)>> {
    let single = Point::ALL.iter().flat_map(|point| TIMES.map(|times| vec![(*point, times)]));
    let pairs = Point::ALL.iter().flat_map(|first| Point::ALL.map(|second| vec![(*first, 3), (second, 2)]));
    single.chain(pairs).collect()
}

/// A small world without other troubles in which a process dies as planned.
pub(crate) async fn live(seed: u64, deaths: Vec<(Point, u32)>) -> Report {
    let script = Script { seed, load: Duration::from_secs(45), machines: Some(2), troubles: Some(Vec::new()), deaths };
    world::live(script).await
}
