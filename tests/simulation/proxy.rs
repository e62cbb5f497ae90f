//! A simulated proxy: the real coordination, Produce and Fetch, on a simulated log, store and disk. It can be frozen,
//! killed and started again, also while the one before it is only frozen.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use sidestream::app::seams::{Commits, LogFreshness};
use sidestream::clock::WallClock;
use sidestream::coordination::{Coordination, Identity, Settings, Status, Timing};
use sidestream::fetch::list_offsets::list_offsets;
use sidestream::fetch::{
    FetchMemory, FetchPartition, FetchRequest, FetchService, FetchedPartition, ListedOffset, OffsetSpec, Reader,
};
use sidestream::metadata_store::StoreLocation;
use sidestream::object_storage::zone_cache::{ZoneCache, ZoneCacheConfig};
use sidestream::object_storage::{ObjectStorage, Timeouts};
use sidestream::produce::{self, BatchResult, BatchToAppend, ProduceService};
use sidestream::record_batch::BatchHeader;
use sidestream::tasks::{Gate, Tasks};
use sidestream::types::{Endpoint, LogId, ProxyId, TopicId, TopicPartition};
use tokio::sync::{mpsc, oneshot, watch};

use super::chance::Chance;
use super::crash_points::{Point, Probe};
use super::disk::CrashDisk;
use super::log::LogLink;
use super::store::StoreLink;
use super::world::World;

/// What a client asks of a proxy.
pub(crate) enum Ask {
    Produce { partition: TopicPartition, batch: bytes::Bytes, reply: oneshot::Sender<BatchResult> },
    Fetch { partition: TopicPartition, from: i64, reply: oneshot::Sender<Option<FetchedPartition>> },
    Offset { partition: TopicPartition, spec: OffsetSpec, reply: oneshot::Sender<Option<ListedOffset>> },
}

/// The place of one proxy id.
pub(crate) struct Machine {
    pub(crate) id: usize,
    disk: Mutex<CrashDisk>,
    /// Its clock against the true time.
    pub(crate) skew_ms: Arc<AtomicI64>,
    pub(crate) running: Mutex<Option<Arc<Running>>>,
    starts: AtomicU32,
}

impl Machine {
    pub(crate) fn new(id: usize) -> Self {
        let (disk, skew_ms) = (Mutex::default(), Arc::default());
        Self { id, disk, skew_ms, running: Mutex::new(None), starts: AtomicU32::new(0) }
    }

    pub(crate) fn disk(&self) -> CrashDisk {
        self.disk.lock().clone()
    }

    /// A process that is only frozen holds its file: whoever takes its id elsewhere has a disk of its own.
    pub(crate) fn change_disk(&self) {
        *self.disk.lock() = CrashDisk::default();
    }

    pub(crate) fn running(&self) -> Option<Arc<Running>> {
        self.running.lock().clone()
    }

    /// Starts a process on this machine, whatever became of the one before.
    pub(crate) fn start(&self, world: &Arc<World>) -> Arc<Running> {
        let number = self.starts.fetch_add(1, Ordering::Relaxed);
        let gate = Gate::default();
        let (tasks, _failed) = Tasks::gated(gate.clone());
        let running = Arc::new(Running {
            name: format!("proxy {} start {number}", self.id),
            machine: self.id,
            gate,
            tasks: tasks.clone(),
            services: Mutex::new(None),
            ended: watch::Sender::new(None),
        });
        let process = run(Arc::clone(world), Arc::clone(&running), self.disk(), Arc::clone(&self.skew_ms), tasks);
        running.tasks.spawn("proxy", process);
        *self.running.lock() = Some(Arc::clone(&running));
        running
    }
}

/// One process of a proxy.
pub(crate) struct Running {
    pub(crate) name: String,
    pub(crate) machine: usize,
    pub(crate) gate: Gate,
    tasks: Tasks,
    services: Mutex<Option<Arc<Services>>>,
    /// Why it has ended by itself.
    pub(crate) ended: watch::Sender<Option<String>>,
}

