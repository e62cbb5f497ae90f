//! The redb file that holds what was applied, so that a start need not replay the whole log.
//!
//! It is a cache of the log: a file that is foreign, of another version, or damaged is moved aside and rebuilt,
//! never half used. All rows and the log position of a group of records are written in one transaction, and only
//! then shown to readers. Never decides anything.

mod disk;
mod rows;
mod thread;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use disk::Disk;
pub use thread::{MetadataStore, StoreStopped};
pub use writer::StoreObserver;

use crate::diskless_coordinator::effect::CommittedSegment;
use crate::diskless_coordinator::state::State;

/// Where the store is kept.
#[derive(Clone, Debug)]
pub enum StoreLocation {
    File(PathBuf),
    /// Gone with the process.
    Memory,
    /// On a disk that a simulation brings; then nothing runs on a thread of its own.
    Simulated(Arc<dyn Disk>),
}

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{path}: another process has the metadata store open; ask the running proxy instead, or stop it")]
    InUse { path: String },
    #[error("the metadata store cannot be opened: {0}")]
    Failed(String),
}

/// What the file of a stopped proxy holds: the state, and every segment in the order of its commit.
pub fn read_file(path: &Path) -> Result<(State, Vec<Arc<CommittedSegment>>), OpenError> {
    let failed = |error: &dyn std::fmt::Display| OpenError::Failed(format!("{}: {error}", path.display()));
    let database = match redb::ReadOnlyDatabase::open(path) {
        Ok(database) => database,
        Err(redb::DatabaseError::DatabaseAlreadyOpen) => {
            return Err(OpenError::InUse { path: path.display().to_string() });
        }
        Err(redb::DatabaseError::RepairAborted) => {
            return Err(failed(&"it was not closed; start its proxy once, and stop it with SIGTERM"));
        }
        Err(error) => return Err(failed(&error)),
    };
    let rows::Loaded { state, segments } = rows::load(&database).map_err(|error| failed(&error))?;
    Ok((state, segments))
}

/// What a simulated disk holds that no process has open.
pub fn read_disk(disk: &dyn Disk) -> Result<(State, Vec<Arc<CommittedSegment>>), OpenError> {
    let failed = |error: &dyn std::fmt::Display| OpenError::Failed(error.to_string());
    let database = disk.open().map_err(|error| failed(&error))?;
    let rows::Loaded { state, segments } = rows::load(&database).map_err(|error| failed(&error))?;
    Ok((state, segments))
}

#[cfg(test)]
mod tests;
