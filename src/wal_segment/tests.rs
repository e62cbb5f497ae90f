//! Golden bytes, round trips and hostile bytes.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::record_batch::testing::BatchBuilder;
use crate::types::{LogId, LogPosition, TopicId, WalSegmentId};

const LOG: LogId = LogId([0xab; 16]);
const SEGMENT: WalSegmentId = WalSegmentId { birth: LogPosition(77), epoch: LogPosition(5), sequence: 3 };

fn partition(topic: u8, partition: i32) -> TopicPartition {
    TopicPartition { topic_id: TopicId([topic; 16]), partition }
}

fn stored(at: TopicPartition, batch: &Bytes) -> (TopicPartition, BatchMeta, Bytes) {
    let header = BatchHeader::parse(batch).expect("a header");
    let length = u32::try_from(batch.len()).expect("a small batch");
    (at, BatchMeta::of(&header, length, header.base_sequence > 0), batch.clone())
}

fn two_partitions() -> SegmentImage {
    let first = BatchBuilder::new().records(2).timestamp(1_000).producer(9, 1, 0).build();
    let other = BatchBuilder::new().timestamp(2_000).build();
    let second = BatchBuilder::new().timestamp(3_000).producer(9, 1, 2).build();
    let (a, b) = (partition(1, 0), partition(2, 7));
    build(LOG, SEGMENT, [stored(b, &first), stored(a, &other), stored(b, &second)])
}

#[test]
fn batches_are_grouped_by_partition_in_the_order_they_came() {
    let image = two_partitions();
    let object = image.parts.concat();
    assert_eq!(image.size, object.len() as u64);
    assert_eq!(object[0], FORMAT_VERSION);
    let index = read_object(&object).expect("valid");
    assert_eq!((index.log_id, index.segment), (LOG, SEGMENT));
    assert_eq!(index.partitions, image.partitions);
    let sequences: Vec<_> = index.partitions[1].batches.iter().map(|b| (b.base_sequence, b.follows)).collect();
    assert_eq!(sequences, [(0, false), (2, true)]);
    for (p, b, range) in batch_ranges(&index.partitions) {
        let bytes = &object[range.start as usize..range.end as usize];
        let header = BatchHeader::parse(bytes).expect("a batch starts there");
        assert_eq!(header.base_sequence, index.partitions[p].batches[b].base_sequence);
    }
}

#[test]
fn version_0_has_these_bytes() {
    let object = two_partitions().parts.concat();
    let hex: String = object.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, include_str!("golden_v0.hex").trim());
}

#[test]
fn keys_read_back_in_one_spelling_only() {
    let key = object_key(LOG, SEGMENT);
    assert_eq!(key, format!("{LOG}/wal/000000000000004d-0000000000000005-00000003"));
    assert_eq!(parse_object_key(&key), Ok((LOG, SEGMENT)));
    assert!(key.starts_with(&wal_prefix(LOG)) && key.starts_with(&log_prefix(LOG)));
    for bad in [&key[1..], &key.replace("wal", "snapshots"), &key.to_uppercase(), &(key.clone() + "/0"), ""] {
        assert!(parse_object_key(bad).is_err(), "{bad}");
    }
}

#[test]
fn every_flipped_byte_of_the_footer_is_found() {
    let object = two_partitions().parts.concat();
    let footer = two_partitions().parts.last().map_or(0, Bytes::len);
    for at in (0..1).chain(object.len() - footer..object.len()) {
        let mut broken = object.clone();
        broken[at] ^= 0x10;
        assert!(read_object(&broken).is_err(), "byte {at}");
    }
}

#[test]
fn every_cut_is_found() {
    let object = two_partitions().parts.concat();
    for end in 0..object.len() {
        assert!(read_object(&object[..end]).is_err(), "cut at {end}");
    }
}

proptest! {
    #[test]
    fn any_batches_round_trip(
        batches in prop::collection::vec((0..4u8, 0..3i32, 1..5usize, -1..3i64, 0..200usize), 1..40),
    ) {
        let batches: Vec<_> = batches.into_iter().map(|(topic, number, records, producer, len)| {
            let batch = BatchBuilder::new().records(records).value_len(len).producer(producer, 0, 1).build();
            stored(partition(topic, number), &batch)
        }).collect();
        let image = build(LOG, SEGMENT, batches.clone());
        let object = image.parts.concat();
        let index = read_object(&object).expect("valid");
        prop_assert_eq!(&index.partitions, &image.partitions);
        let mut sorted = batches;
        sorted.sort_by_key(|(at, ..)| *at);
        for ((p, b, range), (at, meta, bytes)) in batch_ranges(&index.partitions).zip(sorted) {
            prop_assert_eq!((index.partitions[p].partition, index.partitions[p].batches[b]), (at, meta));
            prop_assert_eq!(&object[range.start as usize..range.end as usize], &bytes[..]);
        }
    }

    #[test]
    fn hostile_indexes_never_panic(index in prop::collection::vec(any::<u8>(), 0..300), start in 0..400u64) {
        let mut trailer = [0; TRAILER_SIZE];
        trailer[..4].copy_from_slice(&crate::record_batch::checksum([&index[..]]).to_le_bytes());
        let _ = read_index(&index, &trailer, start);
        let _ = read_object(&index);
    }
}
