//! Fetch and ListOffsets over segments in the in-memory store and a view that is filled by the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use parking_lot::Mutex;

use super::list_offsets::list_offsets;
use super::*;
use crate::diskless_coordinator::view::{BatchCoordinate, PartitionView, SegmentRef};
use crate::object_storage::zone_cache::{ZoneCache, ZoneCacheConfig};
use crate::object_storage::{Config, Fault, FaultRule, ObjectStorage, Operation};
use crate::record_batch::testing::BatchBuilder;
use crate::record_batch::{BatchHeader, CompressionType, crc_is_valid};
use crate::types::{ErrorCode, LogId, LogPosition, TopicId, TopicPartition, WalSegmentId};
use crate::wal_segment::{BatchMeta, batch_ranges, build, object_key};

const LOG: LogId = LogId([9; 16]);
const COMMITTED_AT: i64 = 777_000;
const MEMORY: usize = 256 << 20;

/// A barrier that runs what the test gave it, then passes or not.
struct FakeFreshness {
    passes: bool,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    barriers: AtomicU64,
}

impl Freshness for FakeFreshness {
    fn barrier(&self) -> BoxFuture<'_, Result<(), NotFresh>> {
        self.barriers.fetch_add(1, Ordering::Relaxed);
        if let Some(meanwhile) = self.meanwhile.lock().take() {
            meanwhile();
        }
        let passes = self.passes;
        async move { if passes { Ok(()) } else { Err(NotFresh) } }.boxed()
    }
}

fn fresh(passes: bool) -> Arc<FakeFreshness> {
    Arc::new(FakeFreshness { passes, meanwhile: Mutex::default(), barriers: AtomicU64::new(0) })
}

struct Bench {
    store: ObjectStorage,
    freshness: Arc<FakeFreshness>,
    service: FetchService,
    segments: AtomicU64,
    memory: FetchMemory,
}

fn bench_with(freshness: Arc<FakeFreshness>) -> Bench {
    let config = Config { timeout_ms: 300, ..Config::new("memory://") };
    let store = ObjectStorage::open(&config).expect("an in-memory store");
    let cache = Arc::new(ZoneCache::new(store.clone(), LOG, ZoneCacheConfig::default()));
    let mut memory = FetchMemory::new(MEMORY);
    memory.longest_wait = Duration::from_millis(20);
    let service = FetchService::new(Reader::new(cache, Arc::default()), freshness.clone(), memory.clone());
    Bench { store, freshness, service, segments: AtomicU64::new(0), memory }
}

fn bench() -> Bench {
    bench_with(fresh(true))
}

fn view(number: i32) -> Arc<PartitionView> {
    let partition = TopicPartition { topic_id: TopicId([1; 16]), partition: number };
    Arc::new(PartitionView::new(partition, 0))
}

impl Bench {
    /// Writes one segment and gives the coordinates of its batches, as if applied.
    async fn write(&self, batches: &[(&PartitionView, Bytes)], log_append_time: bool) -> Vec<BatchCoordinate> {
        let sequence = u32::try_from(self.segments.fetch_add(1, Ordering::Relaxed)).expect("few");
        let id = WalSegmentId { birth: LogPosition(1), epoch: LogPosition(0), sequence };
        let image = build(
            LOG,
            id,
            batches.iter().map(|(view, bytes)| {
                let header = BatchHeader::parse(bytes).expect("valid");
                (
                    view.partition,
                    BatchMeta::of(&header, u32::try_from(bytes.len()).expect("small"), false),
                    bytes.clone(),
                )
            }),
        );
        self.store.put(&object_key(LOG, id), image.parts.clone()).await.expect("written");
        let segment = Arc::new(SegmentRef { id, object_size: image.size, committed_at: COMMITTED_AT });
        let coordinates = batch_ranges(&image.partitions).map(|(p, b, range)| {
            let meta = image.partitions[p].batches[b];
            let view = batches.iter().find(|(v, _)| v.partition == image.partitions[p].partition).expect("its view").0;
            let coordinate = BatchCoordinate {
                segment: Arc::clone(&segment),
                base_offset: view.bounds().high_watermark,
                max_timestamp: meta.max_timestamp,
                last_offset_delta: meta.last_offset_delta,
                byte_offset: u32::try_from(range.start).expect("small"),
                byte_length: meta.byte_length,
                log_append_time,
            };
            view.publish_batches([coordinate.clone()]);
            coordinate
        });
        coordinates.collect()
    }

