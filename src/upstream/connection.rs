//! One connection to one broker with the proxy's own credential: pipelined, answered in order.
//!
//! Poisoned by its first error: what was written then has an unknown outcome, what was not written was not sent,
//! and nothing more is taken. Open another one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::Request;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::connector::{ConnectError, Connector};
use super::frame_io::read_response_frame;
use super::sasl;
use crate::tasks::Tasks;
use crate::types::Endpoint;
use crate::wire::api_versions::{Api, parse_upstream_api_versions};
use crate::wire::frame::DEFAULT_MAX_FRAME_BYTES;
use crate::wire::{StrBytes, WireError, decode_response_frame, encode_request};

/// Requests that wait to be written.
const QUEUE: usize = 64;
const CLIENT_ID: &str = "sidestream";

/// Limits of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// From handing a request over to its response.
    pub request_timeout: Duration,
    pub max_response_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { request_timeout: Duration::from_secs(30), max_response_bytes: DEFAULT_MAX_FRAME_BYTES }
    }
}

/// A request failed; the variant says what is known about its effect.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpstreamError {
    /// It was not carried out.
    #[error("not sent to upstream broker {broker}: {reason}")]
    NotSent { broker: String, reason: String },
    /// It may have been carried out.
    #[error("no answer from upstream broker {broker}, which may have carried out the request: {reason}")]
    Unknown { broker: String, reason: String },
}

impl UpstreamError {
    pub fn may_have_been_carried_out(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

impl From<ConnectError> for UpstreamError {
    fn from(error: ConnectError) -> Self {
        let (ConnectError::Failed { endpoint, .. }
        | ConnectError::TimedOut { endpoint, .. }
        | ConnectError::BadName { endpoint }) = &error;
        Self::NotSent { broker: endpoint.to_string(), reason: error.to_string() }
    }
}

/// Whether a request had been written when its connection failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Written {
    No,
    /// In part at least.
    Yes,
}

struct Outgoing {
    correlation_id: i32,
    frame: Bytes,
    reply: Reply,
}

type Reply = oneshot::Sender<Result<Bytes, (Written, String)>>;

/// What the connection's task and its users share.
struct Shared {
    /// Written requests in order, each waiting for its response.
    waiting: Mutex<VecDeque<(i32, Reply)>>,
    /// The first error.
    failure: Mutex<Option<String>>,
    poisoned: CancellationToken,
}

impl Shared {
    fn poison(&self, reason: String) {
        self.failure.lock().get_or_insert(reason);
        self.poisoned.cancel();
    }

    fn reason(&self) -> String {
        self.failure.lock().clone().unwrap_or_else(|| "the connection was closed".to_owned())
    }
}

/// A connection that is logged in. Closes when dropped.
pub struct Connection {
    endpoint: Endpoint,
    outgoing: mpsc::Sender<Outgoing>,
    shared: Arc<Shared>,
    next_correlation_id: std::sync::atomic::AtomicI32,
    api_versions: ApiVersionsResponse,
    /// When the session must not be used any more, since the broker ends it soon after.
    session_ends: Option<Instant>,
    settings: Settings,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.poison("the connection was closed here".to_owned());
    }
}

impl Connection {
    /// Connects, asks for the broker's versions, and logs in.
    pub async fn open(
        connector: &Connector,
        endpoint: &Endpoint,
        settings: Settings,
        tasks: &Tasks,
    ) -> Result<Self, UpstreamError> {
        Self::open_logged_in(connector, endpoint, settings, tasks).await.map_err(|error| match error {
            // Whatever happened to the greeting, no caller's request was sent yet.
            UpstreamError::Unknown { broker, reason } => UpstreamError::NotSent { broker, reason },
            error => error,
        })
    }

