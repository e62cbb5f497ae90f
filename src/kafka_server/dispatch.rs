//! Who answers which request: one match, each arm one call.

use bytes::Bytes;
use futures::future::BoxFuture;
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::Request;

use super::answers::Answer;
use super::handlers::{admin, broker, fetch, metadata, produce, records, sasl, topics};
use super::memory::Reserved;
use super::session::{CallError, Door, Session};
use crate::wire::api_versions::{Api, Handler, Listener, PRODUCE};
use crate::wire::frame::RequestHeader;
use crate::wire::{self, WireError};

/// What the reading side does with a request.
pub(super) enum Route {
    /// Streams it upstream unread.
    Forward { answered: bool },
    /// Streams it upstream while looking for topic names.
    ForwardProduce,
    /// Collects it and has it handled.
    Local,
    /// Ends the connection.
    Refuse(Refused),
}

/// A request that ends the connection, as Kafka ends it.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("a client sent a request with API key {api_key} before it had authenticated")]
    NotAuthenticated { api_key: i16 },
    #[error("a client sent API key {api_key}, which is not served here")]
    NotForClients { api_key: i16 },
    #[error("a client sent API key {api_key} in version {version}, which was not offered")]
    Version { api_key: i16, version: i16 },
    #[error(
        "a client sent records of the diskless topic {topic:?} to a broker of upstream; it will fetch fresh metadata and retry"
    )]
    MisroutedProduce { topic: String },
    #[error("a client sent a Fetch as a replica; only brokers may")]
    FetchAsReplica,
    #[error(
        "a client sent a SASL handshake of version 0, whose tokens have no frames; use a client that speaks version 1 (Kafka 1.0)"
    )]
    SaslHandshakeV0,
}

/// What became of a request that was handled here.
pub(super) enum Reply {
    Now(Answer),
    /// The answer takes a while; the next request is read meanwhile.
    Later(BoxFuture<'static, Answer>),
    /// It is upstream's to answer; this whole frame (with its length) goes there.
    Forward(Bytes),
}

/// A request that was collected.
pub(super) struct Incoming {
    pub(super) header: RequestHeader,
    /// The whole frame, without its length.
    pub(super) frame: Bytes,
    /// The room that the frame takes; given back when the request is answered.
    _memory: Reserved,
}

impl Incoming {
    pub(super) fn new(header: RequestHeader, frame: Bytes, memory: Reserved) -> Self {
        Self { header, frame, _memory: memory }
    }

    pub(super) fn version(&self) -> i16 {
        self.header.api_version
    }

    pub(super) fn body(&self) -> Bytes {
        self.frame.slice(self.header.body_start..)
    }

    pub(super) fn client_id(&self) -> String {
        let bytes = self.header.client_id.clone().map_or(&[][..], |range| &self.frame[range]);
        String::from_utf8_lossy(bytes).into_owned()
    }

    pub(super) fn decode<R: Request>(&self) -> Result<R, WireError> {
        wire::decode_request(self.version(), self.body())
    }

    /// An answer in the version that was asked.
    pub(super) fn answer<R: Request>(&self, response: &R::Response) -> Result<Reply, HandleError> {
        let frame = wire::encode_response::<R>(self.header.correlation_id, self.version(), response)?;
        Ok(Reply::Now(Answer::Frame(vec![frame])))
    }

    /// The frame as it came, to be passed on.
    pub(super) fn forward(&self) -> Reply {
        let mut whole = Vec::with_capacity(4 + self.frame.len());
        whole.extend_from_slice(&u32::try_from(self.frame.len()).unwrap_or(u32::MAX).to_be_bytes());
        whole.extend_from_slice(&self.frame);
        Reply::Forward(whole.into())
    }
}

/// Why a request could not be answered; ends the connection, so that the client tries again.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandleError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl From<HandleError> for super::connection::Ended {
    fn from(error: HandleError) -> Self {
        match error {
            HandleError::Wire(e) => Self::Wire(e),
            HandleError::Call(e) => Self::Upstream(e),
            HandleError::Refused(e) => Self::Refused(e),
        }
    }
}

