//! What readers see of the applied state: topics, proxies, and where each partition's batches lie.
//!
//! Published by whoever applies the log, after the metadata store has taken the change; read by everyone else
//! without a global lock: topics and proxies are swapped whole, each partition has a lock of its own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};

use super::command::TopicConfig;
use crate::types::{
    Endpoint, LogId, LogPosition, Offset, ProxyId, Rack, TimestampMs, TopicId, TopicPartition, WalSegmentId,
};

/// The applied state, for readers.
#[derive(Default)]
pub struct View {
    topics: ArcSwap<Topics>,
    proxies: ArcSwap<Proxies>,
    log_time: AtomicI64,
}

/// All diskless topics at one log position.
#[derive(Clone, Default)]
pub struct Topics {
    pub by_id: HashMap<TopicId, Arc<Topic>>,
    pub by_name: HashMap<String, TopicId>,
    /// Names whose creation is under way (R5).
    pub pending: BTreeSet<String>,
    /// Ids of diskless topics that were deleted: never classic again, never readable.
    pub deleted: BTreeSet<TopicId>,
}

impl Topics {
    pub fn named(&self, name: &str) -> Option<&Arc<Topic>> {
        self.by_id.get(self.by_name.get(name)?)
    }
}

/// One diskless topic.
#[derive(Clone)]
pub struct Topic {
    pub id: TopicId,
    pub name: String,
    pub leader_epoch: i32,
    pub config: TopicConfig,
    pub partitions: Vec<Arc<PartitionView>>,
}

/// All proxies that the log knows, also those gone a short while ago.
#[derive(Clone, Default)]
pub struct Proxies {
    pub log_id: Option<LogId>,
    pub upstream_cluster_id: String,
    /// The version of the log's format that may be written (R12).
    pub cluster_version: u16,
    pub by_id: BTreeMap<ProxyId, ProxyInfo>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyInfo {
    pub epoch: LogPosition,
    pub zone: Rack,
    pub endpoint: Endpoint,
    /// Log time of the last command heard of it.
    pub last_heard: TimestampMs,
    pub closed: bool,
    /// The versions of the log's format that it knows.
    pub min_version: u16,
    pub max_version: u16,
}

/// A proxy is live while it was heard within this much log time.
pub const LIVE_WITHIN_MS: i64 = 10_000;
/// A proxy that is not live stays listed for this long, so that rack sets do not flap.
pub const LISTED_WITHIN_MS: i64 = LIVE_WITHIN_MS + 600_000;

impl ProxyInfo {
    pub fn is_live(&self, now: TimestampMs) -> bool {
        !self.closed && now - self.last_heard <= LIVE_WITHIN_MS
    }

    pub fn is_listed(&self, now: TimestampMs) -> bool {
        now - self.last_heard <= LISTED_WITHIN_MS
    }
}

impl View {
    pub fn topics(&self) -> arc_swap::Guard<Arc<Topics>> {
        self.topics.load()
    }

    pub fn proxies(&self) -> arc_swap::Guard<Arc<Proxies>> {
        self.proxies.load()
    }

    /// Log time of the last applied record.
    pub fn log_time(&self) -> TimestampMs {
        self.log_time.load(Ordering::Acquire)
    }

    pub fn publish_topics(&self, topics: Topics) {
        self.topics.store(Arc::new(topics));
    }

    pub fn publish_proxies(&self, proxies: Proxies) {
        self.proxies.store(Arc::new(proxies));
    }

    pub fn publish_log_time(&self, time: TimestampMs) {
        self.log_time.store(time, Ordering::Release);
    }
}

/// A committed segment, shared by the coordinates that point into it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentRef {
    pub id: WalSegmentId,
    pub object_size: u64,
    /// Log time of its commit; the timestamp of its batches on LogAppendTime topics.
    pub committed_at: TimestampMs,
}

/// Where one batch lies, and which offsets it has.
#[derive(Clone, Debug)]
pub struct BatchCoordinate {
    pub segment: Arc<SegmentRef>,
    pub base_offset: Offset,
    pub max_timestamp: TimestampMs,
    pub last_offset_delta: u32,
    pub byte_offset: u32,
    pub byte_length: u32,
    /// Serve with the segment's commit time as LogAppendTime. Fixed when the batch was applied (R9).
    pub log_append_time: bool,
}

impl BatchCoordinate {
    pub fn next_offset(&self) -> Offset {
        self.base_offset + i64::from(self.last_offset_delta) + 1
    }

