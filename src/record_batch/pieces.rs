//! A batch that lies in several buffers, because it crosses the end of a cached block.
//! Nothing here copies records.

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};

/// Offset of the first byte that the CRC covers.
pub(super) const CRC_COVERS_FROM: usize = 21;

/// The length of all pieces together.
pub fn total_len(pieces: &[Bytes]) -> usize {
    pieces.iter().map(Bytes::len).sum()
}

/// The first `N` bytes; `None` where there are fewer.
pub fn copy_prefix<const N: usize>(pieces: &[Bytes]) -> Option<[u8; N]> {
    let mut out = [0; N];
    let mut filled = 0;
    for piece in pieces {
        let take = piece.len().min(N - filled);
        out[filled..filled + take].copy_from_slice(&piece[..take]);
        filled += take;
    }
    (filled == N).then_some(out)
}

/// The pieces without their first `count` bytes. Shares the buffers.
pub fn skip_prefix(pieces: &[Bytes], mut count: usize) -> impl Iterator<Item = Bytes> {
    pieces.iter().filter_map(move |piece| {
        let skipped = count.min(piece.len());
        count -= skipped;
        (skipped < piece.len()).then(|| piece.slice(skipped..))
    })
}

/// CRC-32C of the pieces one after the other.
pub fn checksum<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for piece in pieces {
        digest.update(piece);
    }
    digest.finalize() as u32
}

/// Whether the batch's bytes are those that its CRC was made of.
pub fn crc_is_valid(pieces: &[Bytes]) -> bool {
    let Some(prefix) = copy_prefix::<CRC_COVERS_FROM>(pieces) else {
        return false;
    };
    let stored = u32::from_be_bytes([prefix[17], prefix[18], prefix[19], prefix[20]]);
    let mut left = CRC_COVERS_FROM;
    let covered = pieces.iter().map(|piece| {
        let skipped = left.min(piece.len());
        left -= skipped;
        &piece[skipped..]
    });
    checksum(covered) == stored
}

#[cfg(test)]
mod tests {
    use super::super::testing::BatchBuilder;
    use super::*;

    #[test]
    fn the_crc_is_the_same_however_the_batch_is_cut() {
        let batch = BatchBuilder::new().records(2).build();
        for cut in 0..=batch.len() {
            let pieces = [batch.slice(..cut), batch.slice(cut..)];
            assert!(crc_is_valid(&pieces), "cut at {cut}");
            let rest: Vec<u8> = skip_prefix(&pieces, 16).flatten().collect();
            assert_eq!(rest, batch[16..], "cut at {cut}");
            assert_eq!(copy_prefix::<61>(&pieces).as_ref().map(|p| &p[..]), Some(&batch[..61]));
        }
        assert_eq!(checksum([&b"123456789"[..]]), 0xe306_9283, "the check value of CRC-32C");
    }

    #[test]
    fn a_short_batch_has_no_valid_crc() {
        assert!(!crc_is_valid(&[Bytes::from_static(&[0; 20])]));
        assert!(!crc_is_valid(&[]));
    }
}
