//! `sidestream bench`: loads any Kafka address through librdkafka and prints what it measured.
//!
//! It knows nothing of proxies, so the same command measures Kafka directly and through one. Each record carries the time
//! at which it was handed to the client, and latencies are taken from there.

mod consume;
mod e2e;
mod produce;
mod report;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{Client, DefaultClientContext};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{ClientConfig, ClientContext};

use super::{assignment, say};
use report::Report;

#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Produce as fast as the client can, or at a rate.
    Produce(produce::Options),
    /// Read what is in a topic, from the beginning, once.
    Consume(consume::Options),
    /// Produce at a rate and read along; the time from handing a record over until it is read.
    E2e(e2e::Options),
}

/// What every benchmark takes.
#[derive(Args, Clone, Debug)]
struct Target {
    /// Any Kafka address, a proxy's or a broker's.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9092")]
    bootstrap: String,
    #[arg(long)]
    topic: String,
    /// A setting of librdkafka, such as fetch.message.max.bytes=10000000. Can be given many times.
    #[arg(long, value_name = "KEY=VALUE")]
    property: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

impl Target {
    fn client(&self) -> anyhow::Result<ClientConfig> {
        let mut settings = ClientConfig::new();
        settings.set("bootstrap.servers", &self.bootstrap).set("client.id", "sidestream-bench");
        Ok(settings)
    }

    /// What the user said comes last, so that it holds.
    fn with_properties(&self, settings: &mut ClientConfig) -> anyhow::Result<()> {
        for property in &self.property {
            let (key, value) = assignment("--property", property)?;
            settings.set(key, value);
        }
        Ok(())
    }
}

/// How a benchmark produces.
#[derive(Args, Clone, Debug)]
struct Load {
    /// Create the topic with so many partitions if it does not exist.
    #[arg(long, value_name = "PARTITIONS")]
    create: Option<i32>,
    /// Size of a record's value.
    #[arg(long, value_name = "BYTES", default_value = "1024", value_parser = clap::value_parser!(u32).range(16..=10_000_000))]
    record_bytes: u32,
    /// Whether the producer is idempotent. Diskless topics need that unless the proxy is told otherwise.
    #[arg(long, default_value = "true", action = clap::ArgAction::Set)]
    idempotence: bool,
    /// `batch.size` of the producer.
    #[arg(long, value_name = "BYTES", default_value = "1000000")]
    batch_bytes: u32,
    #[arg(long, default_value = "5")]
    linger_ms: u32,
    #[arg(long, default_value = "none")]
    compression: String,
}

impl Load {
    fn producer_settings(&self, target: &Target) -> anyhow::Result<ClientConfig> {
        let mut settings = target.client()?;
        settings
            .set("enable.idempotence", self.idempotence.to_string())
            .set("batch.size", self.batch_bytes.to_string())
            .set("batch.num.messages", "1000000")
            .set("linger.ms", self.linger_ms.to_string())
            .set("compression.type", &self.compression)
            .set("queue.buffering.max.messages", "1000000")
            .set("queue.buffering.max.kbytes", "131072")
            .set("message.max.bytes", "10485760");
        target.with_properties(&mut settings)?;
        Ok(settings)
    }
}

/// Runs one benchmark to its end.
pub(super) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    if let Some((target, partitions)) = command.topic_to_create() {
        create(target, partitions).await?;
    }
    let json = command.target().json;
    // librdkafka has threads of its own, and calls that wait; nothing else runs in this process meanwhile.
    let report: Report = match command {
        Command::Produce(options) => produce::run(&options),
        Command::Consume(options) => consume::run(&options),
        Command::E2e(options) => e2e::run(&options),
    }?;
    say(&if json { report.to_json() } else { report.to_text() });
    Ok(if report.failed.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Records a second.
fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if rate > 0.0 && rate.is_finite() { Ok(rate) } else { Err("it must be above 0".to_owned()) }
}

impl Command {
    fn target(&self) -> &Target {
        match self {
            Self::Produce(options) => &options.target,
            Self::Consume(options) => &options.target,
            Self::E2e(options) => &options.target,
        }
    }

