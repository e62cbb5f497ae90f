//! Producers and consumers of the demo: one producer for each topic and zone, one consumer for each zone, one group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};

use super::verify::{Arrivals, StreamId};
use super::zones::Usage;

/// One topic of the workload.
pub(super) struct TopicPlan {
    pub(super) name: &'static str,
    pub(super) diskless: bool,
    pub(super) partitions: i32,
    bytes_per_second: f64,
}

const MIB: f64 = 1024.0 * 1024.0;
pub(super) const TOPICS: [TopicPlan; 3] = [
    TopicPlan { name: "orders", diskless: true, partitions: 6, bytes_per_second: MIB },
    TopicPlan { name: "clicks", diskless: true, partitions: 12, bytes_per_second: 2.0 * MIB },
    // The mock keeps 5 MiB of a partition; a group that falls behind must not lose records to that.
    TopicPlan { name: "payments", diskless: false, partitions: 6, bytes_per_second: 0.25 * MIB },
];

const RECORD_BYTES: usize = 1024;
const GROUP: &str = "demo";
/// A member that joins after the mock's first three seconds costs a rebalance, for which the mock waits a session timeout
/// less a second. On a busy machine that can happen more than once.
const ASSIGNMENT_DEADLINE: Duration = Duration::from_secs(60);
const SESSION_TIMEOUT: Duration = Duration::from_secs(10);
const DRAIN_DEADLINE: Duration = Duration::from_secs(30);
/// Threads of the demo look at the stop flag this often.
const POLL: Duration = Duration::from_millis(100);

/// Counters of one topic.
#[derive(Default)]
pub(super) struct TopicCounts {
    pub(super) produced: AtomicU64,
    pub(super) acknowledged: AtomicU64,
    pub(super) consumed: AtomicU64,
    failed: AtomicU64,
    latencies_us: Mutex<Vec<u64>>,
}

impl TopicCounts {
    /// The median and the 99th percentile of acknowledgement times since the last call, in milliseconds.
    pub(super) fn take_latencies(&self) -> Option<(f64, f64)> {
        let mut taken = std::mem::take(&mut *self.latencies_us.lock());
        if taken.is_empty() {
            return None;
        }
        taken.sort_unstable();
        let at = |q: f64| taken[((taken.len() - 1) as f64 * q) as usize] as f64 / 1e3;
        Some((at(0.5), at(0.99)))
    }
}

#[derive(Default)]
struct State {
    counts: [TopicCounts; TOPICS.len()],
    arrivals: Mutex<Arrivals>,
    assigned: AtomicU64,
    go: AtomicBool,
    stop_producing: AtomicBool,
    stop_consuming: AtomicBool,
    first_failure: Mutex<Option<String>>,
}

/// The running workload.
pub(super) struct Workload {
    state: Arc<State>,
    producers: Vec<std::thread::JoinHandle<()>>,
    consumers: Vec<std::thread::JoinHandle<()>>,
}

/// How it ended.
pub(super) struct Verdict {
    produced: u64,
    acknowledged: u64,
    consumed: u64,
    failure: Option<String>,
}

impl Workload {
    pub(super) fn start(bootstraps: &[String], rate: f64) -> anyhow::Result<Self> {
        let state = Arc::<State>::default();
        let mut workload = Self { state: Arc::clone(&state), producers: Vec::new(), consumers: Vec::new() };
        for (zone, bootstrap) in (0u32..).zip(bootstraps) {
            let consumer = consumer(bootstrap, &state)?;
            let state_of = Arc::clone(&state);
            workload.consumers.push(std::thread::spawn(move || consume(&consumer, &state_of)));
            for (topic, plan) in TOPICS.iter().enumerate() {
                let share = plan.bytes_per_second * rate / bootstraps.len() as f64;
                let producer = producer(bootstrap, topic, &state)?;
                let state_of = Arc::clone(&state);
                workload.producers.push(std::thread::spawn(move || produce(&producer, topic, zone, share, &state_of)));
            }
        }
        Ok(workload)
    }

