//! Reads one WAL segment, without a proxy, a Kafka or a database: an object says by itself what it holds.
//!
//! ```text
//! cargo run --example read_wal_segment -- objects/e97f56f6.../wal/0000000000000026-0000000000000001-00000001
//! ```
//!
//! The layout is drawn in `src/wal_segment/FORMAT.md`. `sidestream inspect segment` prints the same, batch by batch.
//! Offsets are not in a segment: they are given when the metadata log is applied.

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use sidestream::record_batch::{BatchHeader, crc_is_valid};
use sidestream::wal_segment::{batch_ranges, read_object};

/// What one partition has in the segment.
#[derive(Default)]
struct Sum {
    batches: usize,
    records: i64,
    bytes: u64,
    latest_timestamp: i64,
}

fn main() -> anyhow::Result<()> {
    let Some(file) = std::env::args().nth(1) else {
        bail!("usage: read_wal_segment FILE");
    };
    let object = Bytes::from(std::fs::read(&file).with_context(|| format!("{file} cannot be read"))?);
    let index = read_object(&object).with_context(|| format!("{file} is not a whole WAL segment"))?;
    println!("WAL segment {} of log {}, {} bytes", index.segment, index.log_id, object.len());

    let mut sums: Vec<Sum> = index.partitions.iter().map(|_| Sum::default()).collect();
    for (partition, number, range) in batch_ranges(&index.partitions) {
        let stored = object.slice(usize::try_from(range.start)?..usize::try_from(range.end)?);
        let header = BatchHeader::parse(&stored)?;
        ensure!(crc_is_valid(&[stored]), "batch {number} of partition {partition} does not match its CRC");
        let sum = &mut sums[partition];
        sum.batches += 1;
        sum.records += i64::from(header.records_count);
        sum.bytes += range.end - range.start;
        sum.latest_timestamp = sum.latest_timestamp.max(header.max_timestamp);
    }
    for (listed, sum) in index.partitions.iter().zip(sums) {
        println!(
            "topic {} partition {}: {} batches, {} records, {} bytes, latest timestamp {}",
            listed.partition.topic_id,
            listed.partition.partition,
            sum.batches,
            sum.records,
            sum.bytes,
            sum.latest_timestamp
        );
    }
    Ok(())
}
