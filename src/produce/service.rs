//! The running part of Produce: takes batches in, rolls, uploads, commits in roll order and answers.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::active_segment::{ActiveSegment, PendingAnswer, PendingBatch, RolledSegment};
use super::answers::{BatchResult, Rejected, Slot, result_of, slots};
use super::commit_log::{CommitError, CommitLog};
use super::follows::{Follows, Stream};
use super::roll::{PutBudget, Roll, RollLimits, is_full, should_roll};
use crate::diskless_coordinator::command::CommitSegment;
use crate::diskless_coordinator::outcome::Outcome;
use crate::object_storage::ObjectStorage;
use crate::object_storage::zone_cache::ZoneCache;
use crate::record_batch::BatchHeader;
use crate::tasks::Tasks;
use crate::types::{LogId, TopicPartition, WalSegmentId};
use crate::wal_segment::{BatchMeta, object_key};

/// The settings of Produce.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// `diskless.append.buffer.max.bytes`: a segment of this size is rolled.
    pub max_bytes: usize,
    /// `diskless.append.commit.interval.ms`: a segment is rolled so long after its first byte.
    pub window: Duration,
    /// `diskless.append.quiet.ms`: it may be rolled so long after its last byte.
    pub quiet: Duration,
    /// `diskless.append.quiet.bytes`: from this size on it is then rolled without regard to the budget of PUTs.
    pub quiet_bytes: usize,
    /// `diskless.append.inflight.max.bytes`: bytes taken in and not answered.
    pub inflight_max_bytes: usize,
    pub uploads_max: usize,
    /// A segment that is not uploaded so long after its roll fails its batches; until then it holds up the commits
    /// of later ones.
    pub upload_timeout: Duration,
    /// A commit without an outcome for so long is answered as unknown.
    pub commit_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let limits = RollLimits::default();
        Self {
            max_bytes: limits.max_bytes,
            window: limits.window,
            quiet: limits.quiet,
            quiet_bytes: limits.quiet_bytes,
            inflight_max_bytes: 256 << 20,
            uploads_max: 8,
            upload_timeout: Duration::from_secs(10),
            commit_timeout: Duration::from_secs(20),
        }
    }
}

impl Config {
    fn roll_limits(&self) -> RollLimits {
        RollLimits {
            max_bytes: self.max_bytes,
            window: self.window,
            quiet: self.quiet,
            quiet_bytes: self.quiet_bytes,
            ..RollLimits::default()
        }
    }
}

/// A validated batch for one partition.
#[derive(Clone, Debug)]
pub struct BatchToAppend {
    pub partition: TopicPartition,
    pub header: BatchHeader,
    pub bytes: Bytes,
}

/// Room for the bytes of one request. Given back when its last batch is answered.
#[derive(Debug)]
pub struct Reservation(OwnedSemaphorePermit);

/// Counters of Produce at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProduceCounts {
    pub batches: u64,
    pub bytes: u64,
    pub segments_rolled: u64,
    pub segments_failed: u64,
    pub commits_unknown: u64,
    /// Bytes taken in and not answered.
    pub inflight_bytes: u64,
}

#[derive(Default)]
struct Counters {
    batches: AtomicU64,
    bytes: AtomicU64,
    segments_rolled: AtomicU64,
    segments_failed: AtomicU64,
    commits_unknown: AtomicU64,
}

/// Takes batches for diskless partitions. One for each process.
pub struct ProduceService {
    config: Config,
    limits: RollLimits,
    log_id: LogId,
    store: ObjectStorage,
    cache: Arc<ZoneCache>,
    commits: Arc<dyn CommitLog>,
    tasks: Tasks,
    /// One permit for each byte that may be held.
    room: Arc<Semaphore>,
    upload_slots: Arc<Semaphore>,
    intake: Mutex<Intake>,
    /// There is something to roll, to upload, or to stop for.
    wake: Notify,
    is_drained: watch::Sender<bool>,
    counters: Counters,
    /// Segments that are rolled and not answered.
    under_way: AtomicUsize,
    is_stopped: AtomicBool,
}

