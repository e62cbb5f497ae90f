//! The service over the in-memory store and a log that is played by the test.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::watch;

use super::*;
use crate::diskless_coordinator::command::CommitSegment;
use crate::diskless_coordinator::outcome::{BatchOutcome, Outcome, Placed, Refusal};
use crate::object_storage::zone_cache::{ReadAge, ZoneCache, ZoneCacheConfig};
use crate::object_storage::{self, Fault, FaultRule, ObjectStorage, Operation};
use crate::record_batch::BatchHeader;
use crate::record_batch::testing::BatchBuilder;
use crate::tasks::Tasks;
use crate::types::{ErrorCode, LogId, LogPosition, TopicId, TopicPartition};
use crate::wal_segment::BatchMeta;

const LOG: LogId = LogId([7; 16]);
/// In the key of the second segment only.
const SECOND: &str = "-00000001";

/// A log that accepts everything, unless it was told what to answer or to keep sequences.
struct FakeLog {
    /// The next sequence of each producer, kept as the log does; `None` accepts anything.
    sequences: Mutex<Option<HashMap<(TopicPartition, i64), i32>>>,
    /// Commits in the order of `submit`.
    commits: Mutex<Vec<CommitSegment>>,
    ends: Mutex<HashMap<TopicPartition, i64>>,
    answer: Mutex<Option<Result<Outcome, CommitError>>>,
    is_held: watch::Sender<bool>,
}

impl FakeLog {
    fn outcome(&self, commit: &CommitSegment) -> Result<Outcome, CommitError> {
        if let Some(answer) = self.answer.lock().clone() {
            return answer;
        }
        let mut ends = self.ends.lock();
        let outcomes = commit.partitions.iter().map(|partition| {
            let end = ends.entry(partition.partition).or_default();
            let place = |meta: &BatchMeta| {
                if !self.accepts(partition.partition, meta) {
                    return BatchOutcome::Rejected(ErrorCode::OutOfOrderSequenceNumber);
                }
                let placed = Placed { base_offset: *end, log_append_time: -1, log_start_offset: 0 };
                *end += i64::from(meta.last_offset_delta) + 1;
                BatchOutcome::Accepted(placed)
            };
            partition.batches.iter().map(place).collect()
        });
        Ok(Outcome::Committed(outcomes.collect()))
    }

    fn accepts(&self, partition: TopicPartition, meta: &BatchMeta) -> bool {
        let mut sequences = self.sequences.lock();
        let Some(sequences) = sequences.as_mut() else {
            return true;
        };
        let is_accepted = match sequences.get(&(partition, meta.producer_id)) {
            Some(next) => *next == meta.base_sequence,
            None => !meta.follows || meta.base_sequence == 0,
        };
        if is_accepted {
            let next = meta.base_sequence + i32::try_from(meta.last_offset_delta).expect("small") + 1;
            sequences.insert((partition, meta.producer_id), next);
        }
        is_accepted
    }
}

impl CommitLog for FakeLog {
    fn position(&self) -> LogPosition {
        LogPosition(100)
    }

    fn epoch(&self) -> LogPosition {
        LogPosition(3)
    }

    fn submit(&self, commit: CommitSegment) -> BoxFuture<'static, Result<Outcome, CommitError>> {
        let outcome = self.outcome(&commit);
        self.commits.lock().push(commit);
        let mut is_held = self.is_held.subscribe();
        async move {
            let _ = is_held.wait_for(|held| !held).await;
            outcome
        }
        .boxed()
    }
}

struct Bench {
    service: Arc<ProduceService>,
    store: ObjectStorage,
    cache: Arc<ZoneCache>,
    log: Arc<FakeLog>,
    tasks: Tasks,
}

