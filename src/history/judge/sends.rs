//! lost-write, unseen, aborted-read, reorder: what became of each send.

use super::log::{Log, Place};
use super::polls::{FinalRead, Reads};
use super::sightings::Sightings;
use crate::history::operations::{Action, Outcome};
use crate::history::verdict::{AnomalyClass, Findings};
use crate::types::Offset;

pub(super) fn judge(log: &Log<'_>, seen: &Sightings, reads: &Reads, findings: &mut Findings) {
    let mut last: Option<(Place, Offset)> = None;
    for place in &log.sends {
        let o = log.at(*place);
        let Action::Send { value, offset, is_idempotent } = o.action else { continue };
        let sight = seen.values.get(&value);
        if o.outcome == Outcome::Fail
            && let Some(sight) = sight
        {
            aborted_read(log, *place, (value, sight.offset, sight.reader), findings);
        }
        let acked = offset.filter(|_| o.outcome == Outcome::Ok);
        // What was read counts more than what was told.
        let stands = sight.map(|sight| sight.offset).or(acked);
        if o.outcome == Outcome::Ok && !sight.is_some_and(|sight| sight.is_in_final) {
            missing(log, *place, (value, stands, sight.is_some()), reads, findings);
        }
        if let Some(stands) = stands.filter(|_| is_idempotent) {
            if let Some((before, other)) = last.filter(|(before, _)| log.at(*before).process == o.process)
                && stands < other
            {
                reorder(log, (before, other), (*place, stands), findings);
            }
            last = Some((*place, stands));
        }
    }
}

fn aborted_read(log: &Log<'_>, send: Place, (value, offset, reader): (u64, Offset, Place), findings: &mut Findings) {
    findings.add(AnomalyClass::AbortedRead, log.at(reader).completed.time_ns, || {
        let text = format!(
            "value {value}, whose send by {} failed at {}, was read by {} at offset {offset} at {}",
            log.who(send),
            log.answered(send),
            log.who(reader),
            log.answered(reader)
        );
        log.tell(text, &[send, reader])
    });
}

fn reorder(log: &Log<'_>, (before, other): (Place, Offset), (send, stands): (Place, Offset), findings: &mut Findings) {
    findings.add(AnomalyClass::Reorder, log.at(send).invoked.time_ns, || {
        let text = format!(
            "{} sent at {} what stands at offset {other}, and {} sent later, at {}, what stands before it at offset \
             {stands}",
            log.who(before),
            log.asked(before),
            log.who(send),
            log.asked(send)
        );
        log.tell(text, &[before, send])
    });
}

/// An acknowledged value that no final read has.
fn missing(
    log: &Log<'_>,
    send: Place,
    (value, stands, is_read): (u64, Option<Offset>, bool),
    reads: &Reads,
    findings: &mut Findings,
) {
    let log_start = log.log_start.highest.unwrap_or(0);
    let covering = match stands {
        Some(offset) if offset < log_start => return,
        Some(offset) => reads.finals.iter().find(|read| read.covers(offset)),
        // It may have been the first to go when the log start moved.
        None if log_start > 0 => return,
        None => reads.finals.iter().find(|read| read.is_whole(reads.floor)),
    };
    let (class, why) = match covering {
        Some(read) => (AnomalyClass::LostWrite, not_in(log, read)),
        None if !is_read => (AnomalyClass::Unseen, "was never read, and no final read got there".to_owned()),
        None => return,
    };
    findings.add(class, log.at(send).completed.time_ns, || {
        let offset = stands.map_or_else(|| "with no offset told,".to_owned(), |o| format!("with offset {o},"));
        let read = if is_read { " and once read," } else { "" };
        let (who, when) = (log.who(send), log.answered(send));
        let text = format!("value {value} of {who}, acknowledged at {when} {offset}{read} {why}");
        let places: Vec<_> = [send].into_iter().chain(covering.map(|read| read.last_poll)).collect();
        log.tell(text, &places)
    });
}

fn not_in(log: &Log<'_>, read: &FinalRead) -> String {
    format!("is not in the final read that {} ended, {}", log.who(read.last_poll), read.told())
}
