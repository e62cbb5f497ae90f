//! The checks that Kafka makes of one partition's records in a Produce request, as far as the header and the CRC
//! can tell (`ProduceRequest.validateRecords`, `UnifiedLog.analyzeAndValidateRecords`, `LogValidator`).
//!
//! Never decompresses: a producer that lies inside its records harms its own consumers and nobody's offsets.

use super::header::{BatchHeader, CompressionType, HEADER_SIZE, HeaderError, NO_TIMESTAMP};
use super::pieces::{CRC_COVERS_FROM, checksum};
use crate::types::{ErrorCode, TimestampMs};

/// The topic's settings that bound a batch, and the time at which it came.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_message_bytes: i32,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    /// On LogAppendTime topics the producer's timestamps are replaced, so they are not checked.
    pub log_append_time: bool,
    pub now: TimestampMs,
}

/// Why a batch is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidBatch {
    #[error("{message}")]
    Refused { code: ErrorCode, message: &'static str },
    /// Valid in Kafka, but not yet possible on a diskless topic.
    #[error("transactional batches are not supported on diskless topics")]
    Transactional,
}

/// Checks one partition's records. Whether an idempotent producer is required is for the caller to say
/// ([`BatchHeader::is_idempotent`]).
pub fn validate(bytes: &[u8], limits: &Limits) -> Result<BatchHeader, InvalidBatch> {
    let header = check_framing(bytes)?;
    if header.base_offset != 0 {
        return refuse(ErrorCode::InvalidRecord, "the base offset of a produced batch must be 0");
    }
    if bytes.len() > usize::try_from(limits.max_message_bytes).unwrap_or(0) {
        return refuse(ErrorCode::MessageTooLarge, "the batch is larger than max.message.bytes");
    }
    if checksum([&bytes[CRC_COVERS_FROM..]]) != header.crc {
        return refuse(ErrorCode::CorruptMessage, "the CRC of the batch does not match");
    }
    check_counts_and_flags(&header)?;
    check_timestamps(&header, limits)?;
    if header.is_transactional() {
        return Err(InvalidBatch::Transactional);
    }
    Ok(header)
}

/// Exactly one whole v2 batch.
fn check_framing(bytes: &[u8]) -> Result<BatchHeader, InvalidBatch> {
    if bytes.is_empty() {
        return refuse(ErrorCode::InvalidRecord, "there must be exactly one record batch per partition");
    }
    let header = match BatchHeader::parse(bytes) {
        Ok(header) => header,
        Err(HeaderError::Magic(_)) => {
            return refuse(ErrorCode::InvalidRecord, "only record batches of magic 2 are accepted");
        }
        Err(HeaderError::TooShort(_)) => {
            return refuse(ErrorCode::CorruptMessage, "the batch is shorter than its header");
        }
    };
    match header.size_in_bytes() {
        None => refuse(ErrorCode::CorruptMessage, "the batch length is negative"),
        Some(size) if size < HEADER_SIZE => refuse(ErrorCode::CorruptMessage, "the batch is shorter than its header"),
        Some(size) if size > bytes.len() => refuse(ErrorCode::InvalidRecord, "the batch is cut short"),
        Some(size) if size < bytes.len() => {
            refuse(ErrorCode::InvalidRecord, "there must be exactly one record batch per partition")
        }
        Some(_) => Ok(header),
    }
}

fn check_counts_and_flags(header: &BatchHeader) -> Result<(), InvalidBatch> {
    if header.records_count <= 0 || header.last_offset_delta != header.records_count - 1 {
        return refuse(ErrorCode::InvalidRecord, "the records count does not match the last offset delta");
    }
    if header.is_control() {
        return refuse(ErrorCode::InvalidRecord, "clients must not write control batches");
    }
    if header.is_idempotent() && (header.producer_id < 0 || header.producer_epoch < 0 || header.base_sequence < 0) {
        return refuse(ErrorCode::InvalidRecord, "a batch with a producer id needs an epoch and a sequence");
    }
    match header.compression_type() {
        Some(
            CompressionType::None
            | CompressionType::Gzip
            | CompressionType::Snappy
            | CompressionType::Lz4
            | CompressionType::Zstd,
        ) => Ok(()),
        None => refuse(ErrorCode::InvalidRecord, "the compression codec is unknown"),
    }
}

fn check_timestamps(header: &BatchHeader, limits: &Limits) -> Result<(), InvalidBatch> {
    if header.is_log_append_time() {
        return refuse(ErrorCode::InvalidTimestamp, "a producer must not set the timestamp type to LogAppendTime");
    }
    if limits.log_append_time {
        return Ok(());
    }
    let oldest = limits.now.saturating_sub(limits.timestamp_before_max_ms);
    let newest = limits.now.saturating_add(limits.timestamp_after_max_ms);
    let is_out_of_bounds = |time: TimestampMs| time != NO_TIMESTAMP && (time < oldest || time > newest);
    if is_out_of_bounds(header.base_timestamp) || is_out_of_bounds(header.max_timestamp) {
        return refuse(ErrorCode::InvalidTimestamp, "a timestamp is outside message.timestamp.{before,after}.max.ms");
    }
    Ok(())
}

