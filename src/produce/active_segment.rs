//! The segment that is being filled: a plain accumulator. Whoever owns it decides when it is rolled.

use bytes::Bytes;
use tokio::time::Instant;

use super::answers::Slot;
use super::follows::Stream;
use super::roll::Fill;
use crate::diskless_coordinator::command::CommitSegment;
use crate::types::{LogId, TopicPartition, WalSegmentId};
use crate::wal_segment::{BatchMeta, SegmentImage, build};

/// A batch that waits for its place in the log.
pub(super) struct PendingBatch {
    pub(super) partition: TopicPartition,
    pub(super) meta: BatchMeta,
    pub(super) bytes: Bytes,
    pub(super) stream: Option<Stream>,
    pub(super) slot: Slot,
}

/// Batches in the order in which they came. Its id is made when the first byte comes (R7).
pub(super) struct ActiveSegment {
    id: WalSegmentId,
    fill: Fill,
    batches: Vec<PendingBatch>,
}

/// A segment that takes no more batches, taken apart for those who go on with it.
pub(super) struct RolledSegment {
    /// The object's bytes, for the upload.
    pub(super) parts: Vec<Bytes>,
    /// What is asked of the log once they are durable.
    pub(super) commit: CommitSegment,
    /// One for each batch of the commit, in its order.
    pub(super) answers: Vec<PendingAnswer>,
}

/// What is left of a batch once its bytes are in the image.
pub(super) struct PendingAnswer {
    pub(super) stream: Option<Stream>,
    pub(super) base_sequence: i32,
    pub(super) slot: Slot,
}

impl ActiveSegment {
    pub(super) fn new(id: WalSegmentId, now: Instant) -> Self {
        Self { id, fill: Fill { first: now, last: now, bytes: 0, batches: 0 }, batches: Vec::new() }
    }

    pub(super) fn fill(&self) -> Fill {
        self.fill
    }

    pub(super) fn push(&mut self, batch: PendingBatch, now: Instant) {
        self.fill.last = now;
        self.fill.bytes += batch.bytes.len();
        self.fill.batches += 1;
        self.batches.push(batch);
    }

    /// Groups the batches by partition as the image does: both sorts are stable.
    pub(super) fn into_rolled(mut self, log_id: LogId) -> RolledSegment {
        self.batches.sort_by_key(|batch| batch.partition);
        let bytes = self.batches.iter().map(|batch| (batch.partition, batch.meta, batch.bytes.clone()));
        let SegmentImage { segment, parts, size, partitions } = build(log_id, self.id, bytes);
        let answers = self.batches.into_iter().map(|batch| PendingAnswer {
            stream: batch.stream,
            base_sequence: batch.meta.base_sequence,
            slot: batch.slot,
        });
        let commit = CommitSegment { segment, object_size: size, partitions };
        RolledSegment { parts, commit, answers: answers.collect() }
    }
}
