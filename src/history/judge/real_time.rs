//! offset-going-back, stale-tail, false-out-of-range: what was known before a question was asked is in its answer.
//!
//! One clock for all: "before" means that the other operation was completed when this one was invoked.

use super::log::{Highest, Log, Place, answered};
use super::sightings::Sightings;
use crate::history::operations::{Action, Outcome};
use crate::history::verdict::{AnomalyClass, Findings};
use crate::types::Offset;

/// Who knew what when.
struct Known {
    acked: Highest,
    read: Highest,
    ends: Highest,
}

pub(super) fn judge(log: &Log<'_>, seen: &Sightings, findings: &mut Findings) {
    let acked = log.sends.iter().filter_map(|s| acked(log, *s).map(|offset| (log.at(*s).completed, offset, *s)));
    let read = log.answers.iter().filter_map(|p| {
        let highest = log.operations.records(log.at(*p)).iter().map(|record| record.offset).max()?;
        Some((log.at(*p).completed, highest, *p))
    });
    let known = Known { acked: Highest::new(acked), read: Highest::new(read), ends: answers(log, &log.ends) };
    sends(log, &known, findings);
    asked(log, &log.ends, "end", &known.ends, findings);
    asked(log, &log.starts, "start", &answers(log, &log.starts), findings);
    tails(log, &known, findings);
    out_of_range(log, seen, &known, findings);
}

fn answers(log: &Log<'_>, places: &[Place]) -> Highest {
    Highest::new(places.iter().map(|place| (log.at(*place).completed, answered(log.at(*place)), *place)))
}

fn acked(log: &Log<'_>, send: Place) -> Option<Offset> {
    match (log.at(send).action, log.at(send).outcome) {
        (Action::Send { offset, .. }, Outcome::Ok) => offset,
        _ => None,
    }
}

/// Appends are linearizable: what is sent after an acknowledgement lies behind it.
fn sends(log: &Log<'_>, known: &Known, findings: &mut Findings) {
    for send in &log.sends {
        let o = log.at(*send);
        let Some(offset) = acked(log, *send) else { continue };
        let Some((highest, before)) = known.acked.before(o.invoked).filter(|(highest, _)| *highest >= offset) else {
            continue;
        };
        findings.add(AnomalyClass::OffsetGoingBack, o.completed.time_ns, || {
            let text = format!(
                "{} sent at {} and was acknowledged offset {offset}, though {} had been acknowledged offset {highest} \
                 at {}",
                log.who(*send),
                log.asked(*send),
                log.who(before),
                log.answered(before)
            );
            log.tell(text, &[before, *send])
        });
    }
}

/// The end and the start of a partition never go back.
fn asked(log: &Log<'_>, places: &[Place], what: &str, known: &Highest, findings: &mut Findings) {
    for place in places {
        let o = log.at(*place);
        let offset = answered(o);
        let Some((highest, before)) = known.before(o.invoked).filter(|(highest, _)| *highest > offset) else {
            continue;
        };
        findings.add(AnomalyClass::OffsetGoingBack, o.completed.time_ns, || {
            let text = format!(
                "{} asked for the {what} at {} and was told {offset}, though {} had been told {highest} at {}",
                log.who(*place),
                log.asked(*place),
                log.who(before),
                log.answered(before)
            );
            log.tell(text, &[before, *place])
        });
    }
}

/// An end lies behind everything that was acknowledged or read before it was asked for.
fn tails(log: &Log<'_>, known: &Known, findings: &mut Findings) {
    for end in &log.ends {
        let o = log.at(*end);
        let told = answered(o);
        let facts = [(&known.acked, "acknowledged"), (&known.read, "read")];
        let passed = facts.iter().find_map(|(highest, how)| {
            highest.before(o.invoked).filter(|(offset, _)| *offset >= told).map(|(offset, place)| (offset, place, how))
        });
        let Some((offset, before, how)) = passed else { continue };
        findings.add(AnomalyClass::StaleTail, o.completed.time_ns, || {
            let text = format!(
                "{} asked for the end at {} and was told {told}, though {} had offset {offset} {how} at {}",
                log.who(*end),
                log.asked(*end),
                log.who(before),
                log.answered(before)
            );
            log.tell(text, &[before, *end])
        });
    }
}

/// An offset between the log start and the end exists, the end itself too: a poll there waits.
fn out_of_range(log: &Log<'_>, seen: &Sightings, known: &Known, findings: &mut Findings) {
    for poll in &log.out_of_range {
        let o = log.at(*poll);
        let Action::Poll { from: Some(from), .. } = o.action else { continue };
        let lowest = seen.slots.first_key_value().map(|(offset, _)| *offset);
        let Some(start) = log.log_start.at(o.completed).or(lowest) else { continue };
        let ends = [
            known.acked.before(o.invoked).map(|(offset, place)| (offset + 1, place)),
            known.read.before(o.invoked).map(|(offset, place)| (offset + 1, place)),
            known.ends.before(o.invoked),
        ];
        let end = ends.into_iter().flatten().max();
        let Some((end, before)) = end.filter(|(end, _)| (start..=*end).contains(&from)) else { continue };
        findings.add(AnomalyClass::FalseOutOfRange, o.completed.time_ns, || {
            let text = format!(
                "{} asked from offset {from} at {} and was told that it is out of range, though the log starts at \
                 {start} and {} knew the end {end} at {}",
                log.who(*poll),
                log.asked(*poll),
                log.who(before),
                log.answered(before)
            );
            log.tell(text, &[before, *poll])
        });
    }
}
