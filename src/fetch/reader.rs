//! Turns coordinates into the bytes that are served: ranges from the zone cache, checked and with patched headers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::diskless_coordinator::view::{BatchCoordinate, SegmentRef, View};
use crate::object_storage::ReadError;
use crate::object_storage::zone_cache::{CachedRange, ReadAge, ZoneCache};
use crate::record_batch::{BatchHeader, HEADER_SIZE, ServeAs, copy_prefix, crc_is_valid, patch, total_len};
use crate::types::WalSegmentId;

/// Segments read at a time for one request.
const SEGMENTS_AT_ONCE: usize = 16;
/// Batches searched by timestamp at a time, over all requests.
const SEARCHES_AT_ONCE: usize = 4;
/// Readers of commits that are at most so old, in log time, keep up with the end.
const HOT_MS: i64 = 60_000;

/// The batches of one partition, in offset order.
#[derive(Clone, Debug)]
pub struct ReadPartition {
    pub leader_epoch: i32,
    pub batches: Vec<BatchCoordinate>,
}

/// What was read of them.
#[derive(Clone, Debug, Default)]
pub struct PartitionBytes {
    /// To be written one after the other.
    pub buffers: Vec<Bytes>,
    pub bytes: usize,
    /// How many batches, counted from the first, `buffers` holds.
    pub batches: usize,
    /// Why there are no more.
    pub error: Option<ReadError>,
}

/// Reads batches of committed segments.
#[derive(Clone)]
pub struct Reader {
    cache: Arc<ZoneCache>,
    view: Arc<View>,
    /// Searches inside batches take CPU and a decoder's memory each.
    searches: Arc<Semaphore>,
}

/// What is wanted of one segment, and where each range belongs.
struct SegmentRead {
    segment: Arc<SegmentRef>,
    places: Vec<Place>,
    ranges: Vec<Range<u64>>,
}

/// The place of a batch in a request: partition, then batch.
type Place = (usize, usize);
type Found = Result<CachedRange, ReadError>;

impl Reader {
    pub fn new(cache: Arc<ZoneCache>, view: Arc<View>) -> Self {
        Self { cache, view, searches: Arc::new(Semaphore::new(SEARCHES_AT_ONCE)) }
    }

    /// Reads several partitions; a failure ends the partition that it is in, no other.
    pub async fn read(&self, partitions: &[ReadPartition]) -> Vec<PartitionBytes> {
        let mut found = self.read_ranges(partitions).await;
        let serve = |(number, partition): (usize, &ReadPartition)| {
            let mut out = PartitionBytes::default();
            for (at, batch) in partition.batches.iter().enumerate() {
                let range = found.remove(&(number, at)).unwrap_or(Err(ReadError::NotFound));
                if let Err(error) = range.and_then(|range| serve_batch(batch, partition.leader_epoch, &range, &mut out))
                {
                    out.error = Some(error);
                    break;
                }
            }
            out
        };
        partitions.iter().enumerate().map(serve).collect()
    }

    /// Memory that a few bytes of an object of this size hold, at most.
    pub(super) fn held_bytes(&self, object_size: u64) -> u64 {
        object_size.min(u64::from(self.cache.block_bytes(object_size)))
    }

    /// The stored bytes of one batch, in one piece.
    pub async fn read_stored(&self, batch: &BatchCoordinate) -> Result<Bytes, ReadError> {
        let mut found = self.read_segment(&batch.segment, std::slice::from_ref(&byte_range(batch))).await?;
        match found.pop() {
            Some(Ok(range)) => Ok(in_one_piece(range.pieces)),
            Some(Err(error)) => Err(error),
            None => Err(ReadError::NotFound),
        }
    }

    /// Waits for a turn to search inside a batch; it ends when what is returned is dropped.
    pub(super) async fn search_turn(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.searches.acquire().await.ok()
    }

    /// By the age of the commit, not of the records: old records that were written just now are read by everyone.
    fn age(&self, segment: &SegmentRef) -> ReadAge {
        let age_ms = self.view.log_time() - segment.committed_at;
        if age_ms <= HOT_MS { ReadAge::Hot } else { ReadAge::Cold }
    }

    async fn read_ranges(&self, partitions: &[ReadPartition]) -> BTreeMap<Place, Found> {
        let mut by_segment: BTreeMap<WalSegmentId, SegmentRead> = BTreeMap::new();
        for (number, partition) in partitions.iter().enumerate() {
            for (at, batch) in partition.batches.iter().enumerate() {
                let read = by_segment.entry(batch.segment.id).or_insert_with(|| SegmentRead {
                    segment: Arc::clone(&batch.segment),
                    places: Vec::new(),
                    ranges: Vec::new(),
                });
                read.places.push((number, at));
                read.ranges.push(byte_range(batch));
            }
        }
        let reads = by_segment.into_values().map(|SegmentRead { segment, places, ranges }| async move {
            let found = match self.read_segment(&segment, &ranges).await {
                Ok(found) => found,
                Err(error) => vec![Err(error); places.len()],
            };
            places.into_iter().zip(found).collect::<Vec<_>>()
        });
        let found: Vec<_> = stream::iter(reads).buffer_unordered(SEGMENTS_AT_ONCE).collect().await;
        found.into_iter().flatten().collect()
    }