/// Rolls each request by itself where `config` says so by `max_bytes`: 1.
fn bench(config: Config) -> Bench {
    let store_config = object_storage::Config { timeout_ms: 5_000, ..object_storage::Config::new("memory://") };
    let store = ObjectStorage::open(&store_config).expect("an in-memory store");
    let cache = Arc::new(ZoneCache::new(store.clone(), LOG, ZoneCacheConfig::default()));
    let log = Arc::new(FakeLog {
        sequences: Mutex::default(),
        commits: Mutex::default(),
        ends: Mutex::default(),
        answer: Mutex::default(),
        is_held: watch::Sender::new(false),
    });
    let (tasks, _failed) = Tasks::new();
    let commits: Arc<dyn CommitLog> = log.clone();
    let service = ProduceService::start(config, LOG, store.clone(), Arc::clone(&cache), commits, &tasks);
    Bench { service, store, cache, log, tasks }
}

fn each_request_a_segment() -> Config {
    Config { max_bytes: 1, ..Config::default() }
}

fn only_by_window_or_size() -> Config {
    Config { quiet: Duration::from_secs(60), window: Duration::from_secs(60), ..Config::default() }
}

fn batch(partition: i32, producer_id: i64, base_sequence: i32) -> BatchToAppend {
    let bytes = BatchBuilder::new().records(2).producer(producer_id, 0, base_sequence).build();
    let header = BatchHeader::parse(&bytes).expect("valid");
    BatchToAppend { partition: TopicPartition { topic_id: TopicId([1; 16]), partition }, header, bytes }
}

impl Bench {
    async fn append(&self, batches: Vec<BatchToAppend>) -> impl Future<Output = Vec<BatchResult>> + use<> {
        let reservation = self.service.reserve(batches.iter().map(|b| b.bytes.len()).sum()).await;
        self.service.append(batches, reservation)
    }

    async fn results(&self, batches: Vec<BatchToAppend>) -> Vec<Result<i64, ErrorCode>> {
        offsets(self.append(batches).await.await)
    }

    /// The sequences that were committed for partition 0, segment by segment, with their `follows`.
    fn committed(&self) -> Vec<Vec<(i32, bool)>> {
        let commits = self.log.commits.lock();
        let sequences =
            |c: &CommitSegment| c.partitions[0].batches.iter().map(|b| (b.base_sequence, b.follows)).collect();
        commits.iter().map(sequences).collect()
    }

    fn puts(&self) -> u64 {
        self.store.stats().counts(Operation::Put).requests
    }
}

fn offsets(results: Vec<BatchResult>) -> Vec<Result<i64, ErrorCode>> {
    results.into_iter().map(|r| r.map(|p| p.base_offset).map_err(|e| e.code)).collect()
}

#[tokio::test]
async fn batches_are_answered_with_their_place_and_are_in_the_cache() {
    let bench = bench(Config::default());
    let results = bench.results(vec![batch(1, 5, 0), batch(0, 5, 0), batch(1, 6, 0)]).await;
    assert_eq!(results, [Ok(0), Ok(0), Ok(2)]);
    assert_eq!(bench.results(vec![batch(1, 5, 2)]).await, [Ok(4)]);
    let commit = bench.log.commits.lock()[0].clone();
    assert_eq!((commit.segment.birth, commit.segment.epoch), (LogPosition(100), LogPosition(3)));
    let found = bench
        .cache
        .read(commit.segment, commit.object_size, std::slice::from_ref(&(0..commit.object_size)), ReadAge::Hot)
        .await
        .expect("cached");
    let index = crate::wal_segment::read_object(&found[0].pieces.concat()).expect("a segment");
    assert_eq!(index.partitions, commit.partitions);
    assert_eq!(bench.store.stats().counts(Operation::Get).requests, 0);
}

#[tokio::test]
async fn the_order_of_calls_is_the_order_in_the_log() {
    let bench = bench(Config { max_bytes: 500, ..only_by_window_or_size() });
    let mut answers = Vec::new();
    for number in 0..100 {
        answers.push(bench.append(vec![batch(0, 5, number * 2)]).await);
    }
    bench.service.shutdown().await;
    for (number, answer) in (0..).zip(answers) {
        assert_eq!(offsets(answer.await), [Ok(number * 2)]);
    }
    let sequences: Vec<_> = bench.committed().concat().iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(sequences, (0..100).map(|n| n * 2).collect::<Vec<_>>());
    assert!(bench.puts() > 10);
}

