//! What the tasks, the store's thread and the callers of one coordination share.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::agreement::Agreement;
use super::barriers::BarrierError;
use super::clock_skew::ClockSkew;
use super::submissions::{Meaning, Submissions, SubmitError, Submitted};
use super::{CoordinationStats, Settings, Status};
use crate::diskless_coordinator::apply::{Answer, Applied};
use crate::diskless_coordinator::command::{Command, Proposer};
use crate::diskless_coordinator::effect::Effect;
use crate::diskless_coordinator::encoding::{FORMAT_VERSION, encode};
use crate::diskless_coordinator::outcome::{Outcome, Refusal};
use crate::diskless_coordinator::rules::agreement::Checkpoint;
use crate::diskless_coordinator::rules::log_time::CLOCK_TOLERANCE_MS;
use crate::diskless_coordinator::view::View;
use crate::metadata_log::{AppendError, Appending, LogError, MetadataLog};
use crate::metadata_store::StoreObserver;
use crate::types::LogPosition;

pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) log: Arc<dyn MetadataLog>,
    pub(super) view: Arc<View>,
    pub(super) status: watch::Sender<Status>,
    pub(super) stats: Arc<CoordinationStats>,
    /// Appends are queued while this is held: their order is the order of the counters.
    pub(super) submissions: Mutex<Submissions>,
    clock: ClockSkew,
    /// The last one that is applied; commands quote it (R8).
    checkpoint: Mutex<Checkpoint>,
    agreement: Mutex<Agreement>,
    /// Wakes the supervisor to open again.
    pub(super) reopen: Notify,
    applied: AtomicI64,
    /// Not a `watch`, which wakes its waiters in an order of chance: a simulation could not be repeated.
    applied_moved: Notify,
    /// Appends whose end the supervisor watches, with the client that made them.
    appends: mpsc::Sender<(u64, Appending)>,
}

impl Shared {
    pub(super) fn new(settings: Settings, log: Arc<dyn MetadataLog>, appends: mpsc::Sender<(u64, Appending)>) -> Self {
        Self {
            settings,
            log,
            view: Arc::default(),
            status: watch::Sender::new(Status::Starting),
            stats: Arc::default(),
            submissions: Mutex::new(Submissions::new()),
            clock: ClockSkew::default(),
            checkpoint: Mutex::new(Checkpoint::NONE),
            agreement: Mutex::default(),
            reopen: Notify::new(),
            applied: AtomicI64::new(LogPosition::NONE.0),
            applied_moved: Notify::new(),
            appends,
        }
    }

    pub(super) fn epoch(&self) -> LogPosition {
        self.submissions.lock().epoch()
    }

    pub(super) fn applied_now(&self) -> LogPosition {
        LogPosition(self.applied.load(Ordering::Acquire))
    }

