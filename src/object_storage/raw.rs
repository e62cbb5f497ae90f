//! The lowest layer: one request becomes one call to the cloud, and its error one of ours.

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt as _;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};

use super::metered::StoreStats;
use super::request::{Failure, Layer, ListedObject, Operation, Reply, Request};

/// A store of crate `object_store`, with its own retries off.
pub(super) struct Raw {
    pub(super) store: Box<dyn ObjectStore>,
    /// Where a PUT carries no checksum that the store verifies: ask for the size afterwards.
    pub(super) verify_size: bool,
    /// Asking for the size is billed as well.
    pub(super) stats: Arc<StoreStats>,
}

#[async_trait]
impl Layer for Raw {
    async fn call(&self, request: &Request) -> Result<Reply, Failure> {
        match request {
            Request::Put { key, parts } => {
                let payload: PutPayload = parts.iter().cloned().collect();
                self.put(&path(key)?, payload).await
            }
            Request::Get { key, range } => self.get(&path(key)?, range.clone()).await,
            Request::Head { key } => self.head(&path(key)?).await.map(Reply::Size),
            Request::Delete { key } => {
                self.store.delete(&path(key)?).await.map_err(failure)?;
                Ok(Reply::Done)
            }
            Request::List { prefix, after, limit } => self.list(prefix, after.as_deref(), *limit).await,
        }
    }
}

impl Raw {
    async fn put(&self, path: &Path, payload: PutPayload) -> Result<Reply, Failure> {
        let size = payload.content_length() as u64;
        let options = PutOptions::from(PutMode::Overwrite);
        self.store.put_opts(path, payload, options).await.map_err(failure)?;
        if self.verify_size {
            self.stats.of(Operation::Head).count_attempt();
            let stored = self.head(path).await.map_err(|e| Failure::Unknown(format!("not verified: {e}")))?;
            if stored != size {
                return Err(Failure::Unknown(format!("{stored} bytes are stored of {size}")));
            }
        }
        Ok(Reply::Done)
    }

    async fn get(&self, path: &Path, range: std::ops::Range<u64>) -> Result<Reply, Failure> {
        let wanted = range.end.saturating_sub(range.start);
        let options = GetOptions { range: Some(range.into()), ..GetOptions::default() };
        let result = self.store.get_opts(path, options).await.map_err(failure)?;
        let bytes = result.bytes().await.map_err(failure)?;
        if bytes.len() as u64 != wanted {
            return Err(Failure::Corrupt(format!("{} bytes came of {wanted}", bytes.len())));
        }
        Ok(Reply::Bytes(bytes))
    }

    async fn head(&self, path: &Path) -> Result<u64, Failure> {
        self.store.head(path).await.map(|meta| meta.size).map_err(failure)
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Reply, Failure> {
        let prefix = path(prefix)?;
        let found = match after {
            Some(after) => self.store.list_with_offset(Some(&prefix), &path(after)?),
            None => self.store.list(Some(&prefix)),
        };
        let mut found = found.take(limit);
        let mut objects = Vec::new();
        while let Some(object) = found.next().await {
            objects.push(listed(object.map_err(failure)?));
        }
        Ok(Reply::Objects(objects))
    }
}

fn path(key: &str) -> Result<Path, Failure> {
    Path::parse(key).map_err(|e| Failure::Refused(e.to_string()))
}

fn listed(object: ObjectMeta) -> ListedObject {
    ListedObject {
        key: object.location.to_string(),
        size: object.size,
        last_modified_ms: object.last_modified.timestamp_millis(),
    }
}

/// Only answers that prove that nothing was done are taken as such.
fn failure(error: Error) -> Failure {
    match error {
        Error::NotFound { .. } => Failure::NotFound,
        Error::InvalidPath { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::UnknownConfigurationKey { .. } => Failure::Refused(error.to_string()),
        other => Failure::Unknown(other.to_string()),
    }
}
