//! The object store: whole objects written once under unique keys, ranges read back, every outside failure told as
//! what it is.
//!
//! The stack, outermost first: metered, retrying, simulated (where asked for), faulty (idle unless a rule is set),
//! raw. Keys are never reused for other bytes, so every PUT can be repeated and needs no condition.
//!
//! Never ends the process, never shows a secret, never retries without a deadline.

mod config;
mod faults;
mod memory;
mod metered;
mod raw;
mod request;
mod retrying;
mod simulated;
#[cfg(test)]
mod tests;
pub mod zone_cache;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use config::{Config, ConfigError};
pub use faults::{Fault, FaultHandle, FaultRule};
pub use metered::{LATENCY_BUCKETS_MS, OperationCounts, StoreStats};
pub use request::{Failure, Layer, ListedObject, Operation, Reply, Request};
pub use simulated::{Profile, Simulate};

use config::Opened;
use faults::Faulty;
use memory::Memory;
use metered::Metered;
use raw::Raw;
use retrying::Retrying;
use simulated::Simulated;

/// A handle to the store. Clones share it.
#[derive(Clone)]
pub struct ObjectStorage {
    stack: Arc<dyn Layer>,
    stats: Arc<StoreStats>,
    faults: FaultHandle,
}

/// How long a request to the store may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// One attempt of up to 1 MiB; twice this for a larger one.
    pub attempt: Duration,
    /// All attempts of one operation together.
    pub operation: Duration,
}

/// A PUT or DELETE that did not succeed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WriteError {
    /// Certainly not done.
    #[error("not done: {0}")]
    NotDone(String),
    /// Perhaps done, perhaps yet to be.
    #[error("outcome unknown: {0}")]
    Unknown(String),
}

/// A read that gave no bytes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    #[error("no such object")]
    NotFound,
    #[error("unavailable: {0}")]
    Unavailable(String),
    #[error("corrupt: {0}")]
    Corrupt(String),
}

impl ObjectStorage {
    /// Opens the store without asking anything of it.
    pub fn open(config: &Config) -> Result<Self, ConfigError> {
        let stats = Arc::<StoreStats>::default();
        let faults = FaultHandle::default();
        let mut layer: Box<dyn Layer> = match config.open()? {
            Opened::Memory => Box::<Memory>::default(),
            Opened::Store { store, verify_size } => Box::new(Raw { store, verify_size, stats: Arc::clone(&stats) }),
        };
        layer = Box::new(Faulty { inner: layer, faults: faults.clone() });
        if let Some(simulate) = config.simulate {
            layer = Box::new(Simulated::new(layer, simulate, rand::random()));
        }
        let timeouts = Timeouts {
            attempt: Duration::from_millis(config.attempt_timeout_ms),
            operation: Duration::from_millis(config.timeout_ms),
        };
        Ok(Self::stack(layer, timeouts, rand::random(), stats, faults))
    }

    /// Puts the usual layers over a store that the caller brings. The seed gives the pauses between attempts.
    pub fn over(store: Box<dyn Layer>, timeouts: Timeouts, seed: u64) -> Self {
        Self::stack(store, timeouts, seed, Arc::default(), FaultHandle::default())
    }

    fn stack(
        inner: Box<dyn Layer>,
        timeouts: Timeouts,
        seed: u64,
        stats: Arc<StoreStats>,
        faults: FaultHandle,
    ) -> Self {
        let retrying = Box::new(Retrying::new(inner, Arc::clone(&stats), timeouts, seed));
        let stack = Arc::new(Metered { inner: retrying, stats: Arc::clone(&stats) });
        Self { stack, stats, faults }
    }

    pub fn stats(&self) -> &Arc<StoreStats> {
        &self.stats
    }

    /// Switches faults on and off.
    pub fn faults(&self) -> &FaultHandle {
        &self.faults
    }

    /// Writes a whole object, from its parts in order. Durable and verified when it returns.
    pub async fn put(&self, key: &str, parts: Vec<Bytes>) -> Result<(), WriteError> {
        let request = Request::Put { key: key.to_owned(), parts };
        self.stack.call(&request).await.map(drop).map_err(write_error)
    }

    /// Exactly these bytes of an object.
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ReadError> {
        let request = Request::Get { key: key.to_owned(), range };
        match self.stack.call(&request).await.map_err(read_error)? {
            Reply::Bytes(bytes) => Ok(bytes),
            other => Err(unexpected(&other)),
        }
    }

    /// The size of an object.
    pub async fn head(&self, key: &str) -> Result<u64, ReadError> {
        let request = Request::Head { key: key.to_owned() };
        match self.stack.call(&request).await.map_err(read_error)? {
            Reply::Size(size) => Ok(size),
            other => Err(unexpected(&other)),
        }
    }

    /// Deletes an object. One that is not there counts as deleted.
    pub async fn delete(&self, key: &str) -> Result<(), WriteError> {
        let request = Request::Delete { key: key.to_owned() };
        match self.stack.call(&request).await {
            Ok(_) | Err(Failure::NotFound) => Ok(()),
            Err(failure) => Err(write_error(failure)),
        }
    }

    /// At most `limit` objects under a prefix (a whole path segment), with keys after `after` where given. The order
    /// is the store's; a listing may be old, so it is a hint.
    pub async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<ListedObject>, ReadError> {
        let request = Request::List { prefix: prefix.to_owned(), after: after.map(str::to_owned), limit };
        match self.stack.call(&request).await.map_err(read_error)? {
            Reply::Objects(objects) => Ok(objects),
            other => Err(unexpected(&other)),
        }
    }
}

fn write_error(failure: Failure) -> WriteError {
    match failure {
        // Whatever is not found when something is put, it is not an object.
        Failure::NotFound => WriteError::NotDone("the bucket of store.url does not exist".to_owned()),
        Failure::Refused(_) | Failure::NotDone(_) => WriteError::NotDone(failure.to_string()),
        Failure::Corrupt(_) | Failure::Unknown(_) => WriteError::Unknown(failure.to_string()),
    }
}

fn read_error(failure: Failure) -> ReadError {
    match failure {
        Failure::NotFound => ReadError::NotFound,
        Failure::Corrupt(reason) => ReadError::Corrupt(reason),
        Failure::Refused(_) | Failure::NotDone(_) | Failure::Unknown(_) => ReadError::Unavailable(failure.to_string()),
    }
}

fn unexpected(reply: &Reply) -> ReadError {
    ReadError::Unavailable(format!("the store layer answered another request: {reply:?}"))
}
