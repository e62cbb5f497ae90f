//! Stories of whole commands against the state machine, and properties of any history.

mod any_history;
mod golden;

use std::sync::Arc;

use super::apply::{Applied, apply};
use super::command::{Command, CommitSegment, Proposer, TopicConfig};
use super::digest::Hash;
use super::effect::{CommittedSegment, Effect};
use super::encoding::{LogRecord, encode};
use super::outcome::{BatchOutcome, Outcome, Placed, Refusal};
use super::publish::{Publisher, visible_end};
use super::rules::agreement::Checkpoint;
use super::state::State;
use super::view::View;
use super::{checks, rules};
use crate::types::{Endpoint, ErrorCode, LogId, LogPosition, ProxyId, TopicId, TopicPartition, WalSegmentId};
use crate::wal_segment::{BatchMeta, PartitionBatches};

const TOPIC: TopicId = TopicId([1; 16]);

fn partition(partition: i32) -> TopicPartition {
    TopicPartition { topic_id: TOPIC, partition }
}

/// A log, one state that applies it, and the view of that state.
struct Log {
    state: State,
    publisher: Publisher,
    view: Arc<View>,
    records: Vec<LogRecord>,
    segments: Vec<Arc<CommittedSegment>>,
    now: i64,
    counters: [u64; 4],
    epochs: [LogPosition; 4],
}

impl Log {
    fn empty() -> Self {
        let view = Arc::new(View::default());
        Self {
            state: State::default(),
            publisher: Publisher::new(Arc::clone(&view)),
            view,
            records: Vec::new(),
            segments: Vec::new(),
            now: 1_000_000,
            counters: [0; 4],
            epochs: [LogPosition::NONE; 4],
        }
    }

    /// With a topic of two partitions; proxy 1 is open.
    fn with_topic() -> Self {
        let mut log = Self::empty();
        log.genesis();
        log.open(1, 1);
        log.send(Command::PendingTopic { name: "orders".to_owned() });
        assert_eq!(log.send(register("orders", TOPIC, 2)), Outcome::Done);
        log
    }

    fn genesis(&mut self) -> Outcome {
        let genesis = Command::Genesis {
            log_id: LogId([7; 16]),
            upstream_cluster_id: "cluster".to_owned(),
            metadata_topic_id: TopicId([8; 16]),
        };
        self.raw(1, LogPosition::NONE, 0, &genesis)
    }

    fn open(&mut self, proxy: usize, nonce: u8) -> Outcome {
        self.open_knowing(proxy, nonce, (1, 1))
    }

    /// Opens a proxy that knows these versions of the format.
    fn open_knowing(&mut self, proxy: usize, nonce: u8, (min_version, max_version): (u16, u16)) -> Outcome {
        let open = Command::Open {
            nonce: [nonce; 16],
            zone: "a".to_owned(),
            endpoint: Endpoint { host: "h".to_owned(), port: 1 },
            min_version,
            max_version,
        };
        let outcome = self.raw(proxy, LogPosition::NONE, 0, &open);
        if let Outcome::Opened { epoch } = outcome {
            self.epochs[proxy] = epoch;
            self.counters[proxy] = 0;
        }
        outcome
    }

    /// The next command of proxy 1.
    fn send(&mut self, command: Command) -> Outcome {
        self.send_as(1, command)
    }

    fn send_as(&mut self, proxy: usize, command: Command) -> Outcome {
        self.counters[proxy] += 1;
        self.raw(proxy, self.epochs[proxy], self.counters[proxy], &command)
    }

    fn raw(&mut self, proxy: usize, epoch: LogPosition, counter: u64, command: &Command) -> Outcome {
        let quoted = self.state.checkpoints.back().copied().unwrap_or(Checkpoint::NONE);
        self.proposed(proxy, epoch, counter, quoted, command)
    }

    fn quoting(&mut self, proxy: usize, counter: u64, quoted: Checkpoint, command: &Command) -> Outcome {
        self.proposed(proxy, self.epochs[proxy], counter, quoted, command)
    }

    fn proposed(
        &mut self,
        proxy: usize,
        epoch: LogPosition,
        counter: u64,
        quoted: Checkpoint,
        command: &Command,
    ) -> Outcome {
        let proxy = ProxyId(u32::try_from(proxy).expect("few proxies"));
        let proposer = Proposer { proxy, epoch, counter, wall_time: self.now, quoted };
        let applied = self.append(encode(&proposer, command));
        applied.answer.expect("it is a command").outcome
    }

