//! `inspect segment`: what one WAL segment holds, checked against its checksums.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::json;

use crate::cli::say;
use crate::cli::table::{Align, Column, bytes as in_units, layout};
use crate::record_batch::{BatchHeader, CompressionType, crc_is_valid};
use crate::wal_segment::{SegmentIndex, batch_ranges, read_object};

pub(super) async fn run(file: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let object = tokio::fs::read(file).await.with_context(|| format!("{} cannot be read", file.display()))?;
    let index = read_object(&object).with_context(|| format!("{} is not a whole WAL segment", file.display()))?;
    Ok(show(&object, &index, json))
}

/// One batch, as it is shown.
struct Shown {
    topic_id: String,
    partition: i32,
    at: u64,
    bytes: u64,
    records: u64,
    codec: &'static str,
    producer_id: i64,
    base_sequence: i32,
    is_whole: bool,
}

fn show(object: &[u8], index: &SegmentIndex, as_json: bool) -> ExitCode {
    let shown: Vec<Shown> =
        batch_ranges(&index.partitions).map(|(p, b, range)| look(object, index, (p, b), &range)).collect();
    let broken = shown.iter().filter(|s| !s.is_whole).count();
    if as_json {
        say(&as_json_text(object, index, &shown));
    } else {
        say(&format!(
            "WAL segment {} of log {}: {} in {} batches of {} partitions",
            index.segment,
            index.log_id,
            in_units(object.len() as u64),
            shown.len(),
            index.partitions.len()
        ));
        say(&layout(&COLUMNS, &shown.iter().map(row).collect::<Vec<_>>()));
        if broken > 0 {
            say(&format!("{broken} batch(es) do not match their CRC: the object was damaged after it was written"));
        }
    }
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn look(object: &[u8], index: &SegmentIndex, (p, b): (usize, usize), range: &std::ops::Range<u64>) -> Shown {
    let partition = &index.partitions[p];
    let meta = &partition.batches[b];
    // The reader has checked that the batches fill the object up to its index.
    let stored = object.get(range.start as usize..range.end as usize).unwrap_or_default();
    let header = BatchHeader::parse(stored).ok();
    Shown {
        topic_id: partition.partition.topic_id.to_string(),
        partition: partition.partition.partition,
        at: range.start,
        bytes: range.end - range.start,
        records: u64::from(meta.last_offset_delta) + 1,
        codec: codec(header.as_ref()),
        producer_id: meta.producer_id,
        base_sequence: meta.base_sequence,
        is_whole: crc_is_valid(&[bytes::Bytes::copy_from_slice(stored)]),
    }
}

fn codec(header: Option<&BatchHeader>) -> &'static str {
    match header.and_then(BatchHeader::compression_type) {
        Some(CompressionType::None) => "none",
        Some(CompressionType::Gzip) => "gzip",
        Some(CompressionType::Snappy) => "snappy",
        Some(CompressionType::Lz4) => "lz4",
        Some(CompressionType::Zstd) => "zstd",
        None => "?",
    }
}

const COLUMNS: [Column; 9] = [
    Column("TOPIC ID", Align::Left),
    Column("PARTITION", Align::Right),
    Column("AT", Align::Right),
    Column("BYTES", Align::Right),
    Column("RECORDS", Align::Right),
    Column("CODEC", Align::Left),
    Column("PRODUCER", Align::Right),
    Column("SEQUENCE", Align::Right),
    Column("CRC", Align::Left),
];

fn row(s: &Shown) -> Vec<String> {
    vec![
        s.topic_id.clone(),
        s.partition.to_string(),
        s.at.to_string(),
        s.bytes.to_string(),
        s.records.to_string(),
        s.codec.to_owned(),
        s.producer_id.to_string(),
        s.base_sequence.to_string(),
        if s.is_whole { "ok" } else { "WRONG" }.to_owned(),
    ]
}

fn as_json_text(object: &[u8], index: &SegmentIndex, shown: &[Shown]) -> String {
    let batches: Vec<_> = shown
        .iter()
        .map(|s| {
            json!({
                "topic_id": s.topic_id, "partition": s.partition, "byte_offset": s.at, "byte_length": s.bytes,
                "records": s.records, "compression": s.codec, "producer_id": s.producer_id,
                "base_sequence": s.base_sequence, "crc_ok": s.is_whole,
            })
        })
        .collect();
    json!({
        "segment": index.segment.to_string(), "log_id": index.log_id.to_string(), "bytes": object.len(),
        "batches": batches,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_batch::testing::BatchBuilder;
    use crate::types::{LogId, LogPosition, TopicId, TopicPartition, WalSegmentId};
    use crate::wal_segment::{BatchMeta, build};

    #[test]
    fn an_index_may_say_anything_of_a_batch() {
        let batch = BatchBuilder::new().build();
        let header = BatchHeader::parse(&batch).expect("valid");
        let length = u32::try_from(batch.len()).expect("small");
        let meta = BatchMeta { last_offset_delta: u32::MAX, ..BatchMeta::of(&header, length, false) };
        let id = WalSegmentId { birth: LogPosition(1), epoch: LogPosition(0), sequence: 0 };
        let partition = TopicPartition { topic_id: TopicId([1; 16]), partition: 0 };
        let object = build(LogId([1; 16]), id, [(partition, meta, batch)]).parts.concat();
        let index = read_object(&object).expect("its index is whole");
        let shown = look(&object, &index, (0, 0), &(1..1 + u64::from(length)));
        assert_eq!((shown.records, shown.is_whole), (1 << 32, true));
    }
}
