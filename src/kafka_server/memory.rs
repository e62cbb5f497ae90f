//! A bound on the bytes of requests that are held at once, over all connections.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Counts in KiB, so that the count fits a permit.
#[derive(Clone)]
pub struct ByteBudget {
    permits: Arc<Semaphore>,
    total: u32,
}

/// A part of the budget; given back when dropped.
#[derive(Debug, Default)]
pub struct Reserved {
    _permit: Option<OwnedSemaphorePermit>,
}

impl ByteBudget {
    pub fn new(bytes: usize) -> Self {
        let total = u32::try_from(bytes / 1024).unwrap_or(u32::MAX / 8).clamp(1, u32::MAX / 8);
        Self { permits: Arc::new(Semaphore::new(total as usize)), total }
    }

    /// Waits until there is room. Asks for the whole budget at the most, so that a frame larger than it can pass alone.
    pub async fn reserve(&self, bytes: usize) -> Reserved {
        let wanted = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(self.total);
        // The semaphore is never closed.
        Reserved { _permit: Arc::clone(&self.permits).acquire_many_owned(wanted).await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn room_is_given_back() {
        let budget = ByteBudget::new(10 * 1024);
        let all = budget.reserve(1 << 30).await;
        let waiting = budget.reserve(1024);
        tokio::pin!(waiting);
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(all);
        waiting.await;
    }
}
