//! What the demo shows: a live table on a terminal, plain lines elsewhere.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;

use super::cost::{classic_per_month, crossings_per_byte, requests_per_month};
use super::workload::{TOPICS, Workload};
use super::zones::{Usage, ZONES, Zones};

const MIB: f64 = 1024.0 * 1024.0;
const RECORD_BYTES: f64 = 1024.0;
/// Off a terminal a line is printed this often.
const PLAIN_EVERY: u64 = 5;

/// The place where the demo shows itself.
pub(super) struct Screen {
    is_terminal: bool,
    last: Mutex<Last>,
}

/// The counters at the last look, to make rates of.
#[derive(Clone, Copy, Default)]
struct Last {
    at: Duration,
    usage: Usage,
    produced: [u64; TOPICS.len()],
    consumed: [u64; TOPICS.len()],
}

/// One topic in the last second.
struct Row {
    name: &'static str,
    diskless: bool,
    bytes_in: f64,
    bytes_out: f64,
    behind: u64,
    acknowledged_ms: Option<(f64, f64)>,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self { is_terminal: std::io::stdout().is_terminal(), last: Mutex::default() }
    }

    pub(super) fn say(&self, text: &str) {
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    /// Shows the last second.
    pub(super) fn show(&self, elapsed: Duration, zones: &Zones, workload: &Workload) {
        let usage = zones.usage();
        let counts = workload.counts();
        let mut now = Last { at: elapsed, usage, ..Last::default() };
        for (number, count) in counts.iter().enumerate() {
            now.produced[number] = count.produced.load(Ordering::Relaxed);
            now.consumed[number] = count.consumed.load(Ordering::Relaxed);
        }
        let mut last = self.last.lock();
        let seconds = (elapsed - last.at).as_secs_f64();
        if seconds < 0.5 {
            return;
        }
        let per_second = |new: u64, old: u64| new.saturating_sub(old) as f64 / seconds;
        let rows: Vec<Row> = TOPICS
            .iter()
            .zip(counts)
            .enumerate()
            .map(|(n, (topic, count))| Row {
                name: topic.name,
                diskless: topic.diskless,
                bytes_in: per_second(now.produced[n], last.produced[n]) * RECORD_BYTES,
                bytes_out: per_second(now.consumed[n], last.consumed[n]) * RECORD_BYTES,
                behind: now.produced[n].saturating_sub(now.consumed[n]),
                acknowledged_ms: count.take_latencies(),
            })
            .collect();
        let puts = per_second(usage.puts, last.usage.puts);
        let gets = per_second(usage.gets, last.usage.gets);
        *last = now;
        drop(last);
        let text = if self.is_terminal {
            format!("\x1b[2J\x1b[H{}", picture(elapsed, zones, &rows, &usage, puts, gets))
        } else if elapsed.as_secs().is_multiple_of(PLAIN_EVERY) {
            line(elapsed, &rows, puts, gets)
        } else {
            return;
        };
        self.say(&text);
    }
}

/// A diskless topic pays for the requests that its bytes caused.
fn costs(rows: &[Row], puts: f64, gets: f64) -> Vec<(f64, f64)> {
    let all: f64 = rows.iter().filter(|r| r.diskless).map(|r| r.bytes_in).sum();
    let requests = requests_per_month(puts, gets);
    let cost = |row: &Row| {
        let classic = classic_per_month(row.bytes_in, 1.0);
        let share = if all > 0.0 { row.bytes_in / all } else { 0.0 };
        (if row.diskless { requests * share } else { classic }, classic)
    };
    rows.iter().map(cost).collect()
}

fn picture(elapsed: Duration, zones: &Zones, rows: &[Row], usage: &Usage, puts: f64, gets: f64) -> String {
    let seconds = elapsed.as_secs();
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let addresses: Vec<_> = zones.bootstraps().iter().zip(ZONES).map(|(b, z)| format!("{b} ({z})")).collect();
    let mut out =
        format!("sidestream {} demo   3 zones, store {}   {clock}\n\n", env!("CARGO_PKG_VERSION"), zones.store_name());
    out += &format!("  bootstrap  {}\n  admin      http://{}/metrics\n\n", addresses.join("  "), zones.admin());
    out += "  TOPIC      KIND             IN          OUT  ACK p50/p99 ms   BEHIND   COST NOW  AS CLASSIC\n";
    let costs = costs(rows, puts, gets);
    for (row, (now, classic)) in rows.iter().zip(&costs) {
        let ack = row.acknowledged_ms.map_or_else(|| "-".to_owned(), |(p50, p99)| format!("{p50:.0} / {p99:.0}"));
        out += &format!(
            "  {:<10} {:<8} {:>6.2} MiB/s  {:>6.2} MiB/s  {:>14}  {:>7}  {:>6.0} $/mo  {:>6.0} $/mo\n",
            row.name,
            if row.diskless { "diskless" } else { "classic" },
            row.bytes_in / MIB,
            row.bytes_out / MIB,
            ack,
            row.behind,
            now,
            classic
        );
    }
    let average = if usage.puts > 0 { usage.put_bytes as f64 / usage.puts as f64 / MIB } else { 0.0 };
    let positions: Vec<_> = zones.positions().iter().map(ToString::to_string).collect();
    let kept: f64 = rows.iter().filter(|r| r.diskless).map(|r| r.bytes_in).sum::<f64>() * crossings_per_byte(1.0);
    let saved: f64 = costs.iter().map(|(now, classic)| classic - now).sum();
    out += &format!(
        "\n  object store   PUT {puts:.1}/s  GET {gets:.1}/s  average object {average:.2} MiB   log position {}\n",
        positions.join(" ")
    );
    out +=
        &format!("  across zones   {:.1} MiB/s kept off the wire   saved {saved:.0} $/mo at this rate\n\n", kept / MIB);
    let address = zones.bootstraps().first().cloned().unwrap_or_default();
    out += &format!("  read:   kcat -b {address} -t orders -C -o end\n");
    out += &format!("  write:  kcat -b {address} -t orders -P -X enable.idempotence=true\n  quit:   Ctrl-C");
    out
}

fn line(elapsed: Duration, rows: &[Row], puts: f64, gets: f64) -> String {
    let topics: Vec<_> = rows
        .iter()
        .map(|r| {
            let ack = r.acknowledged_ms.map_or_else(|| "-".to_owned(), |(p50, p99)| format!("{p50:.0}/{p99:.0}"));
            format!("{} {:.2}/{:.2} MiB/s ack {ack} ms", r.name, r.bytes_in / MIB, r.bytes_out / MIB)
        })
        .collect();
    format!("{:>4} s  {}  PUT {puts:.1}/s GET {gets:.1}/s", elapsed.as_secs(), topics.join("  "))
}
