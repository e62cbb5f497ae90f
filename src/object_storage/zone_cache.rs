//! Bytes of WAL segments kept in memory for the readers of this zone, in aligned blocks.
//!
//! What this proxy wrote is put in as it was written, without a copy; what others wrote is fetched once, by one GET
//! for each run of missing blocks. A small object is one block, so that a GET's buffer is kept as it came. Only one load
//! of a block runs at a time, all other readers wait for it. A failed load is never kept. Bounded by bytes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use futures::future::try_join_all;
use parking_lot::Mutex;
use quick_cache::sync::{Cache, DefaultLifecycle, PlaceholderGuard};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::sync::Semaphore;

use super::{ObjectStorage, ReadError};
use crate::types::{LogId, WalSegmentId};
use crate::wal_segment::object_key;

/// Sizes of the cache.
#[derive(Clone, Copy, Debug)]
pub struct ZoneCacheConfig {
    pub max_bytes: u64,
    /// Of objects that are not small.
    pub block_bytes: u32,
    /// An object of at most this size is one block. A segment is a little larger than the size at which it is rolled.
    pub whole_object_bytes: u32,
    /// GETs at a time for readers near the end of their partitions.
    pub hot_gets_max: usize,
    /// GETs at a time for those that lag behind.
    pub cold_gets_max: usize,
}

impl Default for ZoneCacheConfig {
    fn default() -> Self {
        Self {
            max_bytes: 512 << 20,
            block_bytes: 1 << 20,
            whole_object_bytes: 8 << 20,
            hot_gets_max: 32,
            cold_gets_max: 8,
        }
    }
}

/// Whose budget of GETs a read takes from, by the age of the commit: a lagging group must not slow the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadAge {
    Hot,
    Cold,
}

/// One range as it was read.
#[derive(Clone, Debug)]
pub struct CachedRange {
    pub pieces: Vec<Bytes>,
    /// What of it came from the store and was not yet found right, in the blocks where it lies.
    unchecked: Vec<(Arc<Block>, Range<u32>)>,
}

impl CachedRange {
    /// Whether, when it was read, its bytes were this proxy's own or had been found right before: memory does not go bad, so once is enough.
    pub fn is_checked(&self) -> bool {
        self.unchecked.is_empty()
    }

    /// Its bytes were found right: for as long as they are kept nobody need look at them again.
    pub fn mark_checked(&self) {
        for (block, range) in &self.unchecked {
            block.checked.lock().add(range.clone());
        }
    }
}

/// Counters at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneCacheCounts {
    /// Blocks that were there, or that another reader was loading already.
    pub hits: u64,
    /// Blocks that had to be fetched.
    pub misses: u64,
    pub bytes: u64,
}

/// The cache of one proxy over one log's segments.
pub struct ZoneCache {
    store: ObjectStorage,
    log_id: LogId,
    config: ZoneCacheConfig,
    blocks: Blocks,
    hot_gets: Semaphore,
    cold_gets: Semaphore,
    hits: AtomicU64,
    misses: AtomicU64,
}

type Blocks = Cache<Key, Arc<Block>, ByBytes>;
type Guard<'a> = PlaceholderGuard<'a, Key, Arc<Block>, ByBytes, DefaultHashBuilder, DefaultLifecycle<Key, Arc<Block>>>;
/// Segment and number of the block.
type Key = (WalSegmentId, u32);

/// One block: where in it each slice starts, in ascending order.
#[derive(Debug)]
struct Block {
    slices: Vec<(u32, Bytes)>,
    checked: Mutex<Checked>,
}

/// Parts of a block that were found right: ascending, none touching the next. Readers go forward, so there are few.
#[derive(Debug, Default)]
struct Checked(Vec<Range<u32>>);

/// A reader that jumps about must not grow a block: parts beyond this number are looked at again.
const CHECKED_PARTS_MAX: usize = 64;

impl Checked {
    fn holds(&self, range: &Range<u32>) -> bool {
        let after = self.0.partition_point(|part| part.start <= range.start);
        after.checked_sub(1).is_some_and(|at| range.end <= self.0[at].end)
    }