    /// Waits until the group has every partition: what is produced before might be read by two members in turn.
    pub(super) async fn wait_for_assignment(&self) -> anyhow::Result<()> {
        let wanted: u64 = TOPICS.iter().map(|t| u64::from(t.partitions.unsigned_abs())).sum();
        let deadline = Instant::now() + ASSIGNMENT_DEADLINE;
        while self.state.assigned.load(Ordering::Acquire) < wanted {
            let assigned = self.state.assigned.load(Ordering::Acquire);
            anyhow::ensure!(
                Instant::now() < deadline,
                "the consumer group has {assigned} of {wanted} partitions after {} seconds",
                ASSIGNMENT_DEADLINE.as_secs()
            );
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    pub(super) fn go(&mut self) {
        self.state.go.store(true, Ordering::Release);
    }

    pub(super) fn counts(&self) -> &[TopicCounts] {
        &self.state.counts
    }

    /// What has gone wrong, if anything.
    pub(super) fn broken(&self) -> Option<String> {
        let failure = self.state.first_failure.lock().clone();
        failure.or_else(|| self.state.arrivals.lock().broken().map(str::to_owned))
    }

    /// Stops the producers, reads to the end, stops the consumers.
    pub(super) async fn finish(self) -> Verdict {
        self.state.stop_producing.store(true, Ordering::Release);
        self.state.go.store(true, Ordering::Release);
        join(self.producers).await;
        let acknowledged: u64 = self.state.counts.iter().map(|c| c.acknowledged.load(Ordering::Acquire)).sum();
        let deadline = Instant::now() + DRAIN_DEADLINE;
        while self.state.arrivals.lock().count() < acknowledged && Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
        }
        // A moment more, for records that should not be there.
        tokio::time::sleep(5 * POLL).await;
        self.state.stop_consuming.store(true, Ordering::Release);
        join(self.consumers).await;
        let failure = self.state.first_failure.lock().clone();
        let arrivals = self.state.arrivals.lock();
        Verdict {
            produced: self.state.counts.iter().map(|c| c.produced.load(Ordering::Acquire)).sum(),
            acknowledged,
            consumed: arrivals.count(),
            failure: failure.or_else(|| arrivals.broken().map(str::to_owned)),
        }
    }
}

async fn join(threads: Vec<std::thread::JoinHandle<()>>) {
    // The threads end by their stop flags; a panic in one shows as missing records.
    let _ = tokio::task::spawn_blocking(move || threads.into_iter().for_each(|t| drop(t.join()))).await;
}

impl Verdict {
    pub(super) fn is_good(&self) -> bool {
        self.failure.is_none()
            && self.produced > 0
            && self.produced == self.acknowledged
            && self.acknowledged == self.consumed
    }

    pub(super) fn summary(&self, usage: &Usage) -> String {
        let objects =
            format!("{} PUTs and {} GETs for {:.1} MiB.", usage.puts, usage.gets, usage.put_bytes as f64 / MIB);
        if self.is_good() {
            return format!(
                "Produced {} records, consumed {}, in order, none twice. {objects}",
                self.produced, self.consumed
            );
        }
        let reason = self.failure.clone().unwrap_or_else(|| "some records did not arrive".to_owned());
        format!(
            "FAILED: {reason}\nProduced {}, acknowledged {}, consumed {}. {objects}",
            self.produced, self.acknowledged, self.consumed
        )
    }
}

/// Counts deliveries of one topic.
struct Deliveries {
    topic: usize,
    state: Arc<State>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<Instant>;

