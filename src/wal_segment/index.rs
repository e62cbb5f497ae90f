//! The index of a segment as bytes: fixed width, little-endian, drawn in `FORMAT.md`.

use super::reader::SegmentError;
use super::{BatchMeta, PartitionBatches};
use crate::types::{LogId, LogPosition, TopicId, TopicPartition, WalSegmentId};

const HEAD_SIZE: usize = 16 + 8 + 8 + 4 + 4;
const PARTITION_SIZE: usize = 16 + 4 + 4;
const BATCH_SIZE: usize = 4 + 4 + 8 + 8 + 2 + 4 + 1;
const FOLLOWS_BIT: u8 = 1;

/// What a segment says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentIndex {
    pub log_id: LogId,
    pub segment: WalSegmentId,
    pub partitions: Vec<PartitionBatches>,
}

impl SegmentIndex {
    pub(super) fn encode(&self) -> Vec<u8> {
        let batches: usize = self.partitions.iter().map(|p| p.batches.len()).sum();
        let mut out = Vec::with_capacity(HEAD_SIZE + self.partitions.len() * PARTITION_SIZE + batches * BATCH_SIZE);
        out.extend(self.log_id.0);
        out.extend(self.segment.birth.0.to_le_bytes());
        out.extend(self.segment.epoch.0.to_le_bytes());
        out.extend(self.segment.sequence.to_le_bytes());
        put_count(&mut out, self.partitions.len());
        for partition in &self.partitions {
            out.extend(partition.partition.topic_id.0);
            out.extend(partition.partition.partition.to_le_bytes());
            put_count(&mut out, partition.batches.len());
            for batch in &partition.batches {
                put_batch(&mut out, batch);
            }
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, SegmentError> {
        let mut input = Input(bytes);
        let log_id = LogId(input.take()?);
        let segment = WalSegmentId {
            birth: LogPosition(i64::from_le_bytes(input.take()?)),
            epoch: LogPosition(i64::from_le_bytes(input.take()?)),
            sequence: u32::from_le_bytes(input.take()?),
        };
        let count = input.count(PARTITION_SIZE + BATCH_SIZE)?;
        let mut partitions = Vec::with_capacity(count);
        for _ in 0..count {
            partitions.push(input.partition()?);
        }
        if !input.0.is_empty() {
            return Err(SegmentError::BadIndex("bytes after the last batch"));
        }
        Ok(Self { log_id, segment, partitions })
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("a segment holds at most some thousand batches");
    out.extend(count.to_le_bytes());
}

fn put_batch(out: &mut Vec<u8>, batch: &BatchMeta) {
    out.extend(batch.byte_length.to_le_bytes());
    out.extend(batch.last_offset_delta.to_le_bytes());
    out.extend(batch.max_timestamp.to_le_bytes());
    out.extend(batch.producer_id.to_le_bytes());
    out.extend(batch.producer_epoch.to_le_bytes());
    out.extend(batch.base_sequence.to_le_bytes());
    out.push(if batch.follows { FOLLOWS_BIT } else { 0 });
}

/// What is left to read.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SegmentError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(SegmentError::BadIndex("it ends early"))?;
        self.0 = rest;
        Ok(*taken)
    }

    /// A count of things of at least `size` bytes, believed only where that many bytes are there.
    fn count(&mut self, size: usize) -> Result<usize, SegmentError> {
        let count = u32::from_le_bytes(self.take()?) as usize;
        if count > self.0.len() / size {
            return Err(SegmentError::BadIndex("a count that the bytes cannot hold"));
        }
        Ok(count)
    }

    fn partition(&mut self) -> Result<PartitionBatches, SegmentError> {
        let topic_id = TopicId(self.take()?);
        let partition = i32::from_le_bytes(self.take()?);
        let count = self.count(BATCH_SIZE)?;
        if count == 0 {
            return Err(SegmentError::BadIndex("a partition without batches"));
        }
        let mut batches = Vec::with_capacity(count);
        for _ in 0..count {
            batches.push(self.batch()?);
        }
        Ok(PartitionBatches { partition: TopicPartition { topic_id, partition }, batches })
    }

    fn batch(&mut self) -> Result<BatchMeta, SegmentError> {
        let mut batch = BatchMeta {
            byte_length: u32::from_le_bytes(self.take()?),
            last_offset_delta: u32::from_le_bytes(self.take()?),
            max_timestamp: i64::from_le_bytes(self.take()?),
            producer_id: i64::from_le_bytes(self.take()?),
            producer_epoch: i16::from_le_bytes(self.take()?),
            base_sequence: i32::from_le_bytes(self.take()?),
            follows: false,
        };
        let [flags] = self.take()?;
        if flags & !FOLLOWS_BIT != 0 {
            return Err(SegmentError::BadIndex("unknown flags"));
        }
        batch.follows = flags & FOLLOWS_BIT != 0;
        Ok(batch)
    }
}
