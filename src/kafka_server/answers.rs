//! The writing side of one client connection: gives the client its answers in order, and reads upstream when it is
//! upstream's turn.

use std::io;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::halves::WriteHalf;
use super::order::{AnswerOrder, SlotId, Step};
use super::stream::{FrameReader, flush, write_parts};

/// A local answer.
#[derive(Debug)]
pub(super) enum Answer {
    /// A whole frame, in parts.
    Frame(Vec<Bytes>),
    /// No answer: the connection ends once everything before it was written. So Kafka refuses acks=0.
    Close,
    /// No answer and no end: a Produce with acks=0 that went well.
    Nothing,
}

/// Where the answer to a call of our own goes: the frame without its length.
pub(super) type Call = oneshot::Sender<Bytes>;

/// What both sides of a connection share.
pub(super) struct Answers {
    state: Mutex<State>,
    changed: Notify,
    drained: Notify,
    /// Ends both sides of the connection.
    pub(super) closed: CancellationToken,
}

#[derive(Default)]
struct State {
    order: AnswerOrder<Answer, Call>,
    /// Whether requests can be sent upstream. Decided under one lock with the order, so that no request is noted
    /// for an upstream connection whose end was already seen.
    upstream_open: bool,
    /// A request that gets no answer went upstream. Then the end of the upstream connection is all that tells the
    /// client of its failure.
    sent_unanswered: bool,
    /// The writer is at an answer that is no longer in the order.
    writing: bool,
}

impl State {
    fn owed_to_client(&self) -> usize {
        self.order.owed_to_client() + usize::from(self.writing)
    }
}

/// Upstream closed its side while it owed nothing: open it again first.
#[derive(Debug)]
pub(super) struct UpstreamNotOpen;