    fn topic_to_create(&self) -> Option<(&Target, i32)> {
        match self {
            Self::Produce(options) => options.load.create.map(|n| (&options.target, n)),
            Self::E2e(options) => options.load.create.map(|n| (&options.target, n)),
            Self::Consume(_) => None,
        }
    }
}

async fn create(target: &Target, partitions: i32) -> anyhow::Result<()> {
    let mut settings = target.client()?;
    target.with_properties(&mut settings)?;
    let admin: AdminClient<DefaultClientContext> = settings.create().context("the Kafka client cannot be made")?;
    let topic = NewTopic::new(&target.topic, partitions, TopicReplication::Fixed(-1));
    let options = AdminOptions::new().request_timeout(Some(Duration::from_secs(30)));
    let results = admin.create_topics([&topic], &options).await;
    let results = results.with_context(|| format!("{} does not answer", target.bootstrap))?;
    match results.into_iter().next() {
        Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(()),
        Some(Err((name, code))) => bail!("topic {name:?} was not created: {code}"),
        None => bail!("{} gave no answer for topic {:?}", target.bootstrap, target.topic),
    }
}

/// How long the cluster may take to say what partitions there are.
const METADATA_TIMEOUT: Duration = Duration::from_secs(30);

/// The partitions of the topic, once all of them have a leader.
fn partitions_of<T: ClientContext>(client: &Client<T>, target: &Target) -> anyhow::Result<Vec<i32>> {
    let deadline = Instant::now() + METADATA_TIMEOUT;
    loop {
        let metadata = client.fetch_metadata(Some(&target.topic), METADATA_TIMEOUT);
        let metadata = metadata.with_context(|| format!("{} does not answer", target.bootstrap))?;
        let topic = metadata.topics().iter().find(|t| t.name() == target.topic);
        let partitions = topic.map(|t| t.partitions()).unwrap_or_default();
        if !partitions.is_empty() && partitions.iter().all(|p| p.error().is_none() && p.leader() >= 0) {
            return Ok(partitions.iter().map(rdkafka::metadata::MetadataPartition::id).collect());
        }
        ensure!(
            Instant::now() < deadline,
            "topic {:?} does not exist, or has a partition without a leader: create it, or give --create PARTITIONS",
            target.topic
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Each partition with its first offset and its end.
fn offsets_of(consumer: &BaseConsumer, target: &Target) -> anyhow::Result<Vec<(i32, i64, i64)>> {
    let with_offsets = |partition| {
        let (low, high) = consumer
            .fetch_watermarks(&target.topic, partition, METADATA_TIMEOUT)
            .with_context(|| format!("partition {partition} does not tell its offsets"))?;
        Ok((partition, low, high))
    };
    partitions_of(consumer.client(), target)?.into_iter().map(with_offsets).collect()
}

/// The clock of one benchmark: microseconds since its start, which fit into a record.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn now_us(self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// A record's value: when it was handed over, its number, and filling that does not compress to nothing.
struct Payload(Vec<u8>);

impl Payload {
    fn new(bytes: u32) -> Self {
        let filling =
            (0u32..).map(|n| b"abcdefghijklmnopqrstuvwxyz012345"[(n.wrapping_mul(2_654_435_761) >> 27) as usize]);
        Self(filling.take(bytes as usize).collect())
    }

    fn stamped(&mut self, now_us: u64, number: u64) -> &[u8] {
        self.0[..8].copy_from_slice(&now_us.to_be_bytes());
        self.0[8..16].copy_from_slice(&number.to_be_bytes());
        &self.0
    }

    /// When the record was handed over.
    fn sent_us(value: &[u8]) -> Option<u64> {
        Some(u64::from_be_bytes(*value.first_chunk()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_numbers_above_0() {
        assert_eq!((parse_rate("0.5"), parse_rate("1e6")), (Ok(0.5), Ok(1e6)));
        for bad in ["0", "-1", "NaN", "inf", "many"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }
}
