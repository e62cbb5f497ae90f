//! A bound on the bytes of requests that are held at once, over all connections.
//!
//! Room is asked for as the bytes come, so a client that announces much and sends little holds little. That alone could
//! end with many half requests and no room for any to become whole; so one request at a time may go over the bound.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Counts in KiB, so that the count fits a permit.
#[derive(Clone)]
pub struct ByteBudget {
    permits: Arc<Semaphore>,
    /// Whoever holds this needs no permits.
    over: Arc<Semaphore>,
    total: u32,
}

/// A part of the budget; given back when dropped.
#[derive(Debug, Default)]
pub struct Reserved {
    permit: Option<OwnedSemaphorePermit>,
    over: Option<OwnedSemaphorePermit>,
}

impl ByteBudget {
    pub fn new(bytes: usize) -> Self {
        let total = u32::try_from(bytes / 1024).unwrap_or(u32::MAX / 8).clamp(1, u32::MAX / 8);
        Self { permits: Arc::new(Semaphore::new(total as usize)), over: Arc::new(Semaphore::new(1)), total }
    }

    /// Waits until there is room for so many bytes more.
    pub async fn grow(&self, held: &mut Reserved, bytes: usize) {
        if held.over.is_some() {
            return;
        }
        let wanted = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(self.total);
        // The semaphores are never closed.
        tokio::select! {
            biased;
            Ok(more) = Arc::clone(&self.permits).acquire_many_owned(wanted) => match &mut held.permit {
                Some(permit) => permit.merge(more),
                none => *none = Some(more),
            },
            Ok(over) = Arc::clone(&self.over).acquire_owned() => held.over = Some(over),
            else => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn reserved(budget: &ByteBudget, bytes: usize) -> Reserved {
        let mut held = Reserved::default();
        budget.grow(&mut held, bytes).await;
        held
    }

    #[tokio::test]
    async fn room_is_given_back() {
        let budget = ByteBudget::new(10 * 1024);
        let all = reserved(&budget, 1 << 30).await;
        let over = reserved(&budget, 1024).await;
        let waiting = reserved(&budget, 1024);
        tokio::pin!(waiting);
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(all);
        let got = waiting.await;
        assert!(over.over.is_some() && got.permit.is_some());
    }

    #[tokio::test]
    async fn of_many_half_requests_one_becomes_whole() {
        let budget = ByteBudget::new(4 * 1024);
        let mut halves = Vec::new();
        for _ in 0..4 {
            halves.push(reserved(&budget, 1024).await);
        }
        budget.grow(&mut halves[0], 100 << 20).await;
        // It needs nobody's leave any more, and all others wait for it.
        budget.grow(&mut halves[0], 100 << 20).await;
        let (first, others) = halves.split_at_mut(1);
        let mut waiting = Box::pin(budget.grow(&mut others[0], 1024));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        std::mem::take(&mut first[0]);
        waiting.await;
    }
}
