//! Gives a stored batch the fields that it has when it is served: its place in the log, and on LogAppendTime
//! topics its time. The rewritten header is a copy; the records are a slice of the stored bytes.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum_combine};

use super::header::{HEADER_SIZE, TIMESTAMP_TYPE_BIT};
use super::pieces::{CRC_COVERS_FROM, checksum, copy_prefix, skip_prefix, total_len};
use crate::types::{Offset, TimestampMs};

/// Base offset, batch length and leader epoch: all that changes where the producer's timestamps stay.
const PLACE_SIZE: usize = 16;
/// Up to this size a pass over the records is cheaper than combining CRCs, which costs some ten microseconds
/// whatever the size.
const PASS_UP_TO: usize = 64 << 10;

/// What the log knows of a batch and its stored bytes do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServeAs {
    pub base_offset: Offset,
    pub leader_epoch: i32,
    /// The append time on topics with `message.timestamp.type=LogAppendTime`.
    pub log_append_time: Option<TimestampMs>,
}

/// Appends the batch as it is served to `out`. `None`, and nothing appended, where the pieces are shorter than a
/// batch header.
pub fn patch(pieces: &[Bytes], serve: ServeAs, out: &mut Vec<Bytes>) -> Option<()> {
    let mut header = copy_prefix::<HEADER_SIZE>(pieces)?;
    header[0..8].copy_from_slice(&serve.base_offset.to_be_bytes());
    header[12..PLACE_SIZE].copy_from_slice(&serve.leader_epoch.to_be_bytes());
    let rewritten = match serve.log_append_time {
        None => PLACE_SIZE,
        Some(time) => {
            stamp(&mut header, time, pieces);
            HEADER_SIZE
        }
    };
    out.push(Bytes::copy_from_slice(&header[..rewritten]));
    out.extend(skip_prefix(pieces, rewritten));
    Some(())
}

/// Sets timestamp type and max timestamp, and the CRC to match.
fn stamp(header: &mut [u8; HEADER_SIZE], time: TimestampMs, pieces: &[Bytes]) {
    let old = *header;
    let attributes = i16::from_be_bytes([header[21], header[22]]) | TIMESTAMP_TYPE_BIT;
    header[21..23].copy_from_slice(&attributes.to_be_bytes());
    header[35..43].copy_from_slice(&time.to_be_bytes());
    let records_len = total_len(pieces) - HEADER_SIZE;
    let crc = if records_len <= PASS_UP_TO {
        crc_by_pass(header, pieces)
    } else {
        crc_by_difference(&old, header, records_len)
    };
    header[17..CRC_COVERS_FROM].copy_from_slice(&crc.to_be_bytes());
}

fn crc_by_pass(header: &[u8; HEADER_SIZE], pieces: &[Bytes]) -> u32 {
    let records: Vec<Bytes> = skip_prefix(pieces, HEADER_SIZE).collect();
    checksum(std::iter::once(&header[CRC_COVERS_FROM..]).chain(records.iter().map(|r| &r[..])))
}

/// The CRC is linear: what the change of the header does to it depends on the length of the records behind, not on
/// the records.
fn crc_by_difference(old: &[u8; HEADER_SIZE], new: &[u8; HEADER_SIZE], records_len: usize) -> u32 {
    let stored = u32::from_be_bytes([old[17], old[18], old[19], old[20]]);
    let change = checksum([&old[CRC_COVERS_FROM..]]) ^ checksum([&new[CRC_COVERS_FROM..]]);
    checksum_combine(CrcAlgorithm::Crc32Iscsi, u64::from(change), u64::from(stored), records_len as u64) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::BatchBuilder;
    use super::super::{BatchHeader, crc_is_valid};
    use super::*;

    fn serve(batch: &Bytes, cut: usize, log_append_time: Option<i64>) -> Vec<Bytes> {
        let mut out = Vec::new();
        let pieces = [batch.slice(..cut), batch.slice(cut..)];
        patch(&pieces, ServeAs { base_offset: 77, leader_epoch: 5, log_append_time }, &mut out).expect("long enough");
        out
    }

    #[test]
    fn create_time_batches_change_only_their_place() {
        let batch = BatchBuilder::new().records(4).build();
        let served = serve(&batch, batch.len(), None).concat();
        assert_eq!(&served[..8], &77i64.to_be_bytes());
        assert_eq!(&served[12..16], &5i32.to_be_bytes());
        assert_eq!((&served[8..12], &served[16..]), (&batch[8..12], &batch[16..]));
    }

    #[test]
    fn records_are_shared_not_copied() {
        let batch = BatchBuilder::new().build();
        assert_eq!(serve(&batch, batch.len(), None)[1].as_ptr(), batch[16..].as_ptr());
        assert_eq!(serve(&batch, batch.len(), Some(1))[1].as_ptr(), batch[61..].as_ptr());
    }

    #[test]
    fn a_torn_batch_is_not_served() {
        let mut out = Vec::new();
        let serve = ServeAs { base_offset: 0, leader_epoch: 0, log_append_time: None };
        assert_eq!(patch(&[Bytes::from_static(&[0; 60])], serve, &mut out), None);
        assert!(out.is_empty());
    }

    proptest! {
        #[test]
        fn a_stamped_batch_has_its_time_and_a_valid_crc(
            records in 1..50usize, value_len in 0..3000usize, time in 0..i64::MAX, cut in 0..100usize,
        ) {
            let batch = BatchBuilder::new().records(records).value_len(value_len).build();
            let served = serve(&batch, cut.min(batch.len()), Some(time));
            prop_assert!(crc_is_valid(&served));
            let header = BatchHeader::parse(&served.concat()).expect("a header");
            prop_assert!(header.is_log_append_time());
            prop_assert_eq!(header.max_timestamp, time);
        }

        #[test]
        fn both_ways_to_the_crc_agree(value_len in 0..300_000usize, time in any::<i64>()) {
            let batch = BatchBuilder::new().value_len(value_len).build();
            let old: [u8; HEADER_SIZE] = *batch.first_chunk().expect("a header");
            let mut new = old;
            new[35..43].copy_from_slice(&time.to_be_bytes());
            let by_difference = crc_by_difference(&old, &new, batch.len() - HEADER_SIZE);
            prop_assert_eq!(by_difference, crc_by_pass(&new, &[batch]));
        }
    }
}
