//! One simulated world: proxies on one log and one store, clients, a nemesis, and the judgement over what was seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sidestream::coordination::BarrierKind;
use sidestream::diskless_coordinator::checks;
use sidestream::diskless_coordinator::command::{Command, TopicConfig};
use sidestream::history::{Event, EventType, Function, Judge, Options};
use sidestream::metadata_store::read_disk;
use sidestream::types::{TopicId, TopicPartition};
use sidestream::wal_segment::object_key;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::chance::Chance;
use super::crash_points::{Plan, Point};
use super::faults::Present;
use super::log::SimLog;
use super::nemesis::{self, Trouble};
use super::producers::Producer;
use super::proxy::{Machine, Running};
use super::readers::Reader;
use super::recorder::{Process, Recorder};
use super::store::SimStore;
use super::time::SimTime;

/// Of a script that is drawn.
const LOAD: Duration = Duration::from_secs(60);
/// After all is healed, everything must be done in this time.
const RECOVERY: Duration = Duration::from_secs(300);
/// A process that ended is started again after this time.
const RESTART_AFTER: Duration = Duration::from_millis(1_500);

/// A partition, and its name in the history.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) partition: TopicPartition,
}

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) time: SimTime,
    pub(crate) faults: Arc<Present>,
    pub(crate) log: Arc<SimLog>,
    pub(crate) store: Arc<SimStore>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) recorder: Recorder,
    pub(crate) segment_bytes: usize,
    pub(crate) pause_between_batches: Duration,
    pub(crate) plan: Plan,
    pub(crate) barrier: BarrierKind,
    is_loaded: AtomicBool,
    is_over: AtomicBool,
    counts: Mutex<BTreeMap<String, u64>>,
    failures: Mutex<Vec<String>>,
}

/// What came of a world.
pub(crate) struct Report {
    /// One line each; empty when all was well.
    pub(crate) wrong: Vec<String>,
    pub(crate) events: Vec<Event>,
    pub(crate) counts: BTreeMap<String, u64>,
    pub(crate) simulated: Duration,
    pub(crate) troubles: Vec<Trouble>,
    /// Planned deaths that did not come to pass.
    pub(crate) unreached: Vec<(Point, u32)>,
}

impl World {
    fn new(seed: u64, chance: &Chance, machines: Option<usize>, plan: Plan) -> Arc<Self> {
        let time = SimTime::begin();
        let faults = Arc::<Present>::default();
        Arc::new(Self {
            seed,
            time,
            log: SimLog::new(Arc::clone(&faults), time),
            store: SimStore::new(Arc::clone(&faults), time),
            machines: (0..machines.unwrap_or_else(|| *chance.pick(&[2, 3, 3, 4]))).map(Machine::new).collect(),
            plan,
            barrier: *chance.pick(&[BarrierKind::End, BarrierKind::Record]),
            recorder: Recorder::new(time),
            segment_bytes: *chance.pick(&[300, 2_000, 4 << 20]),
            pause_between_batches: Duration::from_millis(*chance.pick(&[150, 400, 1_000])),
            faults,
            is_loaded: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            counts: Mutex::default(),
            failures: Mutex::default(),
        })
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, what: &str) {
        *self.counts.lock().entry(what.to_owned()).or_default() += 1;
    }

    pub(crate) fn fail(&self, what: String) {
        self.failures.lock().push(what);
    }
}

/// What is to happen. What is not said is drawn from the seed.
pub(crate) struct Script {
    pub(crate) seed: u64,
    /// For how long clients are under load and things go wrong.
    pub(crate) load: Duration,
    pub(crate) machines: Option<usize>,
    pub(crate) troubles: Option<Vec<Trouble>>,
    pub(crate) deaths: Vec<(Point, u32)>,
}

impl Script {
    pub(crate) fn drawn(seed: u64) -> Self {
        Self { seed, load: LOAD, machines: None, troubles: None, deaths: Vec::new() }
    }
}

