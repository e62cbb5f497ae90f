//! Gives a batch its place, or says why it has none: Kafka's rules for idempotent producers
//! (`ProducerStateManager`, `ProducerAppendInfo`), with expiry in log time, and `follows` (R3).

use serde::{Deserialize, Serialize};

use crate::types::{ErrorCode, Offset, TimestampMs};
use crate::wal_segment::BatchMeta;

/// Kafka's `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`.
pub const REMEMBERED_BATCHES: usize = 5;
/// Kafka's default of `producer.id.expiration.ms`, counted in log time since the last accepted batch.
pub const PRODUCER_EXPIRATION_MS: i64 = 86_400_000;

/// What is remembered of one producer in one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProducerState {
    pub epoch: i16,
    /// Log time of its last accepted batch.
    pub last_time: TimestampMs,
    /// The last accepted batches of this epoch, oldest first, without gaps between the places in use.
    batches: [Option<RememberedBatch>; REMEMBERED_BATCHES],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RememberedBatch {
    pub first_sequence: i32,
    pub last_sequence: i32,
    pub base_offset: Offset,
    /// As it was answered the first time: -1 unless the topic stamps on append.
    pub log_append_time: TimestampMs,
}

/// What is to become of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    Append,
    Duplicate(RememberedBatch),
    Reject(ErrorCode),
}

/// Decides about one batch. `producer` is what is known of its producer in its partition, unless that expired.
pub fn place(producer: Option<&ProducerState>, batch: &BatchMeta) -> Placement {
    if i32::try_from(batch.last_offset_delta).is_err() {
        return Placement::Reject(ErrorCode::InvalidRecord);
    }
    if batch.producer_id == -1 {
        return Placement::Append;
    }
    if batch.producer_id < 0 || batch.producer_epoch < 0 || batch.base_sequence < 0 {
        return Placement::Reject(ErrorCode::InvalidRecord);
    }
    let Some(known) = producer else {
        // Kafka accepts any sequence of a producer that it does not know, since its state may have expired. Not so
        // while an earlier batch of it is unanswered: that one may have failed, and this one would hide it (R3).
        let out_of_order = batch.follows && batch.base_sequence != 0;
        return if out_of_order { Placement::Reject(ErrorCode::OutOfOrderSequenceNumber) } else { Placement::Append };
    };
    if let Some(first_time) = known.find_duplicate(batch) {
        return Placement::Duplicate(first_time);
    }
    if batch.producer_epoch < known.epoch {
        return Placement::Reject(ErrorCode::InvalidProducerEpoch);
    }
    let due = if batch.producer_epoch > known.epoch { 0 } else { known.next_sequence() };
    if batch.base_sequence == due { Placement::Append } else { Placement::Reject(ErrorCode::OutOfOrderSequenceNumber) }
}

impl ProducerState {
    /// The state after `batch` was accepted.
    pub fn after(
        known: Option<&Self>,
        batch: &BatchMeta,
        base_offset: Offset,
        log_append_time: TimestampMs,
        now: TimestampMs,
    ) -> Self {
        let mut batches = match known {
            Some(known) if known.epoch == batch.producer_epoch => known.batches,
            _ => [None; REMEMBERED_BATCHES],
        };
        let free = batches.iter().position(Option::is_none).unwrap_or_else(|| {
            batches.rotate_left(1);
            REMEMBERED_BATCHES - 1
        });
        batches[free] = Some(RememberedBatch {
            first_sequence: batch.base_sequence,
            last_sequence: last_sequence(batch),
            base_offset,
            log_append_time,
        });
        Self { epoch: batch.producer_epoch, last_time: now, batches }
    }

    pub fn is_expired(&self, now: TimestampMs) -> bool {
        now.saturating_sub(self.last_time) >= PRODUCER_EXPIRATION_MS
    }

    /// The remembered batches, oldest first.
    pub fn batches(&self) -> impl Iterator<Item = &RememberedBatch> {
        self.batches.iter().flatten()
    }

    fn find_duplicate(&self, batch: &BatchMeta) -> Option<RememberedBatch> {
        let same =
            |b: &&RememberedBatch| b.first_sequence == batch.base_sequence && b.last_sequence == last_sequence(batch);
        if self.epoch == batch.producer_epoch { self.batches().find(same).copied() } else { None }
    }

    fn next_sequence(&self) -> i32 {
        self.batches().last().map_or(0, |last| increment_sequence(last.last_sequence, 1))
    }
}

fn last_sequence(batch: &BatchMeta) -> i32 {
    increment_sequence(batch.base_sequence, i32::try_from(batch.last_offset_delta).unwrap_or(i32::MAX))
}

/// Kafka's `DefaultRecordBatch.incrementSequence`: 0 follows 2^31 - 1.
pub fn increment_sequence(sequence: i32, by: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(by);
    let wrapped = if sum > i64::from(i32::MAX) { sum - i64::from(i32::MAX) - 1 } else { sum };
    i32::try_from(wrapped).unwrap_or(0)
}

#[cfg(test)]
mod tests;
