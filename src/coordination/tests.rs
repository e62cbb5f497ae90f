//! Coordinations on one log in memory: what one does, the other sees; what fails, fails in the right way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::join_all;
use tokio::sync::mpsc;

use super::*;
use crate::clock::WallClock;
use crate::diskless_coordinator::command::{CommitSegment, TopicConfig};
use crate::diskless_coordinator::outcome::{BatchOutcome, Outcome, Placed};
use crate::diskless_coordinator::rules::agreement::CHECKPOINTS;
use crate::metadata_log::{AppendError, Appending, EmbeddedLog, LogLocation, MetadataLog, Tail};
use crate::tasks::Tasks;
use crate::types::{TopicPartition, WalSegmentId};
use crate::wal_segment::{BatchMeta, PartitionBatches};

const TOPIC: TopicId = TopicId([1; 16]);

fn settings(proxy: u32) -> Settings {
    Settings {
        proxy: ProxyId(proxy),
        zone: "a".to_owned(),
        endpoint: Endpoint { host: "localhost".to_owned(), port: 9092 },
        store: StoreLocation::Memory,
        upstream_cluster_id: "cluster".to_owned(),
        metadata_topic_id: TopicId([9; 16]),
        timing: Timing {
            append_deadline: Duration::from_millis(500),
            tail_deadline: Duration::from_millis(500),
            open_retry: Duration::from_millis(50),
            ..Timing::default()
        },
        clock: WallClock::system(),
        identity: Identity::random(),
    }
}

/// A log in memory that can lose what is appended, or the answers.
struct FaultyLog {
    log: EmbeddedLog,
    lose_appends: AtomicBool,
    fail_answers: AtomicBool,
    appends: AtomicU64,
    ends: AtomicU64,
    /// So many queries for the end fail.
    ends_to_fail: AtomicU64,
    tails: AtomicU64,
    /// So many of the tails show nothing any more.
    muted_tails: Arc<AtomicU64>,
}

impl FaultyLog {
    fn new() -> Arc<Self> {
        Self::with_clock(WallClock::system())
    }

    fn with_clock(clock: WallClock) -> Arc<Self> {
        let log = EmbeddedLog::open(&LogLocation::Memory, clock).expect("memory is there");
        Arc::new(Self {
            log,
            lose_appends: AtomicBool::new(false),
            fail_answers: AtomicBool::new(false),
            appends: AtomicU64::new(0),
            ends: AtomicU64::new(0),
            ends_to_fail: AtomicU64::new(0),
            tails: AtomicU64::new(0),
            muted_tails: Arc::new(AtomicU64::new(0)),
        })
    }
}

#[async_trait]
impl MetadataLog for FaultyLog {
    fn append(&self, record: Vec<u8>) -> Appending {
        self.appends.fetch_add(1, Ordering::SeqCst);
        let unknown = || futures::future::ready(Err(AppendError::Unknown("on purpose".to_owned()))).boxed();
        if self.lose_appends.load(Ordering::SeqCst) {
            return unknown();
        }
        let appending = self.log.append(record);
        if self.fail_answers.load(Ordering::SeqCst) { unknown() } else { appending }
    }

    fn renew(&self) {
        self.lose_appends.store(false, Ordering::SeqCst);
        self.fail_answers.store(false, Ordering::SeqCst);
    }

    fn tail(&self, from: LogPosition) -> Result<Tail, LogError> {
        let mut whole = self.log.tail(from)?;
        let (shown, groups) = mpsc::channel(1);
        let (number, muted) = (self.tails.fetch_add(1, Ordering::SeqCst), Arc::clone(&self.muted_tails));
        tokio::spawn(async move {
            while let Some(group) = whole.groups.recv().await {
                if number >= muted.load(Ordering::SeqCst) && shown.send(group).await.is_err() {
                    return;
                }
            }
        });
        Ok(Tail { groups })
    }

    async fn start(&self) -> Result<LogPosition, LogError> {
        self.log.start().await
    }