    async fn fetch(&self, partitions: &[(&Arc<PartitionView>, i64)]) -> Vec<FetchedPartition> {
        self.service.fetch(&request(partitions, Duration::ZERO, 1)).await
    }
}

fn request(partitions: &[(&Arc<PartitionView>, i64)], max_wait: Duration, min_bytes: usize) -> FetchRequest {
    let partition = |(view, fetch_offset): &(&Arc<PartitionView>, i64)| FetchPartition {
        view: Arc::clone(view),
        leader_epoch: 4,
        fetch_offset: *fetch_offset,
        max_bytes: 1 << 20,
    };
    let partitions = partitions.iter().map(partition).collect();
    FetchRequest { max_wait, min_bytes, max_bytes: 50 << 20, has_errors: false, is_ordered: false, partitions }
}

/// Base offset, leader epoch and max timestamp of each served batch, whose CRCs are checked.
fn served(fetched: &FetchedPartition) -> Vec<(i64, i32, i64)> {
    let mut bytes = Bytes::from(fetched.records.concat());
    assert_eq!(bytes.len(), fetched.bytes);
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let header = BatchHeader::parse(&bytes).expect("a batch");
        let batch = bytes.split_to(header.size_in_bytes().expect("a size"));
        assert!(crc_is_valid(&[batch]));
        out.push((header.base_offset, header.partition_leader_epoch, header.max_timestamp));
    }
    out
}

fn records(count: usize, timestamp: i64) -> Bytes {
    BatchBuilder::new().records(count).timestamp(timestamp).build()
}

#[tokio::test]
async fn batches_are_served_with_their_offsets_from_the_one_that_holds_the_offset() {
    let (bench, a, b) = (bench(), view(0), view(1));
    bench.write(&[(&a, records(3, 100)), (&b, records(1, 200)), (&a, records(2, 300))], false).await;
    bench.write(&[(&a, records(1, 400))], false).await;
    let fetched = bench.fetch(&[(&a, 4), (&b, 0), (&b, 1)]).await;
    assert_eq!(served(&fetched[0]), [(3, 4, 301), (5, 4, 400)]);
    assert_eq!(served(&fetched[1]), [(0, 4, 200)]);
    assert_eq!(served(&fetched[2]), [], "at the end there is nothing, and that is no error");
    assert!(fetched.iter().all(|f| f.error == ErrorCode::None));
    assert_eq!((fetched[0].bounds.high_watermark, fetched[0].bounds.log_start_offset), (6, 0));
    assert_eq!(bench.store.stats().counts(Operation::Get).requests, 2, "one GET for each segment");
}

#[tokio::test]
async fn log_append_time_is_that_of_the_commit() {
    let (bench, a) = (bench(), view(0));
    bench.write(&[(&a, records(3, 100))], true).await;
    assert_eq!(served(&bench.fetch(&[(&a, 0)]).await[0]), [(0, 4, COMMITTED_AT)]);
}

