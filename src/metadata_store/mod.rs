//! The redb file that holds what was applied, so that a start need not replay the whole log.
//!
//! It is a cache of the log: a file that is foreign, of another version, or damaged is moved aside and rebuilt,
//! never half used. All rows and the log position of a group of records are written in one transaction, and only
//! then shown to readers. Never decides anything.

mod rows;
mod thread;

use std::path::PathBuf;

pub use thread::{MetadataStore, StoreObserver, StoreStopped};

/// Where the store is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreLocation {
    File(PathBuf),
    /// Gone with the process.
    Memory,
}

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{path}: another process has the metadata store open")]
    InUse { path: String },
    #[error("the metadata store cannot be opened: {0}")]
    Failed(String),
}

#[cfg(test)]
mod tests;
