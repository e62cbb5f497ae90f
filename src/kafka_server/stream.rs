//! Frames on a socket: reading them whole or in passing, and writing answers without copying their parts.
//!
//! A connection that has been idle for a second holds half a KiB; a large buffer stays only while frames follow each
//! other.

use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Any readable half of a connection.
pub(super) type ReadHalf = Box<dyn AsyncRead + Send + Sync + Unpin>;
/// Any writable half of a connection.
pub(super) type WriteHalf = Box<dyn AsyncWrite + Send + Sync + Unpin>;

/// What an idle connection holds for its next request, and how soon it counts as idle.
const IDLE_BUFFER: usize = 512;
const IDLE_AFTER: Duration = Duration::from_secs(1);
const LEAST_READ: usize = 4 * 1024;
const STREAM_BUFFER: usize = 256 * 1024;
/// The longest between two pieces of a frame.
const STALL_DEADLINE: Duration = Duration::from_secs(60);

/// A connection's incoming bytes.
pub(super) struct FrameReader {
    from: ReadHalf,
    buffer: BytesMut,
}

impl FrameReader {
    pub(super) fn new(from: ReadHalf) -> Self {
        Self { from, buffer: BytesMut::new() }
    }

    /// Waits until at least `count` bytes are buffered. False if the connection ended before the first of them.
    pub(super) async fn fill(&mut self, count: usize) -> io::Result<bool> {
        while self.buffer.len() < count {
            if self.read_more(count - self.buffer.len()).await? == 0 {
                if self.buffer.is_empty() {
                    return Ok(false);
                }
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(true)
    }

    /// As [`Self::fill`], for a wait that may be long: after a while the buffer is given back.
    pub(super) async fn fill_idle(&mut self, count: usize) -> io::Result<bool> {
        if let Ok(filled) = tokio::time::timeout(IDLE_AFTER, self.fill(count)).await {
            return filled;
        }
        if self.buffer.is_empty() {
            self.buffer = BytesMut::with_capacity(IDLE_BUFFER);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(false);
            }
        }
        self.fill(count).await
    }

    /// What is buffered.
    pub(super) fn buffered(&self) -> &[u8] {
        &self.buffer
    }

    /// Makes room for `count` bytes, what is buffered included, so that they are moved only by the kernel.
    pub(super) fn make_room(&mut self, count: usize) {
        self.buffer.reserve(count.saturating_sub(self.buffer.len()));
    }

    /// Takes exactly `count` bytes.
    pub(super) async fn take(&mut self, count: usize) -> io::Result<Bytes> {
        if !self.fill(count).await? && count > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(self.buffer.split_to(count).freeze())
    }

    /// Takes some bytes of a frame that moves, at most `most` and at least one. A frame must go on moving: whoever sends
    /// it may be gone without a word.
    pub(super) async fn take_some(&mut self, most: usize) -> io::Result<Bytes> {
        if self.buffer.is_empty() {
            let more = tokio::time::timeout(STALL_DEADLINE, self.read_more(most.min(STREAM_BUFFER))).await;
            if more.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let count = self.buffer.len().min(most);
        Ok(self.buffer.split_to(count).freeze())
    }

    /// Passes exactly `count` bytes on to `sink`.
    pub(super) async fn pass(&mut self, mut count: usize, sink: &mut WriteHalf) -> io::Result<()> {
        while count > 0 {
            let chunk = self.take_some(count).await?;
            count -= chunk.len();
            sink.write_all(&chunk).await?;
        }
        Ok(())
    }

    async fn read_more(&mut self, missing: usize) -> io::Result<usize> {
        // A frame that is taken whole gets its room at once, so that its bytes are moved only by the kernel.
        self.buffer.reserve(missing.max(LEAST_READ));
        self.from.read_buf(&mut self.buffer).await
    }
}

/// Writes all parts in order, many at a time.
pub(super) async fn write_parts(sink: &mut WriteHalf, parts: Vec<Bytes>) -> io::Result<()> {
    let mut parts = std::collections::VecDeque::from(parts);
    while !parts.is_empty() {
        let slices: Vec<IoSlice<'_>> = parts.iter().take(64).map(|p| IoSlice::new(p)).collect();
        let mut written = sink.write_vectored(&slices).await?;
        if written == 0 && slices.iter().any(|s| !s.is_empty()) {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(front) = parts.front_mut() {
            if front.len() > written {
                front.advance(written);
                break;
            }
            written -= front.len();
            parts.pop_front();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn parts_arrive_in_order_through_a_narrow_pipe() {
        let (near, far) = tokio::io::duplex(7);
        let parts: Vec<Bytes> = (0u8..200).map(|n| Bytes::from(vec![n; usize::from(n % 5)])).collect();
        let expected: Vec<u8> = parts.iter().flatten().copied().collect();
        let mut sink: WriteHalf = Box::new(near);
        let write = async move {
            write_parts(&mut sink, parts).await.expect("the pipe is open");
            drop(sink);
        };
        let mut reader = FrameReader::new(Box::new(far));
        let count = expected.len();
        let (_, read) = tokio::join!(write, reader.take(count));
        assert_eq!(read.expect("all came"), expected);
        assert!(!reader.fill(1).await.expect("a clean end"), "the pipe was closed between frames");
    }

    #[tokio::test]
    async fn passing_stops_at_the_frame_s_end() {
        let (mut near, far) = tokio::io::duplex(1024);
        near.write_all(b"frameNEXT").await.expect("room");
        let (out, mut seen) = tokio::io::duplex(1024);
        let mut sink: WriteHalf = Box::new(out);
        let mut reader = FrameReader::new(Box::new(far));
        reader.pass(5, &mut sink).await.expect("five bytes are there");
        drop(sink);
        let mut passed = Vec::new();
        seen.read_to_end(&mut passed).await.expect("closed");
        assert_eq!(passed, b"frame");
        assert_eq!(reader.take(4).await.expect("the rest"), b"NEXT"[..]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_moves_no_more_ends() {
        let (mut near, far) = tokio::io::duplex(1024);
        let (out, _seen) = tokio::io::duplex(1024);
        near.write_all(b"half").await.expect("room");
        let mut sink: WriteHalf = Box::new(out);
        let mut reader = FrameReader::new(Box::new(far));
        let ended = reader.pass(8, &mut sink).await.expect_err("the other half does not come");
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_reader_gives_its_large_buffer_back() {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let (out, _seen) = tokio::io::duplex(1 << 20);
        let mut sink: WriteHalf = Box::new(out);
        let mut reader = FrameReader::new(Box::new(far));
        near.write_all(&vec![7; STREAM_BUFFER]).await.expect("room");
        reader.pass(STREAM_BUFFER, &mut sink).await.expect("passes");
        let later = async {
            tokio::time::sleep(2 * IDLE_AFTER).await;
            near.write_all(b"next").await.expect("room");
        };
        let (filled, ()) = tokio::join!(reader.fill_idle(4), later);
        assert!(filled.expect("open"));
        assert_eq!(reader.buffered(), b"next");
        // Bytes stand at its beginning, so this is all of it.
        assert!(reader.buffer.capacity() <= IDLE_BUFFER, "{}", reader.buffer.capacity());
        drop(near);
        let mut byte_by_byte = FrameReader::new(Box::new(&b"ab"[..]));
        assert!(byte_by_byte.fill_idle(2).await.expect("two bytes"));
    }
}