    /// The largest timestamp that a reader will see in this batch.
    pub fn visible_max_timestamp(&self) -> TimestampMs {
        if self.log_append_time { self.segment.committed_at } else { self.max_timestamp }
    }
}

/// Told when a partition's high watermark or log start moves.
pub trait PartitionListener: Send + Sync {
    fn moved(&self);
}

/// One partition's offsets and batch coordinates.
pub struct PartitionView {
    pub partition: TopicPartition,
    log: RwLock<Log>,
    listeners: Mutex<Vec<Weak<dyn PartitionListener>>>,
}

struct Log {
    log_start_offset: Offset,
    log_end_offset: Offset,
    bytes: u64,
    batches: VecDeque<BatchCoordinate>,
}

/// A partition's ends at one moment. The high watermark is the end: nothing is applied before it is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    pub log_start_offset: Offset,
    pub high_watermark: Offset,
}

impl PartitionView {
    pub fn new(partition: TopicPartition, log_start_offset: Offset) -> Self {
        Self {
            partition,
            log: RwLock::new(Log {
                log_start_offset,
                log_end_offset: log_start_offset,
                bytes: 0,
                batches: VecDeque::new(),
            }),
            listeners: Mutex::default(),
        }
    }

    pub fn bounds(&self) -> Bounds {
        let log = self.log.read();
        Bounds { log_start_offset: log.log_start_offset, high_watermark: log.log_end_offset }
    }

    /// Bytes of all batches.
    pub fn size(&self) -> u64 {
        self.log.read().bytes
    }

    /// The batch that holds `from` and those after it, in offset order: at least one where there is one, and
    /// more while their sizes sum to at most `max_bytes`.
    pub fn find_batches(&self, from: Offset, max_bytes: usize) -> Vec<BatchCoordinate> {
        let log = self.log.read();
        let first = log.batches.partition_point(|b| b.next_offset() <= from);
        let mut sum = 0usize;
        let fits = |b: &&BatchCoordinate| {
            let is_first = sum == 0;
            sum += b.byte_length as usize;
            is_first || sum <= max_bytes
        };
        log.batches.range(first..).take_while(fits).cloned().collect()
    }

    /// Bytes from the batch that holds `from` to the end, counted up to `enough`.
    pub fn bytes_from(&self, from: Offset, enough: usize) -> usize {
        let log = self.log.read();
        let first = log.batches.partition_point(|b| b.next_offset() <= from);
        let mut sum = 0;
        for batch in log.batches.range(first..) {
            sum += batch.byte_length as usize;
            if sum >= enough {
                break;
            }
        }
        sum
    }

    /// The first batch, in offset order, that holds a timestamp of at least `target`. Timestamps need not grow
    /// with offsets, so this looks at every batch.
    pub fn first_batch_at_or_after(&self, target: TimestampMs) -> Option<BatchCoordinate> {
        self.log.read().batches.iter().find(|b| b.visible_max_timestamp() >= target).cloned()
    }

    /// The batches that hold a timestamp of at least `target`, after the one at `after`.
    pub fn next_batch_at_or_after(&self, target: TimestampMs, after: Offset) -> Option<BatchCoordinate> {
        let log = self.log.read();
        let first = log.batches.partition_point(|b| b.base_offset <= after);
        log.batches.range(first..).find(|b| b.visible_max_timestamp() >= target).cloned()
    }

    /// The batch with the largest timestamp, or the next after one in that order; of the same timestamp the earlier.
    pub fn next_max_timestamp_batch(&self, after: Option<&BatchCoordinate>) -> Option<BatchCoordinate> {
        let order = |b: &BatchCoordinate| (b.visible_max_timestamp(), Reverse(b.base_offset));
        let limit = after.map(order);
        let log = self.log.read();
        log.batches.iter().filter(|b| limit.is_none_or(|limit| order(b) < limit)).max_by_key(|b| order(b)).cloned()
    }

    /// Asks to be told of the next move. Check the bounds again after registering: a move in between is not told.
    pub fn listen(&self, listener: Weak<dyn PartitionListener>) {
        let mut listeners = self.listeners.lock();
        if listeners.len() >= 64 && listeners.len().is_power_of_two() {
            listeners.retain(|l| l.strong_count() > 0);
        }
        listeners.push(listener);
    }

