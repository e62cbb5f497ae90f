//! Writes ten records to a topic through a proxy and reads them back, with a stock client (librdkafka).
//!
//! ```text
//! cargo run --example produce_consume -- 127.0.0.1:9192 orders
//! ```
//!
//! Nothing here knows of Sidestream. The one thing that a diskless topic asks for is `enable.idempotence`.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};

const RECORDS: usize = 10;
const PARTITION: i32 = 0;
const TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(bootstrap), Some(topic)) = (arguments.next(), arguments.next()) else {
        bail!("usage: produce_consume BOOTSTRAP TOPIC");
    };
    let first = produce(&bootstrap, &topic).await?;
    let values = consume(&bootstrap, &topic, first)?;
    for (number, value) in values.iter().enumerate() {
        ensure!(*value == value_of(number), "record {number} came back as {value:?}");
    }
    println!("wrote and read {RECORDS} records of {topic}, offsets {first} to {}", first + RECORDS as i64 - 1);
    Ok(())
}

fn value_of(number: usize) -> String {
    format!("record {number}")
}

/// Writes the records, one after the other acknowledged; returns the offset of the first.
async fn produce(bootstrap: &str, topic: &str) -> anyhow::Result<i64> {
    let producer: FutureProducer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .create()
        .context("the producer cannot be made")?;
    let mut first = None;
    for number in 0..RECORDS {
        let value = value_of(number);
        let record: FutureRecord<'_, (), String> = FutureRecord::to(topic).partition(PARTITION).payload(&value);
        let delivery = producer.send(record, TIMEOUT).await.map_err(|(error, _)| error);
        let delivery = delivery.with_context(|| format!("record {number} was not acknowledged"))?;
        first.get_or_insert(delivery.offset);
    }
    first.context("no record was written")
}

/// Reads as many records as were written, from the first one's offset on.
fn consume(bootstrap: &str, topic: &str, first: i64) -> anyhow::Result<Vec<String>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        // Nothing is committed: this reads from a known offset.
        .set("group.id", "produce-consume-example")
        .set("enable.auto.commit", "false")
        .create()
        .context("the consumer cannot be made")?;
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, PARTITION, Offset::Offset(first))?;
    consumer.assign(&from)?;
    let deadline = Instant::now() + TIMEOUT;
    let mut values = Vec::new();
    while values.len() < RECORDS {
        ensure!(Instant::now() < deadline, "only {} of {RECORDS} records came back", values.len());
        let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
        let message = message.context("a record cannot be read")?;
        values.push(String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned());
    }
    Ok(values)
}