    /// Reads ranges that each hold one batch. Bytes that came from the store and do not have their CRC are fetched
    /// once more, in case they went wrong on the way.
    async fn read_segment(&self, segment: &SegmentRef, ranges: &[Range<u64>]) -> Result<Vec<Found>, ReadError> {
        let age = self.age(segment);
        let found = self.cache.read(segment.id, segment.object_size, ranges, age).await;
        let found = found.inspect_err(|error| report(segment, error))?;
        let bad: Vec<usize> = (0..found.len()).filter(|at| !is_right(&found[*at])).collect();
        let mut found: Vec<Found> = found.into_iter().map(Ok).collect();
        for at in &bad {
            self.cache.forget(segment.id, segment.object_size, &ranges[*at]);
        }
        let wanted: Vec<Range<u64>> = bad.iter().map(|at| ranges[*at].clone()).collect();
        for (at, again) in bad.into_iter().zip(self.read_again(segment, &wanted, age).await) {
            found[at] = again.inspect_err(|error| report(segment, error));
        }
        Ok(found)
    }

    /// All at once: they may lie in one block, which is then fetched once and not for each of them.
    async fn read_again(&self, segment: &SegmentRef, ranges: &[Range<u64>], age: ReadAge) -> Vec<Found> {
        if ranges.is_empty() {
            return Vec::new();
        }
        let found = match self.cache.read(segment.id, segment.object_size, ranges, age).await {
            Ok(found) => found,
            Err(error) => return vec![Err(error); ranges.len()],
        };
        let check = |(found, range): (CachedRange, &Range<u64>)| {
            if is_right(&found) {
                return Ok(found);
            }
            self.cache.forget(segment.id, segment.object_size, range);
            Err(ReadError::Corrupt("the CRC of a stored batch does not match".to_owned()))
        };
        found.into_iter().zip(ranges).map(check).collect()
    }
}

/// Whether a range is the batch that was written; looked at once for as long as its bytes are kept.
fn is_right(range: &CachedRange) -> bool {
    if range.is_checked() {
        return true;
    }
    let is_right = is_whole(&range.pieces) && crc_is_valid(&range.pieces);
    if is_right {
        range.mark_checked();
    }
    is_right
}

/// The CRC does not cover the length and the format of a batch.
fn is_whole(pieces: &[Bytes]) -> bool {
    let header = copy_prefix::<HEADER_SIZE>(pieces).and_then(|header| BatchHeader::parse(&header).ok());
    header.is_some_and(|header| header.size_in_bytes() == Some(total_len(pieces)))
}

/// A batch that is committed and cannot be read is for a person to look at, unless the store is only away.
fn report(segment: &SegmentRef, error: &ReadError) {
    match error {
        ReadError::Unavailable(reason) => {
            tracing::warn!(segment = %segment.id, reason, "a WAL segment cannot be read now")
        }
        ReadError::NotFound | ReadError::Corrupt(_) => {
            tracing::error!(segment = %segment.id, %error, "committed records cannot be read");
        }
    }
}

fn byte_range(batch: &BatchCoordinate) -> Range<u64> {
    let start = u64::from(batch.byte_offset);
    start..start + u64::from(batch.byte_length)
}

/// Adds a batch as it is served.
fn serve_batch(
    batch: &BatchCoordinate,
    leader_epoch: i32,
    range: &CachedRange,
    out: &mut PartitionBytes,
) -> Result<(), ReadError> {
    check_is_the_batch(batch, &range.pieces)?;
    let log_append_time = batch.log_append_time.then_some(batch.segment.committed_at);
    let serve = ServeAs { base_offset: batch.base_offset, leader_epoch, log_append_time };
    patch(&range.pieces, serve, &mut out.buffers)
        .ok_or_else(|| ReadError::Corrupt("a batch is cut short".to_owned()))?;
    out.bytes += batch.byte_length as usize;
    out.batches += 1;
    Ok(())
}

/// The stored header must say what the coordinate says: else offsets would be wrong.
fn check_is_the_batch(batch: &BatchCoordinate, pieces: &[Bytes]) -> Result<(), ReadError> {
    let header = copy_prefix::<HEADER_SIZE>(pieces).and_then(|header| BatchHeader::parse(&header).ok());
    let is_same = header.is_some_and(|header| {
        header.size_in_bytes() == Some(total_len(pieces))
            && u32::try_from(header.last_offset_delta) == Ok(batch.last_offset_delta)
    });
    if is_same {
        return Ok(());
    }
    tracing::error!(segment = %batch.segment.id, byte_offset = batch.byte_offset, "another batch lies where a coordinate points");
    Err(ReadError::Corrupt("another batch lies there".to_owned()))
}

fn in_one_piece(mut pieces: Vec<Bytes>) -> Bytes {
    match pieces.len() {
        1 => pieces.remove(0),
        _ => pieces.concat().into(),
    }
}
