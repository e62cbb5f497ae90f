//! The table: for each API key, the versions that this proxy speaks and who answers. And what clients are told of it.
//!
//! What is offered is the intersection of what upstream offers and what is in the table, the same on every listener:
//! clients mix what they learn from several brokers. Keys that are not in the table pass.
//!
//! Never raises a version, and never offers a feature that upstream does not have.

use bytes::{BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use super::WireError;
use super::codec::decode_response_prefix;
use crate::types::ErrorCode;

pub const PRODUCE: i16 = 0;
pub const FETCH: i16 = 1;
pub const SASL_HANDSHAKE: i16 = 17;
pub const API_VERSIONS: i16 = 18;

/// Dropped from the features: with it clients stop registering partitions in transactions and leave that to the
/// leader of the partition (KIP-890), which for diskless topics would be us.
const TRANSACTION_VERSION: &str = "transaction.version";
/// Keys from here on are vendors'.
const FIRST_VENDOR_KEY: i16 = 500;

/// Who deals with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handler {
    /// Bytes pass in both directions.
    Upstream,
    /// The request is read on its way: it passes, unless it names a diskless topic.
    Inspect,
    /// The request or its response is changed on its way.
    Rewrite,
    /// Answered here.
    Local,
    /// Not offered, not answered.
    Blocked,
}

/// Which kind of port a request came in on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listener {
    /// The bootstrap address, which is also the virtual broker that leads diskless partitions.
    VirtualBroker,
    /// A port that stands for one real broker.
    Mapped,
}

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Api {
    pub key: i16,
    /// The versions that this proxy speaks.
    pub first: i16,
    pub last: i16,
    pub virtual_broker: Handler,
    pub mapped: Handler,
}

impl Api {
    /// The row for a key, or the rule for keys without one: pass, whatever the version.
    pub fn of(key: i16) -> Self {
        if let Some(row) = TABLE.iter().find(|row| row.key == key) {
            return *row;
        }
        // A vendor's key may be sent to a broker that offers it, but the virtual broker is none.
        let virtual_broker = if key >= FIRST_VENDOR_KEY { Handler::Blocked } else { Handler::Upstream };
        Self { key, first: 0, last: i16::MAX, virtual_broker, mapped: Handler::Upstream }
    }

    pub fn handler(&self, listener: Listener) -> Handler {
        match listener {
            Listener::VirtualBroker => self.virtual_broker,
            Listener::Mapped => self.mapped,
        }
    }

    pub fn speaks(&self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }

    fn is_blocked(&self) -> bool {
        self.virtual_broker == Handler::Blocked && self.mapped == Handler::Blocked
    }
}

const fn row(key: i16, first: i16, last: i16, virtual_broker: Handler, mapped: Handler) -> Api {
    Api { key, first, last, virtual_broker, mapped }
}

const fn blocked(key: i16) -> Api {
    row(key, 0, 0, Handler::Blocked, Handler::Blocked)
}

