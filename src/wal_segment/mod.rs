//! One object in the store: record batches of many partitions, and an index that says what it holds.
#![doc = include_str!("FORMAT.md")]

mod builder;
mod index;
mod object_key;
mod reader;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::record_batch::BatchHeader;
use crate::types::TopicPartition;

pub use builder::{SegmentImage, build};
pub use index::SegmentIndex;
pub use object_key::{BadObjectKey, log_prefix, object_key, parse_object_key, wal_prefix};
pub use reader::{SegmentError, TRAILER_SIZE, batch_ranges, index_range, read_index, read_object};

/// Byte 0 of every segment.
pub const FORMAT_VERSION: u8 = 0;

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

impl BatchMeta {
    /// What the header of a validated batch says.
    pub fn of(header: &BatchHeader, byte_length: u32, follows: bool) -> Self {
        Self {
            byte_length,
            last_offset_delta: u32::try_from(header.last_offset_delta).unwrap_or(0),
            max_timestamp: header.max_timestamp,
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
            follows,
        }
    }
}

/// The batches of one partition in a segment; they lie next to each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartitionBatches {
    pub partition: TopicPartition,
    pub batches: Vec<BatchMeta>,
}
