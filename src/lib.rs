//! Sidestream: a per-zone Kafka proxy that stores the topics you choose in object storage.
#![doc = include_str!("ARCHITECTURE.md")]

// Modules in reading order, which is also the layer order: each may import only from those above it.

// Words
pub mod types;

// Formats
pub mod record_batch;
pub mod wal_segment;
pub mod wire;

// Rules
pub mod diskless_coordinator;
pub mod history;
pub mod routing;

// Clock and tasks: import nothing, used from here down
pub mod clock;
pub mod tasks;

// Adapters
pub mod metadata_log;
pub mod metadata_store;
pub mod object_storage;
pub mod upstream;

// Services
pub mod coordination;
pub mod fetch;
pub mod produce;
pub mod topic_catalog;

// Doors
pub mod admin_server;
pub mod kafka_server;

// The whole
pub mod app;
pub mod cli;
pub mod config;
pub mod demo;
pub mod telemetry;
