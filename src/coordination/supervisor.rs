//! Watches over the appends of this proxy: sends heartbeats, and opens again when the log's client failed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::shared::Shared;
use crate::diskless_coordinator::command::Command;
use crate::metadata_log::{AppendError, Appending};
use crate::types::LogPosition;

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(100);

pub(super) async fn run(shared: Arc<Shared>, mut appends: mpsc::Receiver<(u64, Appending)>, stop: CancellationToken) {
    let mut watched = FuturesUnordered::new();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heartbeat_due = Instant::now();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some((client, appending)) = appends.recv() => watched.push(async move { (client, appending.await) }),
            Some((client, result)) = watched.next(), if !watched.is_empty() => append_ended(&shared, client, result),
            () = shared.reopen.notified() => reopen_from_open(&shared),
            _ = tick.tick() => {
                look_at_deadlines(&shared);
                if Instant::now() >= heartbeat_due && shared.submissions.lock().is_open() {
                    heartbeat_due = Instant::now() + shared.settings.timing.heartbeat;
                    // Its outcome is seen where every answer is.
                    drop(shared.submit(Command::Heartbeat));
                }
            }
        }
    }
}

/// A record that did not get in leaves a hole in the counters; one that may have is found out by the next `Open`.
fn append_ended(shared: &Shared, client: u64, result: Result<LogPosition, AppendError>) {
    let Err(error) = result else { return };
    shared.stats.append_failures.fetch_add(1, Ordering::Relaxed);
    let mut submissions = shared.submissions.lock();
    if submissions.client != client {
        return;
    }
    if submissions.is_opening() {
        submissions.open_failed = true;
        return;
    }
    drop(submissions);
    tracing::warn!(%error, "an append to the metadata log failed; opening again");
    reopen_from_open(shared);
}

fn reopen_from_open(shared: &Shared) {
    let is_open = shared.submissions.lock().is_open();
    if is_open {
        shared.open_again();
    }
}

fn look_at_deadlines(shared: &Shared) {
    let timing = &shared.settings.timing;
    let now = Instant::now();
    let mut submissions = shared.submissions.lock();
    submissions.give_up(timing.submit_deadline, now);
    let due = if submissions.is_opening() {
        let patience = if submissions.open_failed { timing.open_retry } else { timing.append_deadline };
        submissions.open_sent.is_some_and(|sent| now.duration_since(sent) >= patience)
    } else {
        submissions.is_open() && submissions.oldest_append(now).is_some_and(|age| age >= timing.append_deadline)
    };
    drop(submissions);
    if due {
        tracing::warn!("the metadata log has not answered in time; opening again");
        shared.open_again();
    }
}
