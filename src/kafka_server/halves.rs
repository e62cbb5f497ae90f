//! The two halves of a connection, which may be a bare TCP socket or anything around one.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// The readable half of a connection.
pub(super) enum ReadHalf {
    Tcp(OwnedReadHalf),
    Other(Box<dyn AsyncRead + Send + Sync + Unpin>),
}

/// The writable half of a connection.
pub(super) enum WriteHalf {
    Tcp(OwnedWriteHalf),
    Other(Box<dyn AsyncWrite + Send + Sync + Unpin>),
}

/// The halves of a socket that the kernel can move bytes from and to.
pub(super) fn of_tcp(stream: TcpStream) -> (ReadHalf, WriteHalf) {
    let (read, write) = stream.into_split();
    (ReadHalf::Tcp(read), WriteHalf::Tcp(write))
}

/// The halves of a stream whose bytes pass through this process, such as TLS.
pub(super) fn of_stream(stream: impl AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static) -> (ReadHalf, WriteHalf) {
    let (read, write) = tokio::io::split(stream);
    (ReadHalf::Other(Box::new(read)), WriteHalf::Other(Box::new(write)))
}

impl ReadHalf {
    pub(super) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(half) => Some(half.as_ref()),
            Self::Other(_) => None,
        }
    }
}

impl WriteHalf {
    pub(super) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(half) => Some(half.as_ref()),
            Self::Other(_) => None,
        }
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_read(cx, buf),
            Self::Other(half) => Pin::new(half).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_write(cx, buf),
            Self::Other(half) => Pin::new(half).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_write_vectored(cx, bufs),
            Self::Other(half) => Pin::new(half).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(half) => half.is_write_vectored(),
            Self::Other(half) => half.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_flush(cx),
            Self::Other(half) => Pin::new(half).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(half) => Pin::new(half).poll_shutdown(cx),
            Self::Other(half) => Pin::new(half).poll_shutdown(cx),
        }
    }
}
