//! The one door to background work: every task has a name, an owner and an end.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// Spawns tasks, tells them to stop, and waits until all have. Clones share one set of tasks.
#[derive(Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
    /// How many there are of each name.
    running: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    failures: mpsc::Sender<TaskFailed>,
    gate: Option<Gate>,
}

/// A task panicked. The process must not go on as if nothing had happened.
#[derive(Debug)]
pub struct TaskFailed {
    pub task: &'static str,
}

/// The tasks that had not ended in time.
#[derive(Debug, thiserror::Error)]
#[error("still running after the grace period: {}", .0.join(", "))]
pub struct StillRunning(pub Vec<&'static str>);

impl Tasks {
    /// The receiver hears of panics of tasks that were spawned with [`Tasks::spawn`].
    pub fn new() -> (Self, mpsc::Receiver<TaskFailed>) {
        Self::behind(None)
    }

    /// Tasks that a simulation can freeze and kill, like a process.
    pub fn gated(gate: Gate) -> (Self, mpsc::Receiver<TaskFailed>) {
        Self::behind(Some(gate))
    }

    fn behind(gate: Option<Gate>) -> (Self, mpsc::Receiver<TaskFailed>) {
        let (failures, failed) = mpsc::channel(16);
        let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
        (Self { tracker, stop, running: Arc::default(), failures, gate }, failed)
    }

    /// A token that is cancelled when the tasks are told to stop.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Runs a task that the process depends on: its panic is reported to the owner.
    pub fn spawn(&self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        let failures = self.failures.clone();
        let task = self.track(name, run);
        self.tracker.spawn(async move {
            if task.await.is_err_and(|e| e.is_panic()) {
                let _ = failures.try_send(TaskFailed { task: name });
            }
        });
    }

    /// Runs a task for one client or one request: its panic ends it alone, with a log line.
    pub fn spawn_bounded(&self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        let task = self.track(name, run);
        self.tracker.spawn(async move {
            if task.await.is_err_and(|e| e.is_panic()) {
                tracing::error!(task = name, "a task panicked; its connection was closed, all others go on");
            }
        });
    }

    fn track(&self, name: &'static str, run: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
        *self.running.lock().entry(name).or_default() += 1;
        let running = Arc::clone(&self.running);
        let entry = scopeguard(move || {
            if let Some(count) = running.lock().get_mut(name) {
                *count -= 1;
            }
        });
        // Boxed, for a future that is moved into another one takes its room in both.
        let run: BoxFuture<'static, ()> = match &self.gate {
            Some(gate) => gate.hold(run).boxed(),
            None => run.boxed(),
        };
        let task = async move {
            let _entry = entry;
            run.await;
        };
        self.tracker.spawn(task.in_current_span())
    }

    /// The names of the tasks that have not ended, each as often as there are such tasks.
    fn still_running(&self) -> Vec<&'static str> {
        self.running.lock().iter().flat_map(|(name, count)| std::iter::repeat_n(*name, *count)).collect()
    }

    /// Tells every task to stop without waiting.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Tells every task to stop and waits until all have ended, or names those that have not.
    pub async fn stop_and_join(&self, grace: Duration) -> Result<(), StillRunning> {
        self.stop.cancel();
        self.tracker.close();
        match tokio::time::timeout(grace, self.tracker.wait()).await {
            Ok(()) => Ok(()),
            Err(_) => Err(StillRunning(self.still_running())),
        }
    }
}

/// What stands between a set of tasks and whoever runs them. Closed, none of them goes on, as if their process was
/// stopped by SIGSTOP; ended, they are dropped where they stand, as if it was killed.
#[derive(Clone, Default)]
pub struct Gate(Arc<Mutex<GateState>>);

