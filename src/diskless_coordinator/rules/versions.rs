//! The version of the log's format that all proxies may write (R12). It is raised by a command, and only once every
//! open incarnation has announced that it knows the new one.

use crate::diskless_coordinator::effect::Effect;
use crate::diskless_coordinator::outcome::{Outcome, Refusal};
use crate::diskless_coordinator::state::State;

/// What a log has until it is raised.
pub const FIRST_VERSION: u16 = 1;

/// Raises the version, or says who does not know it.
pub fn raise(state: &mut State, version: u16, effects: &mut Vec<Effect>) -> Outcome {
    if version <= state.cluster_version {
        return Outcome::Refused(Refusal::Stale);
    }
    let mut open = state.proxies.iter().filter(|(_, known)| !known.closed);
    if let Some((proxy, _)) = open.find(|(_, known)| !(known.min_version..=known.max_version).contains(&version)) {
        return Outcome::Refused(Refusal::VersionUnknown { version, proxy: *proxy });
    }
    state.cluster_version = version;
    effects.push(Effect::ClusterVersion(version));
    Outcome::Done
}

/// Whether a proxy that knows these versions may take part.
pub fn admits(state: &State, min_version: u16, max_version: u16) -> bool {
    (min_version..=max_version).contains(&state.cluster_version)
}
