//! `sidestream demo`: the product to look at, in one process. A mock Kafka, three proxies for three zones, one shared log,
//! one object store, and a workload that checks every record. Not a deployment.

mod cost;
mod screen;
mod verify;
mod workload;
mod zones;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use crate::object_storage::Simulate;
use screen::Screen;
use workload::Workload;
use zones::Zones;

/// What `sidestream demo` takes.
#[derive(Args, Debug)]
pub struct Options {
    /// End by itself after this long, with a summary (such as 20s or 2m).
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    for_: Option<Duration>,
    /// Where objects are kept: a directory, or "memory". Without it a temporary directory is used and removed.
    #[arg(long, value_name = "DIRECTORY")]
    store: Option<String>,
    /// The object store's latency: s3, express, s3-bad, or put=MS,get=MS.
    #[arg(long, default_value = "put=50,get=15")]
    simulate: Simulate,
    /// Multiplies the workload's rate.
    #[arg(long, default_value = "1.0")]
    rate: f64,
    /// The bootstrap port of the first zone; the others follow at distances of 100. 0 takes free ports.
    #[arg(long, default_value = "9092")]
    port: u16,
}

/// A number with a unit: `500ms`, `20s`, `2m`, `1h`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or("a unit is missing: write 20s or 2m")?;
    let number: u64 = text[..split].parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    let unit_ms = match &text[split..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        unit => return Err(format!("{unit:?} is not a unit: use ms, s, m or h")),
    };
    let duration = number.checked_mul(unit_ms).map(Duration::from_millis).filter(|d| *d <= LONGEST_DURATION);
    duration.ok_or_else(|| format!("{text:?} is longer than a year"))
}

/// What is longer was not meant, and may be more than a clock can hold.
const LONGEST_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

/// Runs the demo. Success only if every record that was produced was consumed once and in order.
pub async fn run(options: Options) -> anyhow::Result<ExitCode> {
    let screen = Screen::new();
    screen.say("Starting a mock Kafka and three proxies...");
    let zones = Zones::start(&options).await?;
    let mut workload = Workload::start(&zones.bootstraps(), options.rate)?;
    screen.say("Waiting for the consumer group's first assignment (about four seconds)...");
    workload.wait_for_assignment().await?;
    let started = Instant::now();
    workload.go();
    let mut ticker = tokio::time::interval(Duration::from_secs(1));
    let deadline = options.for_.map(|d| started + d);
    let stopped = crate::app::termination();
    tokio::pin!(stopped);
    loop {
        tokio::select! {
            _ = ticker.tick() => screen.show(started.elapsed(), &zones, &workload),
            result = &mut stopped => {
                result?;
                break;
            }
        }
        if deadline.is_some_and(|d| Instant::now() >= d) || workload.broken().is_some() {
            break;
        }
    }
    screen.say("Stopping the producers and reading to the end...");
    let verdict = workload.finish().await;
    let usage = zones.usage();
    zones.stop().await;
    screen.say(&verdict.summary(&usage));
    Ok(if verdict.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert!(parse_duration("20").is_err());
        assert!(parse_duration("s").is_err());
        assert!(parse_duration("5 parsecs").is_err());
        for endless in ["18446744073709551615ms", "18446744073709551615s", "18446744073709551615h"] {
            assert!(parse_duration(endless).is_err(), "{endless} can be added to no clock");
        }
    }
}
