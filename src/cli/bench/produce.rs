//! `bench produce`: one or more producers, each a thread; throughput and the time to acknowledgement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};

use super::report::{Latencies, Report};
use super::{Clock, Load, Payload, Target, parse_rate, partitions_of};
use crate::demo::parse_duration;

#[derive(Args, Debug)]
pub(in crate::cli) struct Options {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(flatten)]
    pub(super) load: Load,
    /// Records to produce, over all producers.
    #[arg(long, default_value = "500000")]
    records: u64,
    /// Stop after this long, whatever was produced (such as 60s).
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    for_: Option<Duration>,
    /// Records a second, over all producers. Without it as fast as the client can.
    #[arg(long, value_parser = parse_rate)]
    rate: Option<f64>,
    /// Producers side by side, each with connections of its own.
    #[arg(long, default_value = "1")]
    producers: u32,
}

pub(super) fn run(options: &Options) -> anyhow::Result<Report> {
    ensure!(options.producers > 0, "--producers 0: at least one is needed");
    let clock = Clock::start();
    let sources = (0..options.producers)
        .map(|_| Source::new(&options.target, &options.load, clock))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let until = options.for_.map(|d| Instant::now() + d);
    let rate = options.rate.map(|r| r / f64::from(options.producers));
    let paces = shares(options.records, options.producers).map(|records| Pace { records, until, rate });
    let started = Instant::now();
    let deliveries: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            sources.iter().zip(paces).map(|(source, pace)| scope.spawn(move || source.produce(&pace))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a producer panicked"))).collect()
    });
    for result in deliveries {
        result??;
    }
    let seconds = started.elapsed().as_secs_f64();
    Ok(report("produce", &options.load, seconds, &sources))
}

/// The records of each producer, which differ by one at most.
fn shares(records: u64, producers: u32) -> impl Iterator<Item = u64> {
    let producers = u64::from(producers);
    (0..producers).map(move |number| records / producers + u64::from(number < records % producers))
}

/// The sum of what the producers saw.
pub(super) fn report(name: &'static str, load: &Load, seconds: f64, sources: &[Source]) -> Report {
    let mut acknowledged = Latencies::default();
    let (mut records, mut failed, mut reason) = (0, 0, None);
    for source in sources {
        let seen = &source.producer.context().0;
        acknowledged.merge(&seen.latencies.lock());
        records += source.acknowledged();
        failed += seen.failed.load(Ordering::Acquire);
        reason = reason.or_else(|| seen.first_failure.lock().clone());
    }
    Report {
        name,
        records,
        bytes: records * u64::from(load.record_bytes),
        seconds,
        failed: reason.map(|reason| (failed, reason)),
        latencies: vec![("ack", acknowledged)],
    }
}

/// How much, how long and how fast one producer sends.
pub(super) struct Pace {
    pub(super) records: u64,
    pub(super) until: Option<Instant>,
    pub(super) rate: Option<f64>,
}

impl Pace {
    /// How long to wait before the next record, where the rate asks for it.
    fn pause(&self, elapsed: Duration, sent: u64) -> Option<Duration> {
        let due = Duration::try_from_secs_f64(sent as f64 / self.rate?).unwrap_or(Duration::MAX);
        due.checked_sub(elapsed).filter(|pause| !pause.is_zero()).map(|pause| pause.min(Duration::from_millis(100)))
    }

    fn is_over(&self, sent: u64) -> bool {
        sent >= self.records || self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// What one producer heard back.
pub(super) struct Heard {
    clock: Clock,
    latencies: Mutex<Latencies>,
    acknowledged: AtomicU64,
    failed: AtomicU64,
    first_failure: Mutex<Option<String>>,
}

pub(super) struct Deliveries(Arc<Heard>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(message) => {
                self.0.acknowledged.fetch_add(1, Ordering::AcqRel);
                if let Some(sent) = message.payload().and_then(Payload::sent_us) {
                    self.0.latencies.lock().record(self.0.clock.now_us().saturating_sub(sent));
                }
            }
            Err((error, _)) => {
                self.0.failed.fetch_add(1, Ordering::AcqRel);
                self.0.first_failure.lock().get_or_insert_with(|| error.to_string());
            }
        }
    }
}

/// One producer.
pub(super) struct Source {
    producer: BaseProducer<Deliveries>,
    topic: String,
    partitions: Vec<i32>,
    record_bytes: u32,
    clock: Clock,
}

/// Longer than librdkafka keeps trying (`message.timeout.ms` is five minutes).
const FLUSH_TIMEOUT: Duration = Duration::from_secs(310);

impl Source {
    pub(super) fn new(target: &Target, load: &Load, clock: Clock) -> anyhow::Result<Self> {
        let heard = Arc::new(Heard {
            clock,
            latencies: Mutex::default(),
            acknowledged: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            first_failure: Mutex::new(None),
        });
        let producer: BaseProducer<Deliveries> = load
            .producer_settings(target)?
            .create_with_context(Deliveries(heard))
            .context("the producer cannot be made")?;
        let partitions = partitions_of(producer.client(), target)?;
        Ok(Self { producer, topic: target.topic.clone(), partitions, record_bytes: load.record_bytes, clock })
    }

    /// Sends to the partitions in turn, at the pace, and waits for every answer. Answers are taken by a thread of
    /// their own, at the moment when they come.
    pub(super) fn produce(&self, pace: &Pace) -> anyhow::Result<()> {
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Acquire) {
                    self.producer.poll(Duration::from_millis(100));
                }
            });
            let sent = self.send_all(pace);
            let flushed = self.producer.flush(FLUSH_TIMEOUT);
            is_done.store(true, Ordering::Release);
            sent?;
            flushed.context("records were not acknowledged")
        })
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.producer.context().0.acknowledged.load(Ordering::Acquire)
    }

    fn send_all(&self, pace: &Pace) -> anyhow::Result<()> {
        let mut payload = Payload::new(self.record_bytes);
        let started = Instant::now();
        let mut sent = 0u64;
        while !pace.is_over(sent) {
            if let Some(pause) = pace.pause(started.elapsed(), sent) {
                std::thread::sleep(pause);
                continue;
            }
            let value = payload.stamped(self.clock.now_us(), sent);
            let partition = self.partitions[(sent % self.partitions.len() as u64) as usize];
            let record: BaseRecord<'_, (), [u8], ()> = BaseRecord::to(&self.topic).partition(partition).payload(value);
            match self.producer.send(record) {
                Ok(()) => sent += 1,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err((error, _)) => return Err(error).context("a record could not be handed to the producer"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_waits_between_records_and_never_long_without_a_look() {
        let pause = |rate, ms, sent| {
            let pace = Pace { records: 10, until: None, rate: Some(rate) };
            pace.pause(Duration::from_millis(ms), sent)
        };
        assert_eq!(pause(100.0, 0, 0), None);
        assert_eq!(pause(100.0, 5, 1), Some(Duration::from_millis(5)));
        assert_eq!(pause(100.0, 15, 1), None, "late");
        assert_eq!(pause(1e-300, 0, 1), Some(Duration::from_millis(100)));
    }

    #[test]
    fn every_record_has_a_producer() {
        assert_eq!(shares(10, 3).collect::<Vec<_>>(), [4, 3, 3]);
        assert_eq!(shares(1, 2).collect::<Vec<_>>(), [1, 0]);
    }
}
