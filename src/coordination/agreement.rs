//! What to do about proxies that disagree (R8). Who quotes another state than ours is refused by `apply`; but if two
//! others in a row are wrong, or one is and nobody else agrees with us, then it is us.
//!
//! While that is open nothing is acknowledged: what we would say may be wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::diskless_coordinator::outcome::{Outcome, Refusal};
use crate::types::{LogPosition, ProxyId};

/// Somebody must agree with us in this time; proxies send a heartbeat every few seconds.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Default, Debug)]
pub(super) struct Agreement {
    /// Those who were found wrong since another proxy agreed with us.
    wrong: BTreeSet<ProxyId>,
    since: Option<Instant>,
    /// The first position at which somebody was found wrong. To agree about what was before it says nothing.
    from: Option<LogPosition>,
}

impl Agreement {
    /// What became of a command of another proxy that quoted this position.
    pub(super) fn hear(&mut self, proposer: ProxyId, quoted: LogPosition, outcome: &Outcome, now: Instant) {
        match outcome {
            Outcome::Refused(Refusal::Diverged { .. }) => {
                self.wrong.insert(proposer);
                self.since.get_or_insert(now);
                let from = self.from.get_or_insert(quoted);
                *from = quoted.min(*from);
            }
            // Was not compared.
            Outcome::Refused(_) => {}
            Outcome::Done | Outcome::Opened { .. } | Outcome::Committed(_) => {
                if self.from.is_some_and(|from| quoted >= from) {
                    *self = Self::default();
                }
            }
        }
    }

    pub(super) fn is_doubtful(&self) -> bool {
        !self.wrong.is_empty()
    }

    /// Why this proxy must not trust its state any more.
    pub(super) fn wrong_because(&self, now: Instant) -> Option<String> {
        let others: Vec<String> = self.wrong.iter().map(ToString::to_string).collect();
        let others = others.join(" and ");
        let advice = "the metadata store is rebuilt from the log at the next start of this proxy";
        if self.wrong.len() > 1 {
            return Some(format!(
                "the proxies {others} have another state at the same position than this one: {advice}"
            ));
        }
        let is_late = self.since.is_some_and(|since| now.duration_since(since) >= PATIENCE);
        is_late.then(|| {
            format!("proxy {others} has another state at the same position, and no third proxy agrees with this one: {advice}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRONG: Outcome = Outcome::Refused(Refusal::Diverged { quoted: LogPosition(5) });

    /// Wrong ones quote position 5, others the one that is given with them.
    fn after(heard: &[(u32, Outcome)], others_quote: i64, later: Duration) -> (bool, bool) {
        let now = Instant::now();
        let mut agreement = Agreement::default();
        for (proxy, outcome) in heard {
            let quoted = LogPosition(if *outcome == WRONG { 5 } else { others_quote });
            agreement.hear(ProxyId(*proxy), quoted, outcome, now);
        }
        (agreement.is_doubtful(), agreement.wrong_because(now + later).is_some())
    }

    #[test]
    fn r8_two_others_in_a_row_or_nobody_who_agrees_make_this_proxy_the_wrong_one() {
        let soon = Duration::from_secs(1);
        let not_open = Outcome::Refused(Refusal::NotOpen);
        let table = [
            ("all agree", vec![(1, Outcome::Done)], soon, (false, false)),
            ("one is wrong", vec![(1, WRONG)], soon, (true, false)),
            ("the same one twice", vec![(1, WRONG), (1, WRONG)], soon, (true, false)),
            ("two are wrong", vec![(1, WRONG), (2, WRONG)], soon, (true, true)),
            ("a third one agrees between", vec![(1, WRONG), (3, Outcome::Done), (2, WRONG)], soon, (true, false)),
            ("one is wrong, a third one agrees", vec![(1, WRONG), (3, Outcome::Done)], PATIENCE, (false, false)),
            ("one is wrong and nobody agrees", vec![(1, WRONG)], PATIENCE, (true, true)),
            ("what was not compared is no agreement", vec![(1, WRONG), (3, not_open)], PATIENCE, (true, true)),
        ];
        for (name, heard, later, expected) in table {
            assert_eq!(after(&heard, 5, later), expected, "{name}");
        }
        let before = [(1, WRONG), (3, Outcome::Done), (2, WRONG)];
        assert_eq!(after(&before, 4, soon), (true, true), "to agree about what was before is no agreement");
        assert_eq!(after(&before, -1, soon), (true, true), "nor is to quote nothing");
    }
}