    fn append(&mut self, bytes: Vec<u8>) -> Applied {
        let position = LogPosition(i64::try_from(self.records.len()).expect("few records"));
        let record = LogRecord { position, append_time_ms: self.now, bytes: bytes.into() };
        let applied = apply(&mut self.state, &record).expect("the record can be applied");
        self.records.push(record);
        self.publisher.publish(applied.effects.iter(), applied.time);
        self.segments.extend(applied.effects.iter().filter_map(|effect| match effect {
            Effect::Segment(segment) => Some(Arc::clone(segment)),
            _ => None,
        }));
        applied
    }

    fn pass(&mut self, ms: i64) {
        self.now += ms;
    }

    /// Commits one segment with batches for partition 0.
    fn commit(&mut self, sequence: u32, batches: &[BatchMeta]) -> Vec<BatchOutcome> {
        let commit = segment(self.state.applied, sequence, batches);
        match self.send(Command::CommitSegment(commit)) {
            Outcome::Committed(mut outcomes) => outcomes.remove(0),
            other => panic!("not committed: {other:?}"),
        }
    }

    #[track_caller]
    fn verify(&self) {
        let wrong = checks::verify(&self.state, self.segments.iter().map(Arc::as_ref));
        assert!(wrong.is_empty(), "{wrong:#?}");
        for (partition, log) in &self.state.partitions {
            if self.state.live_topic(&partition.topic_id).is_some() {
                assert_eq!(visible_end(&self.view, *partition), Some(log.log_end_offset));
            }
        }
    }
}

fn register(name: &str, topic_id: TopicId, partitions: i32) -> Command {
    Command::RegisterTopic {
        name: name.to_owned(),
        topic_id,
        partitions,
        leader_epoch: 0,
        config: TopicConfig { version: 1, ..TopicConfig::default() },
    }
}

fn segment(birth: LogPosition, sequence: u32, batches: &[BatchMeta]) -> CommitSegment {
    CommitSegment {
        segment: WalSegmentId { birth, epoch: LogPosition(1), sequence },
        object_size: 1_000_000,
        partitions: vec![PartitionBatches { partition: partition(0), batches: batches.to_vec() }],
    }
}

fn batch(producer_id: i64, base_sequence: i32, count: u32) -> BatchMeta {
    BatchMeta {
        byte_length: 100,
        last_offset_delta: count - 1,
        max_timestamp: 5,
        producer_id,
        producer_epoch: 0,
        base_sequence,
        follows: false,
    }
}

fn placed(base_offset: i64) -> Placed {
    Placed { base_offset, log_append_time: -1, log_start_offset: 0 }
}

fn accepted(base_offset: i64) -> BatchOutcome {
    BatchOutcome::Accepted(placed(base_offset))
}

#[test]
fn r1_the_first_genesis_counts_and_nothing_counts_before_it() {
    let mut log = Log::empty();
    assert_eq!(log.open(1, 1), Outcome::Refused(Refusal::NoGenesis));
    assert_eq!(log.genesis(), Outcome::Done);
    assert_eq!(log.genesis(), Outcome::Refused(Refusal::GenesisExists { log_id: LogId([7; 16]) }));
    assert_eq!(log.view.proxies().log_id, Some(LogId([7; 16])));
}

#[test]
fn offsets_are_dense_and_batches_lie_after_each_other() {
    let mut log = Log::with_topic();
    assert_eq!(log.commit(0, &[batch(5, 0, 10), batch(6, 0, 1)]), [accepted(0), accepted(10)]);
    assert_eq!(log.commit(1, &[batch(5, 10, 2)]), [accepted(11)]);
    log.verify();
    let topics = log.view.topics();
    let found = topics.by_id[&TOPIC].partitions[0].find_batches(0, 10_000);
    assert_eq!(found.iter().map(|b| b.byte_offset).collect::<Vec<_>>(), [1, 101, 1]);
}

#[test]
fn rejected_batches_take_bytes_but_no_offsets() {
    let mut log = Log::with_topic();
    let gap = BatchOutcome::Rejected(ErrorCode::OutOfOrderSequenceNumber);
    assert_eq!(log.commit(0, &[batch(5, 0, 1), batch(5, 7, 1), batch(5, 1, 1)]), [accepted(0), gap, accepted(1)]);
    let topics = log.view.topics();
    let found = topics.by_id[&TOPIC].partitions[0].find_batches(0, 10_000);
    assert_eq!(found.iter().map(|b| b.byte_offset).collect::<Vec<_>>(), [1, 201]);
}

