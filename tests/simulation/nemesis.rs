//! Makes things go wrong, one after the other and several at a time, as the seed says, and puts them right again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sidestream::coordination::BarrierKind;
use tokio::time::sleep;

use super::chance::Chance;
use super::faults::Faults;
use super::proxy::Running;
use super::world::World;

/// What can go wrong. A seed draws which of them its world has at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    Crash,
    CrashAndLoseDisk,
    Drain,
    Freeze,
    /// Frozen while another process takes its id; then it wakes up.
    Zombie,
    DiskFull,
    ClockJumps,
    LogOffline,
    LeaderChange,
    LogLoses,
    LogLate,
    Deaf,
    /// A deposed leader tells old ends: harmless where look-ups wait for a record.
    StaleEnds,
    StoreRefuses,
    StoreLies,
    StoreStuck,
    StoreSlow,
    Connections,
}

impl Trouble {
    pub(crate) const ALL: [Self; 18] = [
        Self::Crash,
        Self::CrashAndLoseDisk,
        Self::Drain,
        Self::Freeze,
        Self::Zombie,
        Self::DiskFull,
        Self::ClockJumps,
        Self::LogOffline,
        Self::LeaderChange,
        Self::LogLoses,
        Self::LogLate,
        Self::Deaf,
        Self::StaleEnds,
        Self::StoreRefuses,
        Self::StoreLies,
        Self::StoreStuck,
        Self::StoreSlow,
        Self::Connections,
    ];

    /// About two thirds of all kinds, others in each seed.
    pub(crate) fn drawn(chance: &Chance) -> Vec<Self> {
        Self::ALL.into_iter().filter(|_| chance.percent(65.0)).collect()
    }
}

pub(crate) async fn run(world: Arc<World>, troubles: Vec<Trouble>) {
    let chance = Arc::new(Chance::of(world.seed, "nemesis"));
    while world.is_loaded() {
        sleep(chance.millis(200, 4_000)).await;
        // A quarter of the time all is well, so that the system has something to recover to.
        if troubles.is_empty() || chance.percent(25.0) {
            world.faults.heal();
            sleep(chance.millis(1_000, 4_000)).await;
            continue;
        }
        let trouble = *chance.pick(&troubles);
        world.count(&format!("{trouble:?}"));
        make(&world, &chance, trouble);
    }
}

fn make(world: &Arc<World>, chance: &Arc<Chance>, trouble: Trouble) {
    let machine = chance.index(world.machines.len());
    world.recorder.note(format!("{trouble:?} (machine {machine})"));
    match trouble {
        Trouble::StaleEnds if world.barrier == BarrierKind::End => {}
        Trouble::Crash | Trouble::CrashAndLoseDisk => {
            crash(world, machine, trouble == Trouble::CrashAndLoseDisk);
        }
        Trouble::Drain => drop(tokio::spawn(drain(Arc::clone(world), machine))),
        Trouble::Freeze => drop(tokio::spawn(freeze(Arc::clone(world), Arc::clone(chance), machine))),
        Trouble::Zombie => drop(tokio::spawn(zombie(Arc::clone(world), Arc::clone(chance), machine))),
        Trouble::DiskFull => {
            let disk = world.machines[machine].disk();
            disk.set_full(true);
            let after = chance.millis(500, 8_000);
            tokio::spawn(async move {
                sleep(after).await;
                disk.set_full(false);
            });
        }
        Trouble::ClockJumps => {
            let skew = *chance.pick(&[0, 0, 2_000, -2_000, 60_000, -60_000, 600_000, -600_000]);
            world.machines[machine].skew_ms.store(skew, Ordering::Relaxed);
        }
        Trouble::LeaderChange => world.log.change_leader(*chance.pick(&[0, 500, -500, 5_000, -5_000, 30_000])),
        lasting => {
            let strength = *chance.pick(&[2.0, 10.0, 40.0]);
            world.faults.change(|faults| worsen(faults, lasting, machine, strength));
            let (world, after) = (Arc::clone(world), chance.millis(1_000, 15_000));
            tokio::spawn(async move {
                sleep(after).await;
                world.faults.change(|faults| mend(faults, lasting, machine));
            });
        }
    }
}

