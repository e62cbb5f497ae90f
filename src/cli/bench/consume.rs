//! `bench consume`: reads all partitions of a topic from the beginning to the end that they had at the start.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
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

pub(super) fn run(options: &Options) -> anyhow::Result<Report> {
    let consumer = consumer(&options.target)?;
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
    let (records, bytes) = read(&consumer, left, options.records.unwrap_or(u64::MAX))?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(Report { name: "consume", records, bytes, seconds, failed: None, latencies: Vec::new() })
}

pub(super) fn consumer(target: &Target) -> anyhow::Result<BaseConsumer> {
    let mut settings = target.client()?;
    settings
        .set("group.id", "sidestream-bench")
        .set("enable.auto.commit", "false")
        .set("queued.max.messages.kbytes", "131072")
        .set("queued.min.messages", "500000");
    target.with_properties(&mut settings)?;
    settings.create().context("the consumer cannot be made")
}

fn read(consumer: &BaseConsumer, mut left: BTreeMap<i32, i64>, most: u64) -> anyhow::Result<(u64, u64)> {
    let (mut records, mut bytes) = (0u64, 0u64);
    let mut heard = Instant::now();
    while !left.is_empty() && records < most {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                records += 1;
                bytes += message.payload_len() as u64;
                if records.is_multiple_of(1024) {
                    heard = Instant::now();
                }
                if left.get(&message.partition()).is_some_and(|end| message.offset() + 1 >= *end) {
                    left.remove(&message.partition());
                }
            }
            Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::PartitionEOF))) => {}
            Some(Err(error)) => tracing::warn!(%error, "the consumer reports an error"),
            None => ensure!(heard.elapsed() < STALLED, "nothing came for {} s", STALLED.as_secs()),
        }
    }
    Ok((records, bytes))
}
