//! Who may propose: epochs, counters and nonces of proxies (R10), and proxies that went silent (R12).
//!
//! An epoch is the position of an `Open`. Whoever opened last holds the proxy id; commands of older epochs are
//! refused, as *superseded* when they come from the same incarnation (append again), else as *fenced* (stop).

use crate::diskless_coordinator::command::Proposer;
use crate::diskless_coordinator::effect::Effect;
use crate::diskless_coordinator::outcome::{Outcome, Refusal};
use crate::diskless_coordinator::rules::{agreement, versions};
use crate::diskless_coordinator::state::{Incarnation, State};
use crate::diskless_coordinator::view::LISTED_WITHIN_MS;
use crate::types::{Endpoint, LogPosition, ProxyId, Rack, TimestampMs};

/// An incarnation that was not heard for this much log time is closed.
pub const CLOSED_AFTER_MS: i64 = LISTED_WITHIN_MS;
/// `last_heard` is kept to the second, so that readers' lists change seldom.
const HEARD_EVERY_MS: i64 = 1_000;
/// How many fenced nonces are remembered for one proxy id.
const FENCED_NONCES: usize = 16;
const MAX_NAME_BYTES: usize = 255;

/// What an `Open` says of the proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opening {
    pub nonce: [u8; 16],
    pub zone: Rack,
    pub endpoint: Endpoint,
    pub min_version: u16,
    pub max_version: u16,
}

/// Begins an incarnation, or a new epoch of the same one.
pub fn open(
    state: &mut State,
    position: LogPosition,
    proposer: &Proposer,
    opening: Opening,
    effects: &mut Vec<Effect>,
) -> Outcome {
    if opening.zone.len() > MAX_NAME_BYTES || opening.endpoint.host.len() > MAX_NAME_BYTES {
        return Outcome::Refused(Refusal::Invalid("zone or host is too long"));
    }
    if !versions::admits(state, opening.min_version, opening.max_version) {
        return Outcome::Refused(Refusal::Invalid("the proxy does not know the log's format version"));
    }
    let before = state.proxies.get(&proposer.proxy);
    if let Some(before) = before.filter(|b| b.fenced_nonces.contains(&opening.nonce)) {
        return Outcome::Refused(Refusal::Fenced { newer: before.epoch });
    }
    if let Err(refusal) = agreement::check(state, &proposer.quoted) {
        return Outcome::Refused(refusal);
    }
    let same = before.filter(|b| b.nonce == opening.nonce);
    let incarnation = Incarnation {
        epoch: position,
        first_epoch: same.map_or(position, |b| b.first_epoch),
        nonce: opening.nonce,
        fenced_nonces: fenced_nonces(before, &opening.nonce),
        zone: opening.zone,
        endpoint: opening.endpoint,
        min_version: opening.min_version,
        max_version: opening.max_version,
        counter: 0,
        last_heard: state.clock.time,
        closed: false,
    };
    effects.push(Effect::Proxy(proposer.proxy, Box::new(incarnation.clone())));
    state.proxies.insert(proposer.proxy, incarnation);
    Outcome::Opened { epoch: position }
}

fn fenced_nonces(before: Option<&Incarnation>, nonce: &[u8; 16]) -> Vec<[u8; 16]> {
    let Some(before) = before else { return Vec::new() };
    let mut fenced = before.fenced_nonces.clone();
    if before.nonce != *nonce {
        fenced.push(before.nonce);
    }
    let surplus = fenced.len().saturating_sub(FENCED_NONCES);
    fenced.drain(..surplus);
    fenced
}

/// Lets a command in, or says why not. A command that is let in counts, whatever becomes of it then. One that quotes
/// another state than this ends its proposer's incarnation (R8).
pub fn admit(state: &mut State, proposer: &Proposer, effects: &mut Vec<Effect>) -> Result<(), Refusal> {
    let now = state.clock.time;
    let agreed = agreement::check(state, &proposer.quoted);
    let known = state.proxies.get_mut(&proposer.proxy).ok_or(Refusal::NotOpen)?;
    if proposer.epoch < known.first_epoch {
        return Err(Refusal::Fenced { newer: known.epoch });
    }
    if proposer.epoch < known.epoch {
        return Err(Refusal::Superseded);
    }
    if proposer.epoch > known.epoch {
        return Err(Refusal::Invalid("the epoch was never opened"));
    }
    if known.closed {
        return Err(Refusal::NotOpen);
    }
    let expected = known.counter.saturating_add(1);
    if proposer.counter != expected {
        return Err(Refusal::Counter { expected, got: proposer.counter });
    }
    if let Err(refusal) = agreed {
        known.closed = true;
        effects.push(Effect::Proxy(proposer.proxy, Box::new(known.clone())));
        return Err(refusal);
    }
    known.counter = expected;
    if now.saturating_sub(known.last_heard) >= HEARD_EVERY_MS {
        known.last_heard = now;
    }
    effects.push(Effect::Proxy(proposer.proxy, Box::new(known.clone())));
    Ok(())
}

/// Ends an incarnation that was just admitted.
pub fn close(state: &mut State, proposer: &Proposer, effects: &mut Vec<Effect>) -> Outcome {
    if let Some(known) = state.proxies.get_mut(&proposer.proxy) {
        known.closed = true;
        effects.push(Effect::Proxy(proposer.proxy, Box::new(known.clone())));
    }
    Outcome::Done
}

/// Closes incarnations that went silent.
pub fn close_silent(state: &mut State, now: TimestampMs, effects: &mut Vec<Effect>) {
    let is_silent = |known: &Incarnation| !known.closed && now.saturating_sub(known.last_heard) >= CLOSED_AFTER_MS;
    let silent: Vec<ProxyId> =
        state.proxies.iter().filter(|(_, known)| is_silent(known)).map(|(proxy, _)| *proxy).collect();
    for proxy in silent {
        if let Some(known) = state.proxies.get_mut(&proxy) {
            known.closed = true;
            effects.push(Effect::Proxy(proxy, Box::new(known.clone())));
        }
    }
}
