//! The commands of this proxy that have no answer yet, in order, and the epoch in which they are appended.
//!
//! Pure bookkeeping: says what to append, never appends. After an `Open` was applied, every command of an older
//! epoch is either answered or dead, so all that are unanswered go out again in their order (R10).

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};

use crate::diskless_coordinator::command::Command;
use crate::diskless_coordinator::outcome::{Outcome, Refusal};
use crate::types::LogPosition;

/// More unanswered commands are refused.
pub(super) const MAX_UNANSWERED: usize = 8_192;

/// The counter of a command that waits for an `Open`: no answer can be meant for it.
const NOT_APPENDED: u64 = u64::MAX;

/// Why a command has no outcome.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SubmitError {
    #[error("too many commands wait for the metadata log; this one was not appended")]
    NotAppended,
    #[error("it is not known whether the command took effect")]
    Unknown,
    #[error("this proxy was fenced; the command took no effect")]
    Fenced,
    #[error("the coordination has stopped; the command was not appended")]
    Stopped,
}

/// Resolves when the command was read back and applied. To drop it does not take the command back.
pub struct Submitted(oneshot::Receiver<Result<Outcome, SubmitError>>);

impl Future for Submitted {
    type Output = Result<Outcome, SubmitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or(Err(SubmitError::Unknown)))
    }
}

/// In which epoch commands go out.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// An `Open` is on its way; commands wait for it.
    Opening,
    Open,
    Stopped(SubmitError),
}

pub(super) struct Submissions {
    phase: Phase,
    epoch: LogPosition,
    counter: u64,
    unanswered: VecDeque<Unanswered>,
    /// Grows with every client of the log: a failure of an older one is old news.
    pub(super) client: u64,
    pub(super) open_sent: Option<Instant>,
    pub(super) open_failed: bool,
}

struct Unanswered {
    counter: u64,
    command: Command,
    since: Instant,
    /// When it last went out.
    appended: Instant,
    reply: oneshot::Sender<Result<Outcome, SubmitError>>,
}

/// What an answer that was read back means.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// It was passed on, or belongs to the past.
    Settled,
    /// Later commands cannot be admitted any more: open again.
    Reopen,
    Fenced(LogPosition),
}

impl Submissions {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Opening,
            epoch: LogPosition::NONE,
            counter: 0,
            unanswered: VecDeque::new(),
            client: 0,
            open_sent: None,
            open_failed: false,
        }
    }

    pub(super) fn epoch(&self) -> LogPosition {
        self.epoch
    }

    pub(super) fn is_opening(&self) -> bool {
        self.phase == Phase::Opening
    }

    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    pub(super) fn is_stopped(&self) -> bool {
        matches!(self.phase, Phase::Stopped(_))
    }

    /// Takes a command. Gives its counter and itself back to be appended now; `None`: it waits, or was refused.
    pub(super) fn take(&mut self, command: Command, now: Instant) -> (Submitted, Option<(u64, &Command)>) {
        let (reply, answer) = oneshot::channel();
        let submitted = Submitted(answer);
        let refused = match &self.phase {
            Phase::Stopped(why) => Some(why.clone()),
            _ if self.unanswered.len() >= MAX_UNANSWERED => Some(SubmitError::NotAppended),
            _ => None,
        };
        if let Some(why) = refused {
            let _ = reply.send(Err(why));
            return (submitted, None);
        }
        let is_open = self.is_open();
        if is_open {
            self.counter += 1;
        }
        let counter = if is_open { self.counter } else { NOT_APPENDED };
        self.unanswered.push_back(Unanswered { counter, command, since: now, appended: now, reply });
        let last = self.unanswered.back().map(|last| (counter, &last.command));
        (submitted, last.filter(|_| is_open))
    }

    /// From now on commands wait for an `Open`.
    pub(super) fn opening(&mut self, now: Instant) {
        self.phase = Phase::Opening;
        self.client += 1;
        self.open_sent = Some(now);
        self.open_failed = false;
    }

    /// An `Open` of ours was applied: gives everything that is unanswered, to be appended in this order.
    pub(super) fn opened(&mut self, epoch: LogPosition, now: Instant) -> impl Iterator<Item = (u64, &Command)> {
        self.phase = Phase::Open;
        self.epoch = epoch;
        self.open_sent = None;
        for (counter, unanswered) in (1..).zip(&mut self.unanswered) {
            unanswered.counter = counter;
            unanswered.appended = now;
        }
        self.counter = self.unanswered.back().map_or(0, |last| last.counter);
        self.unanswered.iter().map(|unanswered| (unanswered.counter, &unanswered.command))
    }

    /// The outcome of a command of ours was read back. It may be one that must not be told.
    pub(super) fn answered(
        &mut self,
        epoch: LogPosition,
        counter: u64,
        outcome: Result<&Outcome, SubmitError>,
    ) -> Meaning {
        match outcome {
            Ok(Outcome::Refused(Refusal::Fenced { newer })) if !self.is_stopped() && epoch == self.epoch => {
                return Meaning::Fenced(*newer);
            }
            _ if epoch != self.epoch => return Meaning::Settled,
            Ok(Outcome::Refused(Refusal::Counter { expected, got })) if got < expected => return Meaning::Settled,
            Ok(Outcome::Refused(
                Refusal::Counter { .. } | Refusal::NotOpen | Refusal::Superseded | Refusal::Behind { .. },
            )) => {
                return if self.is_open() { Meaning::Reopen } else { Meaning::Settled };
            }
            _ => {}
        }
        if let Ok(at) = self.unanswered.binary_search_by_key(&counter, |unanswered| unanswered.counter)
            && let Some(done) = self.unanswered.remove(at)
        {
            let _ = done.reply.send(outcome.cloned());
        }
        Meaning::Settled
    }

    /// Gives up commands that have waited for too long; they may still take effect.
    pub(super) fn give_up(&mut self, deadline: Duration, now: Instant) {
        while self.unanswered.front().is_some_and(|first| now.duration_since(first.since) >= deadline) {
            if let Some(first) = self.unanswered.pop_front() {
                let _ = first.reply.send(Err(SubmitError::Unknown));
            }
        }
    }

    /// How long ago the first command that is unanswered went out.
    pub(super) fn oldest_append(&self, now: Instant) -> Option<Duration> {
        self.unanswered.front().map(|first| now.duration_since(first.appended))
    }

    /// Answers everything with `pending`, and refuses what comes with `later`.
    pub(super) fn stop(&mut self, pending: &SubmitError, later: SubmitError) {
        self.phase = Phase::Stopped(later);
        for unanswered in self.unanswered.drain(..) {
            let _ = unanswered.reply.send(Err(pending.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
