//! A bound on the memory of all Fetch answers together, from before their records are read until they are written.
//!
//! One answer takes at most a small part of what is free, so that clients that do not read their answers, such as Java
//! consumers that are busy with their records, cannot take all of it one by one; one batch is always tried. Whoever
//! waits holds nothing, so there is nothing to lock up, and whoever waits too long is answered without records and
//! comes again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How long a Fetch waits for memory.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The part of the free memory that one answer may take: 16 MiB of 512, which keeps one consumer busy, and still more than
/// half a MiB when a hundred answers lie unread.
const SHARE: usize = 32;

/// The memory for Fetch answers. Counts in KiB, so that the count fits a permit.
#[derive(Clone, Debug)]
pub struct FetchMemory {
    free: Arc<Semaphore>,
    total: u32,
    pub(super) longest_wait: Duration,
}

/// The memory of one answer; given back when dropped.
#[derive(Debug)]
pub(super) struct Held {
    _permit: OwnedSemaphorePermit,
}

impl FetchMemory {
    pub fn new(bytes: usize) -> Self {
        let total = u32::try_from(bytes / 1024).unwrap_or(u32::MAX / 8).clamp(1, u32::MAX / 8);
        Self { free: Arc::new(Semaphore::new(total as usize)), total, longest_wait: LONGEST_WAIT }
    }

    pub fn free(&self) -> usize {
        self.free.available_permits() * 1024
    }

    /// What the next answer may take, its first batch apart.
    pub(super) fn share(&self) -> usize {
        self.free() / SHARE
    }

    /// Waits until there is room. Asks for all of it at the most, so that a batch larger than it can pass alone.
    pub(super) async fn hold(&self, bytes: usize) -> Option<Held> {
        let wanted = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(self.total);
        let permit = timeout(self.longest_wait, Arc::clone(&self.free).acquire_many_owned(wanted)).await;
        // The semaphore is never closed.
        permit.ok()?.ok().map(|permit| Held { _permit: permit })
    }
}

/// The same bytes, which keep `held` until they are dropped.
pub(super) fn keep(bytes: Bytes, held: Held) -> Bytes {
    struct Kept(Bytes, #[expect(dead_code, reason = "dropped with the bytes")] Held);
    impl AsRef<[u8]> for Kept {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Kept(bytes, held))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn memory_is_given_back_with_the_last_reference() {
        let memory = FetchMemory::new(MIB);
        let held = memory.hold(MIB / 2).await.expect("there is room");
        let records = Bytes::from_static(b"records");
        let kept = keep(records.clone(), held);
        assert_eq!(kept.as_ptr(), records.as_ptr(), "not copied");
        let part = kept.slice(2..4);
        drop(kept);
        assert_eq!(memory.free(), MIB / 2);
        drop(part);
        assert_eq!(memory.free(), MIB);
    }

    #[tokio::test]
    async fn answers_that_nobody_reads_leave_room_for_others() {
        let memory = FetchMemory::new(512 * MIB);
        let mut unread = Vec::new();
        assert_eq!(memory.share(), 16 * MIB);
        for _ in 0..100 {
            unread.push(memory.hold(memory.share()).await.expect("a share is free"));
        }
        assert!(memory.share() > MIB / 2, "the next may still have {}", memory.share());
    }

    #[tokio::test]
    async fn waiting_ends_with_room_or_with_time() {
        let memory = FetchMemory { longest_wait: Duration::from_millis(20), ..FetchMemory::new(MIB) };
        let all = memory.hold(100 * MIB).await.expect("more than there is is all of it");
        assert_eq!(memory.free(), 0);
        assert!(memory.hold(1).await.is_none(), "nobody gave anything back");
        let waiting = memory.hold(1);
        tokio::pin!(waiting);
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(all);
        assert!(waiting.await.is_some());
    }
}
