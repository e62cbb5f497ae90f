//! From nothing to serving: find out which log this is, open the store, apply what is there, open an incarnation.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::barriers::Barriers;
use super::shared::Shared;
use super::submissions::MAX_UNANSWERED;
use super::{Coordination, Settings, StartError, Status, supervisor};
use crate::diskless_coordinator::command::Command;
use crate::diskless_coordinator::encoding::{Decoded, decode};
use crate::metadata_log::{LogError, MetadataLog, Tail};
use crate::metadata_store::MetadataStore;
use crate::tasks::Tasks;
use crate::types::{LogId, LogPosition};

impl Coordination {
    /// Returns when everything that is in the log is applied here, and this proxy's `Open` too.
    pub async fn start(settings: Settings, log: Arc<dyn MetadataLog>, tasks: &Tasks) -> Result<Arc<Self>, StartError> {
        let stop = tasks.stop_token().child_token();
        // Whatever was started ends with a start that fails.
        let guard = stop.clone().drop_guard();
        let (start, end) = (log.start().await?, log.end().await?);
        let found = find_genesis(log.as_ref(), start, end).await?;
        let (appends, watched) = mpsc::channel(MAX_UNANSWERED);
        let shared = Arc::new(Shared::new(settings, log, appends));
        let observer = Arc::clone(&shared);
        let store = MetadataStore::open(&shared.settings.store, found, Arc::clone(&shared.view), observer)?;
        let store = Arc::new(store);
        let applied = store.applied_at_open();
        if found.is_none() && store.log_id().is_some() {
            return Err(StartError::LogLost { applied, end });
        }
        shared.begin_at(applied, store.checkpoint_at_open());
        let tail = tail_after(&shared, applied, start, end)?;
        tasks.spawn("metadata-log-follow", follow(Arc::clone(&shared), Arc::clone(&store), tail, stop.clone()));
        tasks.spawn("coordination", supervisor::run(Arc::clone(&shared), watched, stop.clone()));
        reach(&shared, &stop, || shared.applied_now() >= LogPosition(end.0 - 1)).await?;
        let log_id = ensure_genesis(&shared, &stop).await?;
        shared.open_again();
        reach(&shared, &stop, || *shared.status.borrow() == Status::Serving).await?;
        let barriers = Barriers::start(&shared, tasks, &stop);
        Ok(Arc::new(Self { shared, store, barriers, log_id, stop: guard.disarm() }))
    }
}

/// The id that the log's first command gave it; `None` while the log is empty.
async fn find_genesis(
    log: &dyn MetadataLog,
    start: LogPosition,
    end: LogPosition,
) -> Result<Option<LogId>, StartError> {
    if end <= start {
        return Ok(None);
    }
    let mut tail = log.tail(start)?;
    while let Some(group) = tail.groups.recv().await {
        for record in group? {
            if let Ok(Decoded::Proposal(proposal)) = decode(&record.bytes)
                && let Command::Genesis { log_id, .. } = proposal.command
            {
                return Ok(Some(log_id));
            }
            if record.position.next() >= end {
                return Ok(None);
            }
        }
    }
    Err(LogError::Unavailable("the log ended while it was read".to_owned()).into())
}

/// Reads on from where the store stands, if the log still has that.
fn tail_after(shared: &Shared, applied: LogPosition, start: LogPosition, end: LogPosition) -> Result<Tail, StartError> {
    if applied >= end {
        return Err(StartError::LogLost { applied, end });
    }
    if applied.next() < start {
        return Err(StartError::LogTrimmed { applied, start });
    }
    Ok(shared.log.tail(applied.next())?)
}

/// Hands what the log has to the store, for as long as both go on. A tail that falls silent is replaced: librdkafka
/// waits by the wall clock, so one that is set back by ten minutes may stop a client for as long.
async fn follow(shared: Arc<Shared>, store: Arc<MetadataStore>, mut tail: Tail, stop: CancellationToken) {
    // Not what is applied: the store may hold groups that it has not come to.
    let mut next = shared.applied_now().next();
    loop {
        let group = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            group = timeout(shared.settings.timing.tail_deadline, tail.groups.recv()) => group,
        };
        let Ok(group) = group else {
            tail = tail_anew(&shared, next).unwrap_or(tail);
            continue;
        };
        let failed = match group {
            Some(Ok(records)) => {
                next = records.last().map_or(next, |last| last.position.next());
                match store.apply(records).await {
                    Ok(()) => continue,
                    // The observer was told why.
                    Err(_) => return,
                }
            }
            Some(Err(error)) => error.to_string(),
            None => "the metadata log's reader has ended".to_owned(),
        };
        shared.stop(Status::Failed(failed));
        return;
    }
}

/// A new client that reads on from there; none for a proxy that is at its end, or when none can be made.
fn tail_anew(shared: &Shared, next: LogPosition) -> Option<Tail> {
    if shared.submissions.lock().is_stopped() {
        return None;
    }
    tracing::warn!(%next, "the metadata log has shown nothing for a while, not even a heartbeat of this proxy; reading it with a new client");
    shared.log.tail(next).inspect_err(|error| tracing::warn!(%error, "the metadata log cannot be read anew")).ok()
}

/// Waits until something is so. It is looked at whenever a record was applied or the status changed.
async fn reach(shared: &Shared, stop: &CancellationToken, is_so: impl Fn() -> bool) -> Result<(), StartError> {
    let mut status = shared.status.subscribe();
    loop {
        // Before the look: what moves after it is told.
        let moved = shared.applied_moved();
        match &*status.borrow_and_update() {
            Status::Starting | Status::Serving => {}
            Status::Fenced(why) => return Err(StartError::Fenced(why.clone())),
            Status::Failed(why) => return Err(StartError::Failed(why.clone())),
            Status::Stopped => return Err(StartError::Stopped),
        }
        if is_so() {
            return Ok(());
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Err(StartError::Stopped),
            _ = status.changed() => {}
            () = moved => {}
        }
    }
}

/// Begins an empty log (R1), and makes sure that it is the log of the right cluster.
async fn ensure_genesis(shared: &Shared, stop: &CancellationToken) -> Result<LogId, StartError> {
    let log_id = || shared.view.proxies().log_id;
    while log_id().is_none() {
        // Other proxies may do the same at this moment: the first one in the log counts, for all. An append whose
        // end is unknown is repeated if nothing shows.
        shared.append_genesis().await?;
        let shows = reach(shared, stop, || log_id().is_some());
        if let Ok(ended) = timeout(shared.settings.timing.append_deadline, shows).await {
            ended?;
        }
    }
    let proxies = shared.view.proxies();
    let expected = &shared.settings.upstream_cluster_id;
    if proxies.upstream_cluster_id != *expected {
        let found = proxies.upstream_cluster_id.clone();
        return Err(StartError::ClusterId { expected: expected.clone(), found });
    }
    proxies.log_id.ok_or(StartError::Stopped)
}