/// Every API that does not simply pass in all its versions.
#[rustfmt::skip]
const TABLE: &[Api] = {
    use Handler::{Blocked, Inspect, Local, Rewrite, Upstream};
    &[
        // key, our versions, on the virtual broker, on a mapped listener
        row( 0, 3,  9, Local,    Inspect),  // Produce: 10 and later answer with broker addresses (KIP-951)
        row( 1, 4, 15, Local,    Inspect),  // Fetch: so do 16 and later
        row( 2, 1, 10, Local,    Inspect),  // ListOffsets
        row( 3, 0, 13, Rewrite,  Rewrite),  // Metadata
        blocked(4), blocked(5), blocked(6), blocked(7), // between brokers, gone in Kafka 4
        row(10, 0,  6, Rewrite,  Rewrite),  // FindCoordinator
        row(16, 0,  5, Local,    Upstream), // ListGroups: asked of each broker, the virtual one coordinates none
        row(17, 1,  1, Upstream, Upstream), // SaslHandshake: after version 0 come tokens without a header
        row(18, 0,  4, Local,    Local),    // ApiVersions
        row(19, 2,  7, Rewrite,  Rewrite),  // CreateTopics
        row(20, 1,  6, Rewrite,  Rewrite),  // DeleteTopics
        row(21, 0,  2, Local,    Inspect),  // DeleteRecords
        row(22, 0,  5, Upstream, Upstream), // InitProducerId: 6 is for two-phase commit (KIP-939)
        row(23, 2,  4, Local,    Inspect),  // OffsetForLeaderEpoch
        row(24, 0,  3, Inspect,  Inspect),  // AddPartitionsToTxn: 4 and later are for brokers
        row(26, 0,  4, Upstream, Upstream), // EndTxn: 5 belongs to transaction.version 2
        row(27, 1,  1, Blocked,  Inspect),  // WriteTxnMarkers
        row(28, 0,  4, Upstream, Upstream), // TxnOffsetCommit: 5 belongs to transaction.version 2
        row(32, 1,  4, Rewrite,  Rewrite),  // DescribeConfigs
        row(33, 0,  2, Rewrite,  Rewrite),  // AlterConfigs
        row(34, 1,  2, Blocked,  Upstream), // AlterReplicaLogDirs
        row(35, 1,  4, Local,    Upstream), // DescribeLogDirs
        row(36, 0,  2, Upstream, Upstream), // SaslAuthenticate
        row(37, 0,  3, Rewrite,  Rewrite),  // CreatePartitions
        row(44, 0,  1, Rewrite,  Rewrite),  // IncrementalAlterConfigs
        blocked(52), blocked(53), blocked(54), blocked(56), blocked(58), blocked(59), // Raft and controllers
        row(60, 0,  2, Rewrite,  Rewrite),  // DescribeCluster
        row(61, 0,  0, Local,    Inspect),  // DescribeProducers
        row(55, 0,  1, Upstream, Upstream), // DescribeQuorum: 2 answers with the controllers' addresses
        blocked(62), blocked(63), blocked(67), blocked(70), blocked(73), blocked(82), // Raft and controllers
        row(66, 0,  2, Local,    Upstream), // ListTransactions
        blocked(71), blocked(72),           // telemetry: its state lives in one broker
        row(75, 0,  0, Rewrite,  Rewrite),  // DescribeTopicPartitions
        blocked(76), blocked(77), blocked(78), blocked(79), // share groups would read the empty shadow topic
        blocked(83), blocked(84), blocked(85), blocked(86), blocked(87), // share state, between brokers
        blocked(90), blocked(91), blocked(92), // share group offsets
    ]
};

/// What clients are offered in front of an upstream that offers this.
pub fn intersect(upstream: &ApiVersionsResponse) -> ApiVersionsResponse {
    let mut offered = upstream.clone();
    offered.api_keys = upstream.api_keys.iter().filter_map(intersect_key).collect();
    offered.supported_features.retain(|feature| *feature.name != *TRANSACTION_VERSION);
    // The epoch stays: clients take the features of the broker with the highest.
    offered.finalized_features.retain(|feature| *feature.name != *TRANSACTION_VERSION);
    offered
}

fn intersect_key(upstream: &ApiVersion) -> Option<ApiVersion> {
    let ours = Api::of(upstream.api_key);
    if ours.is_blocked() {
        return None;
    }
    if ours.key == API_VERSIONS {
        // Answered here, so upstream's own versions of it do not matter.
        return Some(upstream.clone().with_min_version(ours.first).with_max_version(ours.last));
    }
    let first = upstream.min_version.max(ours.first);
    let last = upstream.max_version.min(ours.last);
    if first > last {
        return None;
    }
    // librdkafka takes a Produce without version 0 for a broker that cannot compress (KAFKA-18659), and up to 2.0 at
    // least, a SaslHandshake without version 0 for a broker without SASL. It uses neither version.
    let first = if [PRODUCE, SASL_HANDSHAKE].contains(&ours.key) { 0 } else { first };
    Some(upstream.clone().with_min_version(first).with_max_version(last))
}

/// The answer for a client that asks in this version.
pub fn answer(offered: &ApiVersionsResponse, version: i16) -> ApiVersionsResponse {
    let mut answer = offered.clone();
    if version < 4 {
        // Clients of these versions fail on a feature that begins at 0 (KAFKA-17011).
        answer.supported_features.retain(|feature| feature.min_version > 0);
    }
    answer
}