#[tokio::test]
async fn a_quiet_segment_rolls_long_before_the_window() {
    let bench = bench(Config { window: Duration::from_secs(60), ..Config::default() });
    let answer = tokio::time::timeout(Duration::from_secs(20), bench.results(vec![batch(0, 5, 0)])).await;
    assert_eq!(answer, Ok(vec![Ok(0)]));
    bench.service.shutdown().await;
    assert_eq!(bench.puts(), 1, "nothing is written without traffic");
}

#[tokio::test]
async fn a_failed_upload_fails_its_batches_alone_and_later_ones_follow() {
    let bench = bench(each_request_a_segment());
    assert_eq!(bench.results(vec![batch(0, 5, 0)]).await, [Ok(0)]);
    bench.store.faults().set([FaultRule::new(Operation::Put, Fault::Refused).for_key(SECOND)]);
    let failed = bench.append(vec![batch(0, 5, 2)]).await;
    let next = bench.append(vec![batch(0, 5, 4)]).await;
    assert_eq!(offsets(failed.await), [Err(ErrorCode::NotEnoughReplicas)]);
    assert_eq!(offsets(next.await), [Ok(2)], "this log accepts anything");
    assert_eq!(bench.committed(), [[(0, false)], [(4, true)]]);
    assert_eq!(bench.service.counts().segments_failed, 1);
}

#[tokio::test]
async fn a_slow_upload_holds_up_the_commits_of_later_segments() {
    let bench = bench(each_request_a_segment());
    assert_eq!(bench.results(vec![batch(0, 5, 0)]).await, [Ok(0)]);
    bench.store.faults().set([FaultRule::new(Operation::Put, Fault::Hold).for_key(SECOND)]);
    let slow = bench.append(vec![batch(0, 5, 2)]).await;
    let quick = bench.append(vec![batch(0, 6, 0)]).await;
    while bench.puts() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.log.commits.lock().len(), 1, "the third waits for the second");
    bench.store.faults().clear();
    assert_eq!((offsets(slow.await), offsets(quick.await)), (vec![Ok(2)], vec![Ok(4)]));
}

#[tokio::test]
async fn an_upload_that_never_ends_blocks_for_a_bounded_time() {
    let bench = bench(Config { upload_timeout: Duration::from_millis(50), ..each_request_a_segment() });
    assert_eq!(bench.results(vec![batch(0, 5, 0)]).await, [Ok(0)]);
    bench.store.faults().set([FaultRule::new(Operation::Put, Fault::Hold).for_key(SECOND)]);
    let stuck = bench.append(vec![batch(0, 5, 2)]).await;
    let next = bench.append(vec![batch(0, 6, 0)]).await;
    assert_eq!(offsets(stuck.await), [Err(ErrorCode::NotEnoughReplicas)]);
    assert_eq!(offsets(next.await), [Ok(2)]);
}

#[tokio::test]
async fn every_end_of_a_commit_has_its_code() {
    let bench = bench(each_request_a_segment());
    let too_old = Refusal::TooOld { age_ms: 61_000, window_ms: 60_000 };
    let rejected = BatchOutcome::Rejected(ErrorCode::OutOfOrderSequenceNumber);
    let placed = Placed { base_offset: 9, log_append_time: -1, log_start_offset: 0 };
    for (answer, expected) in [
        (Ok(Outcome::Refused(too_old)), Err(ErrorCode::NotEnoughReplicas)),
        (Ok(Outcome::Refused(Refusal::Superseded)), Err(ErrorCode::NotEnoughReplicas)),
        (Ok(Outcome::Committed(vec![vec![rejected]])), Err(ErrorCode::OutOfOrderSequenceNumber)),
        (Ok(Outcome::Committed(vec![vec![BatchOutcome::Duplicate(placed)]])), Ok(9)),
        (Ok(Outcome::Committed(vec![])), Err(ErrorCode::RequestTimedOut)),
        (Err(CommitError::NotCommitted), Err(ErrorCode::NotEnoughReplicas)),
        (Err(CommitError::Unknown), Err(ErrorCode::RequestTimedOut)),
        (Err(CommitError::Stopped), Err(ErrorCode::NotLeaderOrFollower)),
    ] {
        *bench.log.answer.lock() = Some(answer.clone());
        assert_eq!(bench.results(vec![batch(0, 5, 0)]).await, [expected], "{answer:?}");
    }
    assert!(bench.service.is_stopped());
}