    fn add(&mut self, range: Range<u32>) {
        let first = self.0.partition_point(|part| part.end < range.start);
        let end = self.0.partition_point(|part| part.start <= range.end);
        let touched = &self.0[first..end];
        if touched.is_empty() && self.0.len() >= CHECKED_PARTS_MAX {
            return;
        }
        let start = touched.first().map_or(range.start, |part| part.start.min(range.start));
        let stop = touched.last().map_or(range.end, |part| part.end.max(range.end));
        self.0.splice(first..end, std::iter::once(start..stop));
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Arc<Block>> for ByBytes {
    fn weight(&self, _: &Key, block: &Arc<Block>) -> u64 {
        let overhead = block.slices.len() * size_of::<(u32, Bytes)>() + size_of::<Block>();
        block.slices.iter().map(|(_, slice)| slice.len() as u64).sum::<u64>() + overhead as u64
    }
}

impl ZoneCache {
    pub fn new(store: ObjectStorage, log_id: LogId, config: ZoneCacheConfig) -> Self {
        let config = ZoneCacheConfig {
            whole_object_bytes: config.whole_object_bytes.min(u32::try_from(config.max_bytes / 8).unwrap_or(u32::MAX)),
            ..config
        };
        // A shard must have room for many blocks, or a full one would throw out what was just loaded.
        let block = u64::from(config.block_bytes.max(config.whole_object_bytes).max(1));
        let shards = (config.max_bytes / (block * 32)).clamp(1, 16);
        let options = OptionsBuilder::new()
            .shards(usize::try_from(shards).unwrap_or(1))
            .estimated_items_capacity(usize::try_from(config.max_bytes / block).unwrap_or(usize::MAX))
            .weight_capacity(config.max_bytes)
            .build()
            .expect("both capacities are given");
        let blocks = Cache::with_options(options, ByBytes, DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self {
            store,
            log_id,
            config,
            blocks,
            hot_gets: Semaphore::new(config.hot_gets_max.max(1)),
            cold_gets: Semaphore::new(config.cold_gets_max.max(1)),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The length of the blocks of an object, but for the last.
    pub fn block_bytes(&self, object_size: u64) -> u32 {
        match u32::try_from(object_size) {
            Ok(size) if size <= self.config.whole_object_bytes => size.max(1),
            _ => self.config.block_bytes.max(1),
        }
    }

    pub fn counts(&self) -> ZoneCacheCounts {
        ZoneCacheCounts {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            bytes: self.blocks.weight(),
        }
    }

    /// Keeps the parts of a segment that this proxy has just written.
    pub fn insert_written(&self, segment: WalSegmentId, parts: &[Bytes]) {
        let object_size = parts.iter().map(|part| part.len() as u64).sum();
        for (number, slices) in (0..).zip(cut(parts, self.block_bytes(object_size))) {
            let block = Block::new(slices);
            block.checked.lock().add(0..u32::MAX);
            self.blocks.insert((segment, number), Arc::new(block));
        }
    }

    /// Drops the blocks of a range, so that the next read fetches them again.
    pub fn forget(&self, segment: WalSegmentId, object_size: u64, range: &Range<u64>) {
        for number in numbers(range, self.block_bytes(object_size)) {
            self.blocks.remove(&(segment, number));
        }
    }

    /// Reads ranges of one segment, in the order given.
    pub async fn read(
        &self,
        segment: WalSegmentId,
        object_size: u64,
        ranges: &[Range<u64>],
        age: ReadAge,
    ) -> Result<Vec<CachedRange>, ReadError> {
        if ranges.iter().any(|r| r.start >= r.end || r.end > object_size) {
            return Err(ReadError::Corrupt("a range outside its object".to_owned()));
        }
        let block_bytes = self.block_bytes(object_size);
        let mut wanted: Vec<u32> = ranges.iter().flat_map(|r| numbers(r, block_bytes)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let blocks = self.load(segment, object_size, &wanted, age).await?;
        let block = |number: u32| wanted.binary_search(&number).ok().and_then(|at| blocks[at].as_ref());
        ranges.iter().map(|range| collect(range, block_bytes, block)).collect()
    }

    /// The blocks of these numbers, which ascend. Guards are taken in that order by everyone, so readers that wait
    /// for each other's loads cannot wait in a circle.
    async fn load(
        &self,
        segment: WalSegmentId,
        object_size: u64,
        numbers: &[u32],
        age: ReadAge,
    ) -> Result<Vec<Option<Arc<Block>>>, ReadError> {
        let mut blocks = vec![None; numbers.len()];
        let mut runs: Vec<Vec<(usize, Guard<'_>)>> = Vec::new();
        for (at, number) in numbers.iter().enumerate() {
            match self.blocks.get_value_or_guard_async(&(segment, *number)).await {
                Ok(block) => blocks[at] = Some(block),
                Err(guard) => match runs.last_mut() {
                    Some(run) if run.last().is_some_and(|(last, _)| numbers[*last] + 1 == *number) => {
                        run.push((at, guard));
                    }
                    _ => runs.push(vec![(at, guard)]),
                },
            }
        }
        // Taken with the guards in hand: who waits for a block waits behind the reader that came first for it.
        let gets = match age {
            ReadAge::Hot => &self.hot_gets,
            ReadAge::Cold => &self.cold_gets,
        };
        let missed: usize = runs.iter().map(Vec::len).sum();
        self.hits.fetch_add((numbers.len() - missed) as u64, Relaxed);
        self.misses.fetch_add(missed as u64, Relaxed);
        let loads = runs.into_iter().map(|run| async move {
            let _turn = gets.acquire().await;
            self.load_run(segment, object_size, numbers, run).await
        });
        for (at, block) in try_join_all(loads).await?.into_iter().flatten() {
            blocks[at] = Some(block);
        }
        Ok(blocks)
    }

    /// Fetches adjacent blocks with one GET. Where it fails the guards go unused, and a waiting reader tries itself.
    async fn load_run(
        &self,
        segment: WalSegmentId,
        object_size: u64,
        numbers: &[u32],
        run: Vec<(usize, Guard<'_>)>,
    ) -> Result<Vec<(usize, Arc<Block>)>, ReadError> {
        let block_bytes = self.block_bytes(object_size);
        let start = u64::from(run.first().map_or(0, |(at, _)| numbers[*at])) * u64::from(block_bytes);
        let end = object_size.min(start + run.len() as u64 * u64::from(block_bytes));
        let bytes = self.store.get_range(&object_key(self.log_id, segment), start..end).await?;
        let mut loaded = Vec::with_capacity(run.len());
        let is_shared = run.len() > 1;
        for ((at, guard), mut slices) in run.into_iter().zip(cut(&[bytes], block_bytes)) {
            if is_shared {
                // Else one block that stays would keep the bytes of all that came with it, uncounted.
                slices.iter_mut().for_each(|(_, slice)| *slice = Bytes::copy_from_slice(slice));
            }
            let block = Arc::new(Block::new(slices));
            // An error means that the block was inserted or removed meanwhile, which is as good.
            let _ = guard.insert(Arc::clone(&block));
            loaded.push((at, block));
        }
        Ok(loaded)
    }
}

/// The numbers of the blocks that a range touches.
fn numbers(range: &Range<u64>, block_bytes: u32) -> Range<u32> {
    let block_bytes = u64::from(block_bytes);
    let number = |byte: u64| u32::try_from(byte).unwrap_or(u32::MAX);
    number(range.start / block_bytes)..number(range.end.div_ceil(block_bytes))
}

/// Cuts one range out of its blocks.
fn collect<'a>(
    range: &Range<u64>,
    block_bytes: u32,
    block: impl Fn(u32) -> Option<&'a Arc<Block>>,
) -> Result<CachedRange, ReadError> {
    let mut found = CachedRange { pieces: Vec::new(), unchecked: Vec::new() };
    let mut length = 0;
    for number in numbers(range, block_bytes) {
        let block = block(number).ok_or_else(|| ReadError::Corrupt("a block is missing".to_owned()))?;
        let base = u64::from(number) * u64::from(block_bytes);
        let inside = |byte: u64| u32::try_from(byte.saturating_sub(base)).unwrap_or(u32::MAX).min(block_bytes);
        let inside = inside(range.start)..inside(range.end);
        block.copy_slices(inside.clone(), &mut found.pieces, &mut length);
        if !block.checked.lock().holds(&inside) {
            found.unchecked.push((Arc::clone(block), inside));
        }
    }
    if length == range.end - range.start {
        return Ok(found);
    }
    Err(ReadError::Corrupt(format!("{length} bytes are there of {}", range.end - range.start)))
}

impl Block {
    fn new(slices: Vec<(u32, Bytes)>) -> Self {
        Self { slices, checked: Mutex::default() }
    }

    /// Adds what lies in `range` to `out`; shares the bytes.
    fn copy_slices(&self, range: Range<u32>, out: &mut Vec<Bytes>, length: &mut u64) {
        let first = self.slices.partition_point(|(start, _)| *start <= range.start).saturating_sub(1);
        for (start, slice) in &self.slices[first..] {
            if *start >= range.end {
                break;
            }
            let from = (range.start.saturating_sub(*start) as usize).min(slice.len());
            let to = ((range.end - *start) as usize).min(slice.len());
            if from < to {
                out.push(slice.slice(from..to));
                *length += (to - from) as u64;
            }
        }
    }
}

/// Cuts parts that follow each other into blocks; the last may be short.
fn cut(parts: &[Bytes], block_bytes: u32) -> Vec<Vec<(u32, Bytes)>> {
    let mut blocks = vec![Vec::new()];
    let mut filled = 0;
    for part in parts {
        let mut rest = part.clone();
        while !rest.is_empty() {
            if filled == block_bytes {
                blocks.push(Vec::new());
                filled = 0;
            }
            let take = rest.len().min((block_bytes - filled) as usize);
            if let Some(block) = blocks.last_mut() {
                block.push((filled, rest.split_to(take)));
            }
            // At most what was left of the block, which is 32 bits wide.
            filled += take as u32;
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::super::{Config, Fault, FaultRule, Operation};
    use super::*;
    use crate::types::LogPosition;

    const SEGMENT: WalSegmentId = WalSegmentId { birth: LogPosition(1), epoch: LogPosition(0), sequence: 0 };
    const LOG: LogId = LogId([1; 16]);
    const SIZE: u64 = 100;

    /// A segment of 100 bytes in blocks of 10, fetched whole up to `whole`.
    async fn cache(whole: u32) -> (ZoneCache, Vec<u8>) {
        let store = ObjectStorage::open(&Config { timeout_ms: 50, ..Config::new("memory://") }).expect("opened");
        let bytes: Vec<u8> = (0..100).collect();
        store.put(&object_key(LOG, SEGMENT), vec![bytes.clone().into()]).await.expect("written");
        let config =
            ZoneCacheConfig { max_bytes: 1 << 20, block_bytes: 10, whole_object_bytes: whole, ..Default::default() };
        (ZoneCache::new(store, LOG, config), bytes)
    }

    fn gets(cache: &ZoneCache) -> u64 {
        cache.store.stats().counts(Operation::Get).requests
    }

    async fn check(cache: &ZoneCache, bytes: &[u8], ranges: &[Range<u64>]) {
        let found = cache.read(SEGMENT, SIZE, ranges, ReadAge::Hot).await.expect("read");
        for (range, found) in ranges.iter().zip(&found) {
            assert_eq!(found.pieces.concat(), &bytes[range.start as usize..range.end as usize], "{range:?}");
        }
    }

    #[tokio::test]
    async fn each_run_of_missing_blocks_is_one_get() {
        let (cache, bytes) = cache(0).await;
        check(&cache, &bytes, &[5..25, 95..100, 29..30]).await;
        assert_eq!((gets(&cache), cache.counts().misses), (2, 4));
        check(&cache, &bytes, &[0..40, 8..12]).await;
        assert_eq!((gets(&cache), cache.counts().misses, cache.counts().hits), (3, 5, 3));
    }

    #[tokio::test]
    async fn a_small_object_is_fetched_whole() {
        let (cache, bytes) = cache(100).await;
        for start in (0..100).step_by(7) {
            check(&cache, &bytes, slice::from_ref(&(start..start + 1))).await;
        }
        assert_eq!(gets(&cache), 1);
    }

    #[tokio::test]
    async fn readers_at_the_same_time_share_one_get() {
        let (cache, bytes) = cache(0).await;
        cache.store.faults().set([FaultRule::new(Operation::Get, Fault::DelayMs(20))]);
        let ranges: Vec<_> = (0..20).map(|start| start..60).collect();
        futures::future::join_all(ranges.chunks(1).map(|range| check(&cache, &bytes, range))).await;
        assert_eq!(gets(&cache), 1);
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_leaves_its_load_to_the_next() {
        let (cache, bytes) = cache(0).await;
        cache.store.faults().set([FaultRule::new(Operation::Get, Fault::Hold).times(1)]);
        let ranges = [0..50, 60..70];
        let mut gone = Box::pin(check(&cache, &bytes, &ranges));
        assert!(futures::poll!(&mut gone).is_pending());
        let mut next = Box::pin(check(&cache, &bytes, &ranges));
        assert!(futures::poll!(&mut next).is_pending());
        drop(gone);
        next.await;
    }

    #[tokio::test]
    async fn a_failed_load_is_not_kept() {
        let (cache, bytes) = cache(0).await;
        cache.store.faults().set([FaultRule::new(Operation::Get, Fault::NotFound).times(1)]);
        assert_eq!(
            cache.read(SEGMENT, SIZE, slice::from_ref(&(0..5)), ReadAge::Cold).await.err(),
            Some(ReadError::NotFound)
        );
        check(&cache, &bytes, slice::from_ref(&(0..5))).await;
    }

    #[tokio::test]
    async fn written_parts_are_served_without_a_copy_or_a_get() {
        let (cache, bytes) = cache(100).await;
        let whole = Bytes::from(bytes.clone());
        cache.insert_written(SEGMENT, &[whole.slice(..3), whole.slice(3..44), whole.slice(44..)]);
        check(&cache, &bytes, &[0..100, 2..5, 43..45, 99..100]).await;
        let found = cache.read(SEGMENT, SIZE, slice::from_ref(&(12..15)), ReadAge::Hot).await.expect("read");
        assert!(found[0].is_checked());
        assert_eq!(found[0].pieces[0].as_ptr(), whole[12..].as_ptr());
        assert_eq!(gets(&cache), 0);
        cache.forget(SEGMENT, SIZE, &(12..15));
        let found = cache.read(SEGMENT, SIZE, slice::from_ref(&(12..15)), ReadAge::Hot).await.expect("read");
        assert!(!found[0].is_checked() && gets(&cache) == 1);
    }

    #[tokio::test]
    async fn bytes_from_the_store_are_checked_once_for_as_long_as_they_are_kept() {
        for whole in [0, 100] {
            let (cache, _) = cache(whole).await;
            let is_checked = async |range: Range<u64>| {
                let found = cache.read(SEGMENT, SIZE, slice::from_ref(&range), ReadAge::Hot).await.expect("read");
                found[0].mark_checked();
                found[0].is_checked()
            };
            assert!(!is_checked(5..25).await);
            assert!(is_checked(5..25).await && is_checked(6..12).await);
            assert!(!is_checked(4..25).await && !is_checked(20..26).await);
            assert!(is_checked(4..26).await, "parts that touch are one");
            cache.forget(SEGMENT, SIZE, &(5..6));
            assert!(!is_checked(5..8).await, "other bytes now");
        }
    }

    #[test]
    fn checked_parts_are_bounded_in_number() {
        let mut checked = Checked::default();
        for start in 0..1000 {
            checked.add(start * 10..start * 10 + 5);
        }
        assert_eq!(checked.0.len(), CHECKED_PARTS_MAX);
        checked.add(0..10_000);
        assert_eq!((checked.0.len(), checked.0.first()), (1, Some(&(0..10_000))));
        assert!(checked.holds(&(0..10_000)) && !checked.holds(&(9_999..10_001)));
    }

    #[tokio::test]
    async fn a_range_outside_the_object_is_refused() {
        let (cache, _) = cache(100).await;
        for range in [0..101, 5..5, 200..201] {
            assert!(cache.read(SEGMENT, SIZE, slice::from_ref(&range), ReadAge::Hot).await.is_err());
        }
        assert!(
            cache.read(SEGMENT, 120, slice::from_ref(&(0..110)), ReadAge::Hot).await.is_err(),
            "the object is shorter"
        );
    }

    #[tokio::test]
    async fn the_cache_is_bounded_by_bytes() {
        let store = ObjectStorage::open(&Config::new("memory://")).expect("opened");
        let config =
            ZoneCacheConfig { max_bytes: 10_000, block_bytes: 100, whole_object_bytes: 0, ..Default::default() };
        let cache = ZoneCache::new(store, LOG, config);
        for sequence in 0..100 {
            cache.insert_written(WalSegmentId { sequence, ..SEGMENT }, &[Bytes::from(vec![0; 1000])]);
        }
        let bytes = cache.counts().bytes;
        assert!(bytes > 5_000 && bytes <= 10_000, "{bytes}");
    }
}
