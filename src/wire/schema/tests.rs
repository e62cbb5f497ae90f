//! The walker against `kafka-protocol`: bytes made from our schema must decode there to the last byte, what it
//! encodes must be accepted here, and damaged bytes must never reach it.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, Message as KafkaMessage, Request};
use proptest::prelude::*;

use super::*;
use crate::wire::schemas;
use crate::wire::writer::{put_length, put_null, put_string, put_uvarint};
use bytes::BufMut as _;

const PLENTY: usize = 100_000;

/// A small random number generator, so that one seed gives one message.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Writes a random message of a schema.
struct Writer<'a> {
    out: BytesMut,
    dice: &'a mut Dice,
    version: i16,
    flexible: bool,
}

impl Writer<'_> {
    fn message(message: &Message, version: i16, dice: &mut Dice) -> Bytes {
        let flexible = version >= message.flexible_from;
        let mut writer = Writer { out: BytesMut::new(), dice, version, flexible };
        writer.structure(message.fields);
        writer.out.freeze()
    }

    fn structure(&mut self, fields: &[Field]) {
        let version = self.version;
        for field in fields.iter().filter(|f| f.tag.is_none() && f.exists(version)) {
            self.field(field);
        }
        if !self.flexible {
            return;
        }
        let mut tagged: Vec<(u32, Bytes)> = Vec::new();
        for field in fields.iter().filter(|f| f.exists(version)) {
            let Some(tag) = field.tag.filter(|_| self.dice.roll(2) == 0) else { continue };
            let outer = std::mem::take(&mut self.out);
            self.field(field);
            tagged.push((tag, std::mem::replace(&mut self.out, outer).freeze()));
        }
        if self.dice.roll(4) == 0 {
            tagged.push((1000, Bytes::from_static(b"newer")));
        }
        put_uvarint(&mut self.out, tagged.len() as u32);
        for (tag, value) in tagged {
            put_uvarint(&mut self.out, tag);
            put_uvarint(&mut self.out, value.len() as u32);
            self.out.put_slice(&value);
        }
    }

    fn field(&mut self, field: &Field) {
        let null = field.is_nullable(self.version) && self.dice.roll(3) == 0;
        match field.kind {
            Kind::String if null && !self.flexible => self.out.put_i16(-1),
            Kind::Struct(_) if null => self.out.put_i8(-1),
            Kind::Fixed(_) => self.element(&field.kind),
            _ if null => put_null(&mut self.out, self.flexible),
            Kind::Struct(_) => {
                if field.is_nullable(self.version) {
                    self.out.put_i8(1);
                }
                self.element(&field.kind);
            }
            Kind::String | Kind::Bytes => self.element(&field.kind),
            Kind::FixedArray(size) => self.array(&Kind::Fixed(size)),
            Kind::StringArray => self.array(&Kind::String),
            Kind::StructArray(fields) => self.array(&Kind::Struct(fields)),
        }
    }

    fn array(&mut self, kind: &Kind) {
        let count = self.dice.roll(4) as usize;
        put_length(&mut self.out, self.flexible, count);
        for _ in 0..count {
            self.element(kind);
        }
    }

    fn element(&mut self, kind: &Kind) {
        match kind {
            Kind::Fixed(size) => {
                for _ in 0..*size {
                    let byte = self.dice.roll(2) as u8;
                    self.out.put_u8(byte);
                }
            }
            Kind::String => {
                let text = &"diskless"[..self.dice.roll(9) as usize];
                put_string(&mut self.out, self.flexible, text);
            }
            Kind::Bytes => {
                let bytes = &b"records"[..self.dice.roll(8) as usize];
                put_length(&mut self.out, self.flexible, bytes.len());
                self.out.put_slice(bytes);
            }
            Kind::Struct(fields) => self.structure(fields),
            _ => unreachable!("arrays of arrays do not exist"),
        }
    }
}

/// Walks and, where the walk succeeds, decodes: neither may panic, and both must agree about the end.
fn walk_then_decode<M: Decodable>(schema: &Message, key: i16, version: i16, bytes: &Bytes) -> bool {
    if walk(schema, key, version, bytes, PLENTY).is_err() {
        return false;
    }
    let mut rest = bytes.clone();
    // A string that is not UTF-8 is the decoder's to refuse; what it accepts must end where the walk ended.
    if M::decode(&mut rest, version).is_ok() {
        assert!(rest.is_empty(), "walk and decoder of key {key} version {version} disagree about the end");
    }
    true
}

fn check<M: KafkaMessage + Decodable + Encodable>(schema: &Message, key: i16, dice: &mut Dice) {
    for version in M::VERSIONS.min..=M::VERSIONS.max {
        let bytes = Writer::message(schema, version, dice);
        assert_eq!(walk(schema, key, version, &bytes, PLENTY), Ok(()), "key {key} version {version}: {bytes:?}");
        let mut rest = bytes.clone();
        let message = M::decode(&mut rest, version).unwrap_or_else(|e| panic!("key {key} version {version}: {e}"));
        assert!(rest.is_empty(), "key {key} version {version} leaves {} bytes", rest.len());

        let mut encoded = BytesMut::new();
        if message.encode(&mut encoded, version).is_ok() {
            assert_eq!(walk(schema, key, version, &encoded, PLENTY), Ok(()), "key {key} version {version}");
        }
        check_damaged::<M>(schema, key, version, &bytes, dice);
    }
}