/// What `append` changes: held for as long as it takes to push the batches of one request.
struct Intake {
    active: Option<ActiveSegment>,
    rolled: VecDeque<(ActiveSegment, Instant)>,
    follows: Follows,
    budget: PutBudget,
    next_sequence: u32,
    is_closed: bool,
}

/// A rolled segment whose upload is under way; commits leave in this order.
struct Uploading {
    commit: CommitSegment,
    answers: Vec<PendingAnswer>,
    uploaded: oneshot::Receiver<bool>,
}

impl ProduceService {
    pub fn start(
        config: Config,
        log_id: LogId,
        store: ObjectStorage,
        cache: Arc<ZoneCache>,
        commits: Arc<dyn CommitLog>,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let limits = config.roll_limits();
        let service = Arc::new(Self {
            config,
            limits,
            log_id,
            store,
            cache,
            commits,
            tasks: tasks.clone(),
            room: Arc::new(Semaphore::new(permits(config.inflight_max_bytes) as usize)),
            upload_slots: Arc::new(Semaphore::new(config.uploads_max.max(1))),
            intake: Mutex::new(Intake {
                active: None,
                rolled: VecDeque::new(),
                follows: Follows::default(),
                budget: PutBudget::new(Instant::now(), limits.window),
                next_sequence: 0,
                is_closed: false,
            }),
            wake: Notify::new(),
            is_drained: watch::Sender::new(false),
            counters: Counters::default(),
            under_way: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
        });
        tasks.spawn("produce", Arc::clone(&service).run());
        service
    }

    /// Waits until there is room for so many bytes. A request larger than all the room takes all of it.
    pub async fn reserve(&self, bytes: usize) -> Reservation {
        let wanted = permits(bytes.min(self.config.inflight_max_bytes));
        let permit = Arc::clone(&self.room).acquire_many_owned(wanted).await;
        Reservation(permit.expect("the semaphore is never closed"))
    }

    /// Takes in the batches of one request. They are in order when this returns; the future gives a result for each,
    /// and may be dropped without effect on them.
    pub fn append(
        &self,
        batches: Vec<BatchToAppend>,
        reservation: Reservation,
    ) -> impl Future<Output = Vec<BatchResult>> + Send + use<> {
        let count = batches.len();
        let (slots, results) = slots(count, reservation.0);
        {
            let mut intake = self.intake.lock();
            if intake.is_closed {
                slots.into_iter().for_each(|slot| slot.answer(Err(Rejected::STOPPED)));
            } else {
                let now = Instant::now();
                for (batch, slot) in batches.into_iter().zip(slots) {
                    self.push(&mut intake, batch, slot, now);
                }
            }
        }
        async move { results.await.unwrap_or_else(|_| vec![Err(Rejected::UNKNOWN); count]) }
    }

    fn push(&self, intake: &mut Intake, batch: BatchToAppend, slot: Slot, now: Instant) {
        let BatchToAppend { partition, header, bytes } = batch;
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let Ok(length) = u32::try_from(bytes.len()) else {
            return slot.answer(Err(Rejected::NOT_WRITTEN));
        };
        let stream = Stream::of(partition, &header);
        let follows = stream.is_some_and(|s| intake.follows.arrived(s, header.base_sequence, now));
        let meta = BatchMeta::of(&header, length, follows);
        let is_first = intake.active.is_none();
        let mut active = match intake.active.take() {
            Some(active) => active,
            None => ActiveSegment::new(self.next_id(intake), now),
        };
        let is_worth_a_put = |active: &ActiveSegment| active.fill().bytes >= self.limits.quiet_bytes;
        let was_worth_a_put = is_worth_a_put(&active);
        active.push(PendingBatch { partition, meta, bytes, stream, slot }, now);
        let became_worth_a_put = !was_worth_a_put && is_worth_a_put(&active);
        let is_rolled = is_full(active.fill(), &self.limits);
        if is_rolled {
            self.roll(intake, active, now);
        } else {
            intake.active = Some(active);
        }
        if is_first || is_rolled || became_worth_a_put {
            self.wake.notify_one();
        }
    }

