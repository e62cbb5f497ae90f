//! Whole proxies in this process, in front of librdkafka's mock cluster: what clients may send, and what must not harm.

#[path = "doors/world.rs"]
#[allow(unreachable_pub, dead_code, reason = "two test crates share it")]
mod world;

use std::time::Duration;

use bytes::Buf as _;
use kafka_protocol::messages::{FindCoordinatorRequest, MetadataRequest};
use sidestream::wire::{self, StrBytes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use world::{WAIT, World, api_versions, call, is_closed, read_frame, topic_named};

#[tokio::test(flavor = "multi_thread")]
async fn metadata_names_no_address_but_ours() {
    let world = World::start().await;
    let response = world.metadata().await;
    let upstream = world.app.proxy.cluster.cluster();
    for broker in &response.brokers {
        let port = u16::try_from(broker.port).expect("a port");
        assert!(upstream.brokers.values().all(|b| b.endpoint.port != port), "an address of upstream leaks: {broker:?}");
    }
    let leaders = |name: &str| -> Vec<i32> {
        let topic = response.topics.iter().find(|t| t.name.as_ref().is_some_and(|n| n.as_str() == name));
        topic.expect("the topic is listed").partitions.iter().map(|p| *p.leader_id).collect()
    };
    assert_eq!(leaders("diskless"), [100_007; 3]);
    assert!(leaders("classic").iter().all(|id| *id < 100));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_version_of_metadata_is_answered_in_that_version() {
    let world = World::start().await;
    let mut client = world.connect().await;
    for version in 0..=12 {
        let request = MetadataRequest::default().with_topics(Some(vec![topic_named("diskless")]));
        let response = call(&mut client, version, &request).await;
        assert_eq!(response.topics.len(), 1, "version {version}");
        assert_eq!(response.topics[0].partitions.len(), 3, "version {version}");
    }
    world.stop().await;
}

/// The flag exists in versions 8 to 10 only, and upstream is asked in another version: the connection was closed.
#[tokio::test(flavor = "multi_thread")]
async fn rights_on_the_cluster_can_be_asked_for_in_the_versions_that_have_them() {
    let world = World::start().await;
    let mut client = world.connect().await;
    for version in 8..=10 {
        let request = MetadataRequest::default().with_topics(None).with_include_cluster_authorized_operations(true);
        let response = call(&mut client, version, &request).await;
        assert!(!response.brokers.is_empty(), "version {version}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_of_api_versions_from_the_future_is_answered_as_kafka_does() {
    let world = World::start().await;
    let mut client = world.connect().await;
    // ApiVersions in version 99, correlation id 3, no client id, no tagged fields, and a body that nobody knows yet.
    client.write_all(&[0, 0, 0, 12, 0, 18, 0, 99, 0, 0, 0, 3, 0xff, 0xff, 0, 2]).await.expect("open");
    let answer = read_frame(&mut client).await.expect("an answer");
    assert_eq!(answer[..], [0, 0, 0, 3, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4]);
    let response = call(&mut client, 3, &api_versions()).await;
    let highest =
        |key: i16| response.api_keys.iter().find(|k| k.api_key == key).map(|k| (k.min_version, k.max_version));
    assert_eq!(highest(0).map(|(min, max)| (min, max <= 9)), Some((0, true)), "Produce");
    assert!(highest(1).is_some_and(|(_, max)| max <= 15), "Fetch");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_order() {
    let world = World::start().await;
    for mut client in world.every_door().await {
        let mut frames = Vec::new();
        for number in 0..60 {
            let frame = match number % 3 {
                0 => wire::encode_request(number, 3, "test", &api_versions()),
                1 => wire::encode_request(
                    number,
                    1,
                    "test",
                    &MetadataRequest::default().with_topics(Some(vec![topic_named("classic")])),
                ),
                _ => wire::encode_request(
                    number,
                    1,
                    "test",
                    &FindCoordinatorRequest::default().with_key(StrBytes::from_static_str("g")),
                ),
            };
            frames.extend_from_slice(&frame.expect("it can be encoded"));
        }
        client.write_all(&frames).await.expect("open");
        for number in 0..60 {
            let answer = read_frame(&mut client).await.expect("an answer");
            assert_eq!((&answer[..4]).get_i32(), number);
        }
    }
    world.stop().await;
}

/// Frames that no client means. Each must end its own connection, or be answered with an error, and harm nobody else.
fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    let framed = |body: &[u8]| [&u32::try_from(body.len()).expect("small").to_be_bytes()[..], body].concat();
    let mut huge_count = vec![0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff];
    huge_count.extend_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
    let mut huge_tags = vec![0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff];
    huge_tags.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f]);
    let mut lying_produce = vec![0, 0, 0, 7, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0, 0, 1];
    lying_produce.extend_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
    let mut lying_fetch = vec![0, 1, 0, 11, 0, 0, 0, 1, 0xff, 0xff];
    lying_fetch.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0]);
    lying_fetch.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff]);
    vec![
        ("a negative length", vec![0xff, 0xff, 0xff, 0xfe]),
        ("a length of two bytes", framed(&[0, 3])),
        ("a length over the limit", vec![0x7f, 0, 0, 0, 0, 3]),
        ("TLS", vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("an array of two thousand million topics", framed(&huge_count)),
        ("a tagged field section of 32 bits", framed(&huge_tags)),
        ("a Produce that lies about its topics", framed(&lying_produce)),
        ("a Fetch that lies about its topics", framed(&lying_fetch)),
        ("a client id longer than the frame", framed(&[0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff, 1])),
        ("a controller's request", framed(&[0, 52, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0])),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_frames_end_their_own_connection_only() {
    let world = World::start().await;
    let mut witness = world.connect().await;
    for (what, bytes) in malformed() {
        for (door, mut client) in world.every_door().await.into_iter().enumerate() {
            client.write_all(&bytes).await.expect("open");
            assert!(is_closed(&mut client).await, "{what} at door {door}");
        }
        let response = call(&mut witness, 3, &api_versions()).await;
        assert!(!response.api_keys.is_empty(), "others are served after {what}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_harm_nobody() {
    let world = World::start().await;
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..200 {
        let mut client = world.connect().await;
        let length = (random() % 60) as usize + 8;
        let mut frame = u32::try_from(length).expect("small").to_be_bytes().to_vec();
        // A key and version that exist, so that the body is looked at.
        frame.extend_from_slice(&[0, (random() % 76) as u8, 0, (random() % 14) as u8]);
        frame.extend((4..length).map(|_| random() as u8));
        client.write_all(&frame).await.expect("open");
        client.shutdown().await.expect("half closed");
        let mut rest = Vec::new();
        // Answered or closed, but never left hanging.
        let _ = timeout(WAIT, client.read_to_end(&mut rest)).await.expect("the connection ends");
    }
    assert!(!world.metadata().await.brokers.is_empty());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_while_clients_are_idle_or_half_way_through_a_frame() {
    let world = World::start().await;
    let idle = world.connect().await;
    let mut half = world.connect().await;
    half.write_all(&[0, 0, 0, 200, 0, 3]).await.expect("open");
    timeout(Duration::from_secs(60), world.stop()).await.expect("the drain is bounded");
    drop((idle, half));
}