    async fn end(&self) -> Result<LogPosition, LogError> {
        self.ends.fetch_add(1, Ordering::SeqCst);
        let fails = self.ends_to_fail.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if fails.is_ok() { Err(LogError::Unavailable("on purpose".to_owned())) } else { self.log.end().await }
    }
}

async fn start(log: &Arc<FaultyLog>, settings: Settings) -> (Arc<Coordination>, Tasks) {
    let (tasks, _failures) = Tasks::new();
    let log: Arc<dyn MetadataLog> = Arc::clone(log) as _;
    (Coordination::start(settings, log, &tasks).await.expect("it starts"), tasks)
}

async fn start_error(log: &Arc<FaultyLog>, settings: Settings) -> StartError {
    let (tasks, _failures) = Tasks::new();
    match Coordination::start(settings, Arc::clone(log) as _, &tasks).await {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    }
}

/// A log that one proxy reads otherwise than the others: times are one millisecond later.
struct OtherwiseRead(Arc<FaultyLog>);

#[async_trait]
impl MetadataLog for OtherwiseRead {
    fn append(&self, record: Vec<u8>) -> Appending {
        self.0.append(record)
    }

    fn renew(&self) {
        self.0.renew();
    }

    fn tail(&self, from: LogPosition) -> Result<Tail, LogError> {
        let mut read = self.0.tail(from)?;
        let (groups, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Some(mut group) = read.groups.recv().await {
                group.iter_mut().flatten().for_each(|record| record.append_time_ms += 1);
                let _ = groups.send(group).await;
            }
        });
        Ok(Tail { groups: receiver })
    }

    async fn start(&self) -> Result<LogPosition, LogError> {
        self.0.start().await
    }

    async fn end(&self) -> Result<LogPosition, LogError> {
        self.0.end().await
    }
}

async fn create_topic(coordination: &Coordination) {
    let name = || "orders".to_owned();
    let pending = coordination.submit(Command::PendingTopic { name: name() });
    let config = TopicConfig { version: 1, ..TopicConfig::default() };
    let register = Command::RegisterTopic { name: name(), topic_id: TOPIC, partitions: 1, leader_epoch: 0, config };
    let registered = coordination.submit(register);
    assert_eq!(pending.await, Ok(Outcome::Done));
    assert_eq!(registered.await, Ok(Outcome::Done));
}

fn commit(coordination: &Coordination, sequence: u32, base_sequence: i32) -> Command {
    let batch = BatchMeta {
        byte_length: 100,
        last_offset_delta: 0,
        max_timestamp: 5,
        producer_id: 7,
        producer_epoch: 0,
        base_sequence,
        follows: base_sequence > 0,
    };
    let partition = TopicPartition { topic_id: TOPIC, partition: 0 };
    Command::CommitSegment(CommitSegment {
        segment: WalSegmentId { birth: coordination.applied(), epoch: coordination.epoch(), sequence },
        object_size: 1_000,
        partitions: vec![PartitionBatches { partition, batches: vec![batch] }],
    })
}

fn accepted(base_offset: i64) -> Result<Outcome, SubmitError> {
    let placed = Placed { base_offset, log_append_time: -1, log_start_offset: 0 };
    Ok(Outcome::Committed(vec![vec![BatchOutcome::Accepted(placed)]]))
}

