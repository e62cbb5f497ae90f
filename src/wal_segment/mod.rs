//! One object in the store: record batches of many partitions, and an index that says what it holds.

use serde::{Deserialize, Serialize};

use crate::types::TopicPartition;

/// What is known of one batch without its bytes. Travels in the segment's footer and in the commit command,
/// in the order of the bytes: a batch starts where the one before it ended, the first at byte 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BatchMeta {
    /// Size with the 12 bytes of base offset and length.
    pub byte_length: u32,
    /// The batch takes `last_offset_delta + 1` offsets.
    pub last_offset_delta: u32,
    pub max_timestamp: i64,
    /// -1 when the producer is not idempotent.
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    /// This proxy held an earlier unanswered batch of the same producer, epoch and partition when this one came.
    pub follows: bool,
}

/// The batches of one partition in a segment; they lie next to each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionBatches {
    pub partition: TopicPartition,
    pub batches: Vec<BatchMeta>,
}