fn refuse<T>(code: ErrorCode, message: &'static str) -> Result<T, InvalidBatch> {
    Err(InvalidBatch::Refused { code, message })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::super::testing::BatchBuilder;
    use super::*;

    const NOW: i64 = 1_000_000_000;
    const LIMITS: Limits = Limits {
        max_message_bytes: 1_048_588,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: 3_600_000,
        log_append_time: false,
        now: NOW,
    };

    fn valid() -> BatchBuilder {
        BatchBuilder::new().records(3).timestamp(NOW)
    }

    fn code(bytes: &[u8], limits: &Limits) -> Option<ErrorCode> {
        match validate(bytes, limits) {
            Err(InvalidBatch::Refused { code, .. }) => Some(code),
            Err(InvalidBatch::Transactional) => Some(ErrorCode::PolicyViolation),
            Ok(_) => None,
        }
    }

    #[track_caller]
    fn check(expected: Option<ErrorCode>, bytes: &Bytes) {
        assert_eq!(code(bytes, &LIMITS), expected);
    }

    #[test]
    fn valid_batches_pass() {
        check(None, &valid().build());
        check(None, &valid().producer(1, 0, i32::MAX).build());
        check(None, &valid().attributes(4).build());
        check(None, &valid().timestamp(NO_TIMESTAMP).max_timestamp(NO_TIMESTAMP).build());
        check(None, &valid().timestamp(0).build());
    }

    #[test]
    fn exactly_one_whole_batch_of_magic_2_is_accepted() {
        let batch = valid().build();
        check(Some(ErrorCode::InvalidRecord), &Bytes::new());
        check(Some(ErrorCode::CorruptMessage), &batch.slice(..60));
        check(Some(ErrorCode::InvalidRecord), &batch.slice(..batch.len() - 1));
        check(Some(ErrorCode::InvalidRecord), &[batch.clone(), batch.clone()].concat().into());
        check(Some(ErrorCode::InvalidRecord), &valid().magic(1).build());
        check(Some(ErrorCode::CorruptMessage), &valid().batch_length(-1).build());
        check(Some(ErrorCode::CorruptMessage), &valid().batch_length(48).build());
        check(Some(ErrorCode::InvalidRecord), &valid().base_offset(1).build());
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let batch = valid().build();
        for at in 21..batch.len() {
            let mut broken = batch.to_vec();
            broken[at] ^= 1;
            assert_eq!(code(&broken, &LIMITS), Some(ErrorCode::CorruptMessage), "byte {at}");
        }
    }

    #[test]
    fn counts_and_flags_are_checked() {
        check(Some(ErrorCode::InvalidRecord), &valid().last_offset_delta(3).build());
        check(Some(ErrorCode::InvalidRecord), &valid().last_offset_delta(-1).records_count(0).build());
        check(Some(ErrorCode::InvalidRecord), &valid().last_offset_delta(i32::MAX).records_count(i32::MIN).build());
        check(Some(ErrorCode::InvalidRecord), &valid().attributes(0x20).build());
        check(Some(ErrorCode::InvalidRecord), &valid().attributes(5).build());
        check(Some(ErrorCode::InvalidRecord), &valid().producer(1, 0, -1).build());
        check(Some(ErrorCode::InvalidRecord), &valid().producer(1, -1, 0).build());
        check(Some(ErrorCode::InvalidRecord), &valid().producer(-2, 0, 0).build());
        check(Some(ErrorCode::PolicyViolation), &valid().producer(1, 0, 0).attributes(0x10).build());
    }

    #[test]
    fn size_is_bounded_with_the_log_overhead() {
        let batch = valid().build();
        let size = i32::try_from(batch.len()).expect("small");
        assert_eq!(code(&batch, &Limits { max_message_bytes: size, ..LIMITS }), None);
        let limits = Limits { max_message_bytes: size - 1, ..LIMITS };
        assert_eq!(code(&batch, &limits), Some(ErrorCode::MessageTooLarge));
    }

    #[test]
    fn timestamps_are_bounded_unless_the_log_sets_them() {
        let early = valid().timestamp(NOW - 11_000).build();
        let late = valid().max_timestamp(NOW + 3_600_001).build();
        let limits = Limits { timestamp_before_max_ms: 10_000, ..LIMITS };
        assert_eq!(code(&early, &limits), Some(ErrorCode::InvalidTimestamp));
        assert_eq!(code(&late, &limits), Some(ErrorCode::InvalidTimestamp));
        let appended = Limits { log_append_time: true, ..limits };
        assert_eq!((code(&early, &appended), code(&late, &appended)), (None, None));
        check(Some(ErrorCode::InvalidTimestamp), &valid().attributes(8).build());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = validate(&bytes, &LIMITS);
        }
    }
}
