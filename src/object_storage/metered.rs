//! The outermost layer: counts what is asked, what it cost and how long it took. The counters are read by whoever
//! shows metrics or prices; nothing here knows either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::request::{Failure, Layer, Operation, Reply, Request};

/// Upper bounds of the latency buckets, in milliseconds; one more bucket holds what is above.
pub const LATENCY_BUCKETS_MS: [u64; 13] = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000];

/// Counters of every operation.
#[derive(Debug, Default)]
pub struct StoreStats {
    operations: [OperationStats; Operation::ALL.len()],
}

/// Counters of one kind of operation.
#[derive(Debug, Default)]
pub(super) struct OperationStats {
    requests: AtomicU64,
    attempts: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    latency_us_sum: AtomicU64,
    buckets: [AtomicU64; LATENCY_BUCKETS_MS.len() + 1],
}

/// The counters at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OperationCounts {
    /// Operations asked for.
    pub requests: u64,
    /// Requests sent to the store, retries included: what is billed.
    pub attempts: u64,
    /// Operations that failed in the end.
    pub errors: u64,
    /// Bytes moved by operations that succeeded.
    pub bytes: u64,
    pub latency_us_sum: u64,
    /// Not cumulative; the last is for everything above the largest bound.
    pub buckets: [u64; LATENCY_BUCKETS_MS.len() + 1],
}

impl OperationCounts {
    pub fn retries(&self) -> u64 {
        self.attempts.saturating_sub(self.requests)
    }
}

impl StoreStats {
    pub fn counts(&self, operation: Operation) -> OperationCounts {
        let stats = self.of(operation);
        let mut buckets = [0; LATENCY_BUCKETS_MS.len() + 1];
        for (count, bucket) in buckets.iter_mut().zip(&stats.buckets) {
            *count = bucket.load(Relaxed);
        }
        OperationCounts {
            requests: stats.requests.load(Relaxed),
            attempts: stats.attempts.load(Relaxed),
            errors: stats.errors.load(Relaxed),
            bytes: stats.bytes.load(Relaxed),
            latency_us_sum: stats.latency_us_sum.load(Relaxed),
            buckets,
        }
    }

    pub(super) fn of(&self, operation: Operation) -> &OperationStats {
        &self.operations[operation as usize]
    }
}

impl OperationStats {
    pub(super) fn count_attempt(&self) {
        self.attempts.fetch_add(1, Relaxed);
    }

    fn count(&self, is_error: bool, bytes: u64, took: Duration) {
        self.requests.fetch_add(1, Relaxed);
        self.errors.fetch_add(u64::from(is_error), Relaxed);
        self.bytes.fetch_add(if is_error { 0 } else { bytes }, Relaxed);
        self.latency_us_sum.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
        let took_ms = took.as_millis();
        let bucket = LATENCY_BUCKETS_MS.partition_point(|bound| u128::from(*bound) < took_ms);
        self.buckets[bucket].fetch_add(1, Relaxed);
    }
}

pub(super) struct Metered {
    pub(super) inner: Box<dyn Layer>,
    pub(super) stats: Arc<StoreStats>,
}

#[async_trait]
impl Layer for Metered {
    async fn call(&self, request: &Request) -> Result<Reply, Failure> {
        let started = Instant::now();
        let result = self.inner.call(request).await;
        let is_error = !matches!(result, Ok(_) | Err(Failure::NotFound));
        self.stats.of(request.operation()).count(is_error, request.size(), started.elapsed());
        result
    }
}
