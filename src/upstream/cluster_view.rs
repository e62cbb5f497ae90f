//! What the proxy knows of the upstream cluster, and one connection of its own to each broker.
//!
//! Refreshed when asked, from any broker that answers. Never retries: callers know what a retry may cost.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use kafka_protocol::messages::{MetadataRequest, MetadataResponse};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::connection::{Connection, Settings, UpstreamError};
use super::connector::Connector;
use crate::tasks::Tasks;
use crate::types::{Endpoint, Rack};

/// A broker of the upstream cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broker {
    pub id: i32,
    pub endpoint: Endpoint,
    pub rack: Option<Rack>,
}

/// The upstream cluster as its last Metadata answer showed it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cluster {
    pub id: String,
    pub controller: Option<i32>,
    pub brokers: BTreeMap<i32, Broker>,
}

impl Cluster {
    /// The cluster part of a Metadata answer that came straight from upstream.
    pub fn from_metadata(metadata: &MetadataResponse) -> Self {
        let broker = |broker: &kafka_protocol::messages::metadata_response::MetadataResponseBroker| {
            let endpoint = Endpoint { host: broker.host.to_string(), port: u16::try_from(broker.port).ok()? };
            let rack = broker.rack.as_ref().map(|rack| rack.to_string());
            Some((*broker.node_id, Broker { id: *broker.node_id, endpoint, rack }))
        };
        Self {
            id: metadata.cluster_id.as_ref().map(|id| id.to_string()).unwrap_or_default(),
            controller: Some(*metadata.controller_id).filter(|id| *id >= 0),
            brokers: metadata.brokers.iter().filter_map(broker).collect(),
        }
    }
}

/// After a failure to connect, those who ask within this time share it: they must not queue up behind a dead
/// address, each for its own timeout.
const RECONNECT_BACKOFF: Duration = Duration::from_millis(250);

/// One address. Locked by whoever opens its connection, so that two do not.
#[derive(Default)]
struct Slot {
    connection: Option<Arc<Connection>>,
    failed: Option<(Instant, UpstreamError)>,
}

/// The handle to the upstream cluster, with the proxy's own credential. Clones share the connections.
#[derive(Clone)]
pub struct ClusterView {
    inner: Arc<Inner>,
}

struct Inner {
    connector: Connector,
    settings: Settings,
    tasks: Tasks,
    bootstrap: Vec<Endpoint>,
    /// Where the next search for a broker that answers begins.
    next: AtomicUsize,
    cluster: ArcSwap<Cluster>,
    /// By address, so that a broker that moved gets a new connection.
    slots: Mutex<HashMap<Endpoint, Arc<tokio::sync::Mutex<Slot>>>>,
}

impl ClusterView {
    /// Knows nothing but the bootstrap addresses until [`Self::refresh`].
    pub fn new(connector: Connector, settings: Settings, bootstrap: Vec<Endpoint>, tasks: Tasks) -> Self {
        let inner = Inner {
            connector,
            settings,
            tasks,
            bootstrap,
            next: AtomicUsize::new(0),
            cluster: ArcSwap::default(),
            slots: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The cluster as last seen.
    pub fn cluster(&self) -> Arc<Cluster> {
        self.inner.cluster.load_full()
    }

    /// Opens streams to the same brokers without SASL, for clients' own traffic.
    pub fn connector(&self) -> &Connector {
        &self.inner.connector
    }

    /// Asks a broker for the cluster, and remembers it.
    pub async fn refresh(&self) -> Result<Arc<Cluster>, UpstreamError> {
        let connection = self.any().await?;
        let version = connection.highest_version::<MetadataRequest>(12)?;
        // No topics: an empty list since version 1, while version 0 has no way to say so.
        let request =
            MetadataRequest::default().with_topics(Some(Vec::new())).with_allow_auto_topic_creation(version < 4);
        let metadata = connection.request(&request, version).await?;
        self.learn(&metadata);
        Ok(self.cluster())
    }

    /// Takes the brokers from a Metadata answer that came straight from upstream.
    pub fn learn(&self, metadata: &MetadataResponse) {
        if metadata.brokers.is_empty() {
            return;
        }
        let cluster = Arc::new(Cluster::from_metadata(metadata));
        let known: Vec<Endpoint> = cluster.brokers.values().map(|broker| broker.endpoint.clone()).collect();
        self.inner.cluster.store(cluster);
        let bootstrap = &self.inner.bootstrap;
        self.inner.slots.lock().retain(|endpoint, _| known.contains(endpoint) || bootstrap.contains(endpoint));
    }

    /// A connection to this broker.
    pub async fn broker(&self, id: i32) -> Result<Arc<Connection>, UpstreamError> {
        let endpoint = self.cluster().brokers.get(&id).map(|broker| broker.endpoint.clone());
        match endpoint {
            Some(endpoint) => self.connection(&endpoint).await,
            None => {
                Err(UpstreamError::NotSent { broker: id.to_string(), reason: "no such broker is known".to_owned() })
            }
        }
    }

    /// A connection to the controller, or to any broker where none is known: brokers forward.
    pub async fn controller(&self) -> Result<Arc<Connection>, UpstreamError> {
        match self.cluster().controller {
            Some(id) => self.broker(id).await,
            None => self.any().await,
        }
    }

    /// A connection to some broker: each known one is tried once, then each bootstrap address.
    pub async fn any(&self) -> Result<Arc<Connection>, UpstreamError> {
        let cluster = self.cluster();
        let known: Vec<&Endpoint> = cluster.brokers.values().map(|broker| &broker.endpoint).collect();
        let start = self.inner.next.load(Ordering::Relaxed);
        let in_turn = |list: &[&Endpoint]| -> Vec<Endpoint> {
            (0..list.len()).map(|n| list[(start + n) % list.len()].clone()).collect()
        };
        let bootstrap: Vec<&Endpoint> = self.inner.bootstrap.iter().collect();
        let mut last_error = None;
        for endpoint in in_turn(&known).into_iter().chain(in_turn(&bootstrap)) {
            match self.connection(&endpoint).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last_error = Some(error),
            }
            self.inner.next.fetch_add(1, Ordering::Relaxed);
        }
        Err(last_error.unwrap_or_else(|| UpstreamError::NotSent {
            broker: "(none)".to_owned(),
            reason: "no upstream address is configured".to_owned(),
        }))
    }

    /// The connection to an address, opened if there is none that works.
    async fn connection(&self, endpoint: &Endpoint) -> Result<Arc<Connection>, UpstreamError> {
        let slot = Arc::clone(self.inner.slots.lock().entry(endpoint.clone()).or_default());
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.connection.as_ref().filter(|connection| connection.is_usable()) {
            return Ok(Arc::clone(connection));
        }
        if let Some((at, error)) = slot.failed.as_ref().filter(|(at, _)| at.elapsed() < RECONNECT_BACKOFF) {
            tracing::trace!(%endpoint, ago_ms = at.elapsed().as_millis(), "connecting failed a moment ago");
            return Err(error.clone());
        }
        // Let go of the old one first, so that a failure to reconnect does not keep it.
        slot.connection = None;
        let inner = &self.inner;
        match Connection::open(&inner.connector, endpoint, inner.settings, &inner.tasks).await {
            Ok(opened) => {
                let opened = Arc::new(opened);
                *slot = Slot { connection: Some(Arc::clone(&opened)), failed: None };
                Ok(opened)
            }
            Err(error) => {
                slot.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests;
