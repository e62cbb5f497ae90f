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
use crate::diskless_coordinator::encoding::FORMAT_VERSION;
use crate::diskless_coordinator::view::Proxies;
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
        // In order and not by chance, so that a simulation can be repeated; what comes most often is last.
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = shared.reopen.notified() => reopen_from_open(&shared),
            _ = tick.tick() => {
                look_at_deadlines(&shared);
                if Instant::now() >= heartbeat_due && shared.submissions.lock().is_open() {
                    heartbeat_due = Instant::now() + shared.settings.timing.heartbeat;
                    // Its outcome is seen where every answer is.
                    drop(shared.submit(Command::Heartbeat));
                    if let Some(version) = version_to_propose(&shared.view.proxies(), u16::from(FORMAT_VERSION)) {
                        drop(shared.submit(Command::SetClusterVersion { version }));
                    }
                }
            }
            Some((client, result)) = watched.next(), if !watched.is_empty() => append_ended(&shared, client, result),
            Some((client, appending)) = appends.recv() => watched.push(async move { (client, appending.await) }),
        }
    }
}

/// The version to which the log may be raised: ours, once every open proxy knows it (R12). `apply` looks again.
fn version_to_propose(proxies: &Proxies, ours: u16) -> Option<u16> {
    let mut open = proxies.by_id.values().filter(|proxy| !proxy.closed);
    let all_know = open.all(|proxy| (proxy.min_version..=proxy.max_version).contains(&ours));
    (ours > proxies.cluster_version && all_know).then_some(ours)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diskless_coordinator::view::ProxyInfo;
    use crate::types::{Endpoint, ProxyId};

    #[test]
    fn r12_the_version_is_raised_once_every_open_proxy_knows_the_new_one() {
        let proxy = |max_version, closed| ProxyInfo {
            epoch: LogPosition(1),
            zone: "a".to_owned(),
            endpoint: Endpoint { host: "h".to_owned(), port: 1 },
            last_heard: 0,
            closed,
            min_version: 1,
            max_version,
        };
        let with = |known: &[ProxyInfo]| Proxies {
            cluster_version: 1,
            by_id: (1..).map(ProxyId).zip(known.iter().cloned()).collect(),
            ..Proxies::default()
        };
        assert_eq!(version_to_propose(&with(&[proxy(2, false), proxy(2, false)]), 2), Some(2));
        assert_eq!(version_to_propose(&with(&[proxy(2, false), proxy(1, false)]), 2), None, "one does not know it");
        assert_eq!(version_to_propose(&with(&[proxy(2, false), proxy(1, true)]), 2), Some(2), "but it is gone");
        assert_eq!(version_to_propose(&with(&[proxy(1, false)]), 1), None, "it is that already");
    }
}