fn worsen(faults: &mut Faults, trouble: Trouble, machine: usize, strength: f64) {
    match trouble {
        Trouble::LogOffline => faults.log.is_offline = true,
        Trouble::LogLoses => {
            faults.log.answer_lost = strength;
            faults.log.dropped = strength / 2.0;
        }
        Trouble::LogLate => faults.log.late = strength / 2.0,
        Trouble::Deaf => drop(faults.log.deaf.insert(machine)),
        Trouble::StaleEnds => faults.log.stale_ends = strength,
        Trouble::StoreRefuses => faults.store.refused = strength * 2.0,
        Trouble::StoreLies => {
            faults.store.done_not_told = strength;
            faults.store.late = strength / 2.0;
            faults.store.wrong_byte = strength;
        }
        Trouble::StoreStuck => faults.store.stuck = strength,
        Trouble::StoreSlow => faults.store.slow = if strength > 20.0 { 100 } else { 10 },
        Trouble::Connections => {
            faults.connections_break = strength / 4.0;
            faults.network_ms = 50;
        }
        other => unreachable!("{other:?} does not last"),
    }
}

fn mend(faults: &mut Faults, trouble: Trouble, machine: usize) {
    match trouble {
        Trouble::LogOffline => faults.log.is_offline = false,
        Trouble::LogLoses => (faults.log.answer_lost, faults.log.dropped) = (0.0, 0.0),
        Trouble::LogLate => faults.log.late = 0.0,
        Trouble::Deaf => drop(faults.log.deaf.remove(&machine)),
        Trouble::StaleEnds => faults.log.stale_ends = 0.0,
        Trouble::StoreRefuses => faults.store.refused = 0.0,
        Trouble::StoreLies => {
            (faults.store.done_not_told, faults.store.late, faults.store.wrong_byte) = (0.0, 0.0, 0.0);
        }
        Trouble::StoreStuck => faults.store.stuck = 0.0,
        Trouble::StoreSlow => faults.store.slow = 0,
        Trouble::Connections => (faults.connections_break, faults.network_ms) = (0.0, 0),
        other => unreachable!("{other:?} does not last"),
    }
}

/// Kills the process of a machine. Its guard starts another.
pub(crate) fn crash(world: &World, machine: usize, lose_disk: bool) {
    let machine = &world.machines[machine];
    if let Some(running) = machine.running() {
        running.kill();
        machine.disk().crash(&Chance::of(world.seed, &format!("{} crash", running.name)));
    }
    if lose_disk {
        machine.disk().erase();
    }
}

async fn drain(world: Arc<World>, machine: usize) {
    let Some(running) = world.machines[machine].running() else { return };
    running.drain().await;
    if !running.gate.is_ended() {
        running.kill();
    }
}

async fn freeze(world: Arc<World>, chance: Arc<Chance>, machine: usize) {
    if let Some(running) = world.machines[machine].running() {
        running.gate.close();
        sleep(freeze_time(&chance)).await;
        running.gate.open();
    }
}

fn freeze_time(chance: &Chance) -> Duration {
    if chance.percent(20.0) { chance.millis(20_000, 120_000) } else { chance.millis(100, 20_000) }
}

/// The id is taken over while its process is frozen. When that one wakes up it must find out, and end by itself.
async fn zombie(world: Arc<World>, chance: Arc<Chance>, machine: usize) {
    let place = &world.machines[machine];
    let Some(frozen) = place.running() else { return };
    frozen.gate.close();
    sleep(chance.millis(100, 5_000)).await;
    if !place.running().is_some_and(|now| Arc::ptr_eq(&now, &frozen)) {
        frozen.gate.open();
        return;
    }
    place.change_disk();
    let successor = place.start(&world);
    let was_open = successor.became_open().await;
    sleep(freeze_time(&chance)).await;
    frozen.gate.open();
    if was_open && !frozen.gate.is_ended() {
        expect_fenced(&world, &frozen).await;
    }
    frozen.kill();
}

/// Time enough for a proxy that can read the log to see that another holds its id.
const FENCED_WITHIN: Duration = Duration::from_secs(120);

async fn expect_fenced(world: &World, frozen: &Running) {
    let mut ended = frozen.ended.subscribe();
    let reason = match tokio::time::timeout(FENCED_WITHIN, ended.wait_for(Option::is_some)).await {
        Ok(Ok(reason)) => reason.clone().unwrap_or_default(),
        _ => String::new(),
    };
    if frozen.gate.is_ended() {
        return;
    }
    world.count("fenced");
    if reason.is_empty() {
        world.fail(format!("{} woke up beside its successor and did not stop: {reason:?}", frozen.name));
    }
}