fn end_of_orders(coordination: &Coordination) -> i64 {
    let topics = coordination.view().topics();
    topics.named("orders").expect("the topic is known").partitions[0].bounds().high_watermark
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

#[tokio::test]
async fn what_one_proxy_writes_another_sees() {
    let log = FaultyLog::new();
    let (a, _a) = start(&log, settings(1)).await;
    let (b, _b) = start(&log, settings(2)).await;
    assert_eq!(a.log_id(), b.log_id());
    create_topic(&a).await;
    assert_eq!(a.submit(commit(&a, 0, 0)).await, accepted(0));
    b.end_barrier(soon()).await.expect("the log answers");
    assert_eq!(end_of_orders(&b), 1);
    assert_eq!(b.submit(commit(&b, 0, 1)).await, accepted(1));
    a.record_barrier(soon()).await.expect("the log answers");
    assert_eq!(end_of_orders(&a), 2);
    assert_eq!(a.view().proxies().by_id.len(), 2);
}

#[tokio::test]
async fn a_tail_that_shows_nothing_any_more_is_replaced() {
    let log = FaultyLog::new();
    let mut impatient = settings(1);
    impatient.timing.submit_deadline = Duration::from_secs(10);
    let (coordination, _tasks) = start(&log, impatient).await;
    log.muted_tails.store(log.tails.load(Ordering::SeqCst), Ordering::SeqCst);
    create_topic(&coordination).await;
    assert_eq!(coordination.submit(commit(&coordination, 0, 0)).await, accepted(0));
}

#[tokio::test]
async fn a_repeated_commit_gets_the_first_outcome() {
    let log = FaultyLog::new();
    let (a, _tasks) = start(&log, settings(1)).await;
    create_topic(&a).await;
    let command = commit(&a, 0, 0);
    let both = [a.submit(command.clone()), a.submit(command)];
    assert_eq!(join_all(both).await, [accepted(0), accepted(0)]);
    assert_eq!(end_of_orders(&a), 1);
}

#[tokio::test]
async fn a_restart_goes_on_where_the_store_stands_or_replays_the_log() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("metadata.redb");
    let on_disk = || Settings { store: StoreLocation::File(path.clone()), ..settings(1) };
    let log = FaultyLog::new();
    let (a, _tasks) = start(&log, on_disk()).await;
    create_topic(&a).await;
    assert_eq!(a.submit(commit(&a, 0, 0)).await, accepted(0));
    a.close().await;
    assert!(a.view().proxies().by_id[&ProxyId(1)].closed);
    let (log_id, applied) = (a.log_id(), a.applied());
    drop(a);
    let (a, tasks) = start(&log, on_disk()).await;
    assert_eq!(a.log_id(), log_id);
    assert!(a.epoch() > applied);
    assert_eq!(end_of_orders(&a), 1);
    assert_eq!(a.submit(commit(&a, 0, 1)).await, accepted(1), "the producer is remembered");
    a.close().await;
    tasks.stop_and_join(Duration::from_secs(5)).await.expect("everything ends");
    drop(a);
    std::fs::remove_file(&path).expect("the store may be deleted at any time");
    let (a, _tasks) = start(&log, on_disk()).await;
    assert_eq!(end_of_orders(&a), 2);
}

#[tokio::test]
async fn a_store_of_another_log_is_moved_aside() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("metadata.redb");
    let on_disk = || Settings { store: StoreLocation::File(path.clone()), ..settings(1) };
    let (a, _tasks) = start(&FaultyLog::new(), on_disk()).await;
    create_topic(&a).await;
    a.close().await;
    drop(a);
    let other = FaultyLog::new();
    assert!(matches!(start_error(&other, on_disk()).await, StartError::LogLost { .. }), "an empty log is suspicious");
    let (first, _tasks) = start(&other, settings(2)).await;
    first.record_barrier(soon()).await.expect("the log answers");
    let (a, _tasks) = start(&other, on_disk()).await;
    assert_eq!(a.log_id(), first.log_id());
    assert!(a.view().topics().named("orders").is_none());
    assert!(path.with_extension("redb.aside").exists());
}

#[tokio::test]
async fn the_log_of_another_cluster_is_refused() {
    let log = FaultyLog::new();
    let (_a, _tasks) = start(&log, settings(1)).await;
    let other = Settings { upstream_cluster_id: "other".to_owned(), ..settings(2) };
    let error = start_error(&log, other).await;
    assert!(matches!(&error, StartError::ClusterId { found, .. } if found == "cluster"), "{error}");
}

