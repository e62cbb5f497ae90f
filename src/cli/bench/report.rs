//! What a benchmark measured, for people and for programs.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

const MIB: f64 = 1024.0 * 1024.0;

/// Latencies in microseconds, three digits exact, up to an hour.
#[derive(Clone, Debug)]
pub(super) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are valid"))
    }
}

impl Latencies {
    pub(super) fn record(&mut self, us: u64) {
        self.0.saturating_record(us);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    fn ms(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e3
    }

    fn to_json(&self) -> Value {
        json!({
            "p50": self.ms(0.5), "p90": self.ms(0.9), "p99": self.ms(0.99), "p999": self.ms(0.999),
            "max": self.0.max() as f64 / 1e3,
        })
    }

    fn to_text(&self) -> String {
        format!(
            "p50 {:.2}  p90 {:.2}  p99 {:.2}  p99.9 {:.2}  max {:.2} ms",
            self.ms(0.5),
            self.ms(0.9),
            self.ms(0.99),
            self.ms(0.999),
            self.0.max() as f64 / 1e3
        )
    }
}

/// The figures of one run.
#[derive(Debug)]
pub(super) struct Report {
    /// What was measured: `produce`, `consume` or `e2e`.
    pub(super) name: &'static str,
    pub(super) records: u64,
    /// Bytes of the records' values.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Records that were not acknowledged, with the first reason.
    pub(super) failed: Option<(u64, String)>,
    /// Named latencies, in the order to show them.
    pub(super) latencies: Vec<(&'static str, Latencies)>,
}

impl Report {
    fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / MIB / self.seconds
    }

    fn records_per_second(&self) -> f64 {
        self.records as f64 / self.seconds
    }

    pub(super) fn to_json(&self) -> String {
        let mut report = json!({
            "benchmark": self.name,
            "records": self.records,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "mib_per_second": self.mib_per_second(),
            "records_per_second": self.records_per_second(),
            "failed": self.failed.as_ref().map_or(0, |f| f.0),
        });
        for (name, latencies) in &self.latencies {
            report[format!("{name}_ms")] = latencies.to_json();
        }
        report.to_string()
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!(
            "{}: {} records in {:.2} s, {:.1} MiB/s, {:.0} records/s",
            self.name,
            self.records,
            self.seconds,
            self.mib_per_second(),
            self.records_per_second()
        );
        for (name, latencies) in &self.latencies {
            text += &format!("\n  {name:<4} {}", latencies.to_text());
        }
        if let Some((count, reason)) = &self.failed {
            text += &format!("\n  {count} record(s) were not acknowledged: {reason}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_rates_and_percentiles() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|ms| latencies.record(ms * 1000));
        let report = Report {
            name: "produce",
            records: 1000,
            bytes: 2 << 20,
            seconds: 2.0,
            failed: None,
            latencies: vec![("ack", latencies)],
        };
        let json: Value = serde_json::from_str(&report.to_json()).expect("it is JSON");
        assert_eq!(json["mib_per_second"], 1.0);
        assert_eq!(json["records_per_second"], 500.0);
        let p99 = json["ack_ms"]["p99"].as_f64().expect("a number");
        assert!((989.0..=991.0).contains(&p99), "{p99}");
        assert!(
            report.to_text().starts_with("produce: 1000 records in 2.00 s, 1.0 MiB/s, 500 records/s\n  ack  p50 500")
        );
    }
}
