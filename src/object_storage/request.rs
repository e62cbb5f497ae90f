//! One operation on the store as a value, so that each layer of the stack is one method around the next.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The kinds of operation, for metrics, prices and faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Put,
    Get,
    Head,
    Delete,
    List,
}

impl Operation {
    pub const ALL: [Self; 5] = [Self::Put, Self::Get, Self::Head, Self::Delete, Self::List];

    /// As a metric's label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::Head => "head",
            Self::Delete => "delete",
            Self::List => "list",
        }
    }
}

/// What is asked of the store. A PUT overwrites; keys are never reused for other bytes, so it can be repeated.
#[derive(Clone, Debug)]
pub enum Request {
    Put { key: String, parts: Vec<Bytes> },
    Get { key: String, range: Range<u64> },
    Head { key: String },
    Delete { key: String },
    List { prefix: String, after: Option<String>, limit: usize },
}

impl Request {
    pub fn operation(&self) -> Operation {
        match self {
            Self::Put { .. } => Operation::Put,
            Self::Get { .. } => Operation::Get,
            Self::Head { .. } => Operation::Head,
            Self::Delete { .. } => Operation::Delete,
            Self::List { .. } => Operation::List,
        }
    }

    /// Bytes that have to be moved.
    pub fn size(&self) -> u64 {
        match self {
            Self::Put { parts, .. } => parts.iter().map(|p| p.len() as u64).sum(),
            Self::Get { range, .. } => range.end.saturating_sub(range.start),
            Self::Head { .. } | Self::Delete { .. } | Self::List { .. } => 0,
        }
    }
}

#[derive(Debug)]
pub enum Reply {
    Done,
    /// Exactly the range asked for.
    Bytes(Bytes),
    Size(u64),
    Objects(Vec<ListedObject>),
}

/// One object of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedObject {
    pub key: String,
    pub size: u64,
    /// By the store's clock.
    pub last_modified_ms: i64,
}

/// How one attempt failed. What is not known to be otherwise is unknown.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    #[error("no such object")]
    NotFound,
    /// Not done, and asking again would not help: a missing right, an invalid key.
    #[error("refused by the store: {0}")]
    Refused(String),
    /// The store answered with other bytes than were asked for.
    #[error("wrong bytes: {0}")]
    Corrupt(String),
    /// Not done; asking again may help.
    #[error("not done: {0}")]
    NotDone(String),
    /// Perhaps done.
    #[error("{0}")]
    Unknown(String),
}

/// One layer of the stack. Simulations bring a lowest one of their own.
#[async_trait]
pub trait Layer: Send + Sync {
    async fn call(&self, request: &Request) -> Result<Reply, Failure>;
}
