//! The Fetch request reader against `kafka-protocol`.

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{
    FetchPartition as RefPartition, FetchTopic as RefTopic, ForgottenTopic as RefForgotten, ReplicaState,
};
use kafka_protocol::messages::{BrokerId, FetchRequest as Reference, TopicName};
use kafka_protocol::protocol::{Decodable as _, Encodable as _};
use proptest::prelude::*;

use super::*;

fn named(version: i16, n: u8) -> (TopicName, uuid::Uuid) {
    if has_topic_ids(version) {
        (TopicName::default(), uuid::Uuid::from_bytes([n; 16]))
    } else {
        (TopicName(StrBytes::from_string(format!("topic-{n}"))), uuid::Uuid::nil())
    }
}

/// A request with every field that its version has.
fn reference(version: i16, topics: u8, numbers: i32, rack: &str) -> Reference {
    let since = |first: i16, value: i32, absent: i32| if version >= first { value } else { absent };
    let partition = |index: i32| {
        RefPartition::default()
            .with_partition(index)
            .with_current_leader_epoch(since(9, 3, -1))
            .with_fetch_offset(i64::from(numbers) + 7)
            .with_log_start_offset(i64::from(since(5, 2, -1)))
            .with_partition_max_bytes(numbers)
    };
    let topic = |n: u8| {
        let (name, id) = named(version, n);
        let partitions = (0..i32::from(n)).map(partition).collect();
        RefTopic::default().with_topic(name).with_topic_id(id).with_partitions(partitions)
    };
    let forgotten = |n: u8| {
        let (name, id) = named(version, n);
        RefForgotten::default().with_topic(name).with_topic_id(id).with_partitions(vec![1, 2])
    };
    let mut request = Reference::default()
        .with_max_wait_ms(500)
        .with_min_bytes(numbers)
        .with_max_bytes(1_000_000)
        .with_isolation_level(1)
        .with_session_id(since(7, 9, 0))
        .with_session_epoch(since(7, 4, -1))
        .with_topics((0..topics).map(topic).collect())
        .with_forgotten_topics_data(if version >= 7 { (0..topics).map(forgotten).collect() } else { vec![] })
        .with_rack_id(if version >= 11 { StrBytes::from_string(rack.to_owned()) } else { StrBytes::new() });
    if version >= 15 {
        request.replica_state = ReplicaState::default().with_replica_id(BrokerId(5));
    } else {
        request.replica_id = BrokerId(5);
    }
    request
}

fn encode(request: &Reference, version: i16) -> Bytes {
    let mut body = BytesMut::new();
    request.encode(&mut body, version).expect("encodes");
    body.freeze()
}

proptest! {
    #[test]
    fn every_version_reads_as_kafka_protocol_wrote_it(
        version in 4i16..=15, topics in 0u8..4, numbers in any::<i32>(), rack in "[a-z]{0,9}",
    ) {
        let reference = reference(version, topics, numbers, &rack);
        let body = encode(&reference, version);
        let request = FetchRequest::read(version, &body).expect("reads");
        prop_assert_eq!(request.replica_id, 5);
        prop_assert_eq!((request.max_wait_ms, request.min_bytes, request.max_bytes), (500, numbers, 1_000_000));
        prop_assert_eq!((request.session_id, request.session_epoch), (reference.session_id, reference.session_epoch));
        prop_assert_eq!(&*request.rack_id, &*reference.rack_id);
        prop_assert_eq!(request.topics.len(), usize::from(topics));
        prop_assert_eq!(request.forgotten.len(), reference.forgotten_topics_data.len());
        for (ours, theirs) in request.topics.iter().zip(&reference.topics) {
            let same = match &ours.topic {
                TopicRef::Name(name) => **name == **theirs.topic,
                TopicRef::Id(id) => id.0 == *theirs.topic_id.as_bytes(),
            };
            prop_assert!(same);
            prop_assert_eq!(ours.partitions.len(), theirs.partitions.len());
            for (a, b) in ours.partitions.iter().zip(&theirs.partitions) {
                prop_assert_eq!((a.partition, a.current_leader_epoch), (b.partition, b.current_leader_epoch));
                prop_assert_eq!((a.fetch_offset, a.log_start_offset), (b.fetch_offset, b.log_start_offset));
                prop_assert_eq!(a.partition_max_bytes, b.partition_max_bytes);
            }
        }
        for length in 0..body.len() {
            prop_assert!(FetchRequest::read(version, &body.slice(..length)).is_err());
        }
    }

    #[test]
    fn hostile_bytes_are_errors(bytes in proptest::collection::vec(any::<u8>(), 0..100), version in 0i16..18) {
        let _ = FetchRequest::read(version, &Bytes::from(bytes));
    }
}

#[test]
fn a_missing_rack_is_set_and_nothing_else_changes() {
    for version in 4..=15 {
        let body = encode(&reference(version, 2, 1, ""), version);
        let changed = with_rack(&body, version, "zone-a");
        assert_eq!(changed.is_some(), version >= 11, "version {version}");
        let Some(mut changed) = changed else { continue };
        let expected = reference(version, 2, 1, "zone-a");
        assert_eq!(Reference::decode(&mut changed, version).expect("decodes"), expected);
        assert!(changed.is_empty());
    }
}

#[test]
fn a_rack_that_the_client_gave_stays() {
    let body = encode(&reference(12, 1, 1, "mine"), 12);
    assert_eq!(with_rack(&body, 12, "zone-a"), None);
}

#[test]
fn consumers_of_version_15_are_not_replicas() {
    let body = encode(&Reference::default(), 15);
    assert_eq!(FetchRequest::read(15, &body).expect("reads").replica_id, -1);
}