pub(crate) struct Services {
    pub(crate) coordination: Arc<Coordination>,
    produce: Arc<ProduceService>,
    fetch: Arc<FetchService>,
    probe: Probe,
}

impl Running {
    /// `None` while it starts, and when it has ended.
    pub(crate) fn services(&self) -> Option<Arc<Services>> {
        let is_over = self.gate.is_ended() || self.ended.borrow().is_some();
        self.services.lock().clone().filter(|_| !is_over)
    }

    /// A connection: requests are taken in their order. It breaks when the process dies.
    pub(crate) fn connect(&self) -> Option<mpsc::Sender<Ask>> {
        let services = self.services()?;
        let (asks, mut asked) = mpsc::channel(64);
        let tasks = self.tasks.clone();
        self.tasks.spawn_bounded("connection", async move {
            while let Some(ask) = asked.recv().await {
                services.take(ask, &tasks);
            }
        });
        Some(asks)
    }

    /// Stops as on SIGTERM: what was taken in is answered, and the others are told.
    pub(crate) async fn drain(self: &Arc<Self>) {
        let Some(services) = self.services() else { return };
        let (done, drained) = oneshot::channel();
        self.tasks.spawn_bounded("drain", async move {
            let _ = tokio::time::timeout(Duration::from_secs(10), services.produce.shutdown()).await;
            services.coordination.close().await;
            let _ = done.send(());
        });
        let _ = drained.await;
    }

