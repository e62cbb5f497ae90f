//! The whole stack on the in-memory and the local store, well and with faults.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

fn quick(url: &str) -> Config {
    Config { attempt_timeout_ms: 200, timeout_ms: 1_500, ..Config::new(url) }
}

fn memory() -> ObjectStorage {
    ObjectStorage::open(&quick("memory://")).expect("an in-memory store")
}

fn parts() -> Vec<Bytes> {
    vec![Bytes::from_static(b"ab"), Bytes::from_static(b"cdef")]
}

async fn check_operations(store: &ObjectStorage) {
    store.put("log/wal/1", parts()).await.expect("written");
    store.put("log/wal/1", parts()).await.expect("written again");
    store.put("other/wal/2", parts()).await.expect("written");
    assert_eq!(store.get_range("log/wal/1", 1..5).await, Ok(Bytes::from_static(b"bcde")));
    assert_eq!(store.head("log/wal/1").await, Ok(6));
    let listed = store.list("log", None, 10).await.expect("listed");
    assert_eq!(listed.iter().map(|o| (o.key.as_str(), o.size)).collect::<Vec<_>>(), [("log/wal/1", 6)]);
    assert_eq!(store.list("log", Some("log/wal/1"), 10).await, Ok(Vec::new()));
    assert_eq!(store.delete("log/wal/1").await, Ok(()));
    assert_eq!(store.delete("log/wal/1").await, Ok(()), "deleting twice is deleting");
    assert_eq!(store.head("log/wal/1").await, Err(ReadError::NotFound));
    assert_eq!(store.get_range("log/wal/1", 0..1).await, Err(ReadError::NotFound));
}

#[tokio::test]
async fn the_memory_store_keeps_objects() {
    check_operations(&memory()).await;
}

#[tokio::test]
async fn a_directory_keeps_objects() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("file://{}", directory.path().join("made/on/open").display());
    // A disk takes its time, and what is repeated would be counted.
    let store = ObjectStorage::open(&Config::new(url)).expect("opened");
    check_operations(&store).await;
    let heads = store.stats().counts(Operation::Head);
    assert_eq!(heads.attempts - heads.requests, 3, "each PUT is verified by its size");
}

#[tokio::test]
async fn a_range_beyond_the_end_is_not_a_success() {
    let store = memory();
    store.put("k", parts()).await.expect("written");
    assert!(matches!(store.get_range("k", 3..9).await, Err(ReadError::Corrupt(_))));
    assert!(store.get_range("k", 7..9).await.is_err());
}

#[tokio::test]
async fn passing_faults_are_retried_and_counted() {
    let store = memory();
    for fault in [Fault::ErrorBefore, Fault::ErrorAfter, Fault::Unavailable] {
        store.faults().set([FaultRule::new(Operation::Put, fault).times(1)]);
        assert_eq!(store.put("k", parts()).await, Ok(()), "{fault:?}");
    }
    let counts = store.stats().counts(Operation::Put);
    assert_eq!((counts.requests, counts.attempts, counts.retries(), counts.errors, counts.bytes), (3, 6, 3, 0, 18));
    assert_eq!(counts.buckets.iter().sum::<u64>(), 3);
}

#[tokio::test]
async fn a_lasting_fault_ends_with_what_is_known() {
    let store = memory();
    store.faults().set([FaultRule::new(Operation::Put, Fault::Unavailable)]);
    assert!(matches!(store.put("k", parts()).await, Err(WriteError::NotDone(_))));
    store.faults().set([FaultRule::new(Operation::Put, Fault::ErrorAfter)]);
    assert!(matches!(store.put("k", parts()).await, Err(WriteError::Unknown(_))));
    assert_eq!(store.head("k").await, Ok(6), "it was written after all");
    assert_eq!(store.stats().counts(Operation::Put).errors, 2);
}

#[tokio::test]
async fn a_refusal_is_not_retried() {
    let store = memory();
    store.faults().set([FaultRule::new(Operation::Put, Fault::Refused)]);
    assert!(matches!(store.put("k", parts()).await, Err(WriteError::NotDone(_))));
    assert_eq!(store.stats().counts(Operation::Put).attempts, 1);
}

#[tokio::test]
async fn a_request_without_an_answer_is_unknown() {
    let store = memory();
    store.faults().set([FaultRule::new(Operation::Put, Fault::Hold)]);
    assert!(matches!(store.put("k", parts()).await, Err(WriteError::Unknown(_))));
    store.faults().clear();
    assert_eq!(store.put("k", parts()).await, Ok(()));
}

#[test]
fn fault_rules_are_read_from_json() {
    let rule = serde_json::from_str(r#"{"operation": "put", "fault": "error-after", "times": 2}"#).ok();
    assert_eq!(rule, Some(FaultRule::new(Operation::Put, Fault::ErrorAfter).times(2)));
    let rule = serde_json::from_str(r#"{"fault": {"delay-ms": 300}, "for_ms": 1000}"#).ok();
    let expected =
        FaultRule { operation: None, key_contains: None, fault: Fault::DelayMs(300), times: None, for_ms: Some(1000) };
    assert_eq!(rule, Some(expected));
}

/// Plays S3 for one PUT: gives back the request as it came.
async fn answer_one_put(listener: TcpListener, body: &str) -> String {
    let (mut socket, _) = listener.accept().await.expect("a connection");
    let mut request = Vec::new();
    while !request.ends_with(body.as_bytes()) {
        assert!(socket.read_buf(&mut request).await.expect("bytes") > 0, "the request is cut short");
    }
    socket.write_all(b"HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 0\r\n\r\n").await.expect("answered");
    String::from_utf8(request).expect("text").to_lowercase()
}

#[tokio::test]
async fn a_put_to_s3_carries_its_checksum() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut config = quick("s3://bucket/prefix");
    for (name, value) in [
        ("aws_endpoint", format!("http://{}", listener.local_addr().expect("bound"))),
        ("aws_region", "eu-west-1".to_owned()),
        ("aws_access_key_id", "id".to_owned()),
        ("aws_secret_access_key", "secret".to_owned()),
    ] {
        config.options.insert(name.to_owned(), value);
    }
    let store = ObjectStorage::open(&config).expect("opened");
    let (request, put) = tokio::join!(answer_one_put(listener, "abcdef"), store.put("log/wal/1", parts()));
    assert_eq!(put, Ok(()));
    assert!(request.starts_with("put /bucket/prefix/log/wal/1 "), "{request}");
    assert!(request.contains("x-amz-checksum-crc64nvme: "), "{request}");
    assert!(!request.contains("if-none-match"), "{request}");
    assert_eq!(store.stats().counts(Operation::Head).attempts, 0, "the checksum was verified by the store");
}
