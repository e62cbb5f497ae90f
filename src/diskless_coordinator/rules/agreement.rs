//! Who is wrong (R8): every so often all proxies note what they have read and what came of it, and each command quotes
//! the last such note of its proposer. A command that quotes something else than is noted here is refused.
//!
//! The refusal is the same on every proxy that is right. A proxy that is wrong finds all others wrong; what it does
//! then is not decided here.

use serde::{Deserialize, Serialize};

use crate::diskless_coordinator::digest::Hash;
use crate::diskless_coordinator::outcome::Refusal;
use crate::diskless_coordinator::state::State;
use crate::types::{LogPosition, TimestampMs};

/// A checkpoint is due after so many records...
pub const CHECKPOINT_RECORDS: u32 = 1_024;
/// ...or so much log time.
pub const CHECKPOINT_MS: i64 = 1_000;
/// How many are kept. A proposer may be behind by as many.
pub const CHECKPOINTS: usize = 256;

/// What a proxy has read and what came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    pub position: LogPosition,
    /// Of all records up to this one.
    pub chain: Hash,
    /// Of the state after this one.
    pub digest: Hash,
}

impl Checkpoint {
    /// Before the first one.
    pub const NONE: Self = Self { position: LogPosition::NONE, chain: Hash([0; 16]), digest: Hash([0; 16]) };
}

/// How far the state has come since its last checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SinceCheckpoint {
    pub records: u32,
    /// Log time of the last checkpoint.
    pub time: TimestampMs,
}

/// Makes a checkpoint after a record, if one is due.
pub fn note(state: &mut State) -> Option<Checkpoint> {
    let now = state.clock.time;
    state.since_checkpoint.records += 1;
    let since = state.since_checkpoint;
    if since.records < CHECKPOINT_RECORDS && now.saturating_sub(since.time) < CHECKPOINT_MS {
        return None;
    }
    state.since_checkpoint = SinceCheckpoint { records: 0, time: now };
    state.settle();
    let checkpoint = Checkpoint { position: state.applied, chain: state.chain, digest: state.digest() };
    state.checkpoints.push_back(checkpoint);
    if state.checkpoints.len() > CHECKPOINTS {
        state.checkpoints.pop_front();
    }
    Some(checkpoint)
}

/// Whether what a proposer quotes is what is noted here.
pub fn check(state: &State, quoted: &Checkpoint) -> Result<(), Refusal> {
    let position = quoted.position;
    match state.checkpoints.binary_search_by_key(&position, |known| known.position) {
        Ok(at) if state.checkpoints[at] == *quoted => Ok(()),
        // As long as none was dropped, a proposer that knows none yet is not behind.
        Err(0) if state.checkpoints.len() < CHECKPOINTS && *quoted == Checkpoint::NONE => Ok(()),
        Err(0) if state.checkpoints.len() == CHECKPOINTS => Err(Refusal::Behind { quoted: position }),
        Ok(_) | Err(_) => Err(Refusal::Diverged { quoted: position }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(position: i64) -> Checkpoint {
        Checkpoint { position: LogPosition(position), chain: Hash([1; 16]), digest: Hash([2; 16]) }
    }

    #[test]
    fn r8_what_is_quoted_must_be_what_is_noted() {
        let (behind, diverged) = (
            |p| Err(Refusal::Behind { quoted: LogPosition(p) }),
            |p| Err(Refusal::Diverged { quoted: LogPosition(p) }),
        );
        let mut state = State::default();
        assert_eq!(check(&state, &Checkpoint::NONE), Ok(()), "nothing is noted yet");
        state.checkpoints.extend([10, 20].map(checkpoint));
        assert_eq!(check(&state, &Checkpoint::NONE), Ok(()), "it has not come as far as the first");
        assert_eq!(check(&state, &checkpoint(10)), Ok(()));
        assert_eq!(check(&state, &checkpoint(20)), Ok(()));
        assert_eq!(check(&state, &Checkpoint { digest: Hash([3; 16]), ..checkpoint(20) }), diverged(20));
        assert_eq!(check(&state, &Checkpoint { chain: Hash([3; 16]), ..checkpoint(10) }), diverged(10));
        assert_eq!(check(&state, &checkpoint(15)), diverged(15), "there was no checkpoint at this position");
        assert_eq!(check(&state, &checkpoint(30)), diverged(30), "nor at one that is yet to come");
        state.checkpoints = (1..=CHECKPOINTS as i64).map(|n| checkpoint(n * 10)).collect();
        assert_eq!(check(&state, &Checkpoint::NONE), behind(-1));
        assert_eq!(check(&state, &checkpoint(5)), behind(5));
    }
}
