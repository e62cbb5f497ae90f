//! Which requests fail, and how. Rules come from a file that is looked at before each request, so that a change counts
//! from the next one on:
//!
//! ```json
//! [{"operation": "put", "fault": "slow-down", "probability": 0.3},
//!  {"operation": "get", "key_prefix": "4f/", "fault": "reset", "times": 5},
//!  {"fault": {"delay": {"median_ms": 200, "sigma": 0.8}}}]
//! ```
//!
//! Delays of all rules that match add up; of the other faults the first that matches counts.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// 503, and nothing is done.
    SlowDown,
    /// It is done, and the client is told 500.
    ErrorAfter,
    /// Never answered, and nothing is done.
    StuckBefore,
    /// Done, and never answered.
    StuckAfter,
    /// The connection ends in the middle of the body.
    Reset,
    /// A body that is too short and does not say so.
    Truncate,
    /// A listing as it was so many milliseconds ago.
    StaleList(u64),
    /// It takes longer: `median_ms`, spread lognormally where `sigma` is given.
    Delay {
        median_ms: f64,
        #[serde(default)]
        sigma: f64,
    },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// put, get, head, list or delete; all where absent.
    #[serde(default)]
    operation: Option<String>,
    #[serde(default)]
    key_prefix: String,
    fault: Fault,
    #[serde(default = "always")]
    probability: f64,
    /// So many requests, then no more; without limit where absent.
    #[serde(default)]
    times: Option<u32>,
}

fn always() -> f64 {
    1.0
}

/// What is to happen to one request.
#[derive(Default, Debug)]
pub(crate) struct Verdict {
    pub(crate) delay: Duration,
    pub(crate) fault: Option<Fault>,
    /// What the log says of it.
    pub(crate) names: Vec<String>,
}

pub(crate) struct Faults {
    path: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Inode, time and size of the file that was read: a file that took its place differs in one of them.
    read: Option<(u64, i64, i64, u64)>,
    rules: Vec<Rule>,
}

impl Faults {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path, state: Mutex::new(State::default()) }
    }

    /// Rolls the dice for one request.
    pub(crate) fn judge(&self, operation: &str, key: &str) -> Verdict {
        let Ok(mut state) = self.state.lock() else { return Verdict::default() };
        self.reread(&mut state);
        let mut verdict = Verdict::default();
        for rule in &mut state.rules {
            let is_delay = matches!(rule.fault, Fault::Delay { .. });
            if (is_delay || verdict.fault.is_none()) && rule.takes(operation, key) {
                verdict.add(rule.fault);
            }
        }
        verdict
    }

    fn reread(&self, state: &mut State) {
        let Some(path) = &self.path else { return };
        // A file that is not there stands for no rules.
        let found = std::fs::metadata(path).ok().map(|m| (m.ino(), m.mtime(), m.mtime_nsec(), m.size()));
        if found == state.read {
            return;
        }
        state.read = found;
        let text = std::fs::read_to_string(path).unwrap_or_else(|_| "[]".to_owned());
        match serde_json::from_str(&text) {
            Ok(rules) => state.rules = rules,
            Err(error) => eprintln!("the rules of {} cannot be read, the old ones stand: {error}", path.display()),
        }
    }
}

impl Rule {
    fn takes(&mut self, operation: &str, key: &str) -> bool {
        let fits = self.operation.as_deref().is_none_or(|only| only == operation) && key.starts_with(&self.key_prefix);
        if !fits || !self.fault.is_of(operation) || self.times == Some(0) || fastrand::f64() >= self.probability {
            return false;
        }
        self.times = self.times.map(|left| left - 1);
        true
    }
}

impl Fault {
    /// Some faults are of one kind of answer only.
    fn is_of(self, operation: &str) -> bool {
        match self {
            Self::Reset | Self::Truncate => operation == "get",
            Self::StaleList(_) => operation == "list",
            _ => true,
        }
    }
}

impl Verdict {
    fn add(&mut self, fault: Fault) {
        match fault {
            Fault::Delay { median_ms, sigma } => {
                let millis = (median_ms * (sigma * normal()).exp()).clamp(0.0, 600_000.0);
                self.delay += Duration::from_secs_f64(millis / 1_000.0);
                self.names.push(format!("delay {millis:.0} ms"));
            }
            other => {
                self.fault = Some(other);
                self.names.push(serde_json::to_string(&other).unwrap_or_default().replace('"', ""));
            }
        }
    }
}

/// A number of the standard normal distribution (Box and Muller).
fn normal() -> f64 {
    let (radius, angle) = (1.0 - fastrand::f64(), fastrand::f64() * std::f64::consts::TAU);
    (-2.0 * radius.ln()).sqrt() * angle.cos()
}
