//! What clients see of brokers: no real address, the same ids and racks from every zone.

use bytes::Bytes;
use kafka_protocol::messages::describe_topic_partitions_response::DescribeTopicPartitionsResponseTopic;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest, TopicName};

use super::*;
use crate::types::LogPosition;
use crate::wire::{decode_response_frame, encode_response};

const DISKLESS: TopicId = TopicId([1; 16]);
const CLASSIC: TopicId = TopicId([2; 16]);

struct OneTopic;

impl DisklessTopics for OneTopic {
    fn find(&self, id: TopicId, name: Option<&str>) -> Option<DisklessTopic> {
        let found = id == DISKLESS || (id.is_zero() && name == Some("diskless"));
        found.then_some(DisklessTopic { id: DISKLESS, leader_epoch: 6 })
    }
}

fn endpoint(port: u16) -> Endpoint {
    Endpoint { host: "proxy-a".to_owned(), port }
}

fn view(zone: &str) -> AddressView {
    let zones = [("a".to_owned(), vec![ProxyId(1)]), ("b".to_owned(), vec![ProxyId(2)])];
    let virtual_broker = |id: i32, rack: &str| VirtualBroker { id, rack: rack.to_owned(), endpoint: endpoint(9092) };
    AddressView {
        zone: zone.to_owned(),
        virtual_brokers: vec![virtual_broker(100_001, "a"), virtual_broker(100_002, "b")],
        mapped: BTreeMap::from([(1, endpoint(9101)), (2, endpoint(9102))]),
        placement: Placement::of_zones(zones.into()),
    }
}

fn metadata(topic_ids: bool) -> MetadataResponse {
    let broker = |id: i32| {
        let host = StrBytes::from_string(format!("real-{id}"));
        MetadataResponseBroker::default().with_node_id(BrokerId(id)).with_host(host).with_port(9092)
    };
    let topic = |name: &'static str, id: TopicId| {
        let partition = MetadataResponsePartition::default()
            .with_error_code(5)
            .with_partition_index(3)
            .with_leader_id(BrokerId(2))
            .with_replica_nodes(vec![BrokerId(2), BrokerId(1)])
            .with_isr_nodes(vec![BrokerId(2)])
            .with_offline_replicas(vec![BrokerId(1)]);
        MetadataResponseTopic::default()
            .with_name(Some(TopicName(StrBytes::from_static_str(name))))
            .with_topic_id(if topic_ids { id.into() } else { uuid::Uuid::nil() })
            .with_partitions(vec![partition])
    };
    MetadataResponse::default()
        .with_brokers(vec![broker(1), broker(2)])
        .with_controller_id(BrokerId(2))
        .with_topics(vec![topic("diskless", DISKLESS), topic("classic", CLASSIC)])
}

#[test]
fn metadata_shows_proxies_and_mapped_listeners_only() {
    let mut response = metadata(true);
    view("b").rewrite_metadata(&mut response, &OneTopic).expect("all brokers are mapped");
    let brokers: Vec<_> = response.brokers.iter().map(|b| (*b.node_id, &*b.host, b.port, b.rack.as_deref())).collect();
    let expected = [
        (1, "proxy-a", 9101, None),
        (2, "proxy-a", 9102, None),
        (100_001, "proxy-a", 9092, Some("a")),
        (100_002, "proxy-a", 9092, Some("b")),
    ];
    assert_eq!(brokers, expected);
    assert_eq!(*response.controller_id, 2, "the controller stays a real broker");

    let both = vec![BrokerId(100_001), BrokerId(100_002)];
    let diskless = &response.topics[0].partitions[0];
    assert_eq!((diskless.error_code, *diskless.leader_id, diskless.leader_epoch), (0, 100_002, 6));
    assert_eq!((&diskless.replica_nodes, &diskless.isr_nodes), (&both, &both));
    assert!(diskless.offline_replicas.is_empty());
    assert_eq!(response.topics[1], metadata(true).topics[1], "a classic topic stays as it is");
}

#[test]
fn every_zone_sees_the_same_replicas_and_its_own_leader() {
    let partition = |zone: &str| {
        let mut response = metadata(true);
        view(zone).rewrite_metadata(&mut response, &OneTopic).expect("all brokers are mapped");
        response.topics[0].partitions[0].clone()
    };
    assert_eq!(partition("a").replica_nodes, partition("b").replica_nodes);
    assert_eq!((*partition("a").leader_id, *partition("b").leader_id), (100_001, 100_002));
    let lost = partition("c");
    assert_eq!((lost.error_code, *lost.leader_id), (5, -1), "a zone without a proxy has no leader");
}

#[test]
fn answers_without_topic_ids_are_found_by_name_and_encode_in_every_version() {
    for version in 0..=13 {
        let mut response = metadata(version >= 10);
        view("a").rewrite_metadata(&mut response, &OneTopic).expect("all brokers are mapped");
        let frame = encode_response::<MetadataRequest>(1, version, &response);
        let frame = frame.unwrap_or_else(|error| panic!("version {version}: {error}"));
        assert!(!contains(&frame, b"real-"), "version {version} leaks an address");
        let (_, answer) = decode_response_frame::<MetadataRequest>(version, frame.slice(4..)).expect("decodes");
        assert_eq!(*answer.topics[0].partitions[0].leader_id, 100_001, "version {version}");
    }
}

fn contains(frame: &Bytes, text: &[u8]) -> bool {
    frame.windows(text.len()).any(|window| window == text)
}