#[tokio::test]
async fn a_commit_without_an_outcome_is_unknown() {
    let bench = bench(Config { commit_timeout: Duration::from_millis(20), ..each_request_a_segment() });
    bench.log.is_held.send_replace(true);
    assert_eq!(bench.results(vec![batch(0, 5, 0)]).await, [Err(ErrorCode::RequestTimedOut)]);
}

#[tokio::test]
async fn room_is_given_back_when_batches_are_answered() {
    let size = batch(0, 5, 0).bytes.len();
    let bench = bench(Config { inflight_max_bytes: size, ..each_request_a_segment() });
    bench.log.is_held.send_replace(true);
    let first = bench.append(vec![batch(0, 5, 0)]).await;
    assert_eq!(bench.service.counts().inflight_bytes, size as u64);
    let mut second = Box::pin(bench.service.reserve(size * 5));
    assert!(futures::poll!(&mut second).is_pending(), "there is no room");
    bench.log.is_held.send_replace(false);
    assert_eq!(offsets(first.await), [Ok(0)]);
    drop(second.await);
}

#[tokio::test]
async fn shutdown_answers_what_was_taken_in_and_refuses_the_rest() {
    let bench = bench(only_by_window_or_size());
    let first = bench.append(vec![batch(0, 5, 0), batch(1, 5, 0)]).await;
    bench.service.shutdown().await;
    assert_eq!(bench.results(vec![batch(0, 5, 2)]).await, [Err(ErrorCode::NotLeaderOrFollower)]);
    assert_eq!(offsets(first.now_or_never().expect("answered before the shutdown ended")), [Ok(0), Ok(0)]);
    assert!(bench.tasks.stop_and_join(Duration::from_secs(10)).await.is_ok());
}

#[tokio::test]
async fn a_request_without_batches_is_answered_at_once() {
    let bench = bench(Config::default());
    assert_eq!(bench.results(vec![]).await, []);
}

/// Each producer sends its batches in order and never again: whatever uploads fail, what is accepted of it must be a
/// gapless beginning, and each answer must be what the log said.
async fn check_gapless(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let bench = bench(Config { max_bytes: 300, upload_timeout: Duration::from_millis(200), ..Config::default() });
    *bench.log.sequences.lock() = Some(HashMap::new());
    let mut next = [0; 4];
    let mut answers = Vec::new();
    for _ in 0..60 {
        let fault = [Fault::ErrorBefore, Fault::ErrorAfter, Fault::Refused, Fault::DelayMs(3)][rng.random_range(0..4)];
        if rng.random_bool(0.3) {
            bench.store.faults().set([FaultRule::new(Operation::Put, fault).times(1)]);
        }
        let producer = rng.random_range(0..next.len());
        let sent = bench.append(vec![batch(0, producer as i64, next[producer])]).await;
        answers.push((producer, next[producer], sent));
        next[producer] += 2;
        if rng.random_bool(0.3) {
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..8))).await;
        }
    }
    bench.service.shutdown().await;
    let mut accepted = [0; 4];
    let mut by_offset = Vec::new();
    for (producer, sequence, answer) in answers {
        if let [Ok(offset)] = offsets(answer.await)[..] {
            assert_eq!(accepted[producer], sequence, "seed {seed}: a gap in what was accepted of producer {producer}");
            accepted[producer] = sequence + 2;
            by_offset.push(offset);
        }
    }
    let expected: Vec<i64> = (0..).step_by(2).take(by_offset.len()).collect();
    assert_eq!(by_offset, expected, "seed {seed}: offsets follow the order of the calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn r3_what_is_accepted_of_a_producer_has_no_gaps_whatever_fails() {
    let seed = u64::from(rand::random::<u32>());
    futures::future::join_all((0..20).map(|n| check_gapless(seed + n))).await;
}
