//! Our own client for the existing Kafka: one connection at a time, and a view of the cluster on top.
//!
//! - [`Connector`] opens TCP or TLS streams. A client's own traffic is forwarded over the bare stream, since clients
//!   bring their own SASL.
//! - [`Connection`] speaks with the proxy's own credential, for what the proxy needs itself.
//! - [`ClusterView`] knows the brokers and keeps one connection to each.
//!
//! The proxy's credential never carries a client's request. Every failure says whether the request may have been
//! carried out. Never retries by itself.

mod admin;
mod cluster_view;
mod connection;
mod connector;
mod frame_io;
mod sasl;
mod scram;
mod security;

#[cfg(test)]
mod fake_broker;

pub use admin::{ListedOffset, TopicConfigs, TopicWriters, WriteAcl};
pub use cluster_view::{Broker, Cluster, ClusterView};
pub use connection::{Connection, Settings, UpstreamError};
pub use connector::{ConnectError, Connector, DEFAULT_CONNECT_TIMEOUT, SecurityError, UpstreamStream};
pub use frame_io::{ReadFrameError, read_request_frame, read_response_frame};
pub use security::{Mechanism, Protocol, Secret, Security};