    /// Born at the position that is applied here when the first byte comes (R7).
    fn next_id(&self, intake: &mut Intake) -> WalSegmentId {
        let sequence = intake.next_sequence;
        intake.next_sequence = sequence.wrapping_add(1);
        WalSegmentId { birth: self.commits.position(), epoch: self.commits.epoch(), sequence }
    }

    fn roll(&self, intake: &mut Intake, active: ActiveSegment, now: Instant) {
        self.counters.segments_rolled.fetch_add(1, Ordering::Relaxed);
        self.under_way.fetch_add(1, Ordering::AcqRel);
        intake.rolled.push_back((active, now));
    }

    /// Refuses new batches, and returns when all that were taken in are answered.
    pub async fn shutdown(&self) {
        self.close();
        let mut is_drained = self.is_drained.subscribe();
        // The sender lives as long as `self`.
        let _ = is_drained.wait_for(|drained| *drained).await;
    }

    fn close(&self) {
        self.intake.lock().is_closed = true;
        self.wake.notify_one();
    }

    /// Whether the log has said that this proxy takes no part any more.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    pub fn counts(&self) -> ProduceCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let held = permits(self.config.inflight_max_bytes) as usize - self.room.available_permits();
        ProduceCounts {
            batches: load(&self.counters.batches),
            bytes: load(&self.counters.bytes),
            segments_rolled: load(&self.counters.segments_rolled),
            segments_failed: load(&self.counters.segments_failed),
            commits_unknown: load(&self.counters.commits_unknown),
            inflight_bytes: held as u64,
        }
    }

    /// One task rolls by time, starts uploads and commits in roll order. It ends when the service is closed and
    /// every segment has left.
    async fn run(self: Arc<Self>) {
        let stop = self.tasks.stop_token();
        let mut uploading: VecDeque<Uploading> = VecDeque::new();
        let mut is_stopping = false;
        loop {
            let (roll_at, is_closed) = self.start_uploads(&mut uploading);
            if is_closed && uploading.is_empty() {
                break;
            }
            // In order and not by chance, so that a simulation can be repeated.
            tokio::select! {
                biased;
                () = stop.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    self.close();
                }
                is_uploaded = front(&mut uploading) => {
                    if let Some(Uploading { commit, answers, .. }) = uploading.pop_front() {
                        self.commit(commit, answers, is_uploaded);
                    }
                }
                () = until(roll_at) => {}
                () = self.wake.notified() => {}
            }
        }
        // Commits are answered by tasks of their own; all bytes are given back when the last one was.
        let all = permits(self.config.inflight_max_bytes);
        if timeout(self.config.commit_timeout * 2, self.room.acquire_many(all)).await.is_err() {
            tracing::warn!("requests are still held at the end of Produce; their clients get no answer");
        }
        self.is_drained.send_replace(true);
    }

    /// Rolls if it is time, and starts the upload of everything rolled. Gives the time of the next roll, and whether
    /// the service is closed.
    fn start_uploads(self: &Arc<Self>, uploading: &mut VecDeque<Uploading>) -> (Option<Instant>, bool) {
        let (rolled, roll_at, is_closed) = {
            let mut intake = self.intake.lock();
            let roll_at = self.roll_by_time(&mut intake, Instant::now());
            (std::mem::take(&mut intake.rolled), roll_at, intake.is_closed)
        };
        for (active, rolled_at) in rolled {
            let RolledSegment { parts, commit, answers } = active.into_rolled(self.log_id);
            let (done, uploaded) = oneshot::channel();
            let service = Arc::clone(self);
            let segment = commit.segment;
            self.tasks.spawn_bounded("upload", async move {
                let _ = done.send(service.upload(segment, parts, rolled_at).await);
            });
            uploading.push_back(Uploading { commit, answers, uploaded });
        }
        (roll_at, is_closed)
    }

    fn roll_by_time(&self, intake: &mut Intake, now: Instant) -> Option<Instant> {
        let fill = intake.active.as_ref()?.fill();
        let decision = if intake.is_closed {
            Roll::Now { takes_token: true }
        } else {
            should_roll(now, fill, &self.limits, &intake.budget, self.under_way.load(Ordering::Acquire) == 0)
        };
        match decision {
            Roll::At(at) => Some(at),
            Roll::Now { takes_token } => {
                if takes_token {
                    intake.budget.take(now);
                }
                let active = intake.active.take()?;
                self.roll(intake, active, now);
                None
            }
        }
    }

    /// Whether the segment is durable. Then its parts are in the zone cache as well.
    async fn upload(&self, segment: WalSegmentId, parts: Vec<Bytes>, rolled_at: Instant) -> bool {
        let key = object_key(self.log_id, segment);
        let put = async {
            let _slot = self.upload_slots.acquire().await;
            self.store.put(&key, parts.clone()).await
        };
        match timeout_at(rolled_at + self.config.upload_timeout, put).await {
            Ok(Ok(())) => {
                self.cache.insert_written(segment, &parts);
                return true;
            }
            Ok(Err(error)) => tracing::warn!(%segment, %error, "a WAL segment was not uploaded; its batches fail"),
            Err(_) => tracing::warn!(%segment, "a WAL segment was not uploaded in time; its batches fail"),
        }
        false
    }

    /// Submits the commit of an uploaded segment, which fixes its place, and leaves the outcome to a task.
    fn commit(self: &Arc<Self>, commit: CommitSegment, answers: Vec<PendingAnswer>, is_uploaded: bool) {
        if !is_uploaded {
            self.counters.segments_failed.fetch_add(1, Ordering::Relaxed);
            return self.answer(answers, std::iter::repeat(Err(Rejected::NOT_WRITTEN)));
        }
        let segment = commit.segment;
        let outcome = self.commits.submit(commit);
        let service = Arc::clone(self);
        self.tasks.spawn_bounded("commit", async move {
            let outcome = timeout(service.config.commit_timeout, outcome).await;
            service.settle(segment, answers, outcome.unwrap_or(Err(CommitError::Unknown)));
        });
    }

    fn settle(&self, segment: WalSegmentId, answers: Vec<PendingAnswer>, outcome: Result<Outcome, CommitError>) {
        let rejected = match outcome {
            Ok(Outcome::Committed(batches)) => {
                if batches.iter().map(Vec::len).sum::<usize>() == answers.len() {
                    return self.answer(answers, batches.into_iter().flatten().map(result_of));
                }
                tracing::error!(%segment, "the outcome of a commit has not one entry for each batch");
                Rejected::UNKNOWN
            }
            Ok(Outcome::Refused(refusal)) => {
                tracing::warn!(%segment, %refusal, "the commit of a WAL segment was refused");
                Rejected::NOT_COMMITTED
            }
            Ok(Outcome::Done | Outcome::Opened { .. }) => {
                tracing::error!(%segment, "a commit has the outcome of another command");
                Rejected::UNKNOWN
            }
            Err(CommitError::NotCommitted) => Rejected::NOT_COMMITTED,
            Err(CommitError::Unknown) => {
                self.counters.commits_unknown.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%segment, "the outcome of a commit is not known");
                Rejected::UNKNOWN
            }
            Err(CommitError::Stopped) => {
                self.is_stopped.store(true, Ordering::Release);
                Rejected::STOPPED
            }
        };
        self.answer(answers, std::iter::repeat(Err(rejected)));
    }

    /// Answers the batches of one segment, in order. What they leave for R3 is noted before any client can know its
    /// answer.
    fn answer(&self, answers: Vec<PendingAnswer>, results: impl Iterator<Item = BatchResult>) {
        let answers: Vec<_> = answers.into_iter().zip(results).collect();
        {
            let now = Instant::now();
            let mut intake = self.intake.lock();
            for (answer, result) in &answers {
                if let Some(stream) = answer.stream {
                    intake.follows.answered(stream, answer.base_sequence, result.is_ok(), now);
                }
            }
        }
        for (answer, result) in answers {
            answer.slot.answer(result);
        }
        if self.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake.notify_one();
        }
    }
}

/// Room is counted in bytes, as far as a semaphore can count.
fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Whether the oldest upload succeeded, once it ended. An upload task that is gone did not succeed.
async fn front(uploading: &mut VecDeque<Uploading>) -> bool {
    match uploading.front_mut() {
        Some(oldest) => (&mut oldest.uploaded).await.unwrap_or(false),
        None => std::future::pending().await,
    }
}