    async fn open_logged_in(
        connector: &Connector,
        endpoint: &Endpoint,
        settings: Settings,
        tasks: &Tasks,
    ) -> Result<Self, UpstreamError> {
        let stream = connector.connect(endpoint).await?;
        let mut connection = Self::start(stream, endpoint.clone(), settings, tasks);
        connection.api_versions = connection.ask_api_versions().await?;
        if connector.security().protocol.uses_sasl() {
            let lifetime = sasl::authenticate(&connection, connector.security()).await?;
            // As Kafka's clients: leave well before the end.
            connection.session_ends = lifetime.map(|lifetime| Instant::now() + lifetime.mul_f64(0.8));
        }
        Ok(connection)
    }

    fn start(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        endpoint: Endpoint,
        settings: Settings,
        tasks: &Tasks,
    ) -> Self {
        let (outgoing, queue) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            failure: Mutex::default(),
            poisoned: tasks.stop_token().child_token(),
        });
        tasks.spawn_bounded("upstream connection", run(stream, queue, Arc::clone(&shared), settings));
        Self {
            endpoint,
            outgoing,
            shared,
            next_correlation_id: 0.into(),
            api_versions: ApiVersionsResponse::default(),
            session_ends: None,
            settings,
        }
    }

    /// The broker's own answer, as it gave it.
    pub fn api_versions(&self) -> &ApiVersionsResponse {
        &self.api_versions
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether another request may be tried.
    pub fn is_usable(&self) -> bool {
        !self.shared.poisoned.is_cancelled() && !self.session_is_over()
    }

    fn session_is_over(&self) -> bool {
        self.session_ends.is_some_and(|end| Instant::now() >= end)
    }

    /// The highest version of a request that the broker, the decoder, our table and the caller know.
    pub fn highest_version<T: Request>(&self, caller_knows: i16) -> Result<i16, UpstreamError> {
        let offered = self.api_versions.api_keys.iter().find(|key| key.api_key == T::KEY);
        let (ours, decoder) = (Api::of(T::KEY), T::VERSIONS);
        let range = offered.map(|offered| {
            let last = offered.max_version.min(ours.last).min(decoder.max).min(caller_knows);
            (offered.min_version.max(decoder.min), last)
        });
        match range {
            Some((first, last)) if first <= last => Ok(last),
            _ => Err(self.not_sent(format!("no version of API key {} in common", T::KEY))),
        }
    }

    /// Sends a request in a version and waits for its response.
    pub async fn request<T: Request>(&self, request: &T, version: i16) -> Result<T::Response, UpstreamError> {
        let frame = self.exchange(request, version).await?;
        let (_, response) = decode_response_frame::<T>(version, frame).map_err(|error| self.unreadable(&error))?;
        Ok(response)
    }

    /// A failure before anything was sent.
    pub(super) fn not_sent(&self, reason: String) -> UpstreamError {
        UpstreamError::NotSent { broker: self.endpoint.to_string(), reason }
    }

    fn unknown(&self, reason: String) -> UpstreamError {
        UpstreamError::Unknown { broker: self.endpoint.to_string(), reason }
    }

    fn unreadable(&self, error: &WireError) -> UpstreamError {
        let reason = format!("its answer cannot be read: {error}");
        self.shared.poison(reason.clone());
        self.unknown(reason)
    }

    /// Sends a request and gives the response frame, whose correlation id is right.
    async fn exchange<T: Request>(&self, request: &T, version: i16) -> Result<Bytes, UpstreamError> {
        if self.session_is_over() {
            return Err(self.not_sent("the session is about to end".to_owned()));
        }
        if self.shared.poisoned.is_cancelled() {
            return Err(self.not_sent(self.shared.reason()));
        }
        let correlation_id = self.next_correlation_id.fetch_add(1, std::sync::atomic::Ordering::Relaxed) & i32::MAX;
        let frame = encode_request(correlation_id, version, CLIENT_ID, request)
            .map_err(|error| self.not_sent(error.to_string()))?;
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + self.settings.request_timeout;
        let sent = tokio::time::timeout_at(deadline, self.outgoing.send(Outgoing { correlation_id, frame, reply }));
        match sent.await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(self.not_sent(self.shared.reason())),
            Err(_) => return Err(self.not_sent("the connection's queue stayed full".to_owned())),
        }
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(Ok(frame))) => Ok(frame),
            Ok(Ok(Err((Written::No, reason)))) => Err(self.not_sent(reason)),
            Ok(Ok(Err((Written::Yes, reason)))) => Err(self.unknown(reason)),
            // The task ended without a word: it was stopped, or it panicked.
            Ok(Err(_)) => Err(self.unknown(self.shared.reason())),
            Err(_) => {
                let reason = format!("no response within {} ms", self.settings.request_timeout.as_millis());
                self.shared.poison(reason.clone());
                Err(self.unknown(reason))
            }
        }
    }

    /// The newest version first: only it shows features that begin at 0. A broker that does not know a version
    /// answers in version 0, and is asked again.
    async fn ask_api_versions(&self) -> Result<ApiVersionsResponse, UpstreamError> {
        let named = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("sidestream"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        for (request, version) in [(&named, 4), (&named, 3), (&ApiVersionsRequest::default(), 0)] {
            let frame = self.exchange(request, version).await?;
            // The header of this response is the oldest in every version: the correlation id alone.
            match parse_upstream_api_versions(version, frame.slice(4..)) {
                Ok(answer) if answer.error_code == 0 => return Ok(answer),
                Ok(answer) if version == 0 => {
                    return Err(self.not_sent(format!("ApiVersions is refused with error {}", answer.error_code)));
                }
                Err(error) if version == 0 => return Err(self.unreadable(&error)),
                _ => {}
            }
        }
        Err(self.not_sent("the broker names no versions".to_owned()))
    }
}