#[tokio::test]
async fn a_second_process_with_the_same_id_fences_the_first() {
    let log = FaultyLog::new();
    let (old, _old) = start(&log, settings(1)).await;
    let mut status = old.status();
    let (new, _new) = start(&log, settings(1)).await;
    let fenced = status.wait_for(|s| matches!(s, Status::Fenced(_))).await.expect("it hears of it").clone();
    let Status::Fenced(why) = fenced else { panic!("{fenced:?}") };
    assert!(why.contains("proxy.id 1"), "{why}");
    assert_eq!(old.submit(Command::Heartbeat).await, Err(SubmitError::Fenced));
    assert_eq!(new.submit(Command::Heartbeat).await, Ok(Outcome::Done));
}

/// Submits commits while the log fails as `fail` says, and expects every one in order and once.
async fn order_survives(fail: impl Fn(&FaultyLog)) {
    let log = FaultyLog::new();
    let (a, _tasks) = start(&log, settings(1)).await;
    create_topic(&a).await;
    let epoch = a.epoch();
    let mut submitted = Vec::new();
    for n in 0u8..40 {
        if n == 20 {
            fail(&log);
        }
        submitted.push(a.submit(commit(&a, u32::from(n), i32::from(n))));
    }
    for (n, answer) in (0i64..).zip(join_all(submitted).await) {
        assert_eq!(answer, accepted(n));
    }
    assert!(a.epoch() > epoch, "a new epoch of the same incarnation");
    assert_eq!(*a.status().borrow(), Status::Serving);
    assert!(a.stats().reopened.load(Ordering::SeqCst) >= 1);
}

#[tokio::test]
async fn r10_order_survives_appends_that_are_lost() {
    order_survives(|log| log.lose_appends.store(true, Ordering::SeqCst)).await;
}

#[tokio::test]
async fn r10_order_survives_answers_that_are_lost() {
    let log = FaultyLog::new();
    let (a, _tasks) = start(&log, settings(1)).await;
    create_topic(&a).await;
    log.fail_answers.store(true, Ordering::SeqCst);
    let submitted: Vec<_> = (0u8..40).map(|n| a.submit(commit(&a, u32::from(n), i32::from(n)))).collect();
    for (n, answer) in (0i64..).zip(join_all(submitted).await) {
        assert_eq!(answer, accepted(n));
    }
    assert_eq!(end_of_orders(&a), 40, "nothing is there twice");
}

#[tokio::test]
async fn a_thousand_waiters_cost_a_few_rounds() {
    let log = FaultyLog::new();
    let (a, _tasks) = start(&log, settings(1)).await;
    let count = || (log.appends.load(Ordering::SeqCst), log.ends.load(Ordering::SeqCst));
    let before = count();
    let passed = join_all((0..1_000).map(|_| a.record_barrier(soon()))).await;
    assert!(passed.iter().all(Result::is_ok));
    let passed = join_all((0..1_000).map(|_| a.end_barrier(soon()))).await;
    assert!(passed.iter().all(Result::is_ok));
    let after = count();
    assert!(after.0 - before.0 < 20 && after.1 - before.1 < 20, "{before:?} {after:?}");
}

#[tokio::test]
async fn a_barrier_at_the_end_outlasts_queries_that_fail() {
    let log = FaultyLog::new();
    let (a, _tasks) = start(&log, settings(1)).await;
    log.ends_to_fail.store(2, Ordering::SeqCst);
    assert!(a.end_barrier(soon()).await.is_ok());
    log.ends_to_fail.store(u64::MAX, Ordering::SeqCst);
    assert!(a.end_barrier(Instant::now() + Duration::from_millis(250)).await.is_err(), "but not for ever");
    a.close().await;
    assert!(a.end_barrier(soon()).await.is_err());
}

#[tokio::test]
async fn a_barrier_that_cannot_be_passed_says_so_in_time() {
    let log = FaultyLog::new();
    let (a, _tasks) = start(&log, settings(1)).await;
    a.close().await;
    let deadline = Instant::now() + Duration::from_millis(50);
    assert!(a.record_barrier(deadline).await.is_err());
}

