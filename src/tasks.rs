//! The one door to background work: every task has a name, an owner and an end.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

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
        let (failures, failed) = mpsc::channel(16);
        let tasks =
            Self { tracker: TaskTracker::new(), stop: CancellationToken::new(), running: Arc::default(), failures };
        (tasks, failed)
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
        let run = Box::pin(run);
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
}
