//! Answers Fetch requests: at once where there is enough or anything is wrong, else when enough has come or the wait
//! is over (Kafka's `DelayedFetch`).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::freshness::Freshness;
use super::memory::{FetchMemory, Held, keep};
use super::planner::{bound_held_bytes, plan};
use super::reader::{PartitionBytes, ReadPartition, Reader};
use crate::diskless_coordinator::view::{BatchCoordinate, Bounds, PartitionListener, PartitionView};
use crate::types::{ErrorCode, Offset};

/// Memory that one answer may keep from being freed, counted as one block for each segment it touches.
const MAX_HELD_BYTES: u64 = 64 << 20;

/// What a Fetch asks for, of diskless partitions that exist and may be read.
pub struct FetchRequest {
    pub max_wait: Duration,
    pub min_bytes: usize,
    /// For the whole answer; the caller has capped it by `fetch.max.bytes`.
    pub max_bytes: usize,
    /// The caller has errors to report for other partitions: answer at once.
    pub has_errors: bool,
    /// The order of the partitions is fair by itself, as in a fetch session; else each answer begins with another one.
    pub is_ordered: bool,
    pub partitions: Vec<FetchPartition>,
}

pub struct FetchPartition {
    pub view: Arc<PartitionView>,
    pub leader_epoch: i32,
    pub fetch_offset: Offset,
    pub max_bytes: usize,
}

/// The answer for one partition.
#[derive(Clone, Debug)]
pub struct FetchedPartition {
    pub error: ErrorCode,
    pub bounds: Bounds,
    /// Whole batches, to be written one after the other.
    pub records: Vec<Bytes>,
    pub bytes: usize,
}

/// Serves Fetch. One for each process.
pub struct FetchService {
    reader: Reader,
    freshness: Arc<dyn Freshness>,
    /// Where the next answer begins to share out its budget.
    turn: AtomicUsize,
    memory: FetchMemory,
}

impl FetchService {
    pub fn new(reader: Reader, freshness: Arc<dyn Freshness>, memory: FetchMemory) -> Self {
        Self { reader, freshness, turn: AtomicUsize::new(0), memory }
    }

    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    pub fn freshness(&self) -> &Arc<dyn Freshness> {
        &self.freshness
    }

    /// One result for each partition, in the request's order.
    pub async fn fetch(&self, request: &FetchRequest) -> Vec<FetchedPartition> {
        let errors = self.check_offsets(request).await;
        let is_immediate = request.has_errors || errors.iter().any(|error| *error != ErrorCode::None);
        if !is_immediate && !request.partitions.is_empty() {
            self.wait(request).await;
        }
        self.read(request, &errors).await
    }

    /// The error of each partition whose offset does not exist, as far as that can be said (R11).
    async fn check_offsets(&self, request: &FetchRequest) -> Vec<ErrorCode> {
        let is_above = |p: &FetchPartition| p.fetch_offset > p.view.bounds().high_watermark;
        let above = match request.partitions.iter().any(is_above) {
            false => ErrorCode::None,
            // The end may have moved by now; what is above it still is above it for certain.
            true => match self.freshness.proof().await {
                Ok(()) => ErrorCode::OffsetOutOfRange,
                Err(_) => ErrorCode::OffsetNotAvailable,
            },
        };
        let error = |p: &FetchPartition| {
            // The log start never goes back (I2), so what is below it once is below it for ever.
            if p.fetch_offset < p.view.bounds().log_start_offset {
                ErrorCode::OffsetOutOfRange
            } else if is_above(p) {
                // Above only since the check before: not proven.
                if above == ErrorCode::None { ErrorCode::OffsetNotAvailable } else { above }
            } else {
                ErrorCode::None
            }
        };
        request.partitions.iter().map(error).collect()
    }

    /// Returns when there is enough to read, or when it is time to answer all the same.
    async fn wait(&self, request: &FetchRequest) {
        let deadline = Instant::now() + request.max_wait;
        let enough = request.min_bytes.min(request.max_bytes);
        let waiter = Arc::<Waiter>::default();
        let listeners: Vec<_> = request.partitions.iter().map(|_| Listener::new(&waiter)).collect();
        while !has_enough(request, enough) {
            for (listener, partition) in listeners.iter().zip(&request.partitions) {
                listener.listen(&partition.view);
            }
            // A move before the registration was not told.
            if has_enough(request, enough) {
                return;
            }
            if timeout_at(deadline, waiter.0.notified()).await.is_err() {
                return;
            }
        }
    }

