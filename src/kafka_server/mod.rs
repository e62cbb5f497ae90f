//! The doors for Kafka clients: the virtual broker, which is also the bootstrap address, and one mapped listener for each
//! broker of upstream.
//!
//! Clients group their requests by leader, so requests for diskless partitions come to the virtual broker and requests
//! for classic ones to mapped listeners; nothing needs to be split or merged.

mod answers;
mod authorization;
mod buffers;
mod connection;
mod dispatch;
mod halves;
mod handlers;
mod listener;
mod mapped;
mod memory;
mod order;
mod session;
mod splice;
mod stats;
mod stream;

use std::sync::Arc;

use arc_swap::ArcSwap;
use kafka_protocol::messages::ApiVersionsResponse;
use parking_lot::Mutex;

pub use buffers::Buffers;
pub use listener::{Acceptor, Listener, TlsError};
pub use mapped::MappedListeners;
pub use memory::ByteBudget;
pub use session::Door;
pub use stats::{DoorStats, TopicBytes};

use crate::config::Config;
use crate::coordination::{Coordination, Status};
use crate::fetch::{FetchService, FetchSessions};
use crate::produce::ProduceService;
use crate::tasks::Tasks;
use crate::topic_catalog::TopicCatalog;
use crate::types::Endpoint;
use crate::upstream::ClusterView;

/// All that serving a client takes.
pub struct Proxy {
    pub config: Config,
    pub tasks: Tasks,
    pub coordination: Arc<Coordination>,
    pub cluster: ClusterView,
    /// What upstream's brokers offer, as one of them last said.
    pub offered: ArcSwap<ApiVersionsResponse>,
    pub catalog: Arc<TopicCatalog>,
    pub produce: Arc<ProduceService>,
    pub fetch: Arc<FetchService>,
    pub fetch_sessions: Mutex<FetchSessions>,
    pub mapped: MappedListeners,
    pub acceptor: Acceptor,
    /// The address of the virtual broker, as clients of this zone dial it.
    pub endpoint: Endpoint,
    pub request_memory: ByteBudget,
    pub buffers: Arc<Buffers>,
    pub stats: Arc<DoorStats>,
}

impl Proxy {
    /// False once the log or the store cannot be trusted any more: then diskless topics are nobody's here.
    pub(crate) fn serves_diskless(&self) -> bool {
        !matches!(*self.coordination.status().borrow(), Status::Failed(_) | Status::Fenced(_))
    }
}
