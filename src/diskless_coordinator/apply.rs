//! Takes one record after the other and makes the next state of it. Same records, same state, on every proxy.
//!
//! Never panics for what a record says: a command that cannot be carried out is refused, and a refusal is an
//! outcome. A record that cannot be understood stops the caller before anything has changed.

use super::command::{Command, Proposal, Proposer};
use super::effect::Effect;
use super::encoding::{DecodeError, Decoded, LogRecord, decode};
use super::outcome::{Outcome, Refusal};
use super::rules::incarnations::{self, Opening};
use super::rules::log_time::COMMIT_WINDOW_MS;
use super::rules::topics::{self, Registration};
use super::rules::{agreement, commit, incarnations::admit, versions};
use super::state::{Genesis, State};
use crate::types::{LogPosition, TimestampMs};

/// How often, in log time, names and proxies are looked through for those that expired.
const SWEEP_EVERY_MS: i64 = 1_000;
/// Kafka's `producer.id.expiration.check.interval.ms`. Expired producers count as unknown before they are swept.
const SWEEP_PRODUCERS_EVERY_MS: i64 = 600_000;

/// What applying one record did.
#[must_use]
#[derive(Clone, PartialEq, Debug)]
pub struct Applied {
    pub position: LogPosition,
    /// Log time after it.
    pub time: TimestampMs,
    /// `None` for a record that was skipped.
    pub answer: Option<Answer>,
    pub effects: Vec<Effect>,
}

/// What became of a command, and whose it was.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    pub proposer: Proposer,
    /// The nonce, if the command was an `Open`.
    pub nonce: Option<[u8; 16]>,
    pub outcome: Outcome,
}

/// Why the log cannot be applied any further.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("record {position} of the metadata log: {error}")]
    Decode { position: LogPosition, error: DecodeError },
    #[error("record {got} of the metadata log came after {applied}: it was applied before, or the log went back")]
    Order { applied: LogPosition, got: LogPosition },
}

/// Applies one record of the log.
pub fn apply(state: &mut State, record: &LogRecord) -> Result<Applied, ApplyError> {
    let position = record.position;
    if position <= state.applied {
        return Err(ApplyError::Order { applied: state.applied, got: position });
    }
    let decoded = decode(&record.bytes).map_err(|error| ApplyError::Decode { position, error })?;
    state.applied = position;
    state.chain = state.chain.chain(record);
    let mut effects = Vec::new();
    let answer = match decoded {
        Decoded::Skipped => None,
        Decoded::Proposal(proposal) => Some(decide(state, record, proposal, &mut effects)),
    };
    effects.extend(agreement::note(state).map(Effect::Checkpoint));
    Ok(Applied { position, time: state.clock.time, answer, effects })
}

fn decide(state: &mut State, record: &LogRecord, proposal: Proposal, effects: &mut Vec<Effect>) -> Answer {
    let Proposal { proposer, command } = proposal;
    if state.clock.advance(record.position, record.append_time_ms, proposer.wall_time) {
        effects.push(Effect::TimeMarks);
    }
    sweep(state, effects);
    let nonce = match &command {
        Command::Open { nonce, .. } => Some(*nonce),
        _ => None,
    };
    let outcome = carry_out(state, record.position, &proposer, command, effects);
    Answer { proposer, nonce, outcome }
}

fn carry_out(
    state: &mut State,
    position: LogPosition,
    proposer: &Proposer,
    command: Command,
    effects: &mut Vec<Effect>,
) -> Outcome {
    if let Command::Genesis { log_id, upstream_cluster_id, metadata_topic_id } = command {
        return begin(state, Genesis { log_id, upstream_cluster_id, metadata_topic_id }, effects);
    }
    if state.genesis.is_none() {
        return Outcome::Refused(Refusal::NoGenesis);
    }
    if let Command::Open { nonce, zone, endpoint, min_version, max_version } = command {
        let opening = Opening { nonce, zone, endpoint, min_version, max_version };
        return incarnations::open(state, position, proposer, opening, effects);
    }
    match admit(state, proposer, effects) {
        Ok(()) => carry_out_admitted(state, position, proposer, command, effects),
        Err(refusal) => Outcome::Refused(refusal),
    }
}

fn carry_out_admitted(
    state: &mut State,
    position: LogPosition,
    proposer: &Proposer,
    command: Command,
    effects: &mut Vec<Effect>,
) -> Outcome {
    match command {
        Command::Genesis { .. } | Command::Open { .. } | Command::Heartbeat | Command::Barrier => Outcome::Done,
        Command::Close => incarnations::close(state, proposer, effects),
        Command::CommitSegment(segment) => commit::commit(state, position, segment, effects),
        Command::PendingTopic { name } => topics::announce(state, name, effects),
        Command::PendingTopicDropped { name } => topics::drop_announced(state, name, effects),
        Command::RegisterTopic { name, topic_id, partitions, leader_epoch, config } => {
            topics::register(state, Registration { name, topic_id, partitions, leader_epoch, config }, effects)
        }
        Command::TopicDeleted { topic_id } => topics::delete(state, topic_id, effects),
        Command::PartitionsCreated { topic_id, partitions } => topics::grow(state, topic_id, partitions, effects),
        Command::TopicConfigChanged { topic_id, config } => topics::configure(state, topic_id, config, effects),
        Command::SetClusterVersion { version } => versions::raise(state, version, effects),
    }
}

fn begin(state: &mut State, genesis: Genesis, effects: &mut Vec<Effect>) -> Outcome {
    if let Some(known) = &state.genesis {
        return Outcome::Refused(Refusal::GenesisExists { log_id: known.log_id });
    }
    effects.push(Effect::Genesis(genesis.clone()));
    state.genesis = Some(genesis);
    Outcome::Done
}

/// Drops what log time has made obsolete.
fn sweep(state: &mut State, effects: &mut Vec<Effect>) {
    let now = state.clock.time;
    state.commits.forget_before(now.saturating_sub(COMMIT_WINDOW_MS));
    if now.saturating_sub(state.swept.names_and_proxies) >= SWEEP_EVERY_MS {
        state.swept.names_and_proxies = now;
        topics::expire_pending(state, now, effects);
        incarnations::close_silent(state, now, effects);
    }
    if now.saturating_sub(state.swept.producers) >= SWEEP_PRODUCERS_EVERY_MS {
        state.swept.producers = now;
        state.producers.retain(|key, producer| {
            let keep = !producer.is_expired(now);
            if !keep {
                effects.push(Effect::ProducerExpired(*key));
            }
            keep
        });
    }
}