/// The connection's task: writes, reads, and at the first error tells everyone who waits.
async fn run(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    mut queue: mpsc::Receiver<Outgoing>,
    shared: Arc<Shared>,
    settings: Settings,
) {
    let (mut from, mut to) = tokio::io::split(stream);
    let poisoned = shared.poisoned.clone();
    tokio::select! {
        biased;
        () = poisoned.cancelled() => {}
        reason = write(&mut to, &mut queue, &shared) => shared.poison(reason),
        reason = read(&mut from, &shared, settings.max_response_bytes) => shared.poison(reason),
    }
    queue.close();
    let reason = shared.reason();
    for (_, reply) in std::mem::take(&mut *shared.waiting.lock()) {
        let _ = reply.send(Err((Written::Yes, reason.clone())));
    }
    while let Ok(outgoing) = queue.try_recv() {
        let _ = outgoing.reply.send(Err((Written::No, reason.clone())));
    }
    // A peer that no longer reads must not hold the task.
    let _ = timeout(Duration::from_secs(1), to.shutdown()).await;
}

async fn write(to: &mut (impl AsyncWrite + Unpin), queue: &mut mpsc::Receiver<Outgoing>, shared: &Shared) -> String {
    while let Some(outgoing) = queue.recv().await {
        // Before the first byte: from here on the outcome is unknown until the response is here.
        shared.waiting.lock().push_back((outgoing.correlation_id, outgoing.reply));
        let written = async {
            to.write_all(&outgoing.frame).await?;
            to.flush().await
        };
        if let Err(error) = written.await {
            return format!("cannot write: {error}");
        }
    }
    "the connection was closed here".to_owned()
}

async fn read(from: &mut (impl AsyncRead + Unpin), shared: &Shared, limit: usize) -> String {
    loop {
        let frame = match read_response_frame(from, limit).await {
            Ok(Some(frame)) => frame,
            Ok(None) => return "the broker closed the connection".to_owned(),
            Err(error) => return format!("cannot read: {error}"),
        };
        // A response frame is never shorter than its correlation id.
        let correlation_id = frame.first_chunk().copied().map(i32::from_be_bytes);
        let Some((expected, reply)) = shared.waiting.lock().pop_front() else {
            return "the broker answered what was not asked".to_owned();
        };
        if correlation_id != Some(expected) {
            let reason = "the broker answered out of order".to_owned();
            let _ = reply.send(Err((Written::Yes, reason.clone())));
            return reason;
        }
        // Whoever asked may have stopped waiting.
        let _ = reply.send(Ok(frame));
    }
}

#[cfg(test)]
mod tests;
