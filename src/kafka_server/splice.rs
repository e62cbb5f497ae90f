//! Moves the payload of large frames from one TCP connection to the other inside the kernel (`splice(2)`), so that
//! passing it on costs no copies. Where one side speaks TLS, or there is no `splice`, frames pass through a buffer.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_queue::ArrayQueue;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Pipes in use at once, each with two descriptors. Whoever finds none left copies.
const MOST_PIPES: usize = 256;
/// Unused pipes that are kept.
const KEPT: usize = 32;

/// All pipes of one process.
pub(super) struct Pipes {
    idle: ArrayQueue<Ends>,
    made: AtomicUsize,
}

struct Ends {
    read: OwnedFd,
    write: OwnedFd,
}

impl Default for Pipes {
    fn default() -> Self {
        Self { idle: ArrayQueue::new(KEPT), made: AtomicUsize::new(0) }
    }
}

impl Pipes {
    /// An empty pipe, if there is one for us.
    pub(super) fn take(self: &Arc<Self>) -> Option<Pipe> {
        let ends = match self.idle.pop() {
            Some(ends) => ends,
            None => {
                let may_make = |made: usize| (made < MOST_PIPES).then_some(made + 1);
                self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, may_make).ok()?;
                make().inspect_err(|_| self.unmade()).ok()?
            }
        };
        Some(Pipe { ends: Some(ends), filled: 0, home: Arc::clone(self) })
    }

    fn unmade(&self) {
        self.made.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(target_os = "linux")]
fn make() -> io::Result<Ends> {
    use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
    const PIPE_BYTES: usize = 512 * 1024;
    let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
    // A user who has many pipes already gets small ones, which do as well.
    let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
    Ok(Ends { read, write })
}

#[cfg(not(target_os = "linux"))]
fn make() -> io::Result<Ends> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Moves what can be moved now.
#[cfg(target_os = "linux")]
fn splice(from: impl AsFd, to: impl AsFd, most: usize) -> io::Result<usize> {
    use rustix::pipe::SpliceFlags;
    Ok(rustix::pipe::splice(from, None, to, None, most, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)?)
}

#[cfg(not(target_os = "linux"))]
fn splice(_: impl AsFd, _: impl AsFd, _: usize) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// One pipe, in use. Goes back when it is dropped empty.
pub(super) struct Pipe {
    ends: Option<Ends>,
    filled: usize,
    home: Arc<Pipes>,
}

impl Pipe {
    /// Takes bytes from a socket, at most `most`: as many as are there and as the pipe can hold. 0 at its end.
    pub(super) async fn fill(&mut self, from: &TcpStream, most: usize) -> io::Result<usize> {
        let Some(ends) = &self.ends else { return Ok(0) };
        loop {
            from.readable().await?;
            match from.try_io(Interest::READABLE, || splice(from, &ends.write, most)) {
                Ok(count) => {
                    self.filled += count;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Gives all that it holds to a socket.
    pub(super) async fn drain(&mut self, to: &TcpStream) -> io::Result<()> {
        let Some(ends) = &self.ends else { return Ok(()) };
        while self.filled > 0 {
            to.writable().await?;
            match to.try_io(Interest::WRITABLE, || splice(&ends.read, to, self.filled)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.filled -= count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let Some(ends) = self.ends.take() else { return };
        // Bytes that are left belong to a connection that broke: nobody else may find them.
        if self.filled > 0 || self.home.idle.push(ends).is_err() {
            self.home.unmade();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (near, far) = tokio::join!(TcpStream::connect(address), listener.accept());
        (near.expect("connects"), far.expect("accepts").0)
    }

    #[tokio::test]
    async fn bytes_arrive_in_order_and_none_is_left() {
        let pipes = Arc::<Pipes>::default();
        let (mut source, from) = connected().await;
        let (to, mut sink) = connected().await;
        let sent: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        let write = async {
            source.write_all(&sent).await.expect("open");
            source.shutdown().await.expect("open");
        };
        let pass = async {
            let mut pipe = pipes.take().expect("a pipe");
            let mut moved = 0;
            loop {
                let count = pipe.fill(&from, 700_000).await.expect("open");
                pipe.drain(&to).await.expect("open");
                moved += count;
                if count == 0 {
                    return moved;
                }
            }
        };
        let read = async {
            let mut seen = vec![0; sent.len()];
            sink.read_exact(&mut seen).await.expect("all come");
            seen
        };
        let ((), moved, seen) = tokio::join!(write, pass, read);
        assert_eq!(moved, sent.len());
        assert!(seen == sent, "the bytes are the same");
    }

    #[tokio::test]
    async fn a_pipe_that_is_not_empty_is_not_used_again() {
        let pipes = Arc::<Pipes>::default();
        let (mut source, from) = connected().await;
        source.write_all(b"left over").await.expect("open");
        let mut pipe = pipes.take().expect("a pipe");
        assert_eq!(pipe.fill(&from, 100).await.expect("open"), 9);
        drop(pipe);
        assert_eq!((pipes.idle.len(), pipes.made.load(Ordering::Relaxed)), (0, 0));
        drop(pipes.take().expect("a new one"));
        assert_eq!((pipes.idle.len(), pipes.made.load(Ordering::Relaxed)), (1, 1));
    }

    #[test]
    fn there_are_never_more_than_the_bound() {
        let pipes = Arc::<Pipes>::default();
        let taken: Vec<_> = std::iter::from_fn(|| pipes.take()).take(2 * MOST_PIPES).collect();
        assert_eq!(taken.len(), MOST_PIPES);
        drop(taken);
        assert_eq!((pipes.idle.len(), pipes.made.load(Ordering::Relaxed)), (KEPT, KEPT));
    }
}
