//! Opens the compressed block of a batch as a stream of record bytes, for look-ups by timestamp alone.
//!
//! Memory is bounded whatever the block claims: gzip, lz4 and zstd are decoded through their windows; a snappy block
//! has none, so its output is made as a whole, and one that claims more than is left of the limit is refused unread.

use std::io::{self, Read};

use super::header::CompressionType;

/// snappy-java puts this before blocks of its own framing, which is what Kafka's Java clients write.
const XERIAL_MAGIC: &[u8; 8] = b"\x82SNAPPY\0";
/// The magic, a version and the oldest version that can read it.
const XERIAL_HEADER: usize = 16;
/// The shortest element of a snappy block has three bytes and stands for 64, so no block can grow more than this.
const SNAPPY_EXPANDS: usize = 32;
/// The largest back reference that a zstd frame may need, as a power of two: what Kafka's own decoder takes.
const ZSTD_WINDOW_LOG: u32 = 27;

/// The records of a batch as a stream. No more than about `limit` bytes are held, and reading ends with an error
/// where more would have to be.
pub(super) fn open<'a>(
    codec: CompressionType,
    block: &'a [u8],
    limit: usize,
) -> io::Result<Box<dyn Read + Send + Sync + 'a>> {
    Ok(match codec {
        CompressionType::None => Box::new(block),
        // Of several members too, which Java writes where a stream is flushed.
        CompressionType::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(block)),
        CompressionType::Snappy => Box::new(Snappy::new(block, limit)),
        CompressionType::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(block)),
        CompressionType::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(block)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            Box::new(decoder)
        }
    })
}

/// Snappy blocks: one alone, or in the framing of snappy-java with a length before each.
struct Snappy<'a> {
    rest: &'a [u8],
    is_framed: bool,
    left: usize,
    output: io::Cursor<Vec<u8>>,
}

impl<'a> Snappy<'a> {
    fn new(block: &'a [u8], limit: usize) -> Self {
        let is_framed = block.starts_with(XERIAL_MAGIC) && block.len() >= XERIAL_HEADER;
        let rest = if is_framed { &block[XERIAL_HEADER..] } else { block };
        Self { rest, is_framed, left: limit, output: io::Cursor::default() }
    }

    fn next_block(&mut self) -> io::Result<&'a [u8]> {
        if !self.is_framed {
            return Ok(std::mem::take(&mut self.rest));
        }
        let (length, tail) = self.rest.split_first_chunk::<4>().ok_or(io::ErrorKind::UnexpectedEof)?;
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| io::ErrorKind::InvalidData)?;
        let block = tail.get(..length).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.rest = &tail[length..];
        Ok(block)
    }

    fn refill(&mut self) -> io::Result<()> {
        let block = self.next_block()?;
        let size = snap::raw::decompress_len(block)?;
        if size > block.len().saturating_mul(SNAPPY_EXPANDS) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.left = self.left.checked_sub(size).ok_or(io::ErrorKind::FileTooLarge)?;
        let mut output = std::mem::take(&mut self.output).into_inner();
        output.resize(size, 0);
        snap::raw::Decoder::new().decompress(block, &mut output)?;
        self.output = io::Cursor::new(output);
        Ok(())
    }
}

impl Read for Snappy<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.output.read(into)?;
            if count > 0 || into.is_empty() || self.rest.is_empty() {
                return Ok(count);
            }
            self.refill()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::compress;
    use super::*;

    const LIMIT: usize = 1 << 20;
    const CODECS: [CompressionType; 5] = [
        CompressionType::None,
        CompressionType::Gzip,
        CompressionType::Snappy,
        CompressionType::Lz4,
        CompressionType::Zstd,
    ];

    fn read_all(codec: CompressionType, block: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        open(codec, block, LIMIT)?.read_to_end(&mut out)?;
        Ok(out)
    }

    /// Bytes that compress, but not to nothing.
    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8 ^ (i / 1000) as u8).collect()
    }

    #[test]
    fn every_codec_is_read_back() {
        for len in [0, 1, 100, 300_000] {
            for codec in CODECS {
                let block = compress(codec, &text(len));
                assert_eq!(read_all(codec, &block).expect("valid"), text(len), "{codec:?} of {len}");
            }
        }
    }

    /// As snappy-java writes it: blocks of 32 KiB, each with its length before it.
    #[test]
    fn the_framing_of_snappy_java_is_read() {
        let mut framed = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
        for chunk in text(100_000).chunks(32 << 10) {
            let block = compress(CompressionType::Snappy, chunk);
            framed.extend(i32::try_from(block.len()).expect("small").to_be_bytes());
            framed.extend(block);
        }
        assert_eq!(read_all(CompressionType::Snappy, &framed).expect("valid"), text(100_000));
        for cut in [17, 19, 25, framed.len() - 1] {
            assert!(read_all(CompressionType::Snappy, &framed[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn gzip_of_several_members_is_one_stream() {
        let two = [compress(CompressionType::Gzip, b"one "), compress(CompressionType::Gzip, b"two")].concat();
        assert_eq!(read_all(CompressionType::Gzip, &two).expect("valid"), b"one two");
    }

    #[test]
    fn a_snappy_block_that_claims_too_much_is_refused_before_it_is_made() {
        // A length of 4 GiB - 1, and nothing behind it.
        assert!(read_all(CompressionType::Snappy, b"\xff\xff\xff\xff\x0f").is_err());
        let large = compress(CompressionType::Snappy, &vec![0; LIMIT + 1]);
        assert_eq!(
            read_all(CompressionType::Snappy, &large).map_err(|e| e.kind()).expect_err("too large"),
            io::ErrorKind::FileTooLarge
        );
    }

    #[test]
    fn blocks_that_are_cut_short_are_errors() {
        for codec in [CompressionType::Gzip, CompressionType::Snappy, CompressionType::Lz4, CompressionType::Zstd] {
            let block = compress(codec, &text(5000));
            assert!(read_all(codec, &block[..block.len() / 2]).is_err(), "{codec:?}");
        }
    }
}