/// Lives through one script.
pub(crate) async fn live(script: Script) -> Report {
    let Script { seed, load, machines, troubles, deaths } = script;
    let chance = Chance::of(seed, "world");
    let world = World::new(seed, &chance, machines, Plan::new(deaths));
    let troubles = troubles.unwrap_or_else(|| Trouble::drawn(&chance));
    let keys = keys(&chance);
    let mut guards = JoinSet::new();
    for machine in 0..world.machines.len() {
        world.machines[machine].start(&world);
        guards.spawn(guard(Arc::clone(&world), machine));
    }
    create_topics(&world, &keys).await;
    world.is_loaded.store(true, Ordering::Relaxed);
    let nemesis = tokio::spawn(nemesis::run(Arc::clone(&world), troubles.clone()));
    let mut producers = JoinSet::new();
    let mut readers = JoinSet::new();
    start_clients(&world, &keys, &chance, &mut producers, &mut readers);
    sleep(load).await;
    world.is_loaded.store(false, Ordering::Relaxed);
    let _ = nemesis.await;
    heal(&world).await;
    finish(&world, "producers", &mut producers).await;
    finish(&world, "readers", &mut readers).await;
    read_all(&world, &keys).await;
    world.is_over.store(true, Ordering::Relaxed);
    finish(&world, "guards", &mut guards).await;
    for machine in &world.machines {
        machine.running().iter().for_each(|running| running.kill());
    }
    verify_disks(&world);
    judge(&world, troubles)
}

/// What is on the disks keeps the invariants, however far it has come, and points to objects that are there (I3).
fn verify_disks(world: &World) {
    for machine in &world.machines {
        let Ok((state, segments)) = read_disk(&machine.disk()) else { continue };
        let wrong = checks::verify(&state, segments.iter().map(Arc::as_ref));
        wrong.into_iter().for_each(|wrong| world.fail(format!("the state of proxy {}: {wrong}", machine.id)));
        let Some(genesis) = &state.genesis else { continue };
        for segment in segments {
            let key = object_key(genesis.log_id, segment.id);
            if world.store.size(&key) != Some(segment.object_size) {
                world.fail(format!(
                    "I3: {key} is committed, but the store has {:?} bytes of it",
                    world.store.size(&key)
                ));
            }
        }
    }
}

fn keys(chance: &Chance) -> Vec<Key> {
    let topics = 1 + chance.index(2);
    let partitions = 1 + chance.index(3);
    let key = |topic: usize, partition: usize| Key {
        name: format!("topic-{topic}/{partition}"),
        partition: TopicPartition {
            topic_id: TopicId([u8::try_from(topic).expect("few") + 7; 16]),
            partition: i32::try_from(partition).expect("few"),
        },
    };
    (0..topics).flat_map(|topic| (0..partitions).map(move |partition| key(topic, partition))).collect()
}

fn start_clients(
    world: &Arc<World>,
    keys: &[Key],
    chance: &Chance,
    producers: &mut JoinSet<()>,
    readers: &mut JoinSet<()>,
) {
    for id in 0..(3 + u32::try_from(chance.index(6)).expect("few")) {
        let is_idempotent = chance.percent(80.0);
        let producer = Producer::new(world, id + 1, chance.pick(keys).clone(), is_idempotent);
        producers.spawn(watched(Arc::clone(world), producer.run()));
    }
    for (number, key) in keys.iter().enumerate() {
        let reader = |what: &str| Reader::new(world, &format!("{what}-{number}"), key.clone());
        readers.spawn(watched(Arc::clone(world), reader("follower").follow()));
        readers.spawn(watched(Arc::clone(world), reader("jumper").jump()));
        readers.spawn(watched(Arc::clone(world), reader("measure").measure()));
    }
    readers.spawn(watched(Arc::clone(world), compare_digests(Arc::clone(world))));
}

/// A client that panics has seen something that must not be.
async fn watched(world: Arc<World>, client: impl Future<Output = ()> + Send + 'static) {
    if let Err(panic) = tokio::spawn(client).await {
        world.fail(format!("a client panicked: {panic}"));
    }
}

/// Starts a process again when it has ended.
async fn guard(world: Arc<World>, machine: usize) {
    let place = &world.machines[machine];
    while !world.is_over.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(500)).await;
        let Some(running) = place.running() else { continue };
        let reason = running.ended.borrow().clone();
        if let Some(reason) = &reason {
            world.count(&format!("ended: {}", reason.split(':').next().unwrap_or_default()));
            running.kill();
            place.disk().crash(&Chance::of(world.seed, &running.name));
        }
        if running.gate.is_ended() {
            sleep(RESTART_AFTER).await;
            if place.running().is_some_and(|now| Arc::ptr_eq(&now, &running)) {
                place.start(&world);
            }
        }
    }
}

