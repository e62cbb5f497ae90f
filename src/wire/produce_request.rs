//! Reads a Produce request body, versions 3 to 9, without copying: names and records are slices of the frame.
//!
//! Never looks inside the records, and does not judge the request: that is for whoever answers it.

use std::ops::Range;

use bytes::Bytes;

use super::reader::Reader;
use super::{StrBytes, WireError};

pub const API_KEY: i16 = 0;
/// Versions 0 to 2 carry record formats that Kafka 4 refuses as well.
pub const FIRST_VERSION: i16 = 3;
pub const LAST_VERSION: i16 = 9;
/// The first version with compact lengths and tagged fields.
const FLEXIBLE_VERSION: i16 = 9;
/// Partitions in one request, against frames that are nothing but counts.
const MAX_PARTITIONS: usize = 200_000;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProduceRequest {
    pub transactional_id: Option<StrBytes>,
    pub acks: i16,
    pub timeout_ms: i32,
    pub topics: Vec<ProduceTopic>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProduceTopic {
    pub name: StrBytes,
    pub partitions: Vec<ProducePartition>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProducePartition {
    pub index: i32,
    pub records: Option<Bytes>,
}

/// Whether a version has compact lengths and tagged fields.
pub(super) fn is_flexible(version: i16) -> bool {
    version >= FLEXIBLE_VERSION
}

pub(super) fn check_version(version: i16) -> Result<(), WireError> {
    if (FIRST_VERSION..=LAST_VERSION).contains(&version) {
        Ok(())
    } else {
        Err(WireError::UnsupportedVersion { api_key: API_KEY, version })
    }
}

impl ProduceRequest {
    /// Reads a body that must be exactly one request.
    pub fn read(version: i16, body: &Bytes) -> Result<Self, WireError> {
        check_version(version)?;
        let mut read = Read { body, reader: Reader::new(body), flexible: is_flexible(version), partitions: 0 };
        let request = read.request()?;
        read.reader.finish()?;
        Ok(request)
    }
}

struct Read<'a> {
    body: &'a Bytes,
    reader: Reader<'a>,
    flexible: bool,
    partitions: usize,
}

impl Read<'_> {
    fn request(&mut self) -> Result<ProduceRequest, WireError> {
        let transactional_id = self.reader.nullable_string("TransactionalId", self.flexible)?;
        let transactional_id = transactional_id.map(|at| text(self.body, "TransactionalId", at)).transpose()?;
        let acks = self.reader.int16("Acks")?;
        let timeout_ms = self.reader.int32("TimeoutMs")?;
        // The smallest topic: an empty name and no partitions.
        let smallest = if self.flexible { 3 } else { 6 };
        let count = required("TopicData", self.reader.count("TopicData", self.flexible, smallest)?)?;
        self.spend(count)?;
        let mut topics = Vec::with_capacity(count);
        for _ in 0..count {
            topics.push(self.topic()?);
        }
        self.end_structure()?;
        Ok(ProduceRequest { transactional_id, acks, timeout_ms, topics })
    }

    fn topic(&mut self) -> Result<ProduceTopic, WireError> {
        let name = self.reader.string("Name", self.flexible)?;
        let name = text(self.body, "Name", name)?;
        // The smallest partition: its index and no records.
        let smallest = if self.flexible { 6 } else { 8 };
        let count = required("PartitionData", self.reader.count("PartitionData", self.flexible, smallest)?)?;
        self.spend(count)?;
        let mut partitions = Vec::with_capacity(count);
        for _ in 0..count {
            partitions.push(self.partition()?);
        }
        self.end_structure()?;
        Ok(ProduceTopic { name, partitions })
    }

    fn partition(&mut self) -> Result<ProducePartition, WireError> {
        let index = self.reader.int32("Index")?;
        let length = self.reader.long_length("Records", self.flexible)?;
        let range = length.map(|length| self.reader.skip("Records", length)).transpose()?;
        self.end_structure()?;
        Ok(ProducePartition { index, records: range.map(|at| self.body.slice(at)) })
    }

    fn spend(&mut self, count: usize) -> Result<(), WireError> {
        self.partitions += count;
        if self.partitions > MAX_PARTITIONS {
            return Err(WireError::TooManyElements { limit: MAX_PARTITIONS });
        }
        Ok(())
    }

    fn end_structure(&mut self) -> Result<(), WireError> {
        if self.flexible { self.reader.skip_tagged_fields() } else { Ok(()) }
    }
}