#[tokio::test]
async fn what_is_submitted_after_the_end_is_refused() {
    let log = FaultyLog::new();
    let (a, tasks) = start(&log, settings(1)).await;
    a.close().await;
    assert_eq!(*a.status().borrow(), Status::Stopped);
    assert_eq!(a.submit(Command::Heartbeat).await, Err(SubmitError::Stopped));
    tasks.stop_and_join(Duration::from_secs(5)).await.expect("everything ends");
}

#[tokio::test]
async fn r8_a_proxy_that_read_the_log_otherwise_finds_it_out_and_stops_while_the_others_go_on() {
    let log = FaultyLog::new();
    let quick = |proxy| {
        let mut settings = settings(proxy);
        settings.timing.heartbeat = Duration::from_millis(100);
        settings
    };
    let (a, _a) = start(&log, quick(1)).await;
    let (b, _b) = start(&log, quick(2)).await;
    create_topic(&a).await;
    let (tasks, _failures) = Tasks::new();
    let wrong: Arc<dyn MetadataLog> = Arc::new(OtherwiseRead(Arc::clone(&log)));
    // It may find out while it catches up, or only when it takes part.
    let why = match Coordination::start(quick(3), wrong, &tasks).await {
        Ok(wrong) => failure_of(&wrong).await,
        Err(StartError::Failed(why)) => why,
        Err(other) => panic!("{other}"),
    };
    assert!(why.contains("the proxies 1 and 2 have another state"), "{why}");
    for (base_sequence, proxy) in (0..).zip([&a, &b]) {
        write_until_known(proxy, base_sequence).await;
        assert_eq!(end_of_orders(proxy), i64::from(base_sequence) + 1);
        assert_eq!(*proxy.status().borrow(), Status::Serving);
    }
}

/// As a producer would: while it is in doubt who is wrong, no outcome is told.
async fn write_until_known(proxy: &Coordination, base_sequence: i32) {
    for attempt in 0.. {
        match proxy.submit(commit(proxy, attempt, base_sequence)).await {
            Err(SubmitError::Unknown) => {}
            Ok(Outcome::Committed(_)) => return,
            other => panic!("{other:?}"),
        }
    }
}

async fn failure_of(coordination: &Coordination) -> String {
    let mut status = coordination.status();
    let failed = status.wait_for(|status| matches!(status, Status::Failed(_)));
    let failed = tokio::time::timeout(Duration::from_secs(20), failed).await.expect("in time").expect("it is there");
    match &*failed {
        Status::Failed(why) => why.clone(),
        other => panic!("waited for a failure: {other:?}"),
    }
}

#[tokio::test]
async fn r8_a_proxy_that_was_cut_off_for_long_catches_up_and_opens_again() {
    // Each look at it is two seconds later, so that each record makes a checkpoint.
    let now = Arc::new(AtomicU64::new(1_000_000));
    let clock = WallClock::new(move || i64::try_from(now.fetch_add(2_000, Ordering::SeqCst)).expect("small"));
    let log = FaultyLog::with_clock(clock.clone());
    let (a, _a) = start(&log, Settings { clock: clock.clone(), ..settings(1) }).await;
    create_topic(&a).await;
    let mut cut_off = Settings { clock, ..settings(2) };
    cut_off.timing.tail_deadline = Duration::from_secs(2);
    let (b, _b) = start(&log, cut_off).await;
    log.muted_tails.store(log.tails.load(Ordering::SeqCst), Ordering::SeqCst);
    let (unmuted, _unmuted) = start(&log, Settings { clock: a.shared.settings.clock.clone(), ..settings(3) }).await;
    for _ in 0..CHECKPOINTS {
        assert_eq!(unmuted.submit(Command::Barrier).await, Ok(Outcome::Done));
    }
    assert!(b.record_barrier(soon()).await.is_ok(), "{:?}", *b.status().borrow());
    assert_eq!(*b.status().borrow(), Status::Serving);
    assert!(b.stats().reopened.load(Ordering::SeqCst) > 0);
}
