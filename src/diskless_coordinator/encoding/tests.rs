//! Golden bytes: what is in a log must be read for ever.

use super::*;
use crate::diskless_coordinator::command::{CommitSegment, TopicConfig};
use crate::diskless_coordinator::digest::Hash;
use crate::diskless_coordinator::rules::agreement::Checkpoint;
use crate::types::{Endpoint, LogId, ProxyId, TopicId, TopicPartition, WalSegmentId};
use crate::wal_segment::{BatchMeta, PartitionBatches};

const PROPOSER: Proposer =
    Proposer { proxy: ProxyId(7), epoch: LogPosition(3), counter: 2, wall_time: 1_700_000_000_000, quoted: QUOTED };
const QUOTED: Checkpoint = Checkpoint { position: LogPosition(6), chain: Hash([4; 16]), digest: Hash([5; 16]) };

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn commands() -> Vec<Command> {
    let topic_id = TopicId([2; 16]);
    let meta = BatchMeta {
        byte_length: 100,
        last_offset_delta: 9,
        max_timestamp: 1_700_000_000_000,
        producer_id: 42,
        producer_epoch: 1,
        base_sequence: 5,
        follows: true,
    };
    let partition = TopicPartition { topic_id, partition: 1 };
    let segment = WalSegmentId { birth: LogPosition(8), epoch: LogPosition(3), sequence: 4 };
    let name = || "orders".to_owned();
    vec![
        Command::Genesis {
            log_id: LogId([1; 16]),
            upstream_cluster_id: "cluster".to_owned(),
            metadata_topic_id: topic_id,
        },
        Command::Open {
            nonce: [9; 16],
            zone: "a".to_owned(),
            endpoint: Endpoint { host: "h".to_owned(), port: 9092 },
            min_version: 1,
            max_version: 1,
        },
        Command::Heartbeat,
        Command::Close,
        Command::Barrier,
        Command::CommitSegment(CommitSegment {
            segment,
            object_size: 200,
            partitions: vec![PartitionBatches { partition, batches: vec![meta] }],
        }),
        Command::PendingTopic { name: name() },
        Command::PendingTopicDropped { name: name() },
        Command::RegisterTopic {
            name: name(),
            topic_id,
            partitions: 3,
            leader_epoch: 1,
            config: TopicConfig::default(),
        },
        Command::TopicDeleted { topic_id },
        Command::PartitionsCreated { topic_id, partitions: 6 },
        Command::TopicConfigChanged { topic_id, config: TopicConfig { version: 2, ..TopicConfig::default() } },
        Command::SetClusterVersion { version: 2 },
    ]
}

#[test]
fn every_command_has_the_bytes_of_version_1() {
    let golden = include_str!("golden_v1.txt").lines().filter(|line| !line.starts_with('#'));
    let written: Vec<String> = commands().iter().map(|command| hex(&encode(&PROPOSER, command))).collect();
    assert_eq!(written, golden.collect::<Vec<_>>());
}

#[test]
fn every_command_reads_back() {
    for command in commands() {
        let record = encode(&PROPOSER, &command);
        assert_eq!(decode(&record), Ok(Decoded::Proposal(Proposal { proposer: PROPOSER, command })));
    }
}

/// A record with other header bytes and the right checksum.
fn with_header(change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut record = encode(&PROPOSER, &Command::Heartbeat);
    change(&mut record);
    let crc = checksum(&record).to_le_bytes();
    record[4..HEADER].copy_from_slice(&crc);
    record
}

#[test]
fn what_must_be_understood_stops_the_reader() {
    assert_eq!(decode(&with_header(|r| r[1] = 2)), Err(DecodeError::Version(2)));
    assert_eq!(decode(&with_header(|r| r[3] = 200)), Err(DecodeError::Type(200)));
    assert!(matches!(decode(&with_header(|r| r[8..].fill(0xff))), Err(DecodeError::Body(_))));
    let mut torn = encode(&PROPOSER, &Command::Heartbeat);
    torn[9] ^= 1;
    assert_eq!(decode(&torn), Err(DecodeError::Checksum));
}

#[test]
fn what_need_not_be_understood_is_skipped() {
    let optional = |at: usize, value: u8| {
        with_header(move |r| {
            r[2] = 0;
            r[at] = value;
        })
    };
    assert_eq!(decode(&optional(1, 2)), Ok(Decoded::Skipped));
    assert_eq!(decode(&optional(3, 200)), Ok(Decoded::Skipped));
    assert_eq!(decode(b"produced by hand"), Ok(Decoded::Skipped));
    assert_eq!(decode(b""), Ok(Decoded::Skipped));
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        let _ = decode(&bytes);
        let mut framed = vec![MAGIC, FORMAT_VERSION, MUST_UNDERSTAND, 5, 0, 0, 0, 0];
        framed.extend(&bytes);
        let crc = checksum(&framed).to_le_bytes();
        framed[4..HEADER].copy_from_slice(&crc);
        let _ = decode(&framed);
    }
}
