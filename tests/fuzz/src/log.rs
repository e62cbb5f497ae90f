//! Records of the metadata log: one by itself, and a history of commands that only somebody hostile would append.

use std::sync::Arc;

use bytes::Bytes;
use sidestream::diskless_coordinator::apply::{Applied, apply};
use sidestream::diskless_coordinator::checks::verify;
use sidestream::diskless_coordinator::command::{Command, Proposal, Proposer};
use sidestream::diskless_coordinator::effect::{CommittedSegment, Effect};
use sidestream::diskless_coordinator::encoding::{Decoded, LogRecord, decode, encode};
use sidestream::diskless_coordinator::rules::agreement::Checkpoint;
use sidestream::diskless_coordinator::state::State;
use sidestream::record_batch::checksum;
use sidestream::types::{Endpoint, LogId, LogPosition, ProxyId, TopicId};

use super::{SMALL, split, within};

/// A batch takes seven bytes in a record and 48 in memory, in a list that doubles as it grows. Only proxies write
/// records, and none is larger than 10 MiB.
const MEMORY_PER_RECORD_BYTE: usize = 8;

/// One record, as it is and with its checksum put right.
pub fn record(input: &[u8]) {
    read(input);
    let mut mended = input.to_vec();
    if mended.len() >= 8 {
        mended[0] = 0xd1;
        let crc = checksum([&mended[..4], &mended[8..]]).to_le_bytes();
        mended[4..8].copy_from_slice(&crc);
        read(&mended);
    }
}

fn read(record: &[u8]) {
    let decoded = within(record.len() * MEMORY_PER_RECORD_BYTE, SMALL, || decode(record));
    if let Ok(Decoded::Proposal(Proposal { proposer, command })) = decoded {
        let again = decode(&encode(&proposer, &command));
        assert_eq!(again, Ok(Decoded::Proposal(Proposal { proposer, command })), "what was read can be written");
    }
}

/// Applies commands, each behind its length in two bytes and a byte of time, as one admitted proxy's: nothing that a
/// command says may make `apply` panic or break an invariant of the state.
pub fn history(input: &[u8]) {
    let mut log = History::new();
    let mut rest = input;
    while let Some((head, tail)) = rest.split_first_chunk::<3>() {
        let (body, after) = split(tail, usize::from(u16::from_be_bytes([head[0], head[1]])));
        rest = after;
        if let Ok(command) = postcard::from_bytes::<Command>(body) {
            log.append(&command, i64::from(head[2]) * 1000);
        }
    }
    let wrong = verify(&log.state, log.committed.iter().map(|segment| &**segment));
    assert!(wrong.is_empty(), "{wrong:?}");
}

struct History {
    state: State,
    committed: Vec<Arc<CommittedSegment>>,
    time: i64,
    epoch: LogPosition,
    counter: u64,
}

impl History {
    fn new() -> Self {
        let mut log = Self {
            state: State::default(),
            committed: Vec::new(),
            time: 1_700_000_000_000,
            epoch: LogPosition::NONE,
            counter: 0,
        };
        let (log_id, topic_id) = (LogId([1; 16]), TopicId([2; 16]));
        let cluster = "cluster".to_owned();
        log.append(&Command::Genesis { log_id, upstream_cluster_id: cluster, metadata_topic_id: topic_id }, 0);
        log.open([9; 16]);
        log
    }

    fn open(&mut self, nonce: [u8; 16]) {
        let endpoint = Endpoint { host: "h".into(), port: 9092 };
        let open = Command::Open { nonce, zone: "a".into(), endpoint, min_version: 1, max_version: 1 };
        self.append(&open, 0);
    }

    fn append(&mut self, command: &Command, later_ms: i64) {
        self.time += later_ms;
        let begins = matches!(command, Command::Genesis { .. } | Command::Open { .. });
        let (epoch, counter) = if begins { (LogPosition::NONE, 0) } else { (self.epoch, self.counter + 1) };
        let quoted = self.state.checkpoints.back().copied().unwrap_or(Checkpoint::NONE);
        let proposer = Proposer { proxy: ProxyId(3), epoch, counter, wall_time: self.time, quoted };
        let position = self.state.applied.next();
        let bytes = Bytes::from(encode(&proposer, command));
        let record = LogRecord { position, append_time_ms: self.time, bytes };
        let Applied { effects, .. } = apply(&mut self.state, &record).expect("a readable record is applied");
        self.counter = counter;
        if matches!(command, Command::Open { .. }) {
            self.epoch = position;
        }
        for effect in effects {
            if let Effect::Segment(segment) = effect {
                self.committed.push(segment);
            }
        }
    }
}