    /// Resolves when something was applied after the call.
    pub(super) fn applied_moved(&self) -> Notified<'_> {
        self.applied_moved.notified()
    }

    fn set_applied(&self, position: LogPosition) {
        self.applied.store(position.0, Ordering::Release);
        self.applied_moved.notify_waiters();
    }

    pub(super) fn checkpoint(&self) -> Checkpoint {
        *self.checkpoint.lock()
    }

    /// Where the store stood when it was opened.
    pub(super) fn begin_at(&self, position: LogPosition, checkpoint: Checkpoint) {
        *self.checkpoint.lock() = checkpoint;
        self.set_applied(position);
    }

    pub(super) async fn wait_applied(&self, position: LogPosition, deadline: Instant) -> Result<(), BarrierError> {
        let reached = async {
            loop {
                let moved = self.applied_moved();
                if self.applied_now() >= position {
                    return;
                }
                moved.await;
            }
        };
        let late = |_| BarrierError::NotPassed(format!("position {position} was not applied in time"));
        tokio::time::timeout_at(deadline, reached).await.map_err(late)
    }

    pub(super) fn submit(&self, command: Command) -> Submitted {
        let mut submissions = self.submissions.lock();
        let (epoch, client) = (submissions.epoch(), submissions.client);
        let (submitted, append) = submissions.take(command, Instant::now());
        if let Some((counter, command)) = append {
            self.append(client, epoch, counter, command);
        }
        submitted
    }

    /// Begins the log. That the append's end is not known is no failure here: the caller waits for any `Genesis`.
    pub(super) async fn append_genesis(&self) -> Result<(), LogError> {
        let command = Command::Genesis {
            log_id: self.settings.identity.log_id,
            upstream_cluster_id: self.settings.upstream_cluster_id.clone(),
            metadata_topic_id: self.settings.metadata_topic_id,
        };
        match self.log.append(encode(&self.proposer(LogPosition::NONE, 0), &command)).await {
            Err(AppendError::NotAppended(why)) => Err(LogError::Unavailable(why)),
            Err(AppendError::Unknown(_)) | Ok(_) => Ok(()),
        }
    }

    fn proposer(&self, epoch: LogPosition, counter: u64) -> Proposer {
        let quoted = *self.checkpoint.lock();
        Proposer { proxy: self.settings.proxy, epoch, counter, wall_time: self.wall_time_ms(), quoted }
    }

    fn wall_time_ms(&self) -> i64 {
        self.settings.clock.now_ms()
    }

    /// Must be called with the submissions locked.
    fn append(&self, client: u64, epoch: LogPosition, counter: u64, command: &Command) {
        let appending = self.log.append(encode(&self.proposer(epoch, counter), command));
        self.stats.appended.fetch_add(1, Ordering::Relaxed);
        // A full queue loses only the early news of a failure: the append deadline finds it out as well.
        let _ = self.appends.try_send((client, appending));
    }

    /// Begins a new epoch of this incarnation, with a new client of the log (R10).
    pub(super) fn open_again(&self) {
        let mut submissions = self.submissions.lock();
        if submissions.is_stopped() {
            return;
        }
        if submissions.client > 0 {
            self.log.renew();
            self.stats.reopened.fetch_add(1, Ordering::Relaxed);
        }
        submissions.opening(Instant::now());
        let version = u16::from(FORMAT_VERSION);
        let open = Command::Open {
            nonce: self.settings.identity.nonce,
            zone: self.settings.zone.clone(),
            endpoint: self.settings.endpoint.clone(),
            min_version: version,
            max_version: version,
        };
        self.append(submissions.client, LogPosition::NONE, 0, &open);
    }

    /// Ends the coordination, unless it has ended already: the first reason counts.
    pub(super) fn stop(&self, status: Status) {
        let (pending, later) = match &status {
            Status::Fenced(_) => (SubmitError::Fenced, SubmitError::Fenced),
            _ => (SubmitError::Unknown, SubmitError::Stopped),
        };
        let mut submissions = self.submissions.lock();
        if submissions.is_stopped() {
            return;
        }
        submissions.stop(&pending, later);
        drop(submissions);
        match &status {
            Status::Fenced(why) | Status::Failed(why) => tracing::error!(why, "the coordination has ended"),
            _ => {}
        }
        self.status.send_replace(status);
    }

    fn fenced(&self, newer: LogPosition) {
        let proxy = self.settings.proxy;
        self.stop(Status::Fenced(format!(
            "another process opened proxy.id {proxy} at position {newer} of the metadata log: give every proxy an id of its own, or make sure that an old process has ended before a new one starts"
        )));
    }

    fn opened(&self, epoch: LogPosition) {
        let mut submissions = self.submissions.lock();
        if submissions.is_stopped() {
            return;
        }
        let client = submissions.client;
        for (counter, command) in submissions.opened(epoch, Instant::now()) {
            self.append(client, epoch, counter, command);
        }
        self.status.send_if_modified(|status| {
            let starting = *status == Status::Starting;
            if starting {
                *status = Status::Serving;
            }
            starting
        });
    }

    fn take_answer(&self, position: LogPosition, answer: &Answer) {
        let proposer = &answer.proposer;
        if proposer.proxy != self.settings.proxy {
            return;
        }
        let ours = self.settings.identity.nonce;
        match (&answer.nonce, &answer.outcome) {
            (Some(nonce), Outcome::Opened { epoch }) if *nonce == ours => self.opened(*epoch),
            (Some(nonce), Outcome::Refused(Refusal::Fenced { newer })) if *nonce == ours => self.fenced(*newer),
            // It was sent before this proxy, which had been cut off for long, had caught up.
            (Some(nonce), Outcome::Refused(Refusal::Behind { .. })) if *nonce == ours => {
                self.submissions.lock().open_failed = true;
            }
            (Some(nonce), Outcome::Refused(why)) if *nonce == ours && *why != Refusal::NoGenesis => {
                self.stop(Status::Failed(format!("the log does not let this proxy in: {why}")));
            }
            (Some(_), Outcome::Opened { epoch }) => {
                let own_epoch = self.epoch();
                if own_epoch != LogPosition::NONE && *epoch > own_epoch {
                    self.fenced(position);
                }
            }
            (Some(_), _) => {}
            (None, outcome) => {
                let known = match outcome {
                    // Others may have decided otherwise, and one of us is wrong.
                    Outcome::Committed(_) if self.agreement.lock().is_doubtful() => Err(SubmitError::Unknown),
                    outcome => Ok(outcome),
                };
                let meaning = self.submissions.lock().answered(proposer.epoch, proposer.counter, known);
                match meaning {
                    Meaning::Settled => {}
                    Meaning::Reopen => self.reopen.notify_one(),
                    Meaning::Fenced(newer) => self.fenced(newer),
                }
            }
        }
    }

    /// Notes who agrees with us. Says why this proxy's own state must be wrong, if it must.
    fn compare(&self, answer: &Answer) -> ControlFlow<String> {
        let now = Instant::now();
        if answer.proposer.proxy == self.settings.proxy {
            if let Outcome::Refused(refusal @ Refusal::Diverged { .. }) = &answer.outcome
                && answer.proposer.epoch == self.epoch()
            {
                return ControlFlow::Break(format!("a command of this proxy itself was refused: {refusal}"));
            }
            return ControlFlow::Continue(());
        }
        let mut agreement = self.agreement.lock();
        let was_doubtful = agreement.is_doubtful();
        agreement.hear(answer.proposer.proxy, answer.proposer.quoted.position, &answer.outcome, now);
        if agreement.is_doubtful() && !was_doubtful {
            let proxy = answer.proposer.proxy;
            tracing::error!(%proxy, "two proxies disagree about what the metadata log says; nothing is acknowledged until it shows who is wrong");
        }
        ControlFlow::Continue(())
    }
}

