//! Reads what a segment says of itself. The bytes may be anything: no length is believed before it is checked.

use std::ops::Range;

use super::index::SegmentIndex;
use super::{FORMAT_VERSION, PartitionBatches};
use crate::record_batch::{HEADER_SIZE, checksum};

/// Bytes at the end of a segment that say where its index is.
pub const TRAILER_SIZE: usize = 16;
pub(super) const TRAILER_MAGIC: [u8; 8] = *b"SIDEWAL0";
/// The format version.
const HEAD_SIZE: u64 = 1;

/// The bytes are not a segment that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SegmentError {
    #[error("too short to be a WAL segment")]
    TooShort,
    #[error("format version {0} is not known")]
    Version(u8),
    #[error("it does not end as a WAL segment does")]
    Magic,
    #[error("the index is longer than the object")]
    IndexLength,
    #[error("the CRC of the index does not match")]
    IndexCrc,
    #[error("the index is not valid: {0}")]
    BadIndex(&'static str),
}

/// Where the index lies, by the last [`TRAILER_SIZE`] bytes of an object of this size.
pub fn index_range(trailer: &[u8; TRAILER_SIZE], object_size: u64) -> Result<Range<u64>, SegmentError> {
    if trailer[8..] != TRAILER_MAGIC {
        return Err(SegmentError::Magic);
    }
    let length = u32::from_le_bytes([trailer[4], trailer[5], trailer[6], trailer[7]]);
    let end = object_size.checked_sub(TRAILER_SIZE as u64).ok_or(SegmentError::TooShort)?;
    let start = end.checked_sub(u64::from(length)).filter(|s| *s >= HEAD_SIZE).ok_or(SegmentError::IndexLength)?;
    Ok(start..end)
}

/// Reads the index that lies in front of the trailer and starts at byte `index_start` of its object.
pub fn read_index(index: &[u8], trailer: &[u8; TRAILER_SIZE], index_start: u64) -> Result<SegmentIndex, SegmentError> {
    let crc = u32::from_le_bytes([trailer[0], trailer[1], trailer[2], trailer[3]]);
    if checksum([index]) != crc {
        return Err(SegmentError::IndexCrc);
    }
    let index = SegmentIndex::decode(index)?;
    let mut end = HEAD_SIZE;
    for batch in index.partitions.iter().flat_map(|p| &p.batches) {
        if (batch.byte_length as usize) < HEADER_SIZE {
            return Err(SegmentError::BadIndex("a batch shorter than its header"));
        }
        end += u64::from(batch.byte_length);
    }
    if end != index_start {
        return Err(SegmentError::BadIndex("the batches do not fill the segment"));
    }
    Ok(index)
}

/// Reads the index of a whole object.
pub fn read_object(object: &[u8]) -> Result<SegmentIndex, SegmentError> {
    let (body, trailer) = object.split_last_chunk::<TRAILER_SIZE>().ok_or(SegmentError::TooShort)?;
    match body.first() {
        None => return Err(SegmentError::TooShort),
        Some(&FORMAT_VERSION) => {}
        Some(&version) => return Err(SegmentError::Version(version)),
    }
    let range = index_range(trailer, object.len() as u64)?;
    let start = usize::try_from(range.start).map_err(|_| SegmentError::IndexLength)?;
    let index = body.get(start..).ok_or(SegmentError::IndexLength)?;
    read_index(index, trailer, range.start)
}

/// Where each batch lies, in the order of the bytes: the place of its partition in the list, its own place there,
/// and its bytes.
pub fn batch_ranges(partitions: &[PartitionBatches]) -> impl Iterator<Item = (usize, usize, Range<u64>)> {
    let mut start = HEAD_SIZE;
    partitions
        .iter()
        .enumerate()
        .flat_map(|(p, partition)| {
            partition.batches.iter().enumerate().map(move |(b, batch)| (p, b, u64::from(batch.byte_length)))
        })
        .map(move |(p, b, length)| {
            let range = start..start + length;
            start = range.end;
            (p, b, range)
        })
}
