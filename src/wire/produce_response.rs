//! Writes our answer to a Produce request, versions 0 to 9.
//!
//! Never names a broker: the versions that do (10 and later) are not offered.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::StrBytes;
use super::produce_request::is_flexible;
use super::writer::{put_length, put_no_tagged_fields, put_nullable_string, put_string};
use crate::types::{ErrorCode, Offset, TimestampMs};

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProduceResponse {
    pub topics: Vec<ProduceTopicResponse>,
    pub throttle_time_ms: i32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProduceTopicResponse {
    pub name: StrBytes,
    pub partitions: Vec<ProducePartitionResponse>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProducePartitionResponse {
    pub index: i32,
    pub error: ErrorCode,
    pub base_offset: Offset,
    /// -1 where the topic keeps the producer's timestamps.
    pub log_append_time_ms: TimestampMs,
    /// Since version 5.
    pub log_start_offset: Offset,
    /// Since version 8: what is wrong with single records, by their index in the batch.
    pub record_errors: Vec<(i32, String)>,
    /// Since version 8.
    pub error_message: Option<String>,
}

impl ProducePartitionResponse {
    /// A partition whose records were not taken.
    pub fn refused(index: i32, error: ErrorCode, message: Option<String>) -> Self {
        Self {
            index,
            error,
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            record_errors: Vec::new(),
            error_message: message,
        }
    }
}

impl ProduceResponse {
    /// The whole frame, with its length in front. The version must be one that Produce requests are read in.
    pub fn encode(&self, correlation_id: i32, version: i16) -> Bytes {
        let flexible = is_flexible(version);
        let mut out = BytesMut::with_capacity(256);
        out.put_i32(0);
        out.put_i32(correlation_id);
        put_no_tagged_fields(&mut out, flexible);
        put_length(&mut out, flexible, self.topics.len());
        for topic in &self.topics {
            put_string(&mut out, flexible, &topic.name);
            put_length(&mut out, flexible, topic.partitions.len());
            for partition in &topic.partitions {
                put_partition(&mut out, version, partition);
            }
            put_no_tagged_fields(&mut out, flexible);
        }
        if version >= 1 {
            out.put_i32(self.throttle_time_ms);
        }
        put_no_tagged_fields(&mut out, flexible);
        let length = i32::try_from(out.len() - 4).unwrap_or(i32::MAX);
        out[..4].copy_from_slice(&length.to_be_bytes());
        out.freeze()
    }
}

fn put_partition(out: &mut BytesMut, version: i16, partition: &ProducePartitionResponse) {
    let flexible = is_flexible(version);
    out.put_i32(partition.index);
    out.put_i16(partition.error.code());
    out.put_i64(partition.base_offset);
    if version >= 2 {
        out.put_i64(partition.log_append_time_ms);
    }
    if version >= 5 {
        out.put_i64(partition.log_start_offset);
    }
    if version >= 8 {
        put_length(out, flexible, partition.record_errors.len());
        for (batch_index, message) in &partition.record_errors {
            out.put_i32(*batch_index);
            put_nullable_string(out, flexible, Some(message));
            put_no_tagged_fields(out, flexible);
        }
        put_nullable_string(out, flexible, partition.error_message.as_deref());
    }
    put_no_tagged_fields(out, flexible);
}

#[cfg(test)]
mod tests {
    use bytes::Buf as _;
    use kafka_protocol::messages::{ProduceResponse as Reference, ResponseHeader};
    use kafka_protocol::protocol::{Decodable as _, HeaderVersion as _};

    use super::*;

    fn answer() -> ProduceResponse {
        let good = ProducePartitionResponse {
            base_offset: 77,
            log_append_time_ms: 5,
            log_start_offset: 3,
            ..ProducePartitionResponse::refused(0, ErrorCode::None, None)
        };
        let bad = ProducePartitionResponse {
            record_errors: vec![(2, "no key".to_owned())],
            ..ProducePartitionResponse::refused(1, ErrorCode::InvalidRecord, Some("look at the records".to_owned()))
        };
        let topic = ProduceTopicResponse { name: StrBytes::from_static_str("t"), partitions: vec![good, bad] };
        ProduceResponse { topics: vec![topic], throttle_time_ms: 9 }
    }

    #[test]
    fn kafka_protocol_reads_every_version_back() {
        for version in 3..=9 {
            let mut frame = answer().encode(42, version);
            assert_eq!(frame.get_i32() as usize, frame.len());
            let header = ResponseHeader::decode(&mut frame, Reference::header_version(version)).expect("a header");
            assert_eq!(header.correlation_id, 42);
            let body = Reference::decode(&mut frame, version).expect("a body");
            assert!(frame.is_empty(), "version {version}");
            assert_eq!(body.throttle_time_ms, 9);
            let [good, bad] = &body.responses[0].partition_responses[..] else { panic!("two partitions") };
            assert_eq!((good.index, good.error_code, good.base_offset, good.log_append_time_ms), (0, 0, 77, 5));
            assert_eq!(good.log_start_offset, if version >= 5 { 3 } else { -1 });
            assert_eq!((bad.index, bad.error_code, bad.base_offset), (1, 87, -1));
            assert_eq!(bad.record_errors.len(), usize::from(version >= 8));
            assert_eq!(bad.error_message.as_deref(), (version >= 8).then_some("look at the records"));
        }
    }

    #[test]
    fn the_oldest_versions_have_fewer_fields() {
        // Length, correlation id, one topic "t" with two partitions of 14 bytes.
        let version_0 = 4 + 4 + 4 + 3 + 4 + 2 * 14;
        assert_eq!(answer().encode(1, 0).len(), version_0);
        assert_eq!(answer().encode(1, 1).len(), version_0 + 4);
        assert_eq!(answer().encode(1, 2).len(), version_0 + 4 + 2 * 8);
    }
}
