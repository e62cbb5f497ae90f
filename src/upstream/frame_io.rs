//! Reads whole frames from a stream. Memory grows with what arrived, not with what the length promised.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::wire::frame::{FrameError, request_length, response_length};

/// What a frame's buffer starts with.
const FIRST_BYTES: usize = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum ReadFrameError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// The next request frame without its length, or `None` where the peer closed between frames.
pub async fn read_request_frame(
    stream: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> Result<Option<Bytes>, ReadFrameError> {
    let Some(prefix) = read_prefix(stream).await? else { return Ok(None) };
    Ok(Some(read_body(stream, request_length(prefix, limit)?).await?))
}

/// The next response frame without its length, or `None` where the peer closed between frames.
pub async fn read_response_frame(
    stream: &mut (impl AsyncRead + Unpin),
    limit: usize,
) -> Result<Option<Bytes>, ReadFrameError> {
    let Some(prefix) = read_prefix(stream).await? else { return Ok(None) };
    Ok(Some(read_body(stream, response_length(prefix, limit)?).await?))
}

async fn read_prefix(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<[u8; 4]>> {
    let mut prefix = [0; 4];
    if stream.read(&mut prefix[..1]).await? == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut prefix[1..]).await?;
    Ok(Some(prefix))
}

async fn read_body(stream: &mut (impl AsyncRead + Unpin), length: usize) -> io::Result<Bytes> {
    let mut body = BytesMut::with_capacity(length.min(FIRST_BYTES));
    let mut rest = stream.take(length as u64);
    while body.len() < length {
        if body.len() == body.capacity() {
            // Doubles, but never beyond the frame.
            body.reserve((length - body.len()).min(body.len().max(FIRST_BYTES)));
        }
        if rest.read_buf(&mut body).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(body.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_are_read_one_after_another() {
        let mut bytes = Vec::new();
        for size in [8usize, 200_000] {
            bytes.extend(u32::try_from(size).expect("small").to_be_bytes());
            bytes.extend(vec![7; size]);
        }
        let mut stream = &bytes[..];
        for size in [8, 200_000] {
            let frame = read_request_frame(&mut stream, 1 << 20).await.expect("reads").expect("a frame");
            assert_eq!(frame.len(), size);
        }
        assert!(read_request_frame(&mut stream, 1 << 20).await.expect("a clean end").is_none());
    }

    #[tokio::test]
    async fn a_frame_that_ends_early_is_an_error() {
        for bytes in [&[0, 0][..], &[0, 0, 0, 9, 1, 2]] {
            let mut stream = bytes;
            assert!(matches!(read_response_frame(&mut stream, 100).await, Err(ReadFrameError::Io(_))));
        }
        let mut stream = &[0, 0, 1, 0][..];
        assert!(matches!(read_response_frame(&mut stream, 100).await, Err(ReadFrameError::Frame(_))));
    }
}