fn check_damaged<M: Decodable>(schema: &Message, key: i16, version: i16, bytes: &Bytes, dice: &mut Dice) {
    for length in 0..bytes.len() {
        let cut = walk(schema, key, version, &bytes[..length], PLENTY);
        assert!(cut.is_err(), "key {key} version {version} accepts {length} of {} bytes", bytes.len());
    }
    let mut longer = BytesMut::from(&bytes[..]);
    longer.put_u8(0);
    assert!(walk(schema, key, version, &longer, PLENTY).is_err());
    for _ in 0..20.min(bytes.len()) {
        let mut damaged = BytesMut::from(&bytes[..]);
        let at = dice.roll(bytes.len() as u64) as usize;
        let end = (at + 4).min(bytes.len());
        damaged[at..end].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff][..end - at]);
        walk_then_decode::<M>(schema, key, version, &damaged.freeze());
    }
}

fn check_request<T: Request>(dice: &mut Dice) {
    check::<T>(schemas::request(T::KEY).expect("a schema"), T::KEY, dice);
}

fn check_response<T: Request>(dice: &mut Dice) {
    check::<T::Response>(schemas::response(T::KEY).expect("a schema"), T::KEY, dice);
}

macro_rules! each {
    ($check:ident, $dice:expr, $($message:ident)+) => { $($check::<$message>($dice);)+ };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn requests_are_walked_as_kafka_protocol_decodes_them(seed in 1u64..) {
        let dice = &mut Dice(seed);
        each!(check_request, dice,
            ApiVersionsRequest MetadataRequest FindCoordinatorRequest CreateTopicsRequest DeleteTopicsRequest
            CreatePartitionsRequest DeleteRecordsRequest ListOffsetsRequest OffsetForLeaderEpochRequest
            DescribeConfigsRequest AlterConfigsRequest IncrementalAlterConfigsRequest DescribeLogDirsRequest
            DescribeProducersRequest AddPartitionsToTxnRequest ListGroupsRequest ListTransactionsRequest
            DescribeClusterRequest DescribeTopicPartitionsRequest InitProducerIdRequest SaslHandshakeRequest
            SaslAuthenticateRequest FetchRequest ProduceRequest WriteTxnMarkersRequest);
    }

    #[test]
    fn responses_are_walked_as_kafka_protocol_decodes_them(seed in 1u64..) {
        let dice = &mut Dice(seed);
        each!(check_response, dice,
            ApiVersionsRequest MetadataRequest FindCoordinatorRequest CreateTopicsRequest DeleteTopicsRequest
            CreatePartitionsRequest ListOffsetsRequest OffsetForLeaderEpochRequest DescribeConfigsRequest
            AlterConfigsRequest IncrementalAlterConfigsRequest DescribeClusterRequest DescribeTopicPartitionsRequest
            SaslHandshakeRequest SaslAuthenticateRequest InitProducerIdRequest AddPartitionsToTxnRequest);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), version in 0i16..14) {
        let bytes = Bytes::from(bytes);
        for key in 0..100 {
            if let Some(schema) = schemas::request(key) {
                let _ = walk(schema, key, version, &bytes, PLENTY);
            }
        }
        walk_then_decode::<MetadataResponse>(schemas::response(3).expect("a schema"), 3, version, &bytes);
    }
}

#[test]
fn elements_over_the_budget_are_refused() {
    // Metadata 1 for three topics without a name.
    let body = [0, 0, 0, 3, 0, 0, 0, 0, 0, 0];
    let schema = schemas::request(3).expect("a schema");
    assert_eq!(walk(schema, 3, 1, &body, 3), Ok(()));
    assert_eq!(walk(schema, 3, 1, &body, 2), Err(WireError::TooManyElements { limit: 2 }));
}

#[test]
fn a_flood_of_tagged_fields_is_refused() {
    let mut body = BytesMut::from(&[1, 1][..]);
    put_uvarint(&mut body, 1001);
    for tag in 0..1001 {
        put_uvarint(&mut body, tag);
        body.put_u8(0);
    }
    let schema = schemas::request(18).expect("a schema");
    assert_eq!(walk(schema, 18, 3, &body, PLENTY), Err(WireError::TooManyElements { limit: 1000 }));
}

#[test]
fn a_tag_is_an_int() {
    let schema = schemas::request(18).expect("a schema");
    let with_tag = |tag: u32| {
        let mut body = BytesMut::from(&[1, 1, 1][..]);
        put_uvarint(&mut body, tag);
        body.put_u8(0);
        walk(schema, 18, 3, &body, PLENTY)
    };
    assert_eq!(with_tag(0x7fff_ffff), Ok(()));
    assert_eq!(with_tag(0x8000_0000), Err(WireError::BadTag { tag: 0x8000_0000 }));
}

#[test]
fn a_known_tagged_field_must_be_as_long_as_it_says() {
    // Fetch 15 with ReplicaState (tag 1): 4 + 8 bytes and its own tagged fields make 13.
    let schema = schemas::request(1).expect("a schema");
    let with_size = |size: u8| {
        let mut body = vec![0; 4 + 4 + 4 + 1 + 4 + 4];
        body.extend([1, 1, 1, 1, 1, size]);
        body.extend(vec![0; usize::from(size)]);
        walk(schema, 1, 15, &body, PLENTY)
    };
    assert_eq!(with_size(13), Ok(()));
    assert_eq!(with_size(14), Err(WireError::TrailingBytes { count: 1 }));
    assert!(with_size(12).is_err());
}