#[test]
fn a_repeated_commit_gets_the_first_outcome() {
    let mut log = Log::with_topic();
    let commit = segment(log.state.applied, 0, &[batch(-1, -1, 3)]);
    let first = log.send(Command::CommitSegment(commit.clone()));
    assert_eq!(log.send(Command::CommitSegment(commit.clone())), first);
    let other = CommitSegment { object_size: 5_000, ..commit };
    assert!(matches!(log.send(Command::CommitSegment(other)), Outcome::Refused(Refusal::Invalid(_))));
    assert_eq!(log.state.partitions[&partition(0)].log_end_offset, 3);
    log.verify();
}

#[test]
fn a_batch_that_comes_again_in_another_segment_is_a_duplicate() {
    let mut log = Log::with_topic();
    log.commit(0, &[batch(5, 0, 10)]);
    assert_eq!(log.commit(1, &[batch(5, 0, 10), batch(5, 10, 1)]), [BatchOutcome::Duplicate(placed(0)), accepted(10)]);
}

#[test]
fn r7_a_segment_is_refused_after_its_window_whoever_repeats_it() {
    let mut log = Log::with_topic();
    let old = segment(log.state.applied, 0, &[batch(-1, -1, 1)]);
    let done = segment(log.state.applied, 1, &[batch(-1, -1, 1)]);
    log.send(Command::CommitSegment(done.clone()));
    for _ in 0..61 {
        log.pass(1000);
        log.send(Command::Heartbeat);
    }
    for late in [old, done] {
        let outcome = log.send(Command::CommitSegment(late));
        assert!(matches!(outcome, Outcome::Refused(Refusal::TooOld { .. })), "{outcome:?}");
    }
    assert!(log.state.commits.is_empty(), "ids are kept for the window only");
}

#[test]
fn commits_that_make_no_sense_are_refused() {
    let mut log = Log::with_topic();
    let here = log.state.applied;
    let good = segment(here, 0, &[batch(-1, -1, 1)]);
    let huge = BatchMeta { byte_length: u32::MAX, ..batch(-1, -1, 1) };
    for bad in [
        CommitSegment { partitions: Vec::new(), ..good.clone() },
        segment(here, 0, &[]),
        segment(here, 0, &[huge, huge]),
        CommitSegment { object_size: 100, ..good.clone() },
        segment(LogPosition(1_000), 0, &[batch(-1, -1, 1)]),
    ] {
        let outcome = log.send(Command::CommitSegment(bad));
        assert!(matches!(outcome, Outcome::Refused(Refusal::Invalid(_))), "{outcome:?}");
    }
    assert!(matches!(log.send(Command::CommitSegment(good)), Outcome::Committed(_)));
}

#[test]
fn r10_the_counter_goes_by_one_and_a_refusal_does_not_use_it_up() {
    let mut log = Log::with_topic();
    let (epoch, next) = (log.epochs[1], log.counters[1] + 1);
    let counter = |got| Outcome::Refused(Refusal::Counter { expected: next, got });
    assert_eq!(log.raw(1, epoch, next + 1, &Command::Heartbeat), counter(next + 1));
    assert_eq!(log.raw(1, epoch, next - 1, &Command::Heartbeat), counter(next - 1));
    assert_eq!(log.raw(1, epoch, next, &Command::Heartbeat), Outcome::Done);
}

#[test]
fn r10_a_refusal_by_counter_is_not_the_first_outcome_of_a_segment() {
    let mut log = Log::with_topic();
    let commit = Command::CommitSegment(segment(log.state.applied, 0, &[batch(-1, -1, 1)]));
    let (epoch, counter) = (log.epochs[1], log.counters[1]);
    assert!(matches!(log.raw(1, epoch, counter + 9, &commit), Outcome::Refused(Refusal::Counter { .. })));
    assert!(matches!(log.send(commit), Outcome::Committed(_)));
}

#[test]
fn r10_the_same_nonce_supersedes_and_another_fences() {
    let mut log = Log::with_topic();
    let first = log.epochs[1];
    log.open(1, 1);
    let second = log.epochs[1];
    assert_eq!(log.raw(1, first, 3, &Command::Heartbeat), Outcome::Refused(Refusal::Superseded));
    log.open(1, 2);
    let newer = log.epochs[1];
    assert_eq!(log.raw(1, second, 1, &Command::Heartbeat), Outcome::Refused(Refusal::Fenced { newer }));
    assert_eq!(log.open(1, 1), Outcome::Refused(Refusal::Fenced { newer }), "a fenced process cannot come back");
    assert_eq!(log.send(Command::Heartbeat), Outcome::Done);
}

