//! The reading side of one client connection: takes requests one after another, passes them on or has them answered.
//!
//! A request is begun only when the one before it is answered or on its way upstream, as in a broker; Produce to
//! diskless topics alone is read ahead, since its answer takes an upload. The bytes of a request are believed only
//! after they were checked; what is not handled here streams through without being collected.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Proxy;
use super::answers::{Answers, Writer};
use super::buffers::Buffer;
use super::dispatch::{self, Incoming, Refused, Reply, Route};
use super::halves::{ReadHalf, WriteHalf};
use super::memory::Reserved;
use super::session::{CallError, Door, Session};
use super::stream::{FrameReader, flush, write};
use crate::topic_catalog::TopicCatalog;
use crate::wire::WireError;
use crate::wire::api_versions;
use crate::wire::frame::{self, FrameError, RequestHeader, UNAUTHENTICATED_MAX_FRAME_BYTES, parse_request_header};
use crate::wire::produce_skim::{ProduceSkim, Skimmed};

/// Answers that one client may be owed before its next request is read.
const MOST_OWED: usize = 256;
/// The longest header that is looked for: a client id is at most 32 KiB.
const LONGEST_HEADER: usize = 40 * 1024;
/// So much of a Produce is looked at before any of it is passed on.
const LOOKED_AT: usize = 64 * 1024;
/// Requests up to this size are held without asking for memory.
const SMALL_FRAME: usize = 64 * 1024;
/// What a byte of a request can become when it is decoded: an empty string in an array, for one.
const DECODED_PER_BYTE: usize = 36;
/// Requests up to this size are decoded without asking for memory.
const UNCHARGED: usize = 1024;
/// Room for this much of a large frame is asked for at once.
const LARGEST_PART: usize = 4 * 1024 * 1024;
/// A frame that was begun must be complete within this time.
const FRAME_DEADLINE: Duration = Duration::from_secs(60);
/// A client that asks nothing for this long is let go, as brokers do (`connections.max.idle.ms`).
const IDLE_DEADLINE: Duration = Duration::from_secs(600);
/// How long answers that are owed are waited for when the connection is drained.
const DRAIN_DEADLINE: Duration = Duration::from_secs(20);

/// Why a connection ended, other than by the client closing it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Frame(#[from] FrameError),
    #[error("a request is not valid: {0}")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Upstream(#[from] CallError),
    #[error("{0}")]
    Refused(#[from] Refused),
    #[error("a request was begun but not finished within {} s", FRAME_DEADLINE.as_secs())]
    Stalled,
}

/// Serves one client until it leaves, misbehaves, or the proxy drains.
pub(super) async fn serve(proxy: Arc<Proxy>, door: Door, read: ReadHalf, write: WriteHalf) {
    let stop = proxy.tasks.stop_token();
    let closed = CancellationToken::new();
    let answers = Answers::new(closed.clone());
    let (upstreams, opened) = mpsc::channel(1);
    let reopens = !proxy.config.listener.sasl;
    let writer = Writer { answers: Arc::clone(&answers), client: write, upstreams: opened, reopens };
    let writing = {
        let closed = closed.clone();
        async move {
            let result = writer.run().await;
            closed.cancel();
            result
        }
    };
    let client = FrameReader::new(read, Arc::clone(&proxy.buffers));
    let mut connection = Connection { session: Session::new(proxy, door, Arc::clone(&answers), upstreams), client };
    let reading = async {
        let ended = connection.read_requests(&stop).await;
        if ended.is_ok() {
            // The client may have finished sending and still wait for its answers.
            let _ = tokio::time::timeout(DRAIN_DEADLINE, answers.at_most(0)).await;
        }
        closed.cancel();
        ended
    };
    let (ended, written) = tokio::join!(reading, writing);
    if let Err(reason) = ended {
        log_end(&reason);
    } else if let Err(error) = written {
        tracing::debug!(%error, "the connection to the client or its upstream ended");
    }
}

/// Connections that break are everyday; requests that make no sense are worth a line.
fn log_end(reason: &Ended) {
    match reason {
        Ended::Io(_) | Ended::Upstream(CallError::Lost) => tracing::debug!(%reason, "a client connection ended"),
        _ => tracing::warn!(%reason, "a client connection was closed"),
    }
}