/// Whether a client names its software as KIP-511 has it; brokers refuse others with INVALID_REQUEST.
pub fn is_valid(version: i16, request: &ApiVersionsRequest) -> bool {
    let names = [&request.client_software_name, &request.client_software_version];
    version < 3 || names.into_iter().all(|name| is_software_name(name.as_bytes()))
}

/// Letters, digits, and within them `-` and `.`.
fn is_software_name(name: &[u8]) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let is_outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    is_outer(name.first()) && is_outer(name.last()) && name.iter().all(is_inner)
}

/// The answer to an ApiVersions request in a version that we do not speak: the layout of version 0, which every
/// client can read, naming the versions that we do (KIP-511). A whole frame.
pub fn unsupported_version_answer(correlation_id: i32) -> Bytes {
    let ours = Api::of(API_VERSIONS);
    let mut frame = BytesMut::with_capacity(20);
    frame.put_i32(16);
    frame.put_i32(correlation_id);
    frame.put_i16(ErrorCode::UnsupportedVersion.code());
    frame.put_i32(1);
    frame.put_i16(ours.key);
    frame.put_i16(ours.first);
    frame.put_i16(ours.last);
    frame.freeze()
}

/// Reads an upstream's answer (without its header). Bytes behind the message are passed over: librdkafka's mock
/// cluster leaves some since version 3. An UNSUPPORTED_VERSION answer has the layout of version 0 whatever was asked.
pub fn parse_upstream_api_versions(version: i16, body: Bytes) -> Result<ApiVersionsResponse, WireError> {
    let unsupported = body.starts_with(&ErrorCode::UnsupportedVersion.code().to_be_bytes());
    decode_response_prefix::<ApiVersionsRequest>(if unsupported { 0 } else { version }, body)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::ApiKey;
    use kafka_protocol::messages::api_versions_response::{FinalizedFeatureKey, SupportedFeatureKey};

    use super::*;
    use crate::wire::{StrBytes, decode_response_frame, encode_response, schemas};

    fn offers(keys: &[(i16, i16, i16)]) -> ApiVersionsResponse {
        let key = |(key, min, max): &(i16, i16, i16)| {
            ApiVersion::default().with_api_key(*key).with_min_version(*min).with_max_version(*max)
        };
        ApiVersionsResponse::default().with_api_keys(keys.iter().map(key).collect())
    }

    fn ranges(response: &ApiVersionsResponse) -> Vec<(i16, i16, i16)> {
        response.api_keys.iter().map(|k| (k.api_key, k.min_version, k.max_version)).collect()
    }

    #[test]
    fn kafka_4_3_is_capped_where_answers_would_name_brokers() {
        let upstream = offers(&[(0, 0, 13), (1, 4, 18), (2, 1, 11), (18, 0, 3), (26, 0, 5), (28, 0, 5), (8, 2, 10)]);
        let expected = [(0, 0, 9), (1, 4, 15), (2, 1, 10), (18, 0, 4), (26, 0, 4), (28, 0, 4), (8, 2, 10)];
        assert_eq!(ranges(&intersect(&upstream)), expected);
    }

    #[test]
    fn librdkafka_finds_the_versions_that_it_looks_for_and_never_uses() {
        let upstream = offers(&[(PRODUCE, 0, 13), (SASL_HANDSHAKE, 0, 1)]);
        assert_eq!(ranges(&intersect(&upstream)), [(PRODUCE, 0, 9), (SASL_HANDSHAKE, 0, 1)]);
        assert!(!Api::of(SASL_HANDSHAKE).speaks(0));
    }

    #[test]
    fn an_older_upstream_keeps_its_own_limits() {
        let upstream = offers(&[(0, 0, 7), (1, 0, 11), (3, 0, 8)]);
        assert_eq!(ranges(&intersect(&upstream)), [(0, 0, 7), (1, 4, 11), (3, 0, 8)]);
        assert!(ranges(&intersect(&offers(&[(1, 0, 3)]))).is_empty(), "no version in common");
    }

    #[test]
    fn unknown_keys_pass_and_denied_keys_do_not() {
        let upstream = offers(&[(9999, 0, 1), (88, 0, 0), (4, 0, 7), (71, 0, 0), (78, 1, 2), (91, 0, 0), (52, 0, 1)]);
        assert_eq!(ranges(&intersect(&upstream)), [(9999, 0, 1), (88, 0, 0)]);
        assert_eq!(Api::of(9999).handler(Listener::VirtualBroker), Handler::Blocked);
        assert_eq!(Api::of(9999).handler(Listener::Mapped), Handler::Upstream);
    }

    #[test]
    fn transaction_version_is_dropped_and_the_epoch_stays() {
        let supported = |name: &'static str, min| {
            SupportedFeatureKey::default().with_name(StrBytes::from_static_str(name)).with_min_version(min)
        };
        let finalized = |name: &'static str| FinalizedFeatureKey::default().with_name(StrBytes::from_static_str(name));
        let upstream = offers(&[])
            .with_supported_features(vec![supported("transaction.version", 0), supported("group.version", 0)])
            .with_finalized_features(vec![finalized("transaction.version"), finalized("metadata.version")])
            .with_finalized_features_epoch(190);
        let offered = intersect(&upstream);
        assert_eq!(offered.finalized_features, [finalized("metadata.version")]);
        assert_eq!(offered.supported_features, [supported("group.version", 0)]);
        assert_eq!(offered.finalized_features_epoch, 190);
        assert_eq!(answer(&offered, 4), offered);
        assert!(answer(&offered, 3).supported_features.is_empty());
    }

    #[test]
    fn every_decoded_api_has_a_schema_and_fits_the_decoder() {
        for row in TABLE.iter().filter(|row| !row.is_blocked()) {
            let decoded =
                [row.virtual_broker, row.mapped].iter().any(|h| *h != Handler::Upstream && *h != Handler::Blocked);
            if !decoded {
                continue;
            }
            assert!(schemas::request(row.key).is_some(), "key {}", row.key);
            let known = ApiKey::try_from(row.key).expect("a key of the decoder").valid_versions();
            assert!(known.min <= row.first && row.last <= known.max, "key {}", row.key);
        }
    }

    #[test]
    fn the_table_names_each_key_once() {
        let mut keys: Vec<_> = TABLE.iter().map(|row| row.key).collect();
        keys.sort_unstable();
        let count = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn software_is_named_in_letters_digits_dashes_and_dots() {
        for (name, valid) in [
            ("apache-kafka-java", true),
            ("4.3.1", true),
            ("a", true),
            ("", false),
            ("-a", false),
            ("a.", false),
            ("a b", false),
            ("caf\u{e9}", false),
        ] {
            let named = |name: &'static str, version: &'static str| {
                ApiVersionsRequest::default()
                    .with_client_software_name(StrBytes::from_static_str(name))
                    .with_client_software_version(StrBytes::from_static_str(version))
            };
            assert_eq!(is_valid(3, &named(name, "1")), valid, "{name:?}");
            assert_eq!(is_valid(4, &named("a", name)), valid, "{name:?} as a version");
            assert!(is_valid(2, &named(name, name)), "version 2 does not name any");
        }
    }

    #[test]
    fn an_unsupported_version_is_answered_as_kafka_does() {
        let frame = unsupported_version_answer(7);
        assert_eq!(frame.len(), 4 + 16);
        let (id, answer) = decode_response_frame::<ApiVersionsRequest>(0, frame.slice(4..)).expect("decodes");
        assert_eq!((id, answer.error_code, ranges(&answer)), (7, 35, vec![(18, 0, 4)]));
        let parsed = parse_upstream_api_versions(4, frame.slice(8..)).expect("parses");
        assert_eq!(ranges(&parsed), [(18, 0, 4)]);
    }

    #[test]
    fn bytes_behind_an_upstream_answer_are_passed_over() {
        let frame = encode_response::<ApiVersionsRequest>(7, 3, &offers(&[(3, 0, 9)])).expect("encodes");
        let mut body = BytesMut::from(&frame[8..]);
        body.put_slice(b"\0\0");
        let parsed = parse_upstream_api_versions(3, body.freeze()).expect("parses");
        assert_eq!(ranges(&parsed), [(3, 0, 9)]);
    }
}