#[test]
fn an_unmapped_broker_stops_the_answer() {
    let mut view = view("a");
    view.mapped.remove(&2);
    let mut response = metadata(true);
    assert_eq!(view.rewrite_metadata(&mut response, &OneTopic), Err(UnmappedBroker(2)));
    assert_eq!(response, metadata(true));
}

#[test]
fn coordinators_are_mapped_and_errors_left_alone() {
    let coordinator = |id: i32, host: &'static str, error: i16| {
        Coordinator::default()
            .with_node_id(BrokerId(id))
            .with_host(StrBytes::from_static_str(host))
            .with_port(9092)
            .with_error_code(error)
    };
    let failed = coordinator(-1, "", 15);
    let mut list =
        FindCoordinatorResponse::default().with_coordinators(vec![coordinator(2, "real-2", 0), failed.clone()]);
    view("a").rewrite_find_coordinator(&mut list).expect("mapped");
    assert_eq!((&*list.coordinators[0].host, list.coordinators[0].port), ("proxy-a", 9102));
    assert_eq!(list.coordinators[1], failed);

    let mut flat = FindCoordinatorResponse::default()
        .with_node_id(BrokerId(1))
        .with_host(StrBytes::from_static_str("real-1"))
        .with_port(9092);
    view("a").rewrite_find_coordinator(&mut flat).expect("mapped");
    assert_eq!((&*flat.host, flat.port), ("proxy-a", 9101));
    assert!(encode_response::<FindCoordinatorRequest>(1, 3, &flat).is_ok());

    flat.node_id = BrokerId(7);
    assert_eq!(view("a").rewrite_find_coordinator(&mut flat), Err(UnmappedBroker(7)));
}

#[test]
fn describe_cluster_agrees_with_metadata() {
    let broker = |id: i32, host: &'static str| {
        DescribeClusterBroker::default()
            .with_broker_id(BrokerId(id))
            .with_host(StrBytes::from_static_str(host))
            .with_port(9092)
    };
    let mut response = DescribeClusterResponse::default().with_brokers(vec![broker(1, "real-1"), broker(9, "")]);
    view("a").rewrite_describe_cluster(&mut response).expect("mapped, or without an address");
    let brokers: Vec<_> = response.brokers.iter().map(|b| (*b.broker_id, &*b.host, b.port)).collect();
    let expected = [(1, "proxy-a", 9101), (9, "", 9092), (100_001, "proxy-a", 9092), (100_002, "proxy-a", 9092)];
    assert_eq!(brokers, expected);
    for version in 0..=2 {
        assert!(encode_response::<DescribeClusterRequest>(1, version, &response).is_ok());
    }
}

#[test]
fn a_refused_describe_cluster_lists_nobody() {
    let mut response = DescribeClusterResponse::default().with_error_code(114);
    view("a").rewrite_describe_cluster(&mut response).expect("nothing to map");
    assert!(response.brokers.is_empty());
}

#[test]
fn described_partitions_forget_the_shadow_topics_replicas() {
    let partition = DescribeTopicPartitionsResponsePartition::default()
        .with_error_code(5)
        .with_leader_id(BrokerId(2))
        .with_replica_nodes(vec![BrokerId(2)])
        .with_eligible_leader_replicas(Some(vec![BrokerId(1)]))
        .with_last_known_elr(Some(vec![BrokerId(1)]));
    let topic = |id: TopicId| {
        DescribeTopicPartitionsResponseTopic::default()
            .with_topic_id(id.into())
            .with_partitions(vec![partition.clone()])
    };
    let mut response = DescribeTopicPartitionsResponse::default().with_topics(vec![topic(DISKLESS), topic(CLASSIC)]);
    view("a").rewrite_describe_topic_partitions(&mut response, &OneTopic);
    let diskless = &response.topics[0].partitions[0];
    assert_eq!((diskless.error_code, *diskless.leader_id, diskless.leader_epoch), (0, 100_001, 6));
    assert_eq!((&diskless.eligible_leader_replicas, &diskless.last_known_elr), (&Some(Vec::new()), &Some(Vec::new())));
    assert_eq!(diskless.replica_nodes, diskless.isr_nodes);
    assert_eq!(response.topics[1], topic(CLASSIC));
}

#[test]
fn no_virtual_broker_leads_out_of_the_zone() {
    let proxy = |zone: &str, port: u16, last_heard: TimestampMs| ProxyInfo {
        epoch: LogPosition(0),
        zone: zone.to_owned(),
        endpoint: Endpoint { host: format!("zone-{zone}"), port },
        last_heard,
        closed: false,
        min_version: 1,
        max_version: 1,
    };
    let by_id = BTreeMap::from([
        (ProxyId(1), proxy("a", 1, 1_000_000)),
        (ProxyId(2), proxy("a", 2, 1_000_000)),
        (ProxyId(3), proxy("a", 3, 900_000)),
        (ProxyId(4), proxy("b", 4, 1_000_000)),
        (ProxyId(5), proxy("b", 5, 0)),
    ]);
    let proxies = Proxies { by_id, ..Proxies::default() };
    let own = Endpoint { host: "zone-a".to_owned(), port: 1 };
    let brokers = virtual_brokers(&proxies, 1_000_000, "a", &own);
    let seen: Vec<_> = brokers.iter().map(|b| (b.id, b.rack.as_str(), b.endpoint.to_string())).collect();
    let expected = [
        (100_001, "a", "zone-a:1".to_owned()),
        (100_002, "a", "zone-a:2".to_owned()),
        (100_003, "a", "zone-a:1".to_owned()),
        (100_004, "b", "zone-a:1".to_owned()),
    ];
    assert_eq!(seen, expected, "the dead one and the other zone's get our address, the forgotten one is gone");
}
