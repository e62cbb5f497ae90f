//! `bench e2e`: one producer at a rate and one consumer behind it, in one process and so with one clock.

use std::sync::atomic::{AtomicBool, Ordering};
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

pub(super) fn run(options: &Options) -> anyhow::Result<Report> {
    let clock = Clock::start();
    let source = Source::new(&options.target, &options.load, clock)?;
    let consumer = consumer(&options.target, false)?;
    follow_the_end(&consumer, &options.target)?;
    let produced = AtomicBool::new(false);
    let records = (options.rate * options.for_.as_secs_f64()).ceil() as u64;
    let pace = Pace { records, until: None, rate: Some(options.rate) };
    let started = Instant::now();
    let (sent, read) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&consumer, records, clock, &produced));
        let sent = source.produce(&pace);
        produced.store(true, Ordering::Release);
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

fn read(consumer: &BaseConsumer, records: u64, clock: Clock, produced: &AtomicBool) -> anyhow::Result<Latencies> {
    let mut latencies = Latencies::default();
    let mut seen = 0;
    let mut last_chance = None;
    while seen < records {
        match consumer.poll(Duration::from_millis(50)) {
            Some(Ok(message)) => {
                seen += 1;
                if let Some(sent) = message.payload().and_then(Payload::sent_us) {
                    latencies.record(clock.now_us().saturating_sub(sent));
                }
            }
            Some(Err(error)) => tracing::warn!(%error, "the consumer reports an error"),
            None if produced.load(Ordering::Acquire) => {
                let deadline = *last_chance.get_or_insert_with(|| Instant::now() + CATCH_UP);
                ensure!(Instant::now() < deadline, "{seen} of {records} records were read");
            }
            None => {}
        }
    }
    Ok(latencies)
}
