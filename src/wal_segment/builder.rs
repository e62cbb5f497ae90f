//! Makes the body of one segment from batches of many partitions. The batches' bytes are shared, never copied.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::index::SegmentIndex;
use super::reader::TRAILER_MAGIC;
use super::{BatchMeta, FORMAT_VERSION, PartitionBatches};
use crate::record_batch::checksum;
use crate::types::{LogId, TopicPartition, WalSegmentId};

/// A whole segment, ready to be written.
#[derive(Clone, Debug)]
pub struct SegmentImage {
    pub segment: WalSegmentId,
    /// The object's bytes, one part after the other.
    pub parts: Vec<Bytes>,
    /// The length of all parts.
    pub size: u64,
    /// In the order of the bytes.
    pub partitions: Vec<PartitionBatches>,
}

/// Groups batches by partition, in ascending order of partitions and in the given order inside each, and puts the
/// version in front and the index behind.
pub fn build(
    log_id: LogId,
    segment: WalSegmentId,
    batches: impl IntoIterator<Item = (TopicPartition, BatchMeta, Bytes)>,
) -> SegmentImage {
    let mut grouped: BTreeMap<TopicPartition, (Vec<BatchMeta>, Vec<Bytes>)> = BTreeMap::new();
    for (partition, meta, bytes) in batches {
        assert_eq!(meta.byte_length as usize, bytes.len(), "a batch is as long as its index entry says");
        let (metas, parts) = grouped.entry(partition).or_default();
        metas.push(meta);
        parts.push(bytes);
    }
    let mut parts = vec![Bytes::from_static(&[FORMAT_VERSION])];
    let mut partitions = Vec::with_capacity(grouped.len());
    for (partition, (batches, bytes)) in grouped {
        partitions.push(PartitionBatches { partition, batches });
        parts.extend(bytes);
    }
    let index = SegmentIndex { log_id, segment, partitions };
    parts.push(footer(&index));
    let size = parts.iter().map(|p| p.len() as u64).sum();
    assert!(u32::try_from(size).is_ok(), "byte offsets in a segment are 32 bits wide");
    SegmentImage { segment, parts, size, partitions: index.partitions }
}

/// The index and the trailer behind it.
fn footer(index: &SegmentIndex) -> Bytes {
    let mut footer = index.encode();
    let length = u32::try_from(footer.len()).expect("an index is far below 4 GiB");
    let crc = checksum([&footer[..]]);
    footer.extend(crc.to_le_bytes());
    footer.extend(length.to_le_bytes());
    footer.extend(TRAILER_MAGIC);
    footer.into()
}