#[test]
fn r12_an_incarnation_ends_by_close_or_by_silence() {
    let mut log = Log::with_topic();
    log.open(2, 9);
    assert_eq!(log.send(Command::Close), Outcome::Done);
    assert_eq!(log.send(Command::Heartbeat), Outcome::Refused(Refusal::NotOpen));
    log.pass(rules::incarnations::CLOSED_AFTER_MS);
    log.open(1, 3);
    assert!(log.view.proxies().by_id[&ProxyId(2)].closed);
    assert_eq!(log.send_as(2, Command::Heartbeat), Outcome::Refused(Refusal::NotOpen));
    assert!(matches!(log.open(2, 9), Outcome::Opened { .. }), "the same process may open again");
}

#[test]
fn r8_who_quotes_another_state_is_refused_and_closed_until_it_opens_again() {
    let mut log = Log::with_topic();
    log.open(2, 9);
    let own = log.state.checkpoints[0];
    let wrong = Checkpoint { digest: Hash([9; 16]), ..own };
    let diverged = Outcome::Refused(Refusal::Diverged { quoted: own.position });
    assert_eq!(log.quoting(2, 1, wrong, &Command::Heartbeat), diverged);
    assert_eq!(log.quoting(2, 1, own, &Command::Heartbeat), Outcome::Refused(Refusal::NotOpen));
    assert!(log.view.proxies().by_id[&ProxyId(2)].closed);
    assert_eq!(log.send(Command::Heartbeat), Outcome::Done, "the others go on");
    assert!(matches!(log.open(2, 9), Outcome::Opened { .. }));
    assert_eq!(log.send_as(2, Command::Heartbeat), Outcome::Done);
}

#[test]
fn r8_checkpoints_come_with_time_and_with_records_and_are_bounded() {
    let mut log = Log::with_topic();
    let at_first = log.state.checkpoints.len();
    log.pass(rules::agreement::CHECKPOINT_MS);
    log.send(Command::Heartbeat);
    assert_eq!(log.state.checkpoints.len(), at_first + 1);
    for _ in 0..rules::agreement::CHECKPOINT_RECORDS {
        log.send(Command::Heartbeat);
    }
    assert_eq!(log.state.checkpoints.len(), at_first + 2);
    for _ in 0..rules::agreement::CHECKPOINTS {
        log.pass(rules::agreement::CHECKPOINT_MS);
        log.send(Command::Heartbeat);
    }
    assert_eq!(log.state.checkpoints.len(), rules::agreement::CHECKPOINTS);
    let behind = Outcome::Refused(Refusal::Behind { quoted: LogPosition::NONE });
    let counter = log.counters[1] + 1;
    assert_eq!(log.quoting(1, counter, Checkpoint::NONE, &Command::Heartbeat), behind);
}

#[test]
fn r12_the_version_is_raised_only_when_every_open_proxy_knows_it() {
    let mut log = Log::with_topic();
    let raise = |version| Command::SetClusterVersion { version };
    let unknown = Outcome::Refused(Refusal::VersionUnknown { version: 2, proxy: ProxyId(1) });
    assert_eq!(log.send(raise(1)), Outcome::Refused(Refusal::Stale));
    assert_eq!(log.send(raise(2)), unknown);
    log.open_knowing(1, 2, (1, 2));
    log.open(2, 9);
    let unknown = Outcome::Refused(Refusal::VersionUnknown { version: 2, proxy: ProxyId(2) });
    assert_eq!(log.send(raise(2)), unknown);
    log.send_as(2, Command::Close);
    assert_eq!(log.send(raise(2)), Outcome::Done);
    assert_eq!(log.view.proxies().cluster_version, 2);
    assert!(matches!(log.open(2, 8), Outcome::Refused(Refusal::Invalid(_))), "one that is too old cannot come in");
    assert!(matches!(log.open_knowing(2, 8, (2, 3)), Outcome::Opened { .. }));
}

#[test]
fn r5_a_name_is_announced_then_registered_once() {
    let mut log = Log::with_topic();
    let other = TopicId([2; 16]);
    assert_eq!(log.send(register("new", other, 1)), Outcome::Refused(Refusal::NotPending));
    assert_eq!(log.send(Command::PendingTopic { name: "new".to_owned() }), Outcome::Done);
    assert!(log.view.topics().pending.contains("new"));
    let again = log.send(Command::PendingTopic { name: "new".to_owned() });
    assert_eq!(again, Outcome::Refused(Refusal::TopicExists));
    assert_eq!(log.send(register("new", other, 1)), Outcome::Done);
    assert_eq!(log.send(register("new", other, 1)), Outcome::Done, "a repeat is done already");
    assert_eq!(log.send(register("new", TopicId([3; 16]), 1)), Outcome::Refused(Refusal::TopicExists));
    assert!(log.view.topics().pending.is_empty());
    assert!(log.view.topics().named("new").is_some());
}