    /// Waits until it serves, or has ended; says whether it serves.
    pub(crate) async fn became_open(&self) -> bool {
        loop {
            if self.services().is_some() {
                return true;
            }
            if self.gate.is_ended() || self.ended.borrow().is_some() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn kill(&self) {
        self.gate.end();
        *self.services.lock() = None;
    }
}

impl Services {
    fn take(self: &Arc<Self>, ask: Ask, tasks: &Tasks) {
        let services = Arc::clone(self);
        let answer = match ask {
            Ask::Produce { partition, batch, reply } => self.produce(partition, batch, reply).boxed(),
            Ask::Fetch { partition, from, reply } => async move {
                let _ = reply.send(services.fetch(partition, from).await);
            }
            .boxed(),
            Ask::Offset { partition, spec, reply } => async move {
                let _ = reply.send(services.offset(partition, spec).await);
            }
            .boxed(),
        };
        tasks.spawn_bounded("request", answer);
    }

    /// Takes a batch in before it returns, so that batches of one connection keep their order.
    fn produce(
        &self,
        partition: TopicPartition,
        batch: bytes::Bytes,
        reply: oneshot::Sender<BatchResult>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let header = BatchHeader::parse(&batch).expect("clients send whole batches");
        // There is room for far more than all clients have on their way, but none once the proxy is drained.
        let room = self.produce.reserve(batch.len()).now_or_never();
        let append = |room| self.produce.append(vec![BatchToAppend { partition, header, bytes: batch }], room);
        let results = room.map(append);
        let probe = self.probe.clone();
        let is_dead = probe.reach(Point::BatchTaken);
        async move {
            let Some(results) = results.filter(|_| !is_dead) else { return };
            let result = results.await.pop();
            probe.pass(Point::OutcomeKnown).await;
            if let Some(result) = result {
                let _ = reply.send(result);
            }
            probe.pass(Point::AnswerGiven).await;
        }
    }

    fn view(&self, partition: TopicPartition) -> Option<FetchPartition> {
        let topics = self.coordination.view().topics();
        let topic = topics.by_id.get(&partition.topic_id)?;
        let view = topic.partitions.get(usize::try_from(partition.partition).ok()?)?;
        let leader_epoch = topic.leader_epoch;
        Some(FetchPartition { view: Arc::clone(view), leader_epoch, fetch_offset: 0, max_bytes: 4 << 10 })
    }

    async fn fetch(&self, partition: TopicPartition, from: i64) -> Option<FetchedPartition> {
        let mut wanted = self.view(partition)?;
        wanted.fetch_offset = from;
        let request = FetchRequest {
            max_wait: Duration::from_millis(500),
            min_bytes: 1,
            max_bytes: 1 << 20,
            has_errors: false,
            is_ordered: true,
            partitions: vec![wanted],
        };
        self.fetch.fetch(&request).await.pop()
    }

    async fn offset(&self, partition: TopicPartition, spec: OffsetSpec) -> Option<ListedOffset> {
        let view = self.view(partition)?.view;
        list_offsets(self.fetch.freshness().as_ref(), self.fetch.reader(), &[(view, spec)]).await.pop()
    }
}

async fn run(world: Arc<World>, running: Arc<Running>, disk: CrashDisk, skew_ms: Arc<AtomicI64>, tasks: Tasks) {
    let chance = |part: &str| Chance::of(world.seed, &format!("{} {part}", running.name));
    let time = world.time;
    let disk_of_process = disk.clone();
    let settings = Settings {
        proxy: ProxyId(u32::try_from(running.machine).expect("few")),
        zone: format!("zone-{}", running.machine),
        endpoint: Endpoint { host: "sim".to_owned(), port: 9092 },
        store: StoreLocation::Simulated(Arc::new(disk)),
        upstream_cluster_id: "sim".to_owned(),
        metadata_topic_id: TopicId([1; 16]),
        timing: Timing::default(),
        clock: WallClock::new(move || time.now_ms() + skew_ms.load(Ordering::Relaxed)),
        identity: Identity { nonce: chance("nonce").bytes(), log_id: LogId(chance("log id").bytes()) },
    };
    let probe = Probe::of(&world, &running);
    disk_of_process.watch(probe.clone());
    let link = LogLink::new(Arc::clone(&world.log), running.machine, chance("log"), probe.clone());
    let coordination = match Coordination::start(settings, link, &tasks).await {
        Ok(coordination) => coordination,
        Err(error) => return drop(running.ended.send_replace(Some(error.to_string()))),
    };
    let mut status = coordination.status();
    *running.services.lock() = Some(Arc::new(services(&world, coordination, &chance, &tasks, probe)));
    let over = |status: &Status| matches!(status, Status::Fenced(_) | Status::Failed(_) | Status::Stopped);
    let reason = match status.wait_for(over).await.as_deref() {
        Ok(Status::Fenced(why)) => format!("fenced: {why}"),
        Ok(Status::Failed(why)) => format!("failed: {why}"),
        _ => "stopped".to_owned(),
    };
    running.ended.send_replace(Some(reason));
}

fn services(
    world: &World,
    coordination: Arc<Coordination>,
    chance: &dyn Fn(&str) -> Chance,
    tasks: &Tasks,
    probe: Probe,
) -> Services {
    let timeouts = Timeouts { attempt: Duration::from_secs(2), operation: Duration::from_secs(20) };
    let link = StoreLink::new(Arc::clone(&world.store), chance("store"), probe.clone());
    let store = ObjectStorage::over(Box::new(link), timeouts, chance("retries").below(u64::MAX));
    let cache_config = ZoneCacheConfig { max_bytes: 64 << 20, ..ZoneCacheConfig::default() };
    let cache = Arc::new(ZoneCache::new(store.clone(), coordination.log_id(), cache_config));
    let commits = Arc::new(Commits::new(Arc::clone(&coordination)));
    let config = produce::Config { max_bytes: world.segment_bytes, ..produce::Config::default() };
    let produce = ProduceService::start(config, coordination.log_id(), store, Arc::clone(&cache), commits, tasks);
    let freshness = Arc::new(LogFreshness::new(Arc::clone(&coordination), world.barrier));
    let reader = Reader::new(cache, Arc::clone(coordination.view()));
    let fetch = Arc::new(FetchService::new(reader, freshness, FetchMemory::new(64 << 20)));
    Services { coordination, produce, fetch, probe }
}
