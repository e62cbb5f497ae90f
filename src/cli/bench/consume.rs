//! `bench consume`: reads all partitions of a topic from the beginning to the end that they had at the start.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use super::report::Report;
use super::{Target, offsets_of};

#[derive(Args, Debug)]
pub(in crate::cli) struct Options {
    #[command(flatten)]
    pub(super) target: Target,
    /// Stop after so many records.
    #[arg(long)]
    records: Option<u64>,
}

/// A consumer that hears nothing for this long has stalled.
const STALLED: Duration = Duration::from_secs(60);
/// So long after the ends of all partitions were told nothing more is on its way.
const ENDED: Duration = Duration::from_secs(2);

pub(super) fn run(options: &Options) -> anyhow::Result<Report> {
    let consumer = consumer(&options.target, true)?;
    let mut left = BTreeMap::new();
    let mut assignment = TopicPartitionList::new();
    for (partition, low, high) in offsets_of(&consumer, &options.target)? {
        if high > low {
            left.insert(partition, high);
        }
        assignment.add_partition_offset(&options.target.topic, partition, Offset::Offset(low))?;
    }
    ensure!(!left.is_empty(), "topic {:?} is empty: fill it with `sidestream bench produce`", options.target.topic);
    let started = Instant::now();
    consumer.assign(&assignment).context("the partitions cannot be assigned")?;
    let (records, bytes, ended) = read(&consumer, left, options.records.unwrap_or(u64::MAX))?;
    let seconds = ended.duration_since(started).as_secs_f64();
    Ok(Report { name: "consume", records, bytes, seconds, failed: None, latencies: Vec::new() })
}

/// With `tells_ends` the consumer says when it has come to the end of a partition.
pub(super) fn consumer(target: &Target, tells_ends: bool) -> anyhow::Result<BaseConsumer> {
    let mut settings = target.client()?;
    settings
        .set("group.id", "sidestream-bench")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", tells_ends.to_string())
        .set("queued.max.messages.kbytes", "131072")
        .set("queued.min.messages", "500000");
    target.with_properties(&mut settings)?;
    settings.create().context("the consumer cannot be made")
}

/// Reads until nothing is left below the given ends; says how many records and bytes that were, and when it was done.
fn read(consumer: &BaseConsumer, mut left: BTreeMap<i32, i64>, most: u64) -> anyhow::Result<(u64, u64, Instant)> {
    let (mut records, mut bytes) = (0u64, 0u64);
    let mut ends = BTreeMap::new();
    let mut silence = Silence { records, since: Instant::now() };
    while !left.is_empty() && records < most {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                records += 1;
                bytes += message.payload_len() as u64;
                if left.get(&message.partition()).is_some_and(|end| message.offset() + 1 >= *end) {
                    left.remove(&message.partition());
                }
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                ends.insert(partition, (records, Instant::now()));
            }
            Some(Err(error)) => tracing::warn!(%error, "the consumer reports an error"),
            None => {
                if let Some(ended) = all_ended(&left, &ends, records, Instant::now()) {
                    return Ok((records, bytes, ended));
                }
                let lasts = silence.lasts(records, Instant::now());
                ensure!(lasts < STALLED, "nothing came for {} s", STALLED.as_secs());
            }
        }
    }
    Ok((records, bytes, Instant::now()))
}

/// The last offset of a partition need not be a record: a transaction ends with a marker, and then only the end of the
/// partition is told. A replica that lags behind tells an end as well, so it counts once nothing comes after it.
fn all_ended(
    left: &BTreeMap<i32, i64>,
    ends: &BTreeMap<i32, (u64, Instant)>,
    records: u64,
    now: Instant,
) -> Option<Instant> {
    let mut last = None;
    for partition in left.keys() {
        let (_, at) = ends.get(partition)?;
        last = last.max(Some(*at));
    }
    let is_newest = ends.values().any(|(seen, _)| *seen == records);
    last.filter(|at| is_newest && now.duration_since(*at) >= ENDED)
}

/// Since when nothing has come. Asked only when nothing is there, so that reading costs no look at the clock.
struct Silence {
    records: u64,
    since: Instant,
}

impl Silence {
    fn lasts(&mut self, records: u64, now: Instant) -> Duration {
        if records != self.records {
            *self = Self { records, since: now };
        }
        now.duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

    use super::*;

    #[test]
    fn the_end_of_a_partition_need_not_be_a_record() {
        let mock = MockCluster::new(1).expect("a mock");
        mock.create_topic("ends", 1, 1).expect("created");
        let target =
            Target { bootstrap: mock.bootstrap_servers(), topic: "ends".to_owned(), property: Vec::new(), json: false };
        let producer: BaseProducer = target.client().expect("settings").create().expect("a producer");
        for _ in 0..5 {
            let record = BaseRecord::<(), [u8]>::to("ends").partition(0).payload(b"value");
            producer.send(record).map_err(|(error, _)| error).expect("room");
        }
        producer.flush(Duration::from_secs(30)).expect("acknowledged");
        let consumer = consumer(&target, true).expect("a consumer");
        let mut assignment = TopicPartitionList::new();
        assignment.add_partition_offset("ends", 0, Offset::Offset(0)).expect("an offset");
        consumer.assign(&assignment).expect("assigned");
        // As if a transaction's marker stood at offset 5.
        let (records, bytes, _) = read(&consumer, BTreeMap::from([(0, 6)]), u64::MAX).expect("it ends");
        assert_eq!((records, bytes), (5, 25));
    }

    #[test]
    fn an_end_counts_once_nothing_comes_after_it() {
        let start = Instant::now();
        let left = BTreeMap::from([(0, 9), (1, 9)]);
        let mut ends = BTreeMap::from([(0, (3, start))]);
        assert_eq!(all_ended(&left, &ends, 3, start + ENDED), None, "one goes on");
        ends.insert(1, (7, start + ENDED));
        assert_eq!(all_ended(&left, &ends, 7, start + ENDED), None, "just now");
        assert_eq!(all_ended(&left, &ends, 7, start + 2 * ENDED), Some(start + ENDED));
        assert_eq!(all_ended(&left, &ends, 8, start + 2 * ENDED), None, "a replica lagged, and more has come");
    }

    #[test]
    fn few_records_end_a_silence_as_many_do() {
        let start = Instant::now();
        let mut silence = Silence { records: 0, since: start };
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(silence.lasts(0, at(50)), Duration::from_secs(50));
        assert_eq!(silence.lasts(1, at(70)), Duration::ZERO);
        assert_eq!(silence.lasts(1, at(100)), Duration::from_secs(30));
    }
}
