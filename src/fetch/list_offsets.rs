//! ListOffsets for diskless partitions. Every answer is given after a barrier, so that after an acknowledged Produce
//! through any proxy the end includes it, and offsets do not go back from one proxy to the next (R11).

use std::cmp::Reverse;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream;

use super::freshness::Freshness;
use super::reader::Reader;
use crate::diskless_coordinator::view::{BatchCoordinate, PartitionView};
use crate::record_batch::{Precision, Progress, RecordSearch, Wanted};
use crate::types::{ErrorCode, Offset, TimestampMs};

/// Batches that are searched for one answer. More are needed only where headers claim timestamps that no record has.
const BATCHES_SEARCHED: usize = 64;
/// Partitions of one request that are searched at a time.
const SEARCHES_AT_ONCE: usize = 16;

/// Record bytes that are looked at before others have their turn on the thread.
const SEARCH_STEP: usize = 256 << 10;

/// Which offset is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetSpec {
    Latest,
    Earliest,
    MaxTimestamp,
    /// The last offset in tiered storage, or the first that is not there yet: there is none.
    Tiered,
    /// The first record with at least this timestamp.
    AtOrAfter(TimestampMs),
}

impl OffsetSpec {
    /// By the timestamp field of a ListOffsets request, with its sentinels (KIP-734, KIP-405, KIP-1005, KIP-1023).
    pub fn from_timestamp(timestamp: i64) -> Self {
        match timestamp {
            -1 => Self::Latest,
            // The earliest local offset is the earliest, since nothing is tiered.
            -2 | -4 => Self::Earliest,
            -3 => Self::MaxTimestamp,
            -5 | -6 => Self::Tiered,
            other => Self::AtOrAfter(other),
        }
    }
}

/// An offset with its timestamp; both -1 where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedOffset {
    pub error: ErrorCode,
    pub offset: Offset,
    pub timestamp: TimestampMs,
}

impl ListedOffset {
    const NOT_FOUND: Self = Self { error: ErrorCode::None, offset: -1, timestamp: -1 };

    fn failed(error: ErrorCode) -> Self {
        Self { error, ..Self::NOT_FOUND }
    }

    fn at(offset: Offset) -> Self {
        Self { offset, ..Self::NOT_FOUND }
    }
}

/// Answers all partitions of one request, after one barrier.
pub async fn list_offsets(
    freshness: &dyn Freshness,
    reader: &Reader,
    asked: &[(Arc<PartitionView>, OffsetSpec)],
) -> Vec<ListedOffset> {
    if asked.is_empty() {
        return Vec::new();
    }
    if freshness.barrier().await.is_err() {
        return vec![ListedOffset::failed(ErrorCode::OffsetNotAvailable); asked.len()];
    }
    let answers: Vec<_> = asked.iter().map(|(view, spec)| list_one(reader, view, *spec)).collect();
    stream::iter(answers).buffered(SEARCHES_AT_ONCE).collect().await
}

async fn list_one(reader: &Reader, view: &PartitionView, spec: OffsetSpec) -> ListedOffset {
    match spec {
        OffsetSpec::Latest => ListedOffset::at(view.bounds().high_watermark),
        OffsetSpec::Earliest => ListedOffset::at(view.bounds().log_start_offset),
        OffsetSpec::Tiered => ListedOffset::NOT_FOUND,
        OffsetSpec::MaxTimestamp => max_timestamp(reader, view).await,
        OffsetSpec::AtOrAfter(target) => at_or_after(reader, view, target).await,
    }
}

/// The largest timestamp of any record; of several, the first. A header that promises more than its records hold, and
/// records below the log start, make the next batch in the order of promises a candidate.
async fn max_timestamp(reader: &Reader, view: &PartitionView) -> ListedOffset {
    let mut best: Option<ListedOffset> = None;
    let mut candidate = view.next_max_timestamp_batch(None);
    for _ in 0..BATCHES_SEARCHED {
        let Some(batch) = candidate.filter(|batch| best.is_none_or(|best| may_beat(batch, &best))) else {
            break;
        };
        match search(reader, view, &batch, Wanted::MaxTimestamp).await {
            Ok(Some(found)) if best.is_none_or(|best| order(&found) > order(&best)) => best = Some(found),
            Ok(_) => {}
            Err(error) => return ListedOffset::failed(error),
        }
        candidate = view.next_max_timestamp_batch(Some(&batch));
    }
    best.unwrap_or(ListedOffset::NOT_FOUND)
}

/// By timestamp, and of the same timestamp the earlier offset first.
fn order(found: &ListedOffset) -> (TimestampMs, Reverse<Offset>) {
    (found.timestamp, Reverse(found.offset))
}

fn may_beat(batch: &BatchCoordinate, best: &ListedOffset) -> bool {
    (batch.visible_max_timestamp(), Reverse(batch.base_offset)) > order(best)
}

async fn at_or_after(reader: &Reader, view: &PartitionView, target: TimestampMs) -> ListedOffset {
    let mut candidate = view.first_batch_at_or_after(target);
    for _ in 0..BATCHES_SEARCHED {
        let Some(batch) = candidate else {
            return ListedOffset::NOT_FOUND;
        };
        match search(reader, view, &batch, Wanted::AtOrAfter(target)).await {
            Ok(Some(found)) => return found,
            Ok(None) => candidate = view.next_batch_at_or_after(target, batch.base_offset),
            Err(error) => return ListedOffset::failed(error),
        }
    }
    candidate.map_or(ListedOffset::NOT_FOUND, |batch| whole(view, &batch))
}

/// Looks for a record in a batch, from the log start on if that lies inside. All records of a batch that is served
/// with LogAppendTime have the same timestamp, so there the first is the answer.
async fn search(
    reader: &Reader,
    view: &PartitionView,
    batch: &BatchCoordinate,
    wanted: Wanted,
) -> Result<Option<ListedOffset>, ErrorCode> {
    if batch.log_append_time {
        return Ok(Some(whole(view, batch)));
    }
    let stored = reader.read_stored(batch).await.map_err(|_| ErrorCode::KafkaStorageError)?;
    let log_start_offset = view.bounds().log_start_offset;
    let from = (log_start_offset - batch.base_offset).max(0);
    let from = i32::try_from(from).unwrap_or(i32::MAX);
    let mut search = RecordSearch::new(&stored, wanted, from).map_err(|_| ErrorCode::KafkaStorageError)?;
    let _turn = reader.search_turn().await;
    let found = loop {
        match search.advance(SEARCH_STEP) {
            Progress::More => tokio::task::yield_now().await,
            Progress::Done(found) => break found,
        }
    };
    if found.is_some_and(|found| found.precision == Precision::BatchGranularity) {
        let (segment, offset) = (batch.segment.id, batch.base_offset);
        tracing::warn!(%segment, offset, "a batch could not be searched by timestamp: answered with its beginning");
    }
    Ok(found.map(|record| ListedOffset {
        error: ErrorCode::None,
        offset: batch.base_offset + i64::from(record.offset_delta),
        timestamp: record.timestamp,
    }))
}

/// The batch as a whole: its first readable offset with its largest timestamp.
fn whole(view: &PartitionView, batch: &BatchCoordinate) -> ListedOffset {
    ListedOffset {
        error: ErrorCode::None,
        offset: batch.base_offset.max(view.bounds().log_start_offset),
        timestamp: batch.visible_max_timestamp(),
    }
}
