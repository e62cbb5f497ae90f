//! `bench e2e`: one producer at a rate and one consumer behind it, in one process and so with one clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use super::consume::consumer;
use super::produce::{Pace, Source, report};
use super::report::{Latencies, Report};
use super::{Clock, Load, Payload, Target, offsets_of, parse_rate};
use crate::demo::parse_duration;

#[derive(Args, Debug)]
pub(in crate::cli) struct Options {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(flatten)]
    pub(super) load: Load,
    /// Records a second.
    #[arg(long, default_value = "100", value_parser = parse_rate)]
    rate: f64,
    /// How long (such as 60s).
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration, default_value = "10s")]
    for_: Duration,
}

/// After the last acknowledgement, how long the consumer may take to see the last record.
const CATCH_UP: Duration = Duration::from_secs(30);
/// Stands for how many records were acknowledged while they are produced.
const UNKNOWN: u64 = u64::MAX;

pub(super) fn run(options: &Options) -> anyhow::Result<Report> {
    let clock = Clock::start();
    let source = Source::new(&options.target, &options.load, clock)?;
    let consumer = consumer(&options.target, false)?;
    follow_the_end(&consumer, &options.target)?;
    let acknowledged = AtomicU64::new(UNKNOWN);
    let records = (options.rate * options.for_.as_secs_f64()).ceil() as u64;
    let pace = Pace { records, until: None, rate: Some(options.rate) };
    let started = Instant::now();
    let (sent, read) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&consumer, records, clock, &acknowledged));
        let sent = source.produce(&pace);
        acknowledged.store(source.acknowledged(), Ordering::Release);
        (sent, reading.join())
    });
    sent?;
    let latencies = read.map_err(|_| anyhow::anyhow!("the consumer panicked"))??;
    let mut report = report("e2e", &options.load, started.elapsed().as_secs_f64(), &[source]);
    report.latencies.push(("e2e", latencies));
    Ok(report)
}

fn follow_the_end(consumer: &BaseConsumer, target: &Target) -> anyhow::Result<()> {
    let mut assignment = TopicPartitionList::new();
    for (partition, _, high) in offsets_of(consumer, target)? {
        assignment.add_partition_offset(&target.topic, partition, Offset::Offset(high))?;
    }
    consumer.assign(&assignment).context("the partitions cannot be assigned")
}

/// Reads `records`, or as many as were acknowledged: those that were not may never come.
fn read(consumer: &BaseConsumer, records: u64, clock: Clock, acknowledged: &AtomicU64) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::default();
    let mut seen = 0;
    let mut last_chance = None;
    let due = || records.min(acknowledged.load(Ordering::Acquire));
    while seen < due() {
        match consumer.poll(Duration::from_millis(50)) {
            Some(Ok(message)) => {
                seen += 1;
                if let Some(sent) = message.payload().and_then(Payload::sent_us) {
                    latencies.record(clock.now_us().saturating_sub(sent));
                }
            }
            Some(Err(error)) => tracing::warn!(%error, "the consumer reports an error"),
            None if acknowledged.load(Ordering::Acquire) != UNKNOWN => {
                let deadline = *last_chance.get_or_insert_with(|| Instant::now() + CATCH_UP);
                ensure!(Instant::now() < deadline, "{seen} of {} records were read", due());
            }
            None => {}
        }
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

    use super::*;

    #[test]
    fn records_that_were_not_acknowledged_are_not_waited_for() {
        let mock = MockCluster::new(1).expect("a mock");
        mock.create_topic("lost", 1, 1).expect("created");
        let target =
            Target { bootstrap: mock.bootstrap_servers(), topic: "lost".to_owned(), property: Vec::new(), json: false };
        let consumer = consumer(&target, false).expect("a consumer");
        follow_the_end(&consumer, &target).expect("there is an end");
        let producer: BaseProducer = target.client().expect("settings").create().expect("a producer");
        for _ in 0..4 {
            let record = BaseRecord::<(), [u8]>::to("lost").partition(0).payload(&[0; 16]);
            producer.send(record).map_err(|(error, _)| error).expect("room");
        }
        producer.flush(Duration::from_secs(30)).expect("acknowledged");
        read(&consumer, 5, Clock::start(), &AtomicU64::new(4)).expect("four were read, and the fifth was lost");
    }
}
