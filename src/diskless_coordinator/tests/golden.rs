//! What was once in a log is decided alike for ever: a correction of `apply` is a new version of the format.

use super::*;

/// What a log of format version 1 holds, and the state that came of it, for ever: lines of append time and bytes, and
/// the digests of log and state after the last.
const GOLDEN_LOG: &str = include_str!("log_v1.txt");

/// A story with every kind of command, and of outcome.
fn golden_story() -> Log {
    let mut log = Log::with_topic();
    log.open(2, 9);
    log.commit(0, &[batch(5, 0, 10), batch(5, 0, 10), batch(5, 99, 1), batch(-1, -1, 2)]);
    log.commit(1, &[BatchMeta { follows: true, ..batch(6, 5, 1) }, batch(7, 0, 3)]);
    let repeated = segment(log.state.applied, 2, &[batch(7, 3, 1)]);
    log.send(Command::CommitSegment(repeated.clone()));
    log.send_as(2, Command::CommitSegment(repeated));
    let config = TopicConfig { version: 2, log_append_time: true, ..TopicConfig::default() };
    log.send(Command::TopicConfigChanged { topic_id: TOPIC, config });
    log.send(Command::PartitionsCreated { topic_id: TOPIC, partitions: 4 });
    log.pass(1_500);
    log.commit(3, &[batch(7, 4, 2)]);
    let _ = log.append(b"by hand".to_vec());
    log.send(Command::PendingTopic { name: "gone".to_owned() });
    log.send(Command::PendingTopicDropped { name: "gone".to_owned() });
    log.send(Command::PendingTopic { name: "expires".to_owned() });
    let (epoch, counter) = (log.epochs[2], log.counters[2]);
    log.raw(2, epoch, counter + 2, &Command::Barrier);
    log.send_as(2, Command::Barrier);
    log.open(2, 8);
    log.raw(2, epoch, counter + 2, &Command::Heartbeat);
    let wrong = Checkpoint { digest: Hash([9; 16]), ..log.state.checkpoints[0] };
    log.quoting(2, 1, wrong, &Command::Heartbeat);
    log.pass(rules::topics::PENDING_FOR_MS);
    log.send(Command::Heartbeat);
    log.commit(4, &[batch(8, 0, 1)]);
    log.open_knowing(1, 1, (1, 2));
    log.send(Command::SetClusterVersion { version: 2 });
    log.send(Command::TopicDeleted { topic_id: TOPIC });
    log.commit(5, &[batch(8, 1, 1)]);
    log.pass(rules::incarnations::CLOSED_AFTER_MS);
    log.send(Command::Heartbeat);
    log.send(Command::Close);
    log.pass(rules::placement::PRODUCER_EXPIRATION_MS);
    log.open_knowing(3, 3, (1, 2));
    log
}

fn as_text(log: &Log) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let records: Vec<String> =
        log.records.iter().map(|record| format!("{} {}", record.append_time_ms, hex(&record.bytes))).collect();
    format!("{}\nchain {}\ndigest {}\n", records.join("\n"), log.state.chain, log.state.digest())
}

#[test]
fn a_log_of_version_1_is_decided_as_it_was_for_ever() {
    let golden = GOLDEN_LOG.lines().filter(|line| !line.starts_with('#'));
    let (records, digests): (Vec<&str>, Vec<&str>) =
        golden.partition(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    let mut state = State::default();
    for (position, record) in (0..).map(LogPosition).zip(records) {
        let (time, digits) = record.split_once(' ').expect("a time and bytes");
        let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits"));
        let bytes: Vec<u8> = pairs.map(|pair| u8::from_str_radix(pair, 16).expect("digits")).collect();
        let append_time_ms = time.parse().expect("a time");
        let _ =
            apply(&mut state, &LogRecord { position, append_time_ms, bytes: bytes.into() }).expect("it is readable");
    }
    assert_eq!(digests, [format!("chain {}", state.chain), format!("digest {}", state.digest())]);
}

#[test]
fn the_golden_log_is_what_is_written_today() {
    let golden: Vec<&str> = GOLDEN_LOG.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(as_text(&golden_story()).lines().collect::<Vec<_>>(), golden);
}
