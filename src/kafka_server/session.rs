//! One client connection as its request handlers see it: who the client is, its own upstream connection, and what
//! upstream lets it do.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::MetadataRequest;
use kafka_protocol::protocol::Request;
use tokio::sync::{mpsc, oneshot};

use super::Proxy;
use super::answers::Answers;
use super::authorization::Grants;
use super::halves::{self, WriteHalf};
use super::stream::{FrameReader, flush, write};
use crate::types::Endpoint;
use crate::upstream::UpstreamStream;
use crate::wire::{self, WireError};

/// Which of our ports the client came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Door {
    /// The virtual broker, which is also the bootstrap address.
    VirtualBroker,
    /// The port that stands for one broker of upstream.
    Mapped { broker_id: i32 },
}

/// Upstream could not be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("no broker of upstream can be reached: {0}")]
    Unreachable(String),
    #[error("upstream closed the connection before it answered")]
    Lost,
    #[error("upstream does not offer API key {0}")]
    NotOffered(i16),
    #[error(transparent)]
    Wire(#[from] WireError),
}

impl From<std::io::Error> for CallError {
    fn from(_: std::io::Error) -> Self {
        Self::Lost
    }
}

/// The longest that upstream may take for a call of ours; topics are created within this time.
const CALL_DEADLINE: Duration = Duration::from_secs(90);

/// The state of one client connection. Owned by its reading side.
pub(super) struct Session {
    pub(super) proxy: Arc<Proxy>,
    pub(super) door: Door,
    pub(super) answers: Arc<Answers>,
    pub(super) grants: Grants,
    /// False until the client has authenticated, where it must.
    pub(super) authenticated: bool,
    /// Upstream has accepted the client's latest SASL token.
    pub(super) token_accepted: bool,
    /// The client has named a library that reads from the replica that an answer to Fetch names (KIP-392).
    pub(super) looks_at_named_replicas: bool,
    upstreams: mpsc::Sender<FrameReader>,
    upstream: Option<WriteHalf>,
    next_call: i32,
}

impl Session {
    pub(super) fn new(
        proxy: Arc<Proxy>,
        door: Door,
        answers: Arc<Answers>,
        upstreams: mpsc::Sender<FrameReader>,
    ) -> Self {
        let authenticated = !proxy.config.listener.sasl;
        let grants = Grants::new(proxy.config.diskless.authorization_cache);
        Self {
            proxy,
            door,
            answers,
            grants,
            authenticated,
            token_accepted: false,
            looks_at_named_replicas: false,
            upstreams,
            upstream: None,
            next_call: 0,
        }
    }

    /// Opens the client's own upstream connection, unless it is open.
    pub(super) async fn open_upstream(&mut self) -> Result<(), CallError> {
        if self.upstream.is_some() && self.answers.is_upstream_open() {
            return Ok(());
        }
        let stream = self.connect().await?;
        let (read, write) = match stream {
            UpstreamStream::Plain(tcp) => halves::of_tcp(tcp),
            UpstreamStream::Tls(tls) => halves::of_stream(tls),
        };
        self.upstream = Some(write);
        self.answers.upstream_opened();
        let reader = FrameReader::new(read, Arc::clone(&self.proxy.buffers));
        self.upstreams.send(reader).await.map_err(|_| CallError::Lost)
    }

    async fn connect(&self) -> Result<UpstreamStream, CallError> {
        let mut reason = "no broker is known".to_owned();
        for endpoint in self.candidates() {
            match self.proxy.cluster.connector().connect(&endpoint).await {
                Ok(stream) => return Ok(stream),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(CallError::Unreachable(reason))
    }

    /// The brokers that will do: the mapped one, or any.
    fn candidates(&self) -> Vec<Endpoint> {
        let cluster = self.proxy.cluster.cluster();
        match self.door {
            Door::Mapped { broker_id } => {
                cluster.brokers.get(&broker_id).map(|b| b.endpoint.clone()).into_iter().collect()
            }
            Door::VirtualBroker => {
                let mut known: Vec<_> = cluster.brokers.values().map(|b| b.endpoint.clone()).collect();
                if known.is_empty() {
                    known.clone_from(&self.proxy.config.upstream.bootstrap_servers);
                }
                let count = known.len().max(1);
                known.rotate_left(rand::random_range(0..count));
                known
            }
        }
    }

    /// The writing half of the upstream connection, noting one forwarded request that will be answered, or none.
    pub(super) async fn forward(&mut self, answered: bool) -> Result<&mut WriteHalf, CallError> {
        loop {
            self.open_upstream().await?;
            if answered && self.answers.push_forwarded().is_err() {
                continue;
            }
            break;
        }
        if !answered {
            self.answers.unanswered_sent();
        }
        self.upstream.as_mut().ok_or(CallError::Lost)
    }

    /// Sends a request of our own on the client's upstream connection, so with the client's identity, and waits for
    /// the answer.
    pub(super) async fn call<R: Request>(
        &mut self,
        version: i16,
        client_id: &str,
        request: &R,
    ) -> Result<R::Response, CallError> {
        // Clients count upward from 0; ours are negative, so that a trace tells them apart.
        self.next_call = if self.next_call == i32::MIN { -1 } else { self.next_call - 1 };
        let frame = wire::encode_request(self.next_call, version, client_id, request)?;
        let answer = self.call_raw(frame).await?;
        let (correlation_id, response) = wire::decode_response_frame::<R>(version, answer)?;
        if correlation_id != self.next_call {
            return Err(CallError::Lost);
        }
        Ok(response)
    }

    /// Sends a whole frame upstream and takes its answer.
    pub(super) async fn call_raw(&mut self, frame: Bytes) -> Result<Bytes, CallError> {
        let answer = loop {
            self.open_upstream().await?;
            let (call, answer) = oneshot::channel();
            if self.answers.push_call(call).is_ok() {
                break answer;
            }
        };
        let upstream = self.upstream.as_mut().ok_or(CallError::Lost)?;
        write(upstream, &frame).await?;
        flush(upstream).await?;
        let answer = tokio::time::timeout(CALL_DEADLINE, answer).await;
        answer.map_err(|_| CallError::Lost)?.map_err(|_| CallError::Lost)
    }

    /// Asks upstream something that it answers only to an authenticated client.
    pub(super) async fn confirm_authentication(&mut self) -> Result<(), CallError> {
        let version = self.version_of::<MetadataRequest>(12)?;
        let nothing = MetadataRequest::default().with_topics(Some(Vec::new())).with_allow_auto_topic_creation(false);
        self.call(version, "sidestream", &nothing).await?;
        self.authenticated = true;
        Ok(())
    }

    /// The highest version of an API, up to `most`, that both we and upstream speak.
    pub(super) fn version_of<R: Request>(&self, most: i16) -> Result<i16, CallError> {
        let offered = self.proxy.offered.load();
        let found = offered.api_keys.iter().find(|k| k.api_key == R::KEY).ok_or(CallError::NotOffered(R::KEY))?;
        let version = found.max_version.min(most).min(R::VERSIONS.max);
        if version >= found.min_version.max(R::VERSIONS.min) { Ok(version) } else { Err(CallError::NotOffered(R::KEY)) }
    }
}