#[test]
fn r5_announced_names_expire_in_log_time() {
    let mut log = Log::with_topic();
    log.send(Command::PendingTopic { name: "new".to_owned() });
    log.pass(rules::topics::PENDING_FOR_MS);
    log.send(Command::Heartbeat);
    assert!(log.view.topics().pending.is_empty());
    assert_eq!(log.send(register("new", TopicId([2; 16]), 1)), Outcome::Refused(Refusal::NotPending));
}

#[test]
fn a_deleted_topic_is_hidden_and_its_batches_are_refused() {
    let mut log = Log::with_topic();
    log.commit(0, &[batch(5, 0, 1)]);
    assert_eq!(log.send(Command::TopicDeleted { topic_id: TOPIC }), Outcome::Done);
    assert!(log.view.topics().named("orders").is_none());
    assert!(log.view.topics().deleted.contains(&TOPIC));
    let unknown = BatchOutcome::Rejected(ErrorCode::UnknownTopicOrPartition);
    assert_eq!(log.commit(1, &[batch(5, 1, 1)]), [unknown]);
    log.send(Command::PendingTopic { name: "orders".to_owned() });
    assert_eq!(log.send(register("orders", TopicId([4; 16]), 1)), Outcome::Done, "the name is free again");
}

#[test]
fn partitions_only_grow() {
    let mut log = Log::with_topic();
    let grow = |partitions| Command::PartitionsCreated { topic_id: TOPIC, partitions };
    assert_eq!(log.send(grow(2)), Outcome::Refused(Refusal::Stale));
    assert_eq!(log.send(grow(5)), Outcome::Done);
    assert_eq!(log.view.topics().by_id[&TOPIC].partitions.len(), 5);
    assert!(matches!(log.send(grow(i32::MAX)), Outcome::Refused(Refusal::Invalid(_))));
    log.verify();
}

#[test]
fn r9_the_timestamp_type_is_fixed_when_a_batch_is_applied() {
    let mut log = Log::with_topic();
    log.commit(0, &[batch(5, 0, 1)]);
    let config = TopicConfig { version: 2, log_append_time: true, ..TopicConfig::default() };
    let changed = Command::TopicConfigChanged { topic_id: TOPIC, config };
    assert_eq!(log.send(changed.clone()), Outcome::Done);
    assert_eq!(log.send(changed), Outcome::Refused(Refusal::Stale));
    log.pass(50);
    let stamped = Placed { log_append_time: log.now, ..placed(1) };
    assert_eq!(log.commit(1, &[batch(5, 1, 1)]), [BatchOutcome::Accepted(stamped)]);
    log.pass(50);
    assert_eq!(log.commit(2, &[batch(5, 1, 1)]), [BatchOutcome::Duplicate(stamped)], "the first time's stamp");
    let topics = log.view.topics();
    let found = topics.by_id[&TOPIC].partitions[0].find_batches(0, 10_000);
    assert_eq!(found.iter().map(|b| b.log_append_time).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn producers_expire_in_log_time_and_are_swept() {
    let mut log = Log::with_topic();
    log.commit(0, &[batch(5, 0, 1)]);
    log.pass(rules::placement::PRODUCER_EXPIRATION_MS);
    log.open(1, 1);
    assert!(log.state.producers.is_empty());
    assert_eq!(log.commit(1, &[batch(5, 77, 1)]), [accepted(1)]);
}

#[test]
fn records_that_no_proxy_wrote_are_passed_over() {
    let mut log = Log::with_topic();
    assert!(log.append(b"by hand".to_vec()).answer.is_none());
    assert_eq!(log.send(Command::Heartbeat), Outcome::Done);
}

#[test]
fn a_record_that_cannot_be_understood_changes_nothing() {
    let mut log = Log::with_topic();
    let before = log.state.clone();
    let mut bytes = log.records[0].bytes.to_vec();
    bytes[10] ^= 1;
    let record = LogRecord { position: LogPosition(99), append_time_ms: log.now, bytes: bytes.into() };
    assert!(apply(&mut log.state, &record).is_err());
    let old = log.records[1].clone();
    assert!(apply(&mut log.state, &old).is_err(), "a record is applied once");
    assert_eq!(log.state, before);
}
