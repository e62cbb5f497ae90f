//! Reads the 61 bytes in front of the records. Says what is there, not whether it is allowed.

use crate::types::{Offset, TimestampMs};

/// Size of the header of a v2 batch.
pub const HEADER_SIZE: usize = 61;
/// Size of base offset and batch length, which the batch length does not count.
pub const LOG_OVERHEAD: usize = 12;
/// Producer id of a batch whose producer is not idempotent.
pub const NO_PRODUCER_ID: i64 = -1;
/// Timestamp of a record that has none.
pub const NO_TIMESTAMP: TimestampMs = -1;

pub(super) const MAGIC: i8 = 2;
pub(super) const TIMESTAMP_TYPE_BIT: i16 = 1 << 3;
const COMPRESSION_MASK: i16 = 0x07;
const TRANSACTIONAL_BIT: i16 = 1 << 4;
const CONTROL_BIT: i16 = 1 << 5;

/// How the records are compressed, as one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompressionType {
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

/// The header of one batch, as it was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    pub base_offset: Offset,
    /// Bytes after the batch length field.
    pub batch_length: i32,
    pub partition_leader_epoch: i32,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: TimestampMs,
    pub max_timestamp: TimestampMs,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub records_count: i32,
}

/// The bytes do not begin with the header of a v2 batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderError {
    #[error("{0} bytes are fewer than the 61 of a batch header")]
    TooShort(usize),
    #[error("magic {0} is not 2")]
    Magic(i8),
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeaderError> {
        // Before the size: a message of an older format may be shorter than a v2 header.
        if let Some(magic) = bytes.get(16).map(|magic| i8::from_be_bytes([*magic])).filter(|magic| *magic != MAGIC) {
            return Err(HeaderError::Magic(magic));
        }
        let header = bytes.first_chunk::<HEADER_SIZE>().ok_or(HeaderError::TooShort(bytes.len()))?;
        Ok(Self {
            base_offset: i64::from_be_bytes(field(header, 0)),
            batch_length: i32::from_be_bytes(field(header, 8)),
            partition_leader_epoch: i32::from_be_bytes(field(header, 12)),
            crc: u32::from_be_bytes(field(header, 17)),
            attributes: i16::from_be_bytes(field(header, 21)),
            last_offset_delta: i32::from_be_bytes(field(header, 23)),
            base_timestamp: i64::from_be_bytes(field(header, 27)),
            max_timestamp: i64::from_be_bytes(field(header, 35)),
            producer_id: i64::from_be_bytes(field(header, 43)),
            producer_epoch: i16::from_be_bytes(field(header, 51)),
            base_sequence: i32::from_be_bytes(field(header, 53)),
            records_count: i32::from_be_bytes(field(header, 57)),
        })
    }

    /// Size of the whole batch by its own account; `None` where the length is negative.
    pub fn size_in_bytes(&self) -> Option<usize> {
        usize::try_from(self.batch_length).ok().map(|length| length + LOG_OVERHEAD)
    }

    /// `None` for a codec that Kafka does not know.
    pub fn compression_type(&self) -> Option<CompressionType> {
        match self.attributes & COMPRESSION_MASK {
            0 => Some(CompressionType::None),
            1 => Some(CompressionType::Gzip),
            2 => Some(CompressionType::Snappy),
            3 => Some(CompressionType::Lz4),
            4 => Some(CompressionType::Zstd),
            _ => None,
        }
    }

    pub fn is_log_append_time(&self) -> bool {
        self.attributes & TIMESTAMP_TYPE_BIT != 0
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    pub fn is_idempotent(&self) -> bool {
        self.producer_id != NO_PRODUCER_ID
    }
}

/// The `N` bytes at `at`; the offsets above are constants inside the header.
fn field<const N: usize>(header: &[u8; HEADER_SIZE], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&header[at..at + N]);
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing::BatchBuilder;
    use super::*;

    #[test]
    fn every_field_is_read_from_its_place() {
        let batch = BatchBuilder::new().records(3).timestamp(1000).producer(7, 2, 40).build();
        let header = BatchHeader::parse(&batch).expect("valid");
        assert_eq!(header.size_in_bytes(), Some(batch.len()));
        assert_eq!((header.base_offset, header.last_offset_delta, header.records_count), (0, 2, 3));
        assert_eq!((header.base_timestamp, header.max_timestamp), (1000, 1002));
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (7, 2, 40));
        assert_eq!(header.compression_type(), Some(CompressionType::None));
        assert!(header.is_idempotent() && !header.is_control() && !header.is_transactional());
    }

    #[test]
    fn short_and_old_batches_are_told_apart() {
        let batch = BatchBuilder::new().build();
        assert_eq!(BatchHeader::parse(&batch[..60]), Err(HeaderError::TooShort(60)));
        let mut old = batch.to_vec();
        old[16] = 1;
        assert_eq!(BatchHeader::parse(&old), Err(HeaderError::Magic(1)));
        assert_eq!(BatchHeader::parse(&old[..34]), Err(HeaderError::Magic(1)), "old messages are small");
    }
}