impl Answers {
    pub(super) fn new(closed: CancellationToken) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: Notify::new(), drained: Notify::new(), closed })
    }

    pub(super) fn is_upstream_open(&self) -> bool {
        self.state.lock().upstream_open
    }

    pub(super) fn upstream_opened(&self) {
        let mut state = self.state.lock();
        state.upstream_open = true;
        state.sent_unanswered = false;
    }

    pub(super) fn unanswered_sent(&self) {
        self.state.lock().sent_unanswered = true;
    }

    /// Notes a request that goes upstream as it is and will be answered there.
    pub(super) fn push_forwarded(&self) -> Result<(), UpstreamNotOpen> {
        let mut state = self.state.lock();
        if !state.upstream_open {
            return Err(UpstreamNotOpen);
        }
        state.order.push_forwarded();
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    pub(super) fn push_call(&self, call: Call) -> Result<(), UpstreamNotOpen> {
        let mut state = self.state.lock();
        if !state.upstream_open {
            return Err(UpstreamNotOpen);
        }
        state.order.push_call(call);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    pub(super) fn push_local(&self) -> SlotId {
        self.state.lock().order.push_local()
    }

    pub(super) fn finish(&self, slot: SlotId, answer: Answer) {
        self.state.lock().order.finish(slot, answer);
        self.changed.notify_one();
    }

    pub(super) fn is_owed_to_client(&self) -> bool {
        self.state.lock().owed_to_client() > 0
    }

    /// Waits until at most `limit` answers are owed to the client. Only the reading side waits here.
    pub(super) async fn at_most(&self, limit: usize) {
        while self.state.lock().owed_to_client() > limit {
            tokio::select! {
                () = self.drained.notified() => {}
                () = self.closed.cancelled() => return,
            }
        }
    }

    fn step(&self) -> Step<Answer, Call> {
        let mut state = self.state.lock();
        let step = state.order.step();
        state.writing = matches!(step, Step::WriteLocal(_) | Step::PassUpstream);
        step
    }

    fn written(&self) {
        self.state.lock().writing = false;
        self.drained.notify_one();
    }

    /// Upstream ended. False if that is news for the client: it still owed an answer, or had got a request without one.
    fn upstream_ended(&self) -> bool {
        let mut state = self.state.lock();
        state.upstream_open = false;
        state.order.owed_by_upstream() == 0 && !state.sent_unanswered
    }
}

/// The writing side's end of things.
pub(super) struct Writer {
    pub(super) answers: Arc<Answers>,
    pub(super) client: WriteHalf,
    /// Hands over the reading half whenever an upstream connection was opened.
    pub(super) upstreams: mpsc::Receiver<FrameReader>,
    /// Whether a lost upstream connection may be opened again: not where the client had authenticated on it.
    pub(super) reopens: bool,
}

impl Writer {
    /// Runs until the connection ends.
    pub(super) async fn run(mut self) -> io::Result<()> {
        let closed = self.answers.closed.clone();
        // The reading side closes a connection that ends well only when nothing is owed any more, so nothing is cut
        // off here but what nobody waits for: a client that does not read, an upstream that does not answer.
        tokio::select! {
            biased;
            ended = self.write_all() => ended,
            () = closed.cancelled() => Ok(()),
        }
    }

    async fn write_all(&mut self) -> io::Result<()> {
        let mut upstream: Option<FrameReader> = None;
        loop {
            match self.answers.step() {
                Step::WriteLocal(Answer::Frame(parts)) => write_parts(&mut self.client, parts).await?,
                Step::WriteLocal(Answer::Nothing) => {}
                Step::WriteLocal(Answer::Close) => return flush(&mut self.client).await,
                Step::PassUpstream => {
                    let upstream = newest(&mut upstream, &mut self.upstreams).await?;
                    pass_frame(upstream, &mut self.client).await?;
                }
                Step::TakeCall(call) => {
                    let frame = take_frame(newest(&mut upstream, &mut self.upstreams).await?).await?;
                    // Whoever called may have given up; the answer had to be read all the same.
                    let _ = call.send(frame);
                }
                Step::Wait => {
                    if !self.wait(&mut upstream).await? {
                        return Ok(());
                    }
                    continue;
                }
            }
            // An answer counts as given once it has left our buffers.
            flush(&mut self.client).await?;
            self.answers.written();
        }
    }

    /// Waits for something to do. False at the end of the connection.
    async fn wait(&mut self, upstream: &mut Option<FrameReader>) -> io::Result<bool> {
        tokio::select! {
            biased;
            () = self.answers.changed.notified() => {}
            () = self.answers.closed.cancelled() => return Ok(false),
            fresh = self.upstreams.recv() => match fresh {
                Some(fresh) => *upstream = Some(fresh),
                None => return Ok(false),
            },
            ended = upstream_end(upstream) => {
                *upstream = None;
                if !self.answers.upstream_ended() {
                    return Err(ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
                }
                return Ok(self.reopens);
            }
        }
        Ok(true)
    }
}

/// Resolves when upstream closes the connection; never while it is open.
async fn upstream_end(upstream: &mut Option<FrameReader>) -> io::Result<()> {
    match upstream {
        Some(reader) if reader.buffered().is_empty() => {
            if reader.fill(1).await? {
                // An answer that is not due yet. Whatever makes it due is noted and wakes the writer.
                std::future::pending().await
            }
            Ok(())
        }
        _ => std::future::pending().await,
    }
}

/// The connection that upstream's next answer comes from. One that was opened later replaces an earlier one only
/// after that had ended, so the newest is always the right one.
async fn newest<'a>(
    upstream: &'a mut Option<FrameReader>,
    upstreams: &mut mpsc::Receiver<FrameReader>,
) -> io::Result<&'a mut FrameReader> {
    if upstream.is_none() {
        *upstream = upstreams.recv().await;
    }
    upstream.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// The length of the frame that comes next, which is not consumed.
async fn frame_length(upstream: &mut FrameReader) -> io::Result<usize> {
    if !upstream.fill(4).await? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let length = upstream.buffered().get_i32();
    usize::try_from(length).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "upstream sent a negative length"))
}

async fn pass_frame(upstream: &mut FrameReader, client: &mut WriteHalf) -> io::Result<()> {
    let length = frame_length(upstream).await?;
    upstream.pass(4 + length, client).await
}

/// Answers to calls of our own are metadata; a larger one is not to be believed.
const LARGEST_CALL_ANSWER: usize = 256 * 1024 * 1024;

async fn take_frame(upstream: &mut FrameReader) -> io::Result<Bytes> {
    let length = frame_length(upstream).await?;
    if length > LARGEST_CALL_ANSWER {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "upstream's answer is too large"));
    }
    let mut frame = upstream.take(4 + length).await?;
    frame.advance(4);
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// As over TLS, which takes an answer at once and sends it when it is flushed.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_buffered_and_not_read_ends_the_connection() {
        let (near, _far) = tokio::io::duplex(7);
        let client = WriteHalf::Other(Box::new(tokio::io::BufWriter::new(near)));
        let answers = Answers::new(CancellationToken::new());
        let (_upstreams, opened) = mpsc::channel(1);
        let slot = answers.push_local();
        answers.finish(slot, Answer::Frame(vec![Bytes::from_static(&[0; 100])]));
        let writer = Writer { answers, client, upstreams: opened, reopens: true };
        let ended = tokio::time::timeout(Duration::from_secs(3600), writer.run()).await.expect("it ends");
        assert_eq!(ended.expect_err("nobody reads").kind(), io::ErrorKind::TimedOut);
    }
}
