//! `sidestream verify`: judges histories that clients recorded, and says what is wrong with them.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::table::{Align, Column, layout};
use super::{complain, say};
use crate::history::verdict::{Outcomes, Statistics};
use crate::history::{Anomaly, AnomalyClass, Broken, Event, Judge, Options as Judging, Verdict};

/// Exit code for a history that cannot be judged.
const UNUSABLE: u8 = 2;

#[derive(Args, Debug)]
pub(super) struct Options {
    /// Files of JSON lines, as src/history/FORMAT.md describes them. Several files are one history.
    #[arg(required = true, value_name = "HISTORY")]
    histories: Vec<PathBuf>,
    /// Anomalies of each class to tell in full; all are counted.
    #[arg(long, value_name = "COUNT", default_value = "20")]
    examples: usize,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Options) -> ExitCode {
    let verdict = match judge(options) {
        Ok(verdict) => verdict,
        Err(why) => {
            complain(&why);
            return ExitCode::from(UNUSABLE);
        }
    };
    if options.json {
        say(&as_json(&verdict));
    } else {
        show(&verdict);
    }
    if verdict.is_valid() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Where the events came from: each file with the number of its first event. Every line is one event.
struct Origin<'a>(Vec<(&'a Path, usize)>);

impl Origin<'_> {
    fn tell(&self, broken: &Broken) -> String {
        let file = self.0.iter().rfind(|(_, first)| *first <= broken.event);
        let place = file.map_or_else(String::new, |(path, first)| place(path, broken.event - first + 1));
        format!("{place}{}", broken.what)
    }
}

fn place(path: &Path, line: usize) -> String {
    format!("{}, line {line}: ", path.display())
}

fn judge(options: &Options) -> Result<Verdict, String> {
    let mut judge = Judge::new(Judging { examples: options.examples });
    let mut origin = Origin(Vec::new());
    let mut events = 0;
    for path in &options.histories {
        origin.0.push((path, events));
        events += take(path, &mut judge, &origin)?;
    }
    judge.verdict().map_err(|broken| origin.tell(&broken))
}

/// Takes a file's events and counts them.
fn take(path: &Path, judge: &mut Judge, origin: &Origin<'_>) -> Result<usize, String> {
    let unreadable = |error| format!("{} cannot be read: {error}", path.display());
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(unreadable)?);
    let mut line = String::new();
    let mut count = 0;
    while file.read_line(&mut line).map_err(unreadable)? > 0 {
        let event = Event::read(line.trim_end_matches(['\r', '\n']))
            .map_err(|why| format!("{}this is no event: {why}", place(path, count + 1)))?;
        judge.take(&event).map_err(|broken| origin.tell(&broken))?;
        line.clear();
        count += 1;
    }
    Ok(count)
}

fn as_json(verdict: &Verdict) -> String {
    json!({
        "valid": verdict.is_valid(),
        "counts": verdict.counts,
        "anomalies": verdict.anomalies,
        "statistics": verdict.statistics,
    })
    .to_string()
}

fn show(verdict: &Verdict) {
    show_statistics(&verdict.statistics);
    if verdict.is_valid() {
        say("\nNo anomaly.");
        return;
    }
    let all: u64 = verdict.counts.values().sum();
    let counts: Vec<_> = verdict.counts.iter().map(|(class, count)| format!("{} {count}", class.name())).collect();
    say(&format!("\nAnomalies: {all} ({})", counts.join(", ")));
    for (class, count) in &verdict.counts {
        show_class(*class, *count, verdict.anomalies.iter().filter(|anomaly| anomaly.class == *class));
    }
}

fn show_class<'a>(class: AnomalyClass, count: u64, told: impl Iterator<Item = &'a Anomaly>) {
    say(&format!("\n{} ({count})", class.name()));
    let mut shown = 0;
    for anomaly in told {
        shown += 1;
        let key = if anomaly.key.is_empty() { String::new() } else { format!("{}: ", anomaly.key) };
        say(&format!("  {key}{}", anomaly.text));
        for note in &anomaly.notes {
            say(&format!("      note: {note}"));
        }
    }
    if count > shown {
        say(&format!("  and {} more", count - shown));
    }
}

fn show_statistics(statistics: &Statistics) {
    say(&format!(
        "A history of {}: {} keys, {} processes, {} records read, {} digests, {} notes",
        seconds(statistics.duration_ns),
        statistics.keys,
        statistics.processes,
        statistics.records,
        statistics.digests,
        statistics.notes
    ));
    let columns = [
        Column("OPERATION", Align::Left),
        Column("OK", Align::Right),
        Column("FAILED", Align::Right),
        Column("UNKNOWN", Align::Right),
        Column("UNFINISHED", Align::Right),
    ];
    let row = |name: &str, o: &Outcomes| {
        let counts = [o.ok, o.fail, o.info, o.open].map(|count| count.to_string());
        [name.to_owned()].into_iter().chain(counts).collect::<Vec<_>>()
    };
    let asked = &statistics.offsets_asked;
    let rows = [row("send", &statistics.sends), row("poll", &statistics.polls), row("end and start", asked)];
    say(&layout(&columns, &rows));
    if let Some(longest) = statistics.without_ack.first() {
        let (length, since) = (seconds(longest.longest_ns), seconds(longest.since_ns));
        say(&format!("Longest time without an acknowledgement: {length} in {}, from {since} on", longest.key));
    }
    if !statistics.errors.is_empty() {
        let columns = [Column("OPERATION", Align::Left), Column("ERROR", Align::Left), Column("COUNT", Align::Right)];
        let rows = statistics.errors.iter().map(|e| vec![e.f.to_owned(), e.error.clone(), e.count.to_string()]);
        say(&layout(&columns, &rows.collect::<Vec<_>>()));
    }
}

fn seconds(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}
