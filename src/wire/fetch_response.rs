//! Writes our answer to a Fetch request, versions 4 to 15, as a list of pieces: headers of ours, records as they are.
//!
//! Record bytes are never copied. Never names a broker: no preferred replica, no current leader.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::TopicRef;
use super::fetch_request::{has_topic_ids, is_flexible};
use super::writer::{put_length, put_no_tagged_fields, put_null, put_string};
use crate::types::{ErrorCode, Offset};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchResponse {
    pub throttle_time_ms: i32,
    /// Since version 7.
    pub error: ErrorCode,
    /// Since version 7. 0 makes the client send full requests (KIP-227).
    pub session_id: i32,
    /// Whether the client asked with read_committed, and so expects a list of aborted transactions.
    pub read_committed: bool,
    pub topics: Vec<FetchTopicResponse>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchTopicResponse {
    /// As the request named it: by name up to version 12, by id since version 13.
    pub topic: TopicRef,
    pub partitions: Vec<FetchPartitionResponse>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FetchPartitionResponse {
    pub partition: i32,
    pub error: ErrorCode,
    pub high_watermark: Offset,
    pub last_stable_offset: Offset,
    /// Since version 5.
    pub log_start_offset: Offset,
    /// Record batches in order, in pieces of any size. None gives an empty record set, never a null one:
    /// librdkafka fails on that.
    pub records: Vec<Bytes>,
}

impl FetchPartitionResponse {
    /// A partition that cannot be read now.
    pub fn refused(partition: i32, error: ErrorCode) -> Self {
        Self { partition, error, high_watermark: -1, last_stable_offset: -1, log_start_offset: -1, records: Vec::new() }
    }
}

impl FetchResponse {
    /// An answer without any topic.
    pub fn error(error: ErrorCode) -> Self {
        Self { throttle_time_ms: 0, error, session_id: 0, read_committed: false, topics: Vec::new() }
    }

    /// The whole frame in pieces, its length in front. The version must be one that Fetch requests are read in.
    pub fn encode(&self, correlation_id: i32, version: i16) -> Vec<Bytes> {
        let mut out = Pieces::default();
        let flexible = is_flexible(version);
        out.headers.put_i32(0);
        out.headers.put_i32(correlation_id);
        put_no_tagged_fields(&mut out.headers, flexible);
        out.headers.put_i32(self.throttle_time_ms);
        if version >= 7 {
            out.headers.put_i16(self.error.code());
            out.headers.put_i32(self.session_id);
        }
        put_length(&mut out.headers, flexible, self.topics.len());
        for topic in &self.topics {
            put_topic(&mut out.headers, version, &topic.topic);
            put_length(&mut out.headers, flexible, topic.partitions.len());
            for partition in &topic.partitions {
                put_partition(&mut out, version, self.read_committed, partition);
            }
            put_no_tagged_fields(&mut out.headers, flexible);
        }
        put_no_tagged_fields(&mut out.headers, flexible);
        out.finish()
    }
}

fn put_topic(out: &mut BytesMut, version: i16, topic: &TopicRef) {
    match topic {
        TopicRef::Id(id) if has_topic_ids(version) => out.put_slice(&id.0),
        TopicRef::Name(name) if !has_topic_ids(version) => put_string(out, is_flexible(version), name),
        // The caller answers with what the request named; anything else is a fault of ours, and nobody's topic.
        TopicRef::Id(_) => put_string(out, is_flexible(version), ""),
        TopicRef::Name(_) => out.put_slice(&[0; 16]),
    }
}

fn put_partition(out: &mut Pieces, version: i16, read_committed: bool, partition: &FetchPartitionResponse) {
    let flexible = is_flexible(version);
    let headers = &mut out.headers;
    headers.put_i32(partition.partition);
    headers.put_i16(partition.error.code());
    headers.put_i64(partition.high_watermark);
    headers.put_i64(partition.last_stable_offset);
    if version >= 5 {
        headers.put_i64(partition.log_start_offset);
    }
    if has_aborted_list(partition.error, read_committed) {
        put_length(headers, flexible, 0);
    } else {
        put_null(headers, flexible);
    }
    if version >= 11 {
        // No preferred read replica.
        headers.put_i32(-1);
    }
    put_length(headers, flexible, partition.records.iter().map(Bytes::len).sum());
    for records in &partition.records {
        out.put_records(records);
    }
    put_no_tagged_fields(&mut out.headers, flexible);
}

/// Whether aborted transactions are an empty list or null. Kafka gives a list to those who read committed records, and
/// beside the errors that it finds before it looks at the log; null beside those that it finds there.
fn has_aborted_list(error: ErrorCode, read_committed: bool) -> bool {
    match error {
        ErrorCode::None => read_committed,
        ErrorCode::UnknownTopicOrPartition
        | ErrorCode::TopicAuthorizationFailed
        | ErrorCode::UnknownTopicId
        | ErrorCode::InconsistentTopicId => true,
        _ => false,
    }
}

/// All header bytes in one buffer, and where record bytes go between them.
#[derive(Default)]
struct Pieces {
    headers: BytesMut,
    records: Vec<(usize, Bytes)>,
    record_bytes: usize,
}

impl Pieces {
    fn put_records(&mut self, records: &Bytes) {
        if !records.is_empty() {
            self.record_bytes += records.len();
            self.records.push((self.headers.len(), records.clone()));
        }
    }

    fn finish(mut self) -> Vec<Bytes> {
        let length = self.headers.len() - 4 + self.record_bytes;
        let length = i32::try_from(length).unwrap_or(i32::MAX);
        self.headers[..4].copy_from_slice(&length.to_be_bytes());
        let headers = self.headers.freeze();
        let mut pieces = Vec::with_capacity(2 * self.records.len() + 1);
        let mut from = 0;
        for (at, records) in self.records {
            if at > from {
                pieces.push(headers.slice(from..at));
            }
            pieces.push(records);
            from = at;
        }
        if from < headers.len() {
            pieces.push(headers.slice(from..));
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use bytes::Buf as _;
    use kafka_protocol::messages::{FetchResponse as Reference, ResponseHeader};
    use kafka_protocol::protocol::{Decodable as _, HeaderVersion as _};
    use proptest::prelude::*;

    use super::*;
    use crate::types::TopicId;
    use crate::wire::StrBytes;

    fn answer(version: i16, partitions: Vec<Vec<Bytes>>, read_committed: bool) -> FetchResponse {
        let topic = if has_topic_ids(version) {
            TopicRef::Id(TopicId([7; 16]))
        } else {
            TopicRef::Name(StrBytes::from_static_str("t"))
        };
        let partitions = partitions.into_iter().zip(0..).map(|(records, partition)| FetchPartitionResponse {
            partition,
            error: ErrorCode::None,
            high_watermark: 10,
            last_stable_offset: 9,
            log_start_offset: 3,
            records,
        });
        let topics = vec![FetchTopicResponse { topic, partitions: partitions.collect() }];
        FetchResponse { throttle_time_ms: 4, error: ErrorCode::None, session_id: 0, read_committed, topics }
    }

    fn decode(pieces: &[Bytes], version: i16) -> Reference {
        let mut frame = Bytes::from(pieces.concat());
        assert_eq!(frame.get_i32() as usize, frame.len());
        let header = ResponseHeader::decode(&mut frame, Reference::header_version(version)).expect("a header");
        assert_eq!(header.correlation_id, 42);
        let body = Reference::decode(&mut frame, version).expect("a body");
        assert!(frame.is_empty(), "version {version}");
        body
    }

    proptest! {
        #[test]
        fn kafka_protocol_reads_every_version_back(
            version in 4i16..=15,
            read_committed: bool,
            records in proptest::collection::vec(
                proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..3), 0..4),
        ) {
            let records: Vec<Vec<Bytes>> =
                records.into_iter().map(|p| p.into_iter().map(Bytes::from).collect()).collect();
            let pieces = answer(version, records.clone(), read_committed).encode(42, version);
            let body = decode(&pieces, version);
            prop_assert_eq!(body.throttle_time_ms, 4);
            let topic = &body.responses[0];
            prop_assert_eq!(&**topic.topic, if version >= 13 { "" } else { "t" });
            prop_assert_eq!(topic.topic_id.is_nil(), version < 13);
            prop_assert_eq!(topic.partitions.len(), records.len());
            for (partition, records) in topic.partitions.iter().zip(records) {
                prop_assert_eq!(partition.records.as_deref(), Some(&records.concat()[..]));
                prop_assert_eq!((partition.high_watermark, partition.last_stable_offset), (10, 9));
                prop_assert_eq!(partition.log_start_offset, if version >= 5 { 3 } else { -1 });
                prop_assert_eq!(partition.aborted_transactions.as_ref().map(Vec::len), read_committed.then_some(0));
                prop_assert_eq!(*partition.preferred_read_replica, -1);
            }
        }
    }

    #[test]
    fn record_bytes_are_not_copied() {
        let records = Bytes::from_static(b"a batch");
        let pieces = answer(12, vec![vec![records.clone()]], false).encode(42, 12);
        assert!(pieces.iter().any(|p| p.as_ptr() == records.as_ptr() && p.len() == records.len()));
    }

    #[test]
    fn no_records_are_an_empty_set_and_not_null() {
        for version in 4..=15 {
            let body = decode(&answer(version, vec![vec![]], true).encode(42, version), version);
            assert_eq!(body.responses[0].partitions[0].records, Some(Bytes::new()));
        }
    }

    #[test]
    fn aborted_transactions_are_null_or_empty_as_in_kafka() {
        for (error, read_committed, is_list) in [
            (ErrorCode::None, false, false),
            (ErrorCode::None, true, true),
            (ErrorCode::UnknownTopicOrPartition, false, true),
            (ErrorCode::UnknownTopicId, true, true),
            (ErrorCode::OffsetOutOfRange, true, false),
            (ErrorCode::NotLeaderOrFollower, true, false),
        ] {
            let mut response = answer(12, vec![vec![]], read_committed);
            response.topics[0].partitions[0] = FetchPartitionResponse::refused(0, error);
            let body = decode(&response.encode(42, 12), 12);
            let aborted = &body.responses[0].partitions[0].aborted_transactions;
            assert_eq!(aborted.is_some(), is_list, "{error:?} with read_committed={read_committed}");
        }
    }

    #[test]
    fn a_whole_error_names_no_topic() {
        let body = decode(&FetchResponse::error(ErrorCode::FetchSessionIdNotFound).encode(42, 7), 7);
        assert_eq!((body.error_code, body.responses.len()), (70, 0));
    }
}