struct Connection {
    session: Session,
    client: FrameReader,
}

impl Connection {
    async fn read_requests(&mut self, stop: &CancellationToken) -> Result<(), Ended> {
        let closed = self.session.answers.closed.clone();
        loop {
            self.session.answers.at_most(MOST_OWED).await;
            let more = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                () = closed.cancelled() => return Ok(()),
                more = tokio::time::timeout(IDLE_DEADLINE, self.client.fill(4)) => more,
            };
            match more {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Ok(()),
                Ok(Err(error)) => return Err(error.into()),
                // A client that waits for its answer is not idle.
                Err(_) if self.session.answers.is_owed_to_client() => continue,
                Err(_) => return Ok(()),
            }
            tokio::select! {
                biased;
                () = closed.cancelled() => return Ok(()),
                ended = self.one_request() => ended?,
            }
        }
    }

    async fn one_request(&mut self) -> Result<(), Ended> {
        let limit = self.frame_limit();
        let length = frame::request_length(self.client.buffered().get_u32().to_be_bytes(), limit)?;
        let header = timely(self.header(length)).await?;
        if !self.session.authenticated
            && self.session.token_accepted
            && !dispatch::is_allowed_before_authentication(&header)
        {
            self.session.confirm_authentication().await?;
        }
        match dispatch::route(&self.session, &header) {
            Route::Forward { answered } => self.forward(length, answered).await,
            Route::ForwardProduce => self.forward_produce(length, &header).await,
            Route::Local => self.handle(length, &header).await,
            Route::Refuse(refused) => Err(refused.into()),
        }
    }

    fn frame_limit(&self) -> usize {
        let limit = self.session.proxy.config.listener.max_frame_bytes;
        if self.session.authenticated { limit } else { limit.min(UNAUTHENTICATED_MAX_FRAME_BYTES) }
    }

    /// The request's header; nothing is consumed.
    async fn header(&mut self, length: usize) -> Result<RequestHeader, Ended> {
        let mut wanted = length.min(64);
        loop {
            self.client.fill(4 + wanted).await?;
            let available = self.client.buffered().len().min(4 + length);
            match parse_request_header(&self.client.buffered()[4..available]) {
                Err(error) if frame::may_be_cut(&error) && wanted < length.min(LONGEST_HEADER) => {
                    wanted = length.min(wanted * 4).min(LONGEST_HEADER).max(available - 4);
                }
                header => return Ok(header?),
            }
        }
    }

    /// Passes a request on as it is.
    async fn forward(&mut self, length: usize, answered: bool) -> Result<(), Ended> {
        let upstream = self.session.forward(answered).await?;
        self.client.pass(4 + length, upstream).await?;
        flush(upstream).await?;
        Ok(())
    }

    /// Passes a Produce on while looking for the names of topics that upstream must not be given records for.
    ///
    /// Names found before anything was sent are answered here; one found later breaks both connections before the
    /// frame is whole, and a broker acts only on whole frames.
    async fn forward_produce(&mut self, length: usize, header: &RequestHeader) -> Result<(), Ended> {
        let total = 4 + length;
        let begun = timely(async { Ok(self.client.begin(total.min(LOOKED_AT)).await?) }).await?;
        let catalog = Arc::clone(&self.session.proxy.catalog);
        let mut look = Look {
            skim: ProduceSkim::new(header.api_version, length - header.body_start)?,
            acks: None,
            withheld: None,
        };
        look.feed(&begun.bytes[4 + header.body_start..], &catalog)?;
        if look.withheld.is_some() {
            let (frame, memory) = self.collect(total, Some(begun)).await?;
            return self.answer(header, frame, memory).await;
        }
        // `acks` stands before the first topic, so it has passed: the part that was looked at is larger than any
        // header and transactional id together.
        let answered = look.acks != Some(0);
        let upstream = self.session.forward(answered).await?;
        let mut left = total - begun.bytes.len();
        write(upstream, &begun.bytes).await?;
        drop(begun);
        while left > 0 {
            // Records are passed over, so they need not come through here.
            let records = look.skim.unseen();
            if self.client.splice(records, upstream).await? {
                look.skim.pass_over(records)?;
                left -= records;
                continue;
            }
            let piece = self.client.piece(left).await?;
            left -= piece.bytes.len();
            look.feed(&piece.bytes, &catalog)?;
            if let Some(topic) = look.withheld {
                return Err(Refused::MisroutedProduce { topic }.into());
            }
            write(upstream, &piece.bytes).await?;
        }
        flush(upstream).await?;
        Ok(())
    }

    /// Takes the rest of a frame. Small ones are bounded by the number of connections; they must not wait behind large
    /// ones. For those, memory is asked for as they come: never more than as much again as has come.
    async fn collect(&mut self, total: usize, begun: Option<Buffer>) -> Result<(Bytes, Reserved), Ended> {
        let mut memory = Reserved::default();
        let mut left = FRAME_DEADLINE;
        let mut frame = self.client.make_room(begun, total);
        let mut part = total.min(SMALL_FRAME).max(frame.bytes.len());
        loop {
            let at = Instant::now();
            tokio::time::timeout(left, self.client.read_up_to(&mut frame, part))
                .await
                .map_err(|_| Ended::Stalled)??;
            left = left.saturating_sub(at.elapsed());
            if part == total {
                return Ok((frame.freeze(), memory));
            }
            let more = part.min(LARGEST_PART).min(total - part);
            self.session.proxy.request_memory.grow(&mut memory, more).await;
            part += more;
        }
    }

    /// Takes a whole request, to be answered here or passed on after a look at it.
    async fn handle(&mut self, length: usize, header: &RequestHeader) -> Result<(), Ended> {
        if header.api_key == api_versions::FETCH {
            // The answer to a Fetch is large: a client that does not read must not have several of them made.
            self.session.answers.at_most(0).await;
        }
        let total = 4 + length;
        let (frame, mut memory) = if total <= SMALL_FRAME {
            (timely(async { Ok(self.client.take(total).await?) }).await?, Reserved::default())
        } else {
            self.collect(total, None).await?
        };
        // Records stay as they came; all else is decoded, which can take many times the room.
        if total > UNCHARGED && !matches!(header.api_key, api_versions::PRODUCE | api_versions::FETCH) {
            self.session.proxy.request_memory.grow(&mut memory, total * DECODED_PER_BYTE).await;
        }
        self.answer(header, frame, memory).await
    }

    async fn answer(&mut self, header: &RequestHeader, mut frame: Bytes, memory: Reserved) -> Result<(), Ended> {
        frame.advance(4);
        let request = Incoming::new(header.clone(), frame, memory);
        match dispatch::handle(&mut self.session, request).await? {
            Reply::Now(answer) => {
                let slot = self.session.answers.push_local();
                self.session.answers.finish(slot, answer);
            }
            Reply::Later(answer) => {
                let slot = self.session.answers.push_local();
                let answers = Arc::clone(&self.session.answers);
                self.session.proxy.tasks.spawn_bounded("produce answer", async move {
                    answers.finish(slot, answer.await);
                });
            }
            Reply::Forward(frame) => {
                let upstream = self.session.forward(true).await?;
                write(upstream, &frame).await?;
                flush(upstream).await?;
            }
        }
        Ok(())
    }
}

/// What a Produce on its way upstream has shown so far.
struct Look {
    skim: ProduceSkim,
    acks: Option<i16>,
    withheld: Option<String>,
}

impl Look {
    fn feed(&mut self, chunk: &[u8], catalog: &TopicCatalog) -> Result<(), WireError> {
        self.skim.feed(chunk, |seen| match seen {
            Skimmed::Acks(acks) => self.acks = Some(acks),
            Skimmed::Topic(name) => {
                if let Ok(name) = std::str::from_utf8(name)
                    && catalog.is_withheld(name)
                {
                    self.withheld = Some(name.to_owned());
                }
            }
        })
    }
}

/// Ends a wait for the rest of a frame that does not come.
async fn timely<T>(wait: impl Future<Output = Result<T, Ended>>) -> Result<T, Ended> {
    tokio::time::timeout(FRAME_DEADLINE, wait).await.map_err(|_| Ended::Stalled)?
}