impl StoreObserver for Shared {
    fn applied(&self, group: Vec<Applied>) -> ControlFlow<String> {
        let Some(last) = group.last() else { return ControlFlow::Continue(()) };
        self.stats.applied.fetch_add(group.len() as u64, Ordering::Relaxed);
        self.stats.apply_lag_ms.store(self.wall_time_ms() - last.time, Ordering::Relaxed);
        self.set_applied(last.position);
        for applied in &group {
            if let Some(Effect::Checkpoint(checkpoint)) = applied.effects.last() {
                *self.checkpoint.lock() = *checkpoint;
            }
            let Some(answer) = &applied.answer else { continue };
            if let Outcome::Refused(refusal) = &answer.outcome {
                self.stats.add_refusal(refusal);
            }
            if answer.proposer.wall_time.saturating_add(CLOCK_TOLERANCE_MS) <= applied.time {
                self.stats.clock_cut_offs.fetch_add(1, Ordering::Relaxed);
            }
            if answer.proposer.proxy == self.settings.proxy {
                self.clock.look(answer.proposer.wall_time, self.wall_time_ms(), applied.time);
            }
            self.compare(answer)?;
            self.take_answer(applied.position, answer);
        }
        match self.agreement.lock().wrong_because(Instant::now()) {
            Some(why) => ControlFlow::Break(why),
            None => ControlFlow::Continue(()),
        }
    }

    fn failed(&self, reason: String) {
        self.stop(Status::Failed(reason));
    }
}
