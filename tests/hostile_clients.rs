//! Clients that mean harm, or that are broken, before a whole proxy: others are served, memory and descriptors come
//! back, and what is answered is answered as Kafka does.

#[path = "doors/world.rs"]
#[allow(unreachable_pub, dead_code, reason = "two test crates share it")]
mod world;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    FetchRequest, FetchResponse, MetadataRequest, ProduceRequest, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable as _, HeaderVersion as _, Request};
use peak_alloc::PeakAlloc;
use sidestream::record_batch::checksum;
use sidestream::wire::api_versions::{Api, Handler};
use sidestream::wire::{self, StrBytes};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;
use world::{WAIT, World, api_versions, call, is_closed, read_frame, topic_named};

/// Counts what the proxy and its clients here hold together.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Memory and descriptors are counted for the whole process, so one test runs at a time.
async fn alone() -> MutexGuard<'static, ()> {
    static MEASURING: Mutex<()> = Mutex::const_new(());
    MEASURING.lock().await
}

/// Waits until something holds.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < WAIT, "{what} within {WAIT:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A batch of these record bytes, as an idempotent producer sends it.
fn batch(attributes: i16, records: i32, first_sequence: i32, body: &[u8]) -> Bytes {
    let now = sidestream::clock::wall_time_ms();
    let mut covered = Vec::new();
    covered.extend(attributes.to_be_bytes());
    covered.extend((records - 1).to_be_bytes());
    covered.extend(now.to_be_bytes());
    covered.extend(now.to_be_bytes());
    covered.extend(4242i64.to_be_bytes());
    covered.extend(0i16.to_be_bytes());
    covered.extend(first_sequence.to_be_bytes());
    covered.extend(records.to_be_bytes());
    covered.extend(body);
    let mut batch = Vec::new();
    batch.extend(0i64.to_be_bytes());
    batch.extend(i32::try_from(covered.len() + 9).expect("small").to_be_bytes());
    batch.extend((-1i32).to_be_bytes());
    batch.push(2);
    batch.extend(checksum([&covered[..]]).to_be_bytes());
    batch.extend(covered);
    batch.into()
}

/// One record without a key.
const RECORD: [u8; 8] = [14, 0, 0, 0, 1, 2, b'x', 0];
const ZSTD: i16 = 4;

/// A zstd frame of these many blocks of 128 KiB of one repeated byte, four bytes each.
fn bomb(blocks: usize) -> Vec<u8> {
    // The magic, a window of 128 KiB, no content size.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
    for block in 1..=blocks {
        let header: u32 = (128 * 1024) << 3 | 1 << 1 | u32::from(block == blocks);
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

fn produce(partition: i32, records: Bytes) -> ProduceRequest {
    let data = PartitionProduceData::default().with_index(partition).with_records(Some(records));
    let topic = TopicProduceData::default().with_name(diskless()).with_partition_data(vec![data]);
    ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![topic])
}

fn diskless() -> TopicName {
    TopicName(StrBytes::from_static_str("diskless"))
}

fn fetch(partition: i32, offset: i64) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(100 << 20);
    let topic = FetchTopic::default().with_topic(diskless()).with_partitions(vec![partition]);
    FetchRequest::default().with_max_wait_ms(100).with_min_bytes(1).with_max_bytes(100 << 20).with_topics(vec![topic])
}

/// A request of the hot paths, whose answers the library only writes.
async fn call_hot<R: Request>(client: &mut TcpStream, version: i16, request: &R) -> R::Response {
    let frame = wire::encode_request(5, version, "test", request).expect("it can be encoded");
    client.write_all(&frame).await.expect("the connection is open");
    let mut answer = read_frame(client).await.expect("an answer");
    let header = ResponseHeader::decode(&mut answer, R::Response::header_version(version)).expect("a header");
    assert_eq!(header.correlation_id, 5);
    R::Response::decode(&mut answer, version).expect("a valid answer")
}

