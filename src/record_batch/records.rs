//! Looks for a record inside a batch by its timestamp.
//!
//! Exact for uncompressed batches. Inside compressed ones nothing is looked at yet: the answer is the whole batch,
//! its base offset with its max timestamp, and says so ([`Precision::BatchGranularity`]). That is never after the
//! right record, so a consumer that seeks there misses nothing.

use super::header::{BatchHeader, CompressionType, HEADER_SIZE, HeaderError};
use crate::types::TimestampMs;

/// How close an answer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    Exact,
    /// The batch holds the record, at or after this offset.
    BatchGranularity,
}

/// A record found by its timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundRecord {
    /// To be added to the batch's base offset.
    pub offset_delta: i32,
    pub timestamp: TimestampMs,
    pub precision: Precision,
}

/// The records cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordsError {
    #[error(transparent)]
    Header(#[from] HeaderError),
    #[error("the batch has fewer whole records than it says")]
    Truncated,
}

/// The first record with a timestamp of at least `target`, of those from `from_delta` on.
pub fn first_record_at_or_after(
    batch: &[u8],
    target: TimestampMs,
    from_delta: i32,
) -> Result<Option<FoundRecord>, RecordsError> {
    let header = BatchHeader::parse(batch)?;
    if !is_readable(&header) {
        let whole = FoundRecord { offset_delta: from_delta.max(0), ..whole_batch(&header) };
        return Ok((header.max_timestamp >= target).then_some(whole));
    }
    for record in Records::of(batch, &header) {
        let record = record?;
        if record.timestamp >= target && record.offset_delta >= from_delta {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

/// The record with the largest timestamp; of several, the first.
pub fn max_timestamp_record(batch: &[u8]) -> Result<Option<FoundRecord>, RecordsError> {
    let header = BatchHeader::parse(batch)?;
    if !is_readable(&header) {
        return Ok(Some(whole_batch(&header)));
    }
    let mut best: Option<FoundRecord> = None;
    for record in Records::of(batch, &header) {
        let record = record?;
        if best.is_none_or(|b| record.timestamp > b.timestamp) {
            best = Some(record);
        }
    }
    Ok(best)
}

fn is_readable(header: &BatchHeader) -> bool {
    header.compression_type() == Some(CompressionType::None)
}

fn whole_batch(header: &BatchHeader) -> FoundRecord {
    FoundRecord { offset_delta: 0, timestamp: header.max_timestamp, precision: Precision::BatchGranularity }
}

/// Walks uncompressed records; looks only at the first three fields of each.
struct Records<'a> {
    rest: &'a [u8],
    left: i32,
    base_timestamp: TimestampMs,
}

impl<'a> Records<'a> {
    fn of(batch: &'a [u8], header: &BatchHeader) -> Self {
        Self { rest: &batch[HEADER_SIZE..], left: header.records_count, base_timestamp: header.base_timestamp }
    }

    fn read(&mut self) -> Option<FoundRecord> {
        let length = usize::try_from(varint(&mut self.rest)?).ok()?;
        let mut record = self.rest.get(..length)?;
        self.rest = &self.rest[length..];
        let (_attributes, fields) = record.split_first()?;
        record = fields;
        let timestamp_delta = varint(&mut record)?;
        let offset_delta = i32::try_from(varint(&mut record)?).ok()?;
        let timestamp = self.base_timestamp.wrapping_add(timestamp_delta);
        Some(FoundRecord { offset_delta, timestamp, precision: Precision::Exact })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<FoundRecord, RecordsError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left <= 0 {
            return None;
        }
        self.left -= 1;
        let record = self.read();
        if record.is_none() {
            self.left = 0;
        }
        Some(record.ok_or(RecordsError::Truncated))
    }
}

/// A zigzag varint of at most ten bytes, as Kafka's `ByteUtils.readVarlong`.
fn varint(rest: &mut &[u8]) -> Option<i64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::BatchBuilder;
    use super::*;

    fn exact(offset_delta: i32, timestamp: i64) -> Result<Option<FoundRecord>, RecordsError> {
        Ok(Some(FoundRecord { offset_delta, timestamp, precision: Precision::Exact }))
    }

    #[test]
    fn timestamps_need_not_grow_inside_a_batch() {
        let batch = BatchBuilder::new().timestamps(&[1000, 5000, 3000, 5000]).build();
        assert_eq!(first_record_at_or_after(&batch, 0, 0), exact(0, 1000));
        assert_eq!(first_record_at_or_after(&batch, 2000, 0), exact(1, 5000));
        assert_eq!(first_record_at_or_after(&batch, 2000, 2), exact(2, 3000), "of those from the third on");
        assert_eq!(first_record_at_or_after(&batch, 5001, 0), Ok(None));
        assert_eq!(max_timestamp_record(&batch), exact(1, 5000), "of several, the first");
    }

    #[test]
    fn compressed_batches_answer_as_a_whole() {
        let batch = BatchBuilder::new().timestamps(&[1000, 5000]).attributes(4).build();
        let whole = FoundRecord { offset_delta: 0, timestamp: 5000, precision: Precision::BatchGranularity };
        assert_eq!(first_record_at_or_after(&batch, 2000, 0), Ok(Some(whole)));
        assert_eq!(first_record_at_or_after(&batch, 5001, 0), Ok(None));
        assert_eq!(max_timestamp_record(&batch), Ok(Some(whole)));
    }

    #[test]
    fn missing_records_are_an_error_not_an_end() {
        let batch = BatchBuilder::new().timestamps(&[1, 2]).records_count(3).build();
        assert_eq!(first_record_at_or_after(&batch, 9, 0), Err(RecordsError::Truncated));
    }

    proptest! {
        #[test]
        fn no_records_make_it_panic(tail in prop::collection::vec(any::<u8>(), 0..100), count in any::<i32>()) {
            let mut batch = BatchBuilder::new().records_count(count).build().to_vec();
            batch.truncate(HEADER_SIZE);
            batch.extend(tail);
            let _ = max_timestamp_record(&batch);
            let _ = first_record_at_or_after(&batch, 5, 0);
        }
    }
}
