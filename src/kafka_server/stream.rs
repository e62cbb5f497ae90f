//! Frames on a socket: reading them whole or in passing, and writing answers without copying their parts.
//!
//! A connection that waits holds no buffer; a large one exists only while a large frame moves.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::buffers::{Buffer, Buffers, SMALLEST};
use super::halves::{ReadHalf, WriteHalf};

/// Small frames are read this much at a time, several with one call where a client sends ahead.
const READ_AHEAD: usize = 4 * 1024;
/// Frames that pass are moved in pieces of at most this size.
const PIECE: usize = 256 * 1024;
/// What is left of a frame is moved by the kernel from this size on.
const SPLICED: usize = 64 * 1024;

/// The longest between two pieces of a frame.
const STALL_DEADLINE: Duration = Duration::from_secs(60);

/// How long a peer may leave what is written to it unread: as long as it may be idle. A consumer that is busy with its
/// records reads nothing for minutes.
const UNREAD_DEADLINE: Duration = Duration::from_secs(600);

/// A connection's incoming bytes.
pub(super) struct FrameReader {
    from: ReadHalf,
    /// What was read and not taken yet: the beginning of a frame, or a few small ones.
    ahead: BytesMut,
    buffers: Arc<Buffers>,
}

impl FrameReader {
    pub(super) fn new(from: ReadHalf, buffers: Arc<Buffers>) -> Self {
        Self { from, ahead: BytesMut::new(), buffers }
    }

