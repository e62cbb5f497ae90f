//! The metadata log in a real Kafka. Runs when SIDESTREAM_TEST_KAFKA names its address, and says so otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sidestream::clock::WallClock;
use sidestream::coordination::{Coordination, Identity, Settings, Timing};
use sidestream::diskless_coordinator::command::Command;
use sidestream::diskless_coordinator::outcome::Outcome;
use sidestream::metadata_log::{KafkaLog, KafkaLogSettings, LogError, LogRecord, MetadataLog, topic};
use sidestream::metadata_store::StoreLocation;
use sidestream::tasks::Tasks;
use sidestream::types::{Endpoint, LogPosition, ProxyId, TopicId};
use tokio::time::Instant;

/// A topic of its own for each test; `None` without Kafka.
async fn settings(test: &str) -> Option<KafkaLogSettings> {
    let Ok(bootstrap_servers) = std::env::var("SIDESTREAM_TEST_KAFKA") else {
        eprintln!("skipped: set SIDESTREAM_TEST_KAFKA=host:port to run {test}");
        return None;
    };
    let topic = format!("__diskless_metadata_{test}_{:016x}", rand::random::<u64>());
    let settings = KafkaLogSettings { bootstrap_servers, topic, client: BTreeMap::new() };
    let actual = topic::ensure(&settings, 1).await.expect("the topic is created");
    let findings = topic::check(&settings, 1, &actual);
    assert!(findings.iter().all(|finding| !finding.fatal), "{findings:?}");
    let again = topic::ensure(&settings, 1).await.expect("the topic exists");
    assert_eq!(again, actual);
    Some(settings)
}

async fn read(log: &KafkaLog, from: i64, count: usize) -> Vec<LogRecord> {
    let mut tail = log.tail(LogPosition(from)).expect("a tail");
    let mut records = Vec::new();
    while records.len() < count {
        records.extend(tail.groups.recv().await.expect("the log goes on").expect("the log can be read"));
    }
    records
}

#[tokio::test]
async fn appends_keep_call_order_and_are_read_back() {
    let Some(settings) = settings("order").await else { return };
    let log = KafkaLog::open(settings).expect("a client");
    let appends: Vec<_> = (0u16..500).map(|n| log.append(n.to_be_bytes().to_vec())).collect();
    for (n, append) in (0i64..).zip(appends) {
        assert_eq!(append.await, Ok(LogPosition(n)));
    }
    log.renew();
    assert_eq!(log.append(b"later".to_vec()).await, Ok(LogPosition(500)));
    assert_eq!(log.start().await, Ok(LogPosition(0)));
    assert_eq!(log.end().await, Ok(LogPosition(501)));
    let records = read(&log, 100, 401).await;
    assert_eq!(records[0].bytes.as_ref(), 100u16.to_be_bytes());
    assert!(records[0].append_time_ms > 1_600_000_000_000);
    let positions: Vec<i64> = records.iter().map(|record| record.position.0).collect();
    assert_eq!(positions, (100..=500).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_reader_beyond_the_end_learns_that_records_are_lost() {
    let Some(settings) = settings("lost").await else { return };
    let log = KafkaLog::open(settings).expect("a client");
    log.append(b"one".to_vec()).await.expect("appended");
    let mut tail = log.tail(LogPosition(50)).expect("a tail");
    let lost = LogError::Lost { expected: LogPosition(50), got: LogPosition(1) };
    assert_eq!(tail.groups.recv().await, Some(Err(lost)));
}

#[tokio::test]
async fn neither_a_description_nor_an_append_creates_the_topic() {
    let Some(settings) = settings("absent").await else { return };
    let absent = KafkaLogSettings { topic: format!("{}_not", settings.topic), ..settings };
    let append = KafkaLog::open(absent.clone()).expect("a client").append(b"one".to_vec());
    assert!(topic::describe(&absent).await.is_err());
    assert!(append.await.is_err());
}

#[tokio::test]
async fn two_proxies_serve_from_one_topic() {
    let Some(kafka) = settings("proxies").await else { return };
    let (tasks, _failures) = Tasks::new();
    let start = async |proxy: u32| {
        let settings = Settings {
            proxy: ProxyId(proxy),
            zone: "a".to_owned(),
            endpoint: Endpoint { host: "localhost".to_owned(), port: 1 },
            store: StoreLocation::Memory,
            upstream_cluster_id: "cluster".to_owned(),
            metadata_topic_id: TopicId([1; 16]),
            timing: Timing::default(),
            clock: WallClock::system(),
            identity: Identity::random(),
        };
        let log = Arc::new(KafkaLog::open(kafka.clone()).expect("a client"));
        Coordination::start(settings, log, &tasks).await.expect("it starts")
    };
    let (a, b) = (start(1).await, start(2).await);
    assert_eq!(a.log_id(), b.log_id());
    let pending = a.submit(Command::PendingTopic { name: "orders".to_owned() });
    assert_eq!(pending.await, Ok(Outcome::Done));
    let soon = Instant::now() + Duration::from_secs(20);
    b.end_barrier(soon).await.expect("the log answers");
    assert!(b.view().topics().pending.contains("orders"));
    b.record_barrier(soon).await.expect("the log answers");
    a.close().await;
    b.close().await;
    tasks.stop_and_join(Duration::from_secs(10)).await.expect("everything ends");
}