    async fn read(&self, request: &FetchRequest, errors: &[ErrorCode]) -> Vec<FetchedPartition> {
        let partitions = &request.partitions;
        let (planned, held) = self.plan(request, errors).await;
        // Taken after the batches were found, so that they cover these; both only move forward.
        let bounds: Vec<Bounds> = partitions.iter().map(|p| p.view.bounds()).collect();
        let reads: Vec<_> = partitions
            .iter()
            .zip(planned)
            .map(|(partition, batches)| ReadPartition { leader_epoch: partition.leader_epoch, batches })
            .collect();
        let found = self.reader.read(&reads).await;
        let answers = found.into_iter().zip(bounds).enumerate().map(|(number, (found, bounds))| {
            let error = match errors[number] {
                ErrorCode::None if partitions[number].fetch_offset < bounds.log_start_offset => {
                    ErrorCode::OffsetOutOfRange
                }
                error => error,
            };
            answer(error, bounds, found)
        });
        let mut answers: Vec<_> = answers.collect();
        // What is written last keeps the memory of all.
        let last = answers.iter_mut().rev().find_map(|answer| answer.records.last_mut());
        if let (Some(last), Some(held)) = (last, held) {
            *last = keep(std::mem::take(last), held);
        }
        answers
    }

    /// What is to be read, and the memory for it. Nothing, where no memory came free in time.
    async fn plan(&self, request: &FetchRequest, errors: &[ErrorCode]) -> (Vec<Vec<BatchCoordinate>>, Option<Held>) {
        let partitions = &request.partitions;
        let turn = if request.is_ordered { 0 } else { self.turn.fetch_add(1, Ordering::Relaxed) };
        let find = |number: usize, limit: usize| match errors[number] {
            ErrorCode::None => partitions[number].view.find_batches(partitions[number].fetch_offset, limit),
            _ => Vec::new(),
        };
        let share = self.memory.share();
        let limit_of = |number: usize| partitions[number].max_bytes;
        let mut planned = plan(partitions.len(), turn, request.max_bytes.min(share), limit_of, find);
        let max_held_bytes = MAX_HELD_BYTES.min(share as u64);
        let held = bound_held_bytes(&mut planned, turn, max_held_bytes, |size| self.reader.held_bytes(size));
        let bytes = planned.iter().flatten().map(|batch| batch.byte_length as usize).sum::<usize>();
        if bytes == 0 {
            return (planned, None);
        }
        let held = self.memory.hold(bytes.max(usize::try_from(held).unwrap_or(usize::MAX))).await;
        if held.is_none() {
            tracing::warn!("a Fetch was answered without records: there was no memory for them (fetch.memory.bytes)");
            planned.iter_mut().for_each(Vec::clear);
        }
        (planned, held)
    }
}

/// An error goes without records, and a failure in the middle without an error: the client comes again for the rest.
fn answer(error: ErrorCode, bounds: Bounds, found: PartitionBytes) -> FetchedPartition {
    let error = match error {
        ErrorCode::None if found.batches == 0 && found.error.is_some() => ErrorCode::KafkaStorageError,
        error => error,
    };
    if error == ErrorCode::None {
        FetchedPartition { error, bounds, records: found.buffers, bytes: found.bytes }
    } else {
        FetchedPartition { error, bounds, records: Vec::new(), bytes: 0 }
    }
}

fn has_enough(request: &FetchRequest, enough: usize) -> bool {
    let mut sum = 0;
    for partition in &request.partitions {
        if sum >= enough {
            break;
        }
        let bytes = partition.view.bytes_from(partition.fetch_offset, enough - sum);
        // A first batch larger than the partition's limit is served all the same.
        sum += bytes.min(partition.max_bytes.max(1));
    }
    sum >= enough
}

/// One waiting request.
#[derive(Default)]
struct Waiter(Notify);

/// Its ear at one partition. A move uses it up, so it is put there again only then.
struct Listener {
    ear: Arc<Ear>,
}

struct Ear {
    waiter: Arc<Waiter>,
    is_listening: AtomicBool,
}

impl Listener {
    fn new(waiter: &Arc<Waiter>) -> Self {
        Self { ear: Arc::new(Ear { waiter: Arc::clone(waiter), is_listening: AtomicBool::new(false) }) }
    }

    fn listen(&self, view: &PartitionView) {
        if !self.ear.is_listening.swap(true, Ordering::AcqRel) {
            let ear: Arc<dyn PartitionListener> = self.ear.clone();
            view.listen(Weak::clone(&Arc::downgrade(&ear)));
        }
    }
}

impl PartitionListener for Ear {
    fn moved(&self) {
        self.is_listening.store(false, Ordering::Release);
        self.waiter.0.notify_one();
    }
}