    /// Waits until at least `count` bytes are buffered. False if the connection ended before the first of them.
    pub(super) async fn fill(&mut self, count: usize) -> io::Result<bool> {
        while self.ahead.len() < count {
            if self.read_ahead(count - self.ahead.len()).await? == 0 {
                if self.ahead.is_empty() {
                    return Ok(false);
                }
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(true)
    }

    /// What is buffered.
    pub(super) fn buffered(&self) -> &[u8] {
        &self.ahead
    }

    /// Takes exactly `count` bytes.
    pub(super) async fn take(&mut self, count: usize) -> io::Result<Bytes> {
        if count > SMALLEST && count > self.ahead.len() {
            let mut buffer = self.buffers.take(count);
            self.read_up_to(&mut buffer, count).await?;
            return Ok(buffer.freeze());
        }
        if !self.fill(count).await? && count > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Copied: a slice would keep all that was read with it, for as long as a batch in it is kept.
        let taken = Bytes::copy_from_slice(&self.ahead[..count]);
        self.ahead.advance(count);
        Ok(taken)
    }

    /// Takes the first `count` bytes of a frame, to be passed on or to be followed by the rest.
    pub(super) async fn begin(&mut self, count: usize) -> io::Result<Buffer> {
        let mut begun = self.buffers.take(count);
        self.read_up_to(&mut begun, count).await?;
        Ok(begun)
    }

    /// A buffer for the whole frame, with what was taken of it so far.
    pub(super) fn make_room(&self, begun: Option<Buffer>, count: usize) -> Buffer {
        match begun {
            Some(begun) if begun.bytes.capacity() >= count => begun,
            begun => {
                let mut whole = self.buffers.take(count);
                whole.bytes.extend_from_slice(begun.as_ref().map_or(&[], |begun| &begun.bytes));
                whole
            }
        }
    }

    /// Reads until the buffer holds `count` bytes, and no further.
    pub(super) async fn read_up_to(&mut self, buffer: &mut Buffer, count: usize) -> io::Result<()> {
        self.move_ahead(buffer, count.saturating_sub(buffer.bytes.len()));
        while buffer.bytes.len() < count {
            self.read_into(buffer, count).await?;
        }
        Ok(())
    }

    /// Reads once, so that the buffer then holds at most `most` bytes.
    async fn read_into(&mut self, buffer: &mut Buffer, most: usize) -> io::Result<()> {
        let room = most - buffer.bytes.len();
        if self.from.read_buf(&mut (&mut buffer.bytes).limit(room)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn move_ahead(&mut self, buffer: &mut Buffer, most: usize) {
        let there = self.ahead.len().min(most);
        buffer.bytes.extend_from_slice(&self.ahead[..there]);
        self.ahead.advance(there);
    }

    /// Passes exactly `count` bytes on to `sink`.
    pub(super) async fn pass(&mut self, mut count: usize, sink: &mut WriteHalf) -> io::Result<()> {
        if count <= READ_AHEAD {
            within(STALL_DEADLINE, self.fill(count)).await?;
        }
        if count <= self.ahead.len() {
            write(sink, &self.ahead[..count]).await?;
            self.ahead.advance(count);
            return Ok(());
        }
        while count > 0 {
            if self.splice(count, sink).await? {
                return Ok(());
            }
            // Where the kernel can do the rest, no more is copied than was read ahead.
            let size = if self.ahead.is_empty() { count } else { count.min(self.ahead.len()) };
            let piece = self.piece(size).await?;
            count -= piece.bytes.len();
            write(sink, &piece.bytes).await?;
        }
        Ok(())
    }

    /// Has the kernel pass exactly `count` bytes on, if it can and if they are many.
    pub(super) async fn splice(&mut self, mut count: usize, sink: &mut WriteHalf) -> io::Result<bool> {
        let (Some(from), Some(to)) = (self.from.tcp(), sink.tcp()) else { return Ok(false) };
        if count < SPLICED || !self.ahead.is_empty() {
            return Ok(false);
        }
        let Some(mut pipe) = self.buffers.pipes.take() else { return Ok(false) };
        while count > 0 {
            match within(STALL_DEADLINE, pipe.fill(from, count)).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                moved => count -= moved,
            }
            read_in_time(pipe.drain(to)).await?;
        }
        Ok(true)
    }

    /// The next bytes of a frame of which `left` are to come: at least one, and as many as one call gives. A frame must
    /// go on moving: whoever sends it may be gone without a word.
    ///
    /// The buffer is taken when there is something to read, so that one who waits has none.
    pub(super) async fn piece(&mut self, left: usize) -> io::Result<Buffer> {
        let size = left.min(PIECE);
        let read = poll_fn(|context| {
            let mut piece = self.buffers.take(size);
            self.move_ahead(&mut piece, size);
            let moved = piece.bytes.len();
            if moved == size {
                return Poll::Ready(Ok(piece));
            }
            let mut room = (&mut piece.bytes).limit(size - moved);
            match pin!(self.from.read_buf(&mut room)).poll(context) {
                Poll::Ready(Ok(0)) if moved == 0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending if moved == 0 => Poll::Pending,
                Poll::Ready(Ok(_)) | Poll::Pending => Poll::Ready(Ok(piece)),
            }
        });
        within(STALL_DEADLINE, read).await
    }

    /// Reads once. Where nothing comes and nothing is held, no memory is either.
    async fn read_ahead(&mut self, missing: usize) -> io::Result<usize> {
        poll_fn(|context| {
            self.ahead.reserve(missing.max(READ_AHEAD));
            let read = pin!(self.from.read_buf(&mut self.ahead)).poll(context);
            if read.is_pending() && self.ahead.is_empty() {
                self.ahead = BytesMut::new();
            }
            read
        })
        .await
    }
}

/// Writes all of it, unless its reader has gone without a word.
pub(super) async fn write(sink: &mut WriteHalf, bytes: &[u8]) -> io::Result<()> {
    read_in_time(sink.write_all(bytes)).await
}

/// Sends what was written; over TLS that may have waited in a buffer until now.
pub(super) async fn flush(sink: &mut WriteHalf) -> io::Result<()> {
    read_in_time(sink.flush()).await
}

/// Ends a write whose reader has gone without a word.
async fn read_in_time<T>(write: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    within(UNREAD_DEADLINE, write).await
}

async fn within<T>(time: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(time, work).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Writes all parts in order, many at a time.
pub(super) async fn write_parts(sink: &mut WriteHalf, parts: Vec<Bytes>) -> io::Result<()> {
    let mut parts = std::collections::VecDeque::from(parts);
    while !parts.is_empty() {
        let slices: Vec<IoSlice<'_>> = parts.iter().take(64).map(|p| IoSlice::new(p)).collect();
        let mut written = read_in_time(sink.write_vectored(&slices)).await?;
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
        let mut sink = WriteHalf::Other(Box::new(near));
        let write = async move {
            write_parts(&mut sink, parts).await.expect("the pipe is open");
            drop(sink);
        };
        let mut reader = FrameReader::new(ReadHalf::Other(Box::new(far)), Arc::default());
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
        let mut sink = WriteHalf::Other(Box::new(out));
        let mut reader = FrameReader::new(ReadHalf::Other(Box::new(far)), Arc::default());
        reader.pass(5, &mut sink).await.expect("five bytes are there");
        drop(sink);
        let mut passed = Vec::new();
        seen.read_to_end(&mut passed).await.expect("closed");
        assert_eq!(passed, b"frame");
        assert_eq!(reader.take(4).await.expect("the rest"), b"NEXT"[..]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_moves_no_more_ends() {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let (out, _seen) = tokio::io::duplex(1 << 20);
        near.write_all(&[0; PIECE]).await.expect("room");
        let mut sink = WriteHalf::Other(Box::new(out));
        let mut reader = FrameReader::new(ReadHalf::Other(Box::new(far)), Arc::default());
        let ended = reader.pass(2 * PIECE, &mut sink).await.expect_err("the other half does not come");
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_frame_that_moves_no_more_ends_too() {
        let (mut near, far) = tokio::io::duplex(1024);
        let (out, _seen) = tokio::io::duplex(1024);
        near.write_all(&[0; 100]).await.expect("room");
        let mut sink = WriteHalf::Other(Box::new(out));
        let mut reader = FrameReader::new(ReadHalf::Other(Box::new(far)), Arc::default());
        assert!(reader.fill(4).await.expect("open"), "the beginning is there");
        let ended = tokio::time::timeout(2 * STALL_DEADLINE, reader.pass(200, &mut sink)).await;
        let ended = ended.expect("it ends").expect_err("the other half does not come");
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    }

    /// The zone cache keeps a batch for as long as it likes, and counts the batch's own bytes.
    #[tokio::test]
    async fn a_small_frame_keeps_no_memory_but_its_own() {
        let (mut near, far) = tokio::io::duplex(1024);
        near.write_all(&[7; 300]).await.expect("room");
        let mut reader = FrameReader::new(ReadHalf::Other(Box::new(far)), Arc::default());
        let frame = reader.take(100).await.expect("it is there");
        assert_eq!(frame, [7; 100][..]);
        assert_eq!(frame.try_into_mut().map(|own| own.capacity()).unwrap_or(usize::MAX), 100);
        assert_eq!(reader.take(200).await.expect("it is there"), [7; 200][..]);
    }

    #[tokio::test]
    async fn a_reader_that_waits_holds_nothing() {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let (out, _seen) = tokio::io::duplex(1 << 20);
        let mut sink = WriteHalf::Other(Box::new(out));
        let mut reader = FrameReader::new(ReadHalf::Other(Box::new(far)), Arc::default());
        near.write_all(&[7; PIECE + 1]).await.expect("room");
        reader.pass(PIECE, &mut sink).await.expect("passes");
        assert_eq!(reader.take(1).await.expect("there"), [7][..]);
        {
            let mut waiting = pin!(reader.fill(4));
            assert!(futures::poll!(&mut waiting).is_pending());
        }
        assert_eq!(reader.ahead.capacity(), 0);
        near.write_all(b"next").await.expect("room");
        assert!(reader.fill(4).await.expect("open"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_ends_the_connection() {
        let (near, _far) = tokio::io::duplex(7);
        let mut sink = WriteHalf::Other(Box::new(near));
        let ended = write_parts(&mut sink, vec![Bytes::from_static(&[0; 100])]).await.expect_err("nobody reads");
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    }
}