/// Produces to the diskless topic; the error code and base offset of the answer.
async fn send(client: &mut TcpStream, partition: i32, records: Bytes) -> (i16, i64) {
    let answer = call_hot(client, 9, &produce(partition, records)).await;
    let partition = &answer.responses[0].partition_responses[0];
    (partition.error_code, partition.base_offset)
}

fn records_of(answer: &FetchResponse) -> Bytes {
    answer.responses[0].partitions[0].records.clone().unwrap_or_default()
}

async fn is_served(client: &mut TcpStream) -> bool {
    !call(client, 3, &api_versions()).await.api_keys.is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_key_that_stays_here_is_answered_or_ends_its_own_connection() {
    let _alone = alone().await;
    let world = World::start().await;
    let mut witness = world.connect().await;
    let keys = (0..100).chain([500, 9_999, i16::MAX, -1, i16::MIN]);
    // The mock ends the process over some of what would go to it; a scenario asks a real Kafka.
    for key in keys.filter(|key| Api::of(*key).virtual_broker != Handler::Upstream) {
        for version in [-1, 0, 1, 5, 12, 20, 999, i16::MAX, i16::MIN] {
            let mut client = world.connect().await;
            let mut frame = vec![0, 0, 0, 40];
            frame.extend(key.to_be_bytes());
            frame.extend(version.to_be_bytes());
            frame.extend([0; 36]);
            client.write_all(&frame).await.expect("open");
            client.shutdown().await.expect("half closed");
            while read_frame(&mut client).await.is_some() {}
        }
        assert!(is_served(&mut witness).await, "others are served after API key {key}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_cut_at_every_place_leave_nothing_behind() {
    let _alone = alone().await;
    let world = World::start().await;
    let whole = wire::encode_request(5, 9, "test", &produce(0, batch(0, 1, 0, &RECORD))).expect("encodes");
    for cut in 0..whole.len() {
        let mut client = world.connect().await;
        client.write_all(&whole[..cut]).await.expect("open");
        client.shutdown().await.expect("half closed");
        assert!(is_closed(&mut client).await, "cut at {cut}");
    }
    let stats = &world.app.proxy.stats;
    eventually("no connection is left", || stats.connections.load(Ordering::Relaxed) == 0).await;
    let mut client = world.connect().await;
    assert_eq!(call_hot(&mut client, 11, &fetch(0, 0)).await.responses[0].partitions[0].high_watermark, 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_that_lie_are_refused_as_kafka_refuses_them_and_the_connection_goes_on() {
    const CORRUPT_MESSAGE: i16 = 2;
    const INVALID_RECORD: i16 = 87;
    let _alone = alone().await;
    let world = World::start().await;
    let mut client = world.connect().await;
    let changed = |at: usize, value: &[u8]| {
        let mut bytes = batch(0, 1, 0, &RECORD).to_vec();
        bytes[at..at + value.len()].copy_from_slice(value);
        bytes
    };
    let sealed = |at: usize, value: &[u8]| {
        let mut bytes = changed(at, value);
        let crc = checksum([&bytes[21..]]).to_be_bytes();
        bytes[17..21].copy_from_slice(&crc);
        bytes
    };
    let cases = [
        ("a wrong CRC", changed(17, &[1, 2, 3, 4]), CORRUPT_MESSAGE),
        ("a record that was changed on its way", changed(67, b"y"), CORRUPT_MESSAGE),
        ("a length over what follows", changed(8, &[0x7f, 0xff, 0xff, 0xff]), INVALID_RECORD),
        ("a negative length", changed(8, &[0xff; 4]), CORRUPT_MESSAGE),
        ("two thousand million records at one offset", sealed(57, &[0x7f, 0xff, 0xff, 0xff]), INVALID_RECORD),
        ("a last offset below the first", sealed(23, &[0xff; 4]), INVALID_RECORD),
        ("no records", sealed(57, &[0; 4]), INVALID_RECORD),
        ("an unknown codec", sealed(21, &[0, 7]), INVALID_RECORD),
        ("a control batch", sealed(21, &[0, 0x20]), INVALID_RECORD),
        ("half a header", batch(0, 1, 0, &RECORD)[..30].to_vec(), CORRUPT_MESSAGE),
        ("nothing", Vec::new(), INVALID_RECORD),
        ("two batches", [batch(0, 1, 0, &RECORD), batch(0, 1, 1, &RECORD)].concat(), INVALID_RECORD),
    ];
    for (what, bytes, expected) in cases {
        assert_eq!(send(&mut client, 0, bytes.into()).await, (expected, -1), "{what}");
    }
    assert_eq!(send(&mut client, 0, batch(0, 1, 0, &RECORD)).await, (0, 0), "nothing of that was stored");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_is_stored_and_served_as_it_came() {
    let _alone = alone().await;
    let world = World::start().await;
    let mut client = world.connect().await;
    // Half a MiB that says it is 16 GiB.
    let sent = batch(ZSTD, 1000, 0, &bomb(128 * 1024));
    assert!(sent.len() > 512 * 1024 && sent.len() < 600 * 1024);
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    assert_eq!(send(&mut client, 1, sent.clone()).await, (0, 0));
    let answer = call_hot(&mut client, 11, &fetch(1, 0)).await;
    let grown = MEMORY.peak_usage() - before;
    let served = records_of(&answer);
    assert_eq!(served[16..], sent[16..], "only the offset and the leader epoch in front are ours");
    assert!(grown < 16 << 20, "{grown} bytes for a batch of {}", sent.len());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_for_each_request_gives_its_descriptors_back() {
    let _alone = alone().await;
    let world = World::start().await;
    let open = || std::fs::read_dir("/proc/self/fd").expect("descriptors are listed").count();
    assert!(!world.metadata().await.brokers.is_empty());
    let stats = &world.app.proxy.stats;
    eventually("the first connection is gone", || stats.connections.load(Ordering::Relaxed) == 0).await;
    let before = open();
    for number in 0..2_000 {
        let mut client = world.connect().await;
        if number % 10 == 0 {
            // With an upstream connection of its own.
            let one = MetadataRequest::default().with_topics(Some(vec![topic_named("classic")]));
            assert_eq!(call(&mut client, 9, &one).await.topics.len(), 1);
        } else {
            assert!(is_served(&mut client).await);
        }
    }
    eventually("all connections are gone", || stats.connections.load(Ordering::Relaxed) == 0).await;
    // The mock's side of an upstream connection is in this process too, and closes when it sees ours closed.
    eventually("as many descriptors as before", || open() <= before).await;
    world.stop().await;
}

/// Counted on the heap; what the kernel and the allocator keep beside it is measured by `tests/bench/connections.py`.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_cheap() {
    const COUNT: usize = 200;
    let _alone = alone().await;
    let world = World::start().await;
    assert!(!world.metadata().await.brokers.is_empty());
    let before = MEMORY.current_usage();
    let mut idle = Vec::new();
    let each = || MEMORY.current_usage().saturating_sub(before) / COUNT;
    for _ in 0..COUNT {
        let mut client = world.connect().await;
        assert!(is_served(&mut client).await);
        idle.push(client);
    }
    eventually("a connection takes 12 KiB", || each() <= 12 * 1024).await;
    let one = MetadataRequest::default().with_topics(Some(vec![topic_named("classic")]));
    for client in &mut idle {
        assert_eq!(call(client, 9, &one).await.topics.len(), 1);
    }
    eventually("a connection with one of its own to upstream takes 12 KiB", || each() <= 12 * 1024).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_topics_are_asked_for_at_once() {
    let _alone = alone().await;
    let world = World::start().await;
    let mut client = world.connect().await;
    let names = (0..10_000).map(|n| topic_named(&format!("unknown-{n}")));
    let topics = names.chain([topic_named("diskless"), topic_named(&"n".repeat(249))]).collect();
    let request = MetadataRequest::default().with_topics(Some(topics)).with_allow_auto_topic_creation(false);
    for version in [4, 12] {
        let answer = call(&mut client, version, &request).await;
        assert_eq!(answer.topics.len(), 10_002, "version {version}");
        let ours = answer.topics.iter().find(|t| t.name.as_ref() == Some(&diskless())).expect("it is listed");
        assert_eq!((ours.error_code, ours.partitions.len()), (0, 3));
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_does_not_grow_memory() {
    let _alone = alone().await;
    let world = World::start().await;
    let mut producer = world.connect().await;
    for sequence in 0..16 {
        let body = vec![0; 512 * 1024];
        assert_eq!(send(&mut producer, 0, batch(ZSTD, 1, sequence, &body)).await.0, 0);
    }
    let names = (0..10_000).map(|n| topic_named(&format!("unknown-{n}"))).collect();
    let names = MetadataRequest::default().with_topics(Some(names)).with_allow_auto_topic_creation(false);
    let metadata = wire::encode_request(5, 9, "test", &names).expect("encodes");
    let fetch = wire::encode_request(5, 11, "test", &fetch(0, 0)).expect("encodes");
    for (what, frame) in [("Fetch", fetch), ("Metadata", metadata)] {
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let mut deaf = world.connect().await;
        let flood = frame.repeat((64 * 1024 / frame.len()).max(1));
        // Until the proxy reads no more; all that was sent is then in the kernel's buffers or answered.
        while let Ok(written) = timeout(Duration::from_secs(2), deaf.write_all(&flood)).await {
            written.expect("open");
        }
        let grown = MEMORY.peak_usage().saturating_sub(before);
        assert!(grown < 24 << 20, "{grown} bytes for a client that does not read its {what} answers");
        assert!(is_served(&mut producer).await, "others are served beside {what}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_that_stall_do_not_keep_the_memory_for_requests_from_others() {
    let _alone = alone().await;
    let world = World::start_with("listener.request.memory.bytes = 4194304").await;
    // Each announces a Produce as large as all the memory, and sends one byte of it now and then.
    let mut stalled = Vec::new();
    for _ in 0..8 {
        let mut client = world.connect().await;
        client.write_all(&(4i32 << 20).to_be_bytes()).await.expect("open");
        client.write_all(&[0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0, 0]).await.expect("open");
        client.write_all(&[0; 100]).await.expect("open");
        stalled.push(client);
    }
    let mut producer = world.connect().await;
    let mut slowest = Duration::ZERO;
    for sequence in 0..10 {
        for client in &mut stalled {
            client.write_all(&[0]).await.expect("open");
        }
        let begun = Instant::now();
        let body = vec![0; 200 * 1024];
        assert_eq!(send(&mut producer, 0, batch(ZSTD, 1, sequence, &body)).await.0, 0);
        slowest = slowest.max(begun.elapsed());
    }
    assert!(slowest < Duration::from_secs(5), "a request waited {slowest:?} for others that do not come");
    drop(stalled);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_waits_for_any_more_are_dropped() {
    let _alone = alone().await;
    let world = World::start().await;
    for number in 0..100 {
        let mut client = world.connect().await;
        let frame = wire::encode_request(5, 9, "test", &produce(2, batch(0, 1, number, &RECORD))).expect("encodes");
        client.write_all(&frame).await.expect("open");
        // Gone, with the answer still to come.
        drop(client);
    }
    let stats = &world.app.proxy.stats;
    eventually("no connection is left", || stats.connections.load(Ordering::Relaxed) == 0).await;
    let mut client = world.connect().await;
    let answer = call_hot(&mut client, 11, &fetch(2, 0)).await;
    let mut served = records_of(&answer);
    let mut offsets = Vec::new();
    while served.len() > 12 {
        offsets.push((&served[..8]).get_i64());
        let length = usize::try_from((&served[8..12]).get_i32()).expect("a length");
        served.advance(12 + length);
    }
    assert_eq!(offsets, (0..offsets.len() as i64).collect::<Vec<_>>(), "whatever was stored is in order");
    world.stop().await;
}
