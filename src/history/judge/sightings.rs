//! inconsistent-offset, duplicate, phantom: what stands at each offset, by all that polls and acknowledgements said.

use std::collections::{BTreeMap, HashMap};

use super::log::{Log, Place};
use crate::history::event::Record;
use crate::history::operations::{Action, Outcome};
use crate::history::verdict::{AnomalyClass, Findings};
use crate::types::Offset;

/// What an offset showed first.
pub(super) struct Slot {
    value: u64,
    crc: Option<u32>,
    /// The poll or the send that said so.
    source: Place,
    is_read: bool,
    is_in_final: bool,
    /// Somebody was shown something else, which is reported.
    is_contradicted: bool,
}

/// Where a value was read.
pub(super) struct Sight {
    /// The lowest offset at which it was.
    pub(super) offset: Offset,
    /// The poll that was answered with it first.
    pub(super) reader: Place,
    pub(super) is_in_final: bool,
    is_duplicate: bool,
}

#[derive(Default)]
pub(super) struct Sightings {
    /// Every offset that was read or acknowledged.
    pub(super) slots: BTreeMap<Offset, Slot>,
    /// Every value that was read.
    pub(super) values: HashMap<u64, Sight>,
}

pub(super) fn judge(log: &Log<'_>, findings: &mut Findings) -> Sightings {
    let mut seen = Sightings { values: HashMap::with_capacity(log.senders.len()), ..Sightings::default() };
    for place in &log.answers {
        let is_final = matches!(log.at(*place).action, Action::Poll { is_final: true, .. });
        for record in log.operations.records(log.at(*place)) {
            read(log, &mut seen, *record, (*place, is_final), findings);
        }
    }
    for place in &log.sends {
        if let (Action::Send { value, offset: Some(offset), .. }, Outcome::Ok) =
            (log.at(*place).action, log.at(*place).outcome)
        {
            acknowledged(log, &mut seen, Record::new(offset, value), *place, findings);
        }
    }
    seen
}

fn read(
    log: &Log<'_>,
    seen: &mut Sightings,
    record: Record,
    (place, is_final): (Place, bool),
    findings: &mut Findings,
) {
    let slot = seen.slots.entry(record.offset).or_insert_with(|| Slot {
        value: record.value,
        crc: record.crc,
        source: place,
        is_read: false,
        is_in_final: false,
        is_contradicted: false,
    });
    let is_same = slot.value == record.value;
    let crc_differs = slot.crc.zip(record.crc).is_some_and(|(a, b)| a != b);
    if !is_same || crc_differs {
        contradict(log, slot, record, place, findings);
    }
    slot.crc = slot.crc.or(record.crc);
    // Most records are read many times, and only the first time tells something of the value.
    if is_same && slot.is_read && (slot.is_in_final || !is_final) {
        return;
    }
    if is_same {
        slot.is_read = true;
        slot.is_in_final |= is_final;
    }
    sight(log, seen, record, (place, is_final), findings);
}

/// Notes that a value was read.
fn sight(
    log: &Log<'_>,
    seen: &mut Sightings,
    record: Record,
    (place, is_final): (Place, bool),
    findings: &mut Findings,
) {
    let Record { value, offset, .. } = record;
    let Some(sight) = seen.values.get_mut(&value) else {
        let sight = Sight { offset, reader: place, is_in_final: is_final, is_duplicate: false };
        seen.values.insert(value, sight);
        return first_sight(log, record, place, findings);
    };
    sight.is_in_final |= is_final;
    if sight.offset != offset {
        let is_idempotent = log.senders.get(&value).is_some_and(|send| is_idempotent(log, *send));
        if is_idempotent && !sight.is_duplicate {
            sight.is_duplicate = true;
            let (other, reader) = (sight.offset, sight.reader);
            findings.add(AnomalyClass::Duplicate, log.at(place).completed.time_ns, || {
                let text = format!(
                    "value {value} stands at offset {other}, read by {} at {}, and at offset {offset}, read by {} at {}",
                    log.who(reader),
                    log.answered(reader),
                    log.who(place),
                    log.answered(place)
                );
                log.tell(text, &[reader, place])
            });
        }
        sight.offset = sight.offset.min(offset);
    }
}

fn is_idempotent(log: &Log<'_>, send: Place) -> bool {
    matches!(log.at(send).action, Action::Send { is_idempotent: true, .. })
}

/// A value must have been sent before it is read.
fn first_sight(log: &Log<'_>, record: Record, place: Place, findings: &mut Findings) {
    let Record { value, offset, .. } = record;
    let reader = log.at(place);
    let why = match log.senders.get(&value) {
        None => "which nobody sent".to_owned(),
        Some(send) if log.at(*send).invoked > reader.completed => {
            format!("which {} sent only at {}", log.who(*send), log.asked(*send))
        }
        Some(_) => return,
    };
    findings.add(AnomalyClass::Phantom, reader.completed.time_ns, || {
        let (who, when) = (log.who(place), log.answered(place));
        log.tell(format!("{who} read value {value} at offset {offset} at {when}, {why}"), &[place])
    });
}

/// Compares an acknowledged offset with what was read.
fn acknowledged(log: &Log<'_>, seen: &mut Sightings, record: Record, place: Place, findings: &mut Findings) {
    if let Some(slot) = seen.slots.get_mut(&record.offset) {
        if slot.value != record.value {
            contradict(log, slot, record, place, findings);
        }
        return;
    }
    // One that is not idempotent may stand at both offsets, and retention may have taken the acknowledged one.
    let elsewhere = seen.values.get(&record.value).filter(|_| is_idempotent(log, place));
    if let Some(Sight { offset, reader, .. }) = elsewhere {
        findings.add(AnomalyClass::InconsistentOffset, log.at(place).completed.time_ns, || {
            let text = format!(
                "value {} was acknowledged to {} at {} with offset {}, but {} read it at offset {offset} at {}",
                record.value,
                log.who(place),
                log.answered(place),
                record.offset,
                log.who(*reader),
                log.answered(*reader)
            );
            log.tell(text, &[place, *reader])
        });
    }
    let slot = Slot {
        value: record.value,
        crc: None,
        source: place,
        is_read: false,
        is_in_final: false,
        is_contradicted: elsewhere.is_some(),
    };
    seen.slots.insert(record.offset, slot);
}

/// Reports, once for each offset, that it showed two things.
fn contradict(log: &Log<'_>, slot: &mut Slot, record: Record, place: Place, findings: &mut Findings) {
    if std::mem::replace(&mut slot.is_contradicted, true) {
        return;
    }
    let (first, source) = (Record { offset: record.offset, value: slot.value, crc: slot.crc }, slot.source);
    let at = log.at(place).completed.time_ns.max(log.at(source).completed.time_ns);
    findings.add(AnomalyClass::InconsistentOffset, at, || {
        let shows_crc = first.value == record.value;
        let text = format!(
            "offset {} is {}, but {}",
            record.offset,
            shown(log, first, source, shows_crc),
            shown(log, record, place, shows_crc)
        );
        log.tell(text, &[source, place])
    });
}

fn shown(log: &Log<'_>, record: Record, place: Place, shows_crc: bool) -> String {
    let crc = record.crc.filter(|_| shows_crc).map(|crc| format!(" with CRC {crc:08x}")).unwrap_or_default();
    let how = match log.at(place).action {
        Action::Send { .. } => "by the acknowledgement to",
        _ => "as read by",
    };
    format!("value {}{crc} {how} {} at {}", record.value, log.who(place), log.answered(place))
}