    /// Appends batches; the first must start at the log end.
    pub fn publish_batches(&self, batches: impl IntoIterator<Item = BatchCoordinate>) {
        {
            let mut log = self.log.write();
            for batch in batches {
                assert_eq!(batch.base_offset, log.log_end_offset, "offsets are dense (I1)");
                log.log_end_offset = batch.next_offset();
                log.bytes += u64::from(batch.byte_length);
                log.batches.push_back(batch);
            }
        }
        self.wake();
    }

    /// Moves the log start and drops the batches that lie wholly below it.
    pub fn publish_log_start(&self, log_start_offset: Offset) {
        {
            let mut log = self.log.write();
            assert!(log_start_offset >= log.log_start_offset, "the log start never goes back (I2)");
            log.log_start_offset = log_start_offset;
            log.log_end_offset = log.log_end_offset.max(log_start_offset);
            while log.batches.front().is_some_and(|b| b.next_offset() <= log_start_offset) {
                let gone = log.batches.pop_front().map_or(0, |b| u64::from(b.byte_length));
                log.bytes -= gone;
            }
        }
        self.wake();
    }

    fn wake(&self) {
        let listeners = std::mem::take(&mut *self.listeners.lock());
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.moved();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITION: TopicPartition = TopicPartition { topic_id: TopicId([1; 16]), partition: 0 };

    fn batch(base_offset: Offset, count: u32, bytes: u32, timestamp: i64) -> BatchCoordinate {
        let id = WalSegmentId { birth: LogPosition(1), epoch: LogPosition(0), sequence: 0 };
        BatchCoordinate {
            segment: Arc::new(SegmentRef { id, object_size: 1000, committed_at: 5000 }),
            base_offset,
            max_timestamp: timestamp,
            last_offset_delta: count - 1,
            byte_offset: 1,
            byte_length: bytes,
            log_append_time: false,
        }
    }

    fn three() -> PartitionView {
        let view = PartitionView::new(PARTITION, 0);
        view.publish_batches([batch(0, 10, 100, 30), batch(10, 5, 100, 50), batch(15, 1, 100, 40)]);
        view
    }

    fn offsets(found: &[BatchCoordinate]) -> Vec<Offset> {
        found.iter().map(|b| b.base_offset).collect()
    }

    #[test]
    fn finding_starts_at_the_batch_that_holds_the_offset() {
        let view = three();
        assert_eq!(offsets(&view.find_batches(0, 1000)), [0, 10, 15]);
        assert_eq!(offsets(&view.find_batches(9, 1000)), [0, 10, 15]);
        assert_eq!(offsets(&view.find_batches(10, 200)), [10, 15]);
        assert_eq!(offsets(&view.find_batches(12, 150)), [10]);
        assert_eq!(offsets(&view.find_batches(15, 0)), [15], "one batch even over the limit");
        assert!(view.find_batches(16, 1000).is_empty());
    }

    #[test]
    fn bytes_are_counted_from_an_offset() {
        let view = three();
        assert_eq!(view.bytes_from(0, 1000), 300);
        assert_eq!(view.bytes_from(12, 1000), 200);
        assert_eq!(view.bytes_from(0, 150), 200);
        assert_eq!(view.bytes_from(16, 1), 0);
    }

    #[test]
    fn timestamps_are_searched_in_offset_order() {
        let view = three();
        assert_eq!(view.first_batch_at_or_after(31).map(|b| b.base_offset), Some(10));
        assert_eq!(view.first_batch_at_or_after(51).map(|b| b.base_offset), None);
        assert_eq!(view.next_batch_at_or_after(31, 10).map(|b| b.base_offset), Some(15));
        let first = view.next_max_timestamp_batch(None).expect("three are there");
        let second = view.next_max_timestamp_batch(Some(&first)).expect("three are there");
        assert_eq!((first.base_offset, second.base_offset), (10, 15));
    }

    #[test]
    fn the_log_start_drops_whole_batches_only() {
        let view = three();
        view.publish_log_start(12);
        assert_eq!(view.bounds(), Bounds { log_start_offset: 12, high_watermark: 16 });
        assert_eq!(offsets(&view.find_batches(12, 1000)), [10, 15]);
        assert_eq!(view.size(), 200);
    }

    #[test]
    fn a_listener_hears_the_next_move_once() {
        struct Count(AtomicI64);
        impl PartitionListener for Count {
            fn moved(&self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let view = three();
        let count = Arc::new(Count(AtomicI64::new(0)));
        let listener: Arc<dyn PartitionListener> = count.clone();
        view.listen(Arc::downgrade(&listener));
        view.publish_batches([batch(16, 1, 1, 1)]);
        view.publish_batches([batch(17, 1, 1, 1)]);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}