#[derive(Default)]
struct GateState {
    phase: GatePhase,
    next_task: u64,
    /// In the order of their numbers, so that a simulation can be repeated.
    tasks: BTreeMap<u64, Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum GatePhase {
    #[default]
    Open,
    Closed,
    Ended,
}

impl Gate {
    pub fn close(&self) {
        let mut state = self.0.lock();
        if state.phase == GatePhase::Open {
            state.phase = GatePhase::Closed;
        }
    }

    pub fn open(&self) {
        let mut state = self.0.lock();
        if state.phase == GatePhase::Closed {
            state.phase = GatePhase::Open;
        }
        state.wake();
    }

    /// For good.
    pub fn end(&self) {
        let mut state = self.0.lock();
        state.phase = GatePhase::Ended;
        state.wake();
    }

    pub fn is_ended(&self) -> bool {
        self.0.lock().phase == GatePhase::Ended
    }

    fn hold(&self, run: impl Future<Output = ()> + Send + 'static) -> impl Future<Output = ()> + Send + 'static {
        let gate = self.clone();
        let task = {
            let mut state = gate.0.lock();
            state.next_task += 1;
            state.next_task
        };
        let mut run = Some(run.boxed());
        std::future::poll_fn(move |context| {
            let phase = {
                let mut state = gate.0.lock();
                state.tasks.insert(task, context.waker().clone());
                state.phase
            };
            let polled = match (phase, &mut run) {
                (GatePhase::Closed, _) => return Poll::Pending,
                (GatePhase::Open, Some(run)) => run.poll_unpin(context),
                (GatePhase::Ended, _) | (_, None) => Poll::Ready(()),
            };
            if polled.is_ready() {
                // Dropped here: what it holds may spawn or wake, which must not happen under the lock.
                run = None;
                gate.0.lock().tasks.remove(&task);
            }
            polled
        })
    }
}

impl GateState {
    fn wake(&self) {
        self.tasks.values().for_each(Waker::wake_by_ref);
    }
}

/// Runs `end` when dropped, also while unwinding.
fn scopeguard<F: FnOnce() + Send>(end: F) -> impl Drop + Send {
    struct Guard<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for Guard<F> {
        fn drop(&mut self) {
            if let Some(end) = self.0.take() {
                end();
            }
        }
    }
    Guard(Some(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stopping_waits_for_every_task() {
        let (tasks, _failed) = Tasks::new();
        let stop = tasks.stop_token();
        tasks.spawn("waits", async move { stop.cancelled().await });
        assert!(tasks.stop_and_join(Duration::from_secs(5)).await.is_ok());
    }

    #[tokio::test]
    async fn tasks_that_do_not_end_are_named() {
        let (tasks, _failed) = Tasks::new();
        tasks.spawn("quick", std::future::ready(()));
        tasks.spawn("stuck", std::future::pending());
        tasks.spawn("stuck", std::future::pending());
        let error = tasks.stop_and_join(Duration::from_millis(100)).await.expect_err("two are stuck");
        assert_eq!(error.0, ["stuck", "stuck"]);
    }

    #[tokio::test]
    async fn a_panic_is_reported() {
        let (tasks, mut failed) = Tasks::new();
        tasks.spawn("bad", async { panic!("on purpose") });
        assert_eq!(failed.recv().await.map(|f| f.task), Some("bad"));
    }

    #[tokio::test]
    async fn a_gate_freezes_and_kills_its_tasks() {
        let gate = Gate::default();
        let (tasks, _failed) = Tasks::gated(gate.clone());
        let (ticks, mut ticked) = mpsc::channel(1);
        tasks.spawn("ticks", async move { while ticks.send(()).await.is_ok() {} });
        assert!(ticked.recv().await.is_some());
        gate.close();
        // What it had sent before is there; then nothing comes.
        while ticked.try_recv().is_ok() {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
        assert!(ticked.try_recv().is_err());
        gate.open();
        assert!(ticked.recv().await.is_some());
        gate.end();
        while ticked.recv().await.is_some() {}
        assert!(tasks.stop_and_join(Duration::from_secs(5)).await.is_ok(), "it is dropped");
    }
}