/// A slice of the body as a string.
pub(super) fn text(body: &Bytes, field: &'static str, at: Range<usize>) -> Result<StrBytes, WireError> {
    StrBytes::from_utf8(body.slice(at)).map_err(|_| WireError::NotUtf8 { field })
}

pub(super) fn required<T>(field: &'static str, value: Option<T>) -> Result<T, WireError> {
    value.ok_or(WireError::Null { field })
}

#[cfg(test)]
pub(super) mod tests {
    use bytes::BytesMut;
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    use kafka_protocol::messages::{ProduceRequest as Reference, TopicName, TransactionalId};
    use kafka_protocol::protocol::Encodable as _;
    use proptest::prelude::*;

    use super::*;

    /// Any request, as values: transactional id, acks, and topics with partitions.
    pub(in super::super) fn any_request() -> impl Strategy<Value = Reference> {
        let records = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300));
        let partition = (any::<i32>(), records).prop_map(|(index, records)| {
            PartitionProduceData::default().with_index(index).with_records(records.map(Bytes::from))
        });
        let topic = ("[a-z]{0,200}", proptest::collection::vec(partition, 0..4)).prop_map(|(name, partitions)| {
            TopicProduceData::default().with_name(TopicName(name.into())).with_partition_data(partitions)
        });
        let id = proptest::option::of("[a-z]{0,200}");
        (id, -1i16..2, any::<i32>(), proptest::collection::vec(topic, 0..4)).prop_map(|(id, acks, timeout, topics)| {
            Reference::default()
                .with_transactional_id(id.map(|id| TransactionalId(id.into())))
                .with_acks(acks)
                .with_timeout_ms(timeout)
                .with_topic_data(topics)
        })
    }

    pub(in super::super) fn encode(request: &Reference, version: i16) -> Bytes {
        let mut body = BytesMut::new();
        request.encode(&mut body, version).expect("encodes");
        body.freeze()
    }

    fn same(ours: &ProduceRequest, reference: &Reference) -> bool {
        let topics = ours.topics.iter().zip(&reference.topic_data);
        ours.transactional_id.as_deref() == reference.transactional_id.as_deref().map(|id| &**id)
            && (ours.acks, ours.timeout_ms) == (reference.acks, reference.timeout_ms)
            && ours.topics.len() == reference.topic_data.len()
            && topics.into_iter().all(|(a, b)| {
                let partitions = b.partition_data.iter();
                let theirs = partitions.map(|p| ProducePartition { index: p.index, records: p.records.clone() });
                *a.name == **b.name && a.partitions == theirs.collect::<Vec<_>>()
            })
    }

    proptest! {
        #[test]
        fn every_version_reads_as_kafka_protocol_wrote_it(request in any_request(), version in 3i16..=9) {
            let body = encode(&request, version);
            let ours = ProduceRequest::read(version, &body).expect("reads");
            prop_assert!(same(&ours, &request), "{ours:?} is not {request:?}");
            for length in 0..body.len() {
                prop_assert!(ProduceRequest::read(version, &body.slice(..length)).is_err());
            }
        }

        #[test]
        fn hostile_bytes_are_errors(bytes in proptest::collection::vec(any::<u8>(), 0..100), version in 0i16..12) {
            let _ = ProduceRequest::read(version, &Bytes::from(bytes));
        }
    }

    #[test]
    fn records_are_slices_of_the_frame() {
        let partition = PartitionProduceData::default().with_records(Some(Bytes::from_static(b"batch")));
        let topic = TopicProduceData::default().with_partition_data(vec![partition]);
        let body = encode(&Reference::default().with_topic_data(vec![topic]), 9);
        let request = ProduceRequest::read(9, &body).expect("reads");
        let records = request.topics[0].partitions[0].records.as_ref().expect("records");
        assert!(body.as_ptr_range().contains(&records.as_ptr()));
    }
}