    fn delivery(&self, result: &DeliveryResult<'_>, sent: Self::DeliveryOpaque) {
        let counts = &self.state.counts[self.topic];
        match result {
            Ok(_) => {
                counts.acknowledged.fetch_add(1, Ordering::AcqRel);
                let took = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
                counts.latencies_us.lock().push(took);
            }
            Err((error, _)) => {
                counts.failed.fetch_add(1, Ordering::AcqRel);
                let name = TOPICS[self.topic].name;
                self.state
                    .first_failure
                    .lock()
                    .get_or_insert_with(|| format!("a record for {name} was not taken: {error}"));
            }
        }
    }
}

type DemoProducer = ThreadedProducer<Deliveries>;

fn producer(bootstrap: &str, topic: usize, state: &Arc<State>) -> anyhow::Result<DemoProducer> {
    ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("client.id", format!("demo-{}", TOPICS[topic].name))
        .set("enable.idempotence", "true")
        .set("linger.ms", "20")
        .create_with_context(Deliveries { topic, state: Arc::clone(state) })
        .context("a producer of the demo cannot be made")
}

/// Sends at an even rate until told to stop, then waits for what is under way.
fn produce(producer: &DemoProducer, topic: usize, zone: u32, bytes_per_second: f64, state: &State) {
    let plan = &TOPICS[topic];
    let partitions = plan.partitions.unsigned_abs() as usize;
    let mut numbers = vec![0u64; partitions];
    while !state.go.load(Ordering::Acquire) {
        std::thread::sleep(POLL / 10);
    }
    let started = Instant::now();
    let mut sent = 0u64;
    while !state.stop_producing.load(Ordering::Acquire) {
        let due = (started.elapsed().as_secs_f64() * bytes_per_second / RECORD_BYTES as f64) as u64;
        while sent < due {
            let partition = (sent as usize) % partitions;
            if !send(producer, plan.name, partition, zone, numbers[partition]) {
                break;
            }
            numbers[partition] += 1;
            sent += 1;
            state.counts[topic].produced.fetch_add(1, Ordering::AcqRel);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    if let Err(error) = producer.flush(DRAIN_DEADLINE) {
        state
            .first_failure
            .lock()
            .get_or_insert_with(|| format!("records for {} were not acknowledged: {error}", plan.name));
    }
}

/// False if the producer's queue is full for the moment.
fn send(producer: &DemoProducer, topic: &str, partition: usize, zone: u32, number: u64) -> bool {
    let mut value = [b'.'; RECORD_BYTES];
    value[..4].copy_from_slice(&zone.to_be_bytes());
    value[4..12].copy_from_slice(&number.to_be_bytes());
    let record: BaseRecord<'_, (), [u8], Box<Instant>> = BaseRecord::with_opaque_to(topic, Box::new(Instant::now()))
        .partition(i32::try_from(partition).unwrap_or(0))
        .payload(&value[..]);
    producer.send(record).is_ok()
}

/// Counts assigned partitions.
struct Assignments {
    state: Arc<State>,
}

impl ClientContext for Assignments {}

impl ConsumerContext for Assignments {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => {
                self.state.assigned.fetch_add(partitions.count() as u64, Ordering::AcqRel);
            }
            Rebalance::Revoke(partitions) => {
                self.state.assigned.fetch_sub(partitions.count() as u64, Ordering::AcqRel);
            }
            Rebalance::Error(_) => {}
        }
    }
}

fn consumer(bootstrap: &str, state: &Arc<State>) -> anyhow::Result<BaseConsumer<Assignments>> {
    let consumer: BaseConsumer<Assignments> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("client.id", "demo-consumer")
        .set("group.id", GROUP)
        .set("auto.offset.reset", "earliest")
        .set("fetch.wait.max.ms", "200")
        .set("session.timeout.ms", SESSION_TIMEOUT.as_millis().to_string())
        .create_with_context(Assignments { state: Arc::clone(state) })
        .context("a consumer of the demo cannot be made")?;
    let names: Vec<&str> = TOPICS.iter().map(|t| t.name).collect();
    consumer.subscribe(&names).context("the demo's topics cannot be subscribed to")?;
    Ok(consumer)
}

fn consume(consumer: &BaseConsumer<Assignments>, state: &State) {
    while !state.stop_consuming.load(Ordering::Acquire) {
        match consumer.poll(POLL) {
            Some(Ok(message)) => {
                let Some(topic) = TOPICS.iter().position(|t| t.name == message.topic()) else { continue };
                state.counts[topic].consumed.fetch_add(1, Ordering::AcqRel);
                let Some((producer, number)) = message.payload().and_then(read) else { continue };
                let stream = StreamId { topic, partition: message.partition(), producer };
                state.arrivals.lock().take(stream, number);
            }
            // Retried by the client itself.
            Some(Err(KafkaError::MessageConsumption(RDKafkaErrorCode::PartitionEOF))) | None => {}
            Some(Err(error)) => tracing::debug!(%error, "a consumer of the demo reports an error"),
        }
    }
}

fn read(value: &[u8]) -> Option<(u32, u64)> {
    let producer = u32::from_be_bytes(*value.first_chunk()?);
    let number = u64::from_be_bytes(*value.get(4..)?.first_chunk()?);
    Some((producer, number))
}