#[tokio::test]
async fn r11_above_the_end_is_out_of_range_only_after_a_barrier() {
    for (passes, expected) in [(true, ErrorCode::OffsetOutOfRange), (false, ErrorCode::OffsetNotAvailable)] {
        let (bench, a) = (bench_with(fresh(passes)), view(0));
        let fetched = bench.service.fetch(&request(&[(&a, 1)], Duration::from_secs(60), 1)).await;
        assert_eq!(fetched[0].error, expected);
        assert_eq!(bench.freshness.barriers.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn r11_an_offset_that_only_we_had_not_seen_is_served() {
    let (bench, a) = (bench(), view(0));
    let hidden = view(0);
    let coordinates = bench.write(&[(&hidden, records(3, 0)), (&hidden, records(1, 50))], false).await;
    let behind = Arc::clone(&a);
    *bench.freshness.meanwhile.lock() = Some(Box::new(move || behind.publish_batches(coordinates)));
    assert_eq!(served(&bench.fetch(&[(&a, 3)]).await[0]), [(3, 4, 50)]);
}

#[tokio::test]
async fn below_the_log_start_is_out_of_range_at_once() {
    let (bench, a) = (bench(), view(0));
    bench.write(&[(&a, records(3, 0)), (&a, records(3, 50))], false).await;
    a.publish_log_start(4);
    let fetched = bench.service.fetch(&request(&[(&a, 3), (&a, 4)], Duration::from_secs(60), 1 << 20)).await;
    assert_eq!((fetched[0].error, fetched[0].records.len()), (ErrorCode::OffsetOutOfRange, 0));
    assert_eq!(served(&fetched[1]), [(3, 4, 52)], "the batch that holds the log start stays whole");
    assert_eq!(bench.freshness.barriers.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_waiting_fetch_is_woken_by_a_commit() {
    let (bench, a, b) = (bench(), view(0), view(1));
    let request = request(&[(&a, 0), (&b, 0)], Duration::from_secs(60), 150);
    let mut fetch = Box::pin(bench.service.fetch(&request));
    assert!(futures::poll!(&mut fetch).is_pending());
    bench.write(&[(&b, records(1, 0))], false).await;
    assert!(futures::poll!(&mut fetch).is_pending(), "not enough bytes yet");
    bench.write(&[(&b, records(1, 0)), (&a, records(1, 0))], false).await;
    let fetched = fetch.await;
    assert_eq!((served(&fetched[0]).len(), served(&fetched[1]).len()), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_however_commits_and_waits_meet() {
    let (bench, written) = (bench(), view(0));
    let batches: Vec<_> = (0..200).map(|_| (&*written, records(1, 0))).collect();
    let coordinates = bench.write(&batches, false).await;
    let (a, b) = (view(1), view(2));
    let (tasks, _failed) = crate::tasks::Tasks::new();
    let (behind, seen) = (Arc::clone(&a), Arc::new(AtomicU64::new(0)));
    let read = Arc::clone(&seen);
    tasks.spawn("commits", async move {
        for (number, coordinate) in (0..).zip(coordinates) {
            while read.load(Ordering::Acquire) < number {
                std::hint::spin_loop();
            }
            behind.publish_batches([coordinate]);
        }
    });
    for offset in 0..200 {
        let fetch = request(&[(&b, 0), (&a, offset)], Duration::from_secs(60), 1);
        let fetched = tokio::time::timeout(Duration::from_secs(20), bench.service.fetch(&fetch)).await;
        assert!(fetched.is_ok_and(|f| f[1].bytes > 0), "woken at {offset}");
        seen.store(u64::try_from(offset + 1).expect("positive"), Ordering::Release);
    }
}

#[tokio::test]
async fn a_fetch_is_answered_when_its_wait_is_over_or_another_partition_has_an_error() {
    let (bench, a) = (bench(), view(0));
    let fetched = bench.service.fetch(&request(&[(&a, 0)], Duration::from_millis(5), 1)).await;
    assert_eq!((fetched[0].error, fetched[0].bytes), (ErrorCode::None, 0));
    let with_errors = FetchRequest { has_errors: true, ..request(&[(&a, 0)], Duration::from_secs(60), 1) };
    assert!(bench.service.fetch(&with_errors).now_or_never().is_some());
}

#[tokio::test]
async fn a_segment_that_cannot_be_read_ends_only_the_partitions_in_it() {
    let (bench, a, b) = (bench(), view(0), view(1));
    bench.write(&[(&a, records(1, 0))], false).await;
    let lost = bench.write(&[(&a, records(1, 10)), (&b, records(1, 0))], false).await;
    bench.write(&[(&a, records(1, 20))], false).await;
    bench.store.delete(&object_key(LOG, lost[0].segment.id)).await.expect("deleted");
    let fetched = bench.fetch(&[(&a, 0), (&b, 0)]).await;
    assert_eq!(served(&fetched[0]), [(0, 4, 0)], "a prefix, and nothing after the gap");
    assert_eq!(fetched[0].error, ErrorCode::None);
    assert_eq!((fetched[1].error, fetched[1].records.len()), (ErrorCode::KafkaStorageError, 0));
    assert_eq!(bench.fetch(&[(&a, 1)]).await[0].error, ErrorCode::KafkaStorageError);
}

#[tokio::test]
async fn bytes_that_went_wrong_on_the_way_are_fetched_again() {
    let (bench, a) = (bench(), view(0));
    bench.write(&[(&a, BatchBuilder::new().value_len(2000).build())], false).await;
    bench.store.faults().set([FaultRule::new(Operation::Get, Fault::FlipByte).times(1)]);
    assert_eq!(served(&bench.fetch(&[(&a, 0)]).await[0]).len(), 1);
    assert_eq!(bench.store.stats().counts(Operation::Get).requests, 2);
}

#[tokio::test]
async fn bytes_that_are_wrong_for_good_are_not_served() {
    let (bench, a) = (bench(), view(0));
    bench.write(&[(&a, BatchBuilder::new().value_len(2000).build())], false).await;
    bench.store.faults().set([FaultRule::new(Operation::Get, Fault::FlipByte)]);
    let fetched = bench.fetch(&[(&a, 0)]).await;
    assert_eq!((fetched[0].error, fetched[0].records.len()), (ErrorCode::KafkaStorageError, 0));
    bench.store.faults().clear();
    assert_eq!(served(&bench.fetch(&[(&a, 0)]).await[0]).len(), 1, "and not kept either");
}

#[tokio::test]
async fn an_object_that_is_wrong_as_a_whole_is_fetched_twice_and_not_once_a_batch() {
    let (bench, a) = (bench(), view(0));
    let broken = || {
        let mut bytes = records(1, 0).to_vec();
        *bytes.last_mut().expect("not empty") ^= 1;
        Bytes::from(bytes)
    };
    let batches: Vec<_> = (0..10).map(|_| (&*a, broken())).collect();
    bench.write(&batches, false).await;
    assert_eq!(bench.fetch(&[(&a, 0)]).await[0].error, ErrorCode::KafkaStorageError);
    assert_eq!(bench.store.stats().counts(Operation::Get).requests, 2);
}

#[tokio::test]
async fn a_wrong_byte_that_no_crc_covers_is_not_kept_either() {
    const IN_THE_LENGTH: usize = 11;
    let (bench, a) = (bench(), view(0));
    let mut broken = records(1, 0).to_vec();
    broken[IN_THE_LENGTH] ^= 1;
    bench.write(&[(&a, Bytes::from(broken))], false).await;
    for gets in [2, 4] {
        assert_eq!(bench.fetch(&[(&a, 0)]).await[0].error, ErrorCode::KafkaStorageError);
        assert_eq!(bench.store.stats().counts(Operation::Get).requests, gets);
    }
}

#[tokio::test]
async fn an_answer_holds_its_memory_until_it_is_dropped() {
    let (bench, a) = (bench(), view(0));
    bench.write(&[(&a, BatchBuilder::new().value_len(100_000).build()), (&a, records(1, 5))], false).await;
    let fetched = bench.fetch(&[(&a, 0)]).await;
    assert!(bench.memory.free() <= MEMORY - 100_000);
    let written = fetched[0].records[0].clone();
    drop(written);
    assert!(bench.memory.free() < MEMORY, "not all of it is written");
    drop(fetched);
    assert_eq!(bench.memory.free(), MEMORY);
    assert_eq!(bench.fetch(&[(&a, 2)]).await[0].bytes, 0);
    assert_eq!(bench.memory.free(), MEMORY, "an answer without records holds nothing");
}

#[tokio::test]
async fn without_memory_a_fetch_is_answered_without_records_and_never_stuck() {
    let (bench, a) = (bench(), view(0));
    bench.write(&[(&a, records(1, 0))], false).await;
    let all = bench.memory.hold(MEMORY).await.expect("it is free");
    let fetched = bench.fetch(&[(&a, 0)]).await;
    assert_eq!((fetched[0].error, fetched[0].bytes), (ErrorCode::None, 0));
    let asked = request(&[(&a, 0)], Duration::ZERO, 1);
    let waiting = bench.service.fetch(&asked);
    tokio::pin!(waiting);
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    drop(all);
    assert_eq!(served(&waiting.await[0]).len(), 1, "as soon as there is room");
}

async fn list(bench: &Bench, view: &Arc<PartitionView>, timestamp: i64) -> (i64, i64) {
    let asked = [(Arc::clone(view), OffsetSpec::from_timestamp(timestamp))];
    let listed = list_offsets(&*bench.freshness, bench.service.reader(), &asked).await;
    assert_eq!(listed[0].error, ErrorCode::None);
    (listed[0].offset, listed[0].timestamp)
}

#[tokio::test]
async fn offsets_are_listed_by_the_record() {
    let (bench, a) = (bench(), view(0));
    assert_eq!((list(&bench, &a, -1).await, list(&bench, &a, -3).await), ((0, -1), (-1, -1)), "an empty log");
    let first = BatchBuilder::new().timestamps(&[1000, 5000, 3000]).build();
    let second = BatchBuilder::new().timestamps(&[2000, 7000]).build();
    bench.write(&[(&a, first), (&a, second)], false).await;
    for (asked, expected) in [
        (-1, (5, -1)),
        (-2, (0, -1)),
        (-3, (4, 7000)),
        (-4, (0, -1)),
        (-5, (-1, -1)),
        (0, (0, 1000)),
        (2000, (1, 5000)),
        (5001, (4, 7000)),
        (7001, (-1, -1)),
    ] {
        assert_eq!(list(&bench, &a, asked).await, expected, "{asked}");
    }
    a.publish_log_start(2);
    assert_eq!((list(&bench, &a, -2).await, list(&bench, &a, 0).await), ((2, -1), (2, 3000)));
}

#[tokio::test]
async fn offsets_by_time_go_on_where_a_header_promised_too_much() {
    let (bench, a) = (bench(), view(0));
    let liar = BatchBuilder::new().timestamps(&[1, 2]).max_timestamp(900).build();
    bench.write(&[(&a, liar), (&a, records(1, 500))], false).await;
    assert_eq!(list(&bench, &a, 400).await, (2, 500));
}

#[tokio::test]
async fn the_largest_timestamp_is_a_record_s_and_not_a_header_s() {
    let (bench, a) = (bench(), view(0));
    let liar = BatchBuilder::new().timestamps(&[100, 50]).max_timestamp(900).build();
    bench.write(&[(&a, liar), (&a, records(1, 500)), (&a, records(1, 500))], false).await;
    assert_eq!(list(&bench, &a, -3).await, (2, 500));
    a.publish_log_start(3);
    assert_eq!(list(&bench, &a, -3).await, (3, 500), "of those that can be read");
}

#[tokio::test]
async fn offsets_are_listed_by_the_record_in_compressed_batches_too() {
    for codec in [CompressionType::Gzip, CompressionType::Snappy, CompressionType::Lz4, CompressionType::Zstd] {
        let (bench, a) = (bench(), view(0));
        let first = BatchBuilder::new().timestamps(&[1000, 5000, 3000]).compression(codec).build();
        let second = BatchBuilder::new().timestamps(&[2000, 7000, 7000]).compression(codec).build();
        bench.write(&[(&a, first), (&a, second)], false).await;
        for (asked, expected) in [(0, (0, 1000)), (2000, (1, 5000)), (5001, (4, 7000)), (-3, (4, 7000))] {
            assert_eq!(list(&bench, &a, asked).await, expected, "{codec:?} at {asked}");
        }
        a.publish_log_start(2);
        assert_eq!(list(&bench, &a, 2000).await, (2, 3000), "{codec:?} from the log start on");
    }
}

#[tokio::test]
async fn a_batch_that_cannot_be_searched_is_answered_with_its_beginning() {
    let (bench, a) = (bench(), view(0));
    let nonsense = BatchBuilder::new().timestamps(&[1000, 5000]).attributes(4).build();
    bench.write(&[(&a, nonsense)], false).await;
    assert_eq!(list(&bench, &a, 2000).await, (0, 5000));
    assert_eq!(list(&bench, &a, -3).await, (0, 5000));
}

#[tokio::test]
async fn offsets_by_time_of_log_append_time_batches_need_no_bytes() {
    let (bench, a) = (bench(), view(0));
    bench.write(&[(&a, records(3, 1))], true).await;
    assert_eq!(list(&bench, &a, 5).await, (0, COMMITTED_AT));
    assert_eq!(list(&bench, &a, -3).await, (0, COMMITTED_AT));
    assert_eq!(bench.store.stats().counts(Operation::Get).requests, 0);
}

#[tokio::test]
async fn offsets_are_not_listed_without_a_barrier() {
    let (bench, a) = (bench_with(fresh(false)), view(0));
    let asked = [(Arc::clone(&a), OffsetSpec::Latest)];
    let listed = list_offsets(&*bench.freshness, bench.service.reader(), &asked).await;
    assert_eq!(listed[0].error, ErrorCode::OffsetNotAvailable);
}

#[tokio::test]
async fn answers_can_be_made_on_any_thread() {
    fn on_any_thread<T: Send + 'static>(_: T) {}
    let a = view(0);
    on_any_thread(async move {
        let bench = bench();
        bench.service.fetch(&request(&[(&a, 0)], Duration::ZERO, 1)).await;
        let asked = [(Arc::clone(&a), OffsetSpec::Latest)];
        list_offsets(&*bench.freshness, bench.service.reader(), &asked).await;
    });
}