/// ApiVersions, SaslHandshake and SaslAuthenticate.
pub(super) fn is_allowed_before_authentication(header: &RequestHeader) -> bool {
    matches!(
        ApiKey::try_from(header.api_key),
        Ok(ApiKey::ApiVersions | ApiKey::SaslHandshake | ApiKey::SaslAuthenticate)
    )
}

pub(super) fn route(session: &Session, header: &RequestHeader) -> Route {
    let (api_key, version) = (header.api_key, header.api_version);
    let listener = match session.door {
        Door::VirtualBroker => Listener::VirtualBroker,
        Door::Mapped { .. } => Listener::Mapped,
    };
    if is_allowed_before_authentication(header) {
        return Route::Local;
    }
    if !session.authenticated {
        return Route::Refuse(Refused::NotAuthenticated { api_key });
    }
    let api = Api::of(api_key);
    match api.handler(listener) {
        Handler::Blocked => Route::Refuse(Refused::NotForClients { api_key }),
        // The caps hold for everyone, also for a client that did not ask for our versions.
        _ if !api.speaks(version) => Route::Refuse(Refused::Version { api_key, version }),
        Handler::Upstream => Route::Forward { answered: true },
        Handler::Inspect if api_key == PRODUCE => Route::ForwardProduce,
        Handler::Inspect | Handler::Rewrite | Handler::Local => Route::Local,
    }
}

/// Answers a request that was collected.
pub(super) async fn handle(session: &mut Session, request: Incoming) -> Result<Reply, HandleError> {
    // Only keys that `route` sends here arrive.
    let Ok(key) = ApiKey::try_from(request.header.api_key) else {
        return Err(Refused::NotForClients { api_key: request.header.api_key }.into());
    };
    match key {
        ApiKey::Produce => produce::produce(session, request).await,
        ApiKey::Fetch => fetch::fetch(session, request).await,
        // What these hold while they wait is large, and every connection, also an idle one, would keep room for it.
        _ => Box::pin(control(session, key, request)).await,
    }
}

/// Answers a request that moves no records.
async fn control(session: &mut Session, key: ApiKey, request: Incoming) -> Result<Reply, HandleError> {
    let virtual_broker = session.door == Door::VirtualBroker;
    match key {
        ApiKey::ApiVersions => broker::api_versions(session, &request),
        ApiKey::SaslHandshake => sasl::handshake(session, &request).await,
        ApiKey::SaslAuthenticate => sasl::authenticate(session, &request).await,
        ApiKey::ListOffsets => records::list_offsets(session, &request).await,
        ApiKey::OffsetForLeaderEpoch => records::offset_for_leader_epoch(session, &request).await,
        ApiKey::DeleteRecords => records::delete_records(session, &request).await,
        ApiKey::DescribeProducers => records::describe_producers(session, &request).await,
        ApiKey::Metadata => metadata::metadata(session, &request).await,
        ApiKey::FindCoordinator => metadata::find_coordinator(session, &request).await,
        ApiKey::DescribeCluster => metadata::describe_cluster(session, &request).await,
        ApiKey::DescribeTopicPartitions => metadata::describe_topic_partitions(session, &request).await,
        ApiKey::CreateTopics => topics::create(session, &request).await,
        ApiKey::DeleteTopics => topics::delete(session, &request).await,
        ApiKey::CreatePartitions => topics::create_partitions(session, &request).await,
        ApiKey::WriteTxnMarkers => topics::write_txn_markers(session, &request).await,
        ApiKey::AddPartitionsToTxn => topics::add_partitions_to_txn(session, &request).await,
        ApiKey::DescribeConfigs => admin::describe_configs(session, &request).await,
        ApiKey::AlterConfigs => admin::alter_configs(session, &request).await,
        ApiKey::IncrementalAlterConfigs => admin::incremental_alter_configs(session, &request).await,
        ApiKey::ListGroups if virtual_broker => broker::list_groups(&request),
        ApiKey::ListTransactions if virtual_broker => broker::list_transactions(&request),
        ApiKey::DescribeLogDirs if virtual_broker => broker::describe_log_dirs(session, &request).await,
        _ => Ok(request.forward()),
    }
}