async fn create_topics(world: &Arc<World>, keys: &[Key]) {
    let mut sizes: BTreeMap<TopicId, i32> = BTreeMap::new();
    for key in keys {
        let size = sizes.entry(key.partition.topic_id).or_default();
        *size = (*size).max(key.partition.partition + 1);
    }
    for (number, (topic_id, partitions)) in sizes.into_iter().enumerate() {
        let running = serving(world, 0).await;
        let services = running.services().expect("it serves");
        let name = format!("topic-{number}");
        let _ = services.coordination.submit(Command::PendingTopic { name: name.clone() }).await;
        let config = TopicConfig { version: 1, log_append_time: number == 1, ..TopicConfig::default() };
        let register = Command::RegisterTopic { name, topic_id, partitions, leader_epoch: 0, config };
        let registered = services.coordination.submit(register).await;
        assert!(registered.is_ok(), "nothing is wrong yet: {registered:?}");
    }
}

/// Waits until a machine serves.
async fn serving(world: &World, machine: usize) -> Arc<Running> {
    loop {
        if let Some(running) = world.machines[machine].running().filter(|running| running.services().is_some()) {
            return running;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn heal(world: &Arc<World>) {
    world.faults.heal();
    world.log.change_leader(0);
    world.recorder.note("all is healed".to_owned());
    for machine in &world.machines {
        machine.disk().set_full(false);
        machine.skew_ms.store(0, Ordering::Relaxed);
        machine.running().iter().for_each(|running| running.gate.open());
    }
    for machine in 0..world.machines.len() {
        if timeout(RECOVERY, serving(world, machine)).await.is_err() {
            world.fail(format!("proxy {machine} does not serve after all was healed"));
        }
    }
}

async fn finish(world: &World, who: &str, tasks: &mut JoinSet<()>) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if timeout(RECOVERY, all).await.is_err() {
        world.fail(format!("{} {who} are not done after all was healed", tasks.len()));
        tasks.abort_all();
    }
}

async fn read_all(world: &Arc<World>, keys: &[Key]) {
    for machine in 0..world.machines.len() {
        for key in keys {
            let reading = async {
                for attempt in 0.. {
                    serving(world, machine).await;
                    let reader = Reader::new(world, &format!("final-{machine}-{attempt}-{}", key.name), key.clone());
                    match reader.read_all(machine).await {
                        Ok(Some(_)) => return,
                        Ok(None) => sleep(Duration::from_millis(200)).await,
                        Err(why) => return world.fail(format!("{}: {why}", reader.process.name)),
                    }
                }
            };
            if timeout(RECOVERY, reading).await.is_err() {
                world.fail(format!("{} could not be read through proxy {machine}", key.name));
            }
        }
    }
}

/// Notes the checkpoints of all proxies: at one position they must be one (I5).
async fn compare_digests(world: Arc<World>) {
    let process: Process = world.recorder.process("digests".to_owned());
    while world.is_loaded() {
        sleep(Duration::from_millis(700)).await;
        for machine in &world.machines {
            let Some(services) = machine.running().and_then(|running| running.services()) else { continue };
            let checkpoint = services.coordination.checkpoint();
            process.note(Function::Digest, "", |event| {
                event.proxy = Some(machine.id.to_string());
                event.position = Some(checkpoint.position.0);
                event.digest = Some(format!("{}{}", checkpoint.chain, checkpoint.digest));
            });
        }
    }
}

fn judge(world: &World, troubles: Vec<Trouble>) -> Report {
    let events = world.recorder.events();
    let mut judge = Judge::new(Options::default());
    let mut wrong = std::mem::take(&mut *world.failures.lock());
    for event in &events {
        if let Err(broken) = judge.take(event) {
            wrong.push(format!("the history cannot be judged: {broken}"));
        }
    }
    match judge.verdict() {
        Ok(verdict) => wrong.extend(
            verdict
                .anomalies
                .iter()
                .map(|anomaly| format!("{} in {}: {}", anomaly.class.name(), anomaly.key, anomaly.text)),
        ),
        Err(broken) => wrong.push(format!("the history cannot be judged: {broken}")),
    }
    let mut counts = std::mem::take(&mut *world.counts.lock());
    let acknowledged = events.iter().filter(|e| e.f == Function::Send && e.event_type == EventType::Ok).count();
    counts.insert("acknowledged records".to_owned(), acknowledged as u64);
    counts.insert("log records".to_owned(), world.log.len().unsigned_abs());
    for why in world.machines.iter().flat_map(|machine| machine.disk().reasons_set_aside()) {
        let what: String = why.chars().filter(|c| !c.is_ascii_digit()).take(60).collect();
        *counts.entry(format!("file set aside: {what}")).or_default() += 1;
    }
    let simulated = Duration::from_nanos(world.time.elapsed_ns());
    Report { wrong, events, counts, simulated, troubles, unreached: world.plan.unreached() }
}
