//! Gives a store on this machine the latency of one in a cloud, so that numbers measured here mean something.
//!
//! The model: `latency = L + bytes / 95 MiB/s`, where L is lognormal, and rare requests that are slow by seconds,
//! are never answered or get a 503.

use std::f64::consts::TAU;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::Deserialize;
use tokio::time::sleep;

use super::request::{Failure, Layer, Operation, Reply, Request};

const BYTES_PER_SECOND: f64 = 95.0 * 1024.0 * 1024.0;
const SLOW_SHARE: f64 = 0.001;
const NEVER_SHARE: f64 = 0.0001;
const UNAVAILABLE_SHARE: f64 = 0.0005;

/// Whose latency to give.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(untagged)]
pub enum Simulate {
    Profile(Profile),
    /// Always the same, without rare events.
    Fixed {
        put_ms: u64,
        get_ms: u64,
    },
}

impl FromStr for Simulate {
    type Err = String;

    /// A profile's name, or `put=MS,get=MS`.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is none of s3, express, s3-bad, put=MS,get=MS");
        match text {
            "s3" => return Ok(Self::Profile(Profile::S3)),
            "express" => return Ok(Self::Profile(Profile::Express)),
            "s3-bad" => return Ok(Self::Profile(Profile::S3Bad)),
            _ => {}
        }
        let (put, get) = text.split_once(',').ok_or_else(bad)?;
        let number = |part: &str, name: &str| part.trim().strip_prefix(name)?.parse().ok();
        let put_ms = number(put, "put=").ok_or_else(bad)?;
        let get_ms = number(get, "get=").ok_or_else(bad)?;
        Ok(Self::Fixed { put_ms, get_ms })
    }
}

#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// S3 on a usual day: PUT of 1 MiB p50 71 ms, p99 316 ms.
    S3,
    /// S3 on a bad day: PUT of 4 MiB p50 242 ms, p99 1,330 ms.
    S3Bad,
    /// S3 Express: PUT of 1 MiB p50 19 ms, p99 31 ms.
    Express,
}

impl Profile {
    /// Median in milliseconds and sigma.
    fn latency(self, operation: Operation) -> (f64, f64) {
        let is_put = operation == Operation::Put;
        match (self, is_put) {
            (Self::S3, false) => (30.0, 0.8),
            (Self::S3, true) => (60.0, 0.7),
            (Self::S3Bad, false) => (80.0, 0.9),
            (Self::S3Bad, true) => (200.0, 0.8),
            (Self::Express, false) => (5.0, 0.4),
            (Self::Express, true) => (8.0, 0.4),
        }
    }
}

/// What happens to one request.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    After(Duration),
    Never,
    Unavailable,
}

impl Simulate {
    fn draw(self, operation: Operation, bytes: u64, rng: &mut StdRng) -> Fate {
        let profile = match self {
            Self::Fixed { put_ms, .. } if operation == Operation::Put => {
                return Fate::After(Duration::from_millis(put_ms));
            }
            Self::Fixed { get_ms, .. } => return Fate::After(Duration::from_millis(get_ms)),
            Self::Profile(profile) => profile,
        };
        let event: f64 = rng.random();
        if event < NEVER_SHARE {
            return Fate::Never;
        }
        if event < NEVER_SHARE + UNAVAILABLE_SHARE {
            return Fate::Unavailable;
        }
        let is_slow = event < NEVER_SHARE + UNAVAILABLE_SHARE + SLOW_SHARE;
        let extra = if is_slow { rng.random_range(1.0..5.0) } else { 0.0 };
        let (median_ms, sigma) = profile.latency(operation);
        let latency = median_ms / 1000.0 * (sigma * standard_normal(rng)).exp();
        Fate::After(Duration::from_secs_f64(latency + extra + bytes as f64 / BYTES_PER_SECOND))
    }
}

/// Box and Muller's way from two uniform numbers.
fn standard_normal(rng: &mut StdRng) -> f64 {
    let (u, v): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (TAU * v).cos()
}

pub(super) struct Simulated {
    inner: Box<dyn Layer>,
    simulate: Simulate,
    rng: Mutex<StdRng>,
}

impl Simulated {
    pub(super) fn new(inner: Box<dyn Layer>, simulate: Simulate, seed: u64) -> Self {
        Self { inner, simulate, rng: Mutex::new(StdRng::seed_from_u64(seed)) }
    }
}

#[async_trait]
impl Layer for Simulated {
    async fn call(&self, request: &Request) -> Result<Reply, Failure> {
        let fate = self.simulate.draw(request.operation(), request.size(), &mut self.rng.lock());
        match fate {
            Fate::After(latency) => sleep(latency).await,
            Fate::Never => std::future::pending().await,
            Fate::Unavailable => return Err(Failure::NotDone("simulated 503".to_owned())),
        }
        self.inner.call(request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percentiles(profile: Profile, operation: Operation, bytes: u64) -> (u128, u128) {
        let mut rng = StdRng::seed_from_u64(7);
        let mut drawn: Vec<_> = (0..20_000)
            .filter_map(|_| match Simulate::Profile(profile).draw(operation, bytes, &mut rng) {
                Fate::After(latency) => Some(latency.as_millis()),
                Fate::Never | Fate::Unavailable => None,
            })
            .collect();
        drawn.sort_unstable();
        (drawn[drawn.len() / 2], drawn[drawn.len() * 99 / 100])
    }

    #[track_caller]
    fn near(found: u128, expected: u128) {
        assert!(found.abs_diff(expected) * 6 <= expected, "{found} is not near {expected}");
    }

    #[test]
    fn profiles_give_the_latencies_they_promise() {
        for (profile, operation, bytes, p50, p99) in [
            (Profile::S3, Operation::Get, 128 << 10, 31, 195),
            (Profile::S3, Operation::Put, 1 << 20, 71, 316),
            (Profile::S3Bad, Operation::Put, 4 << 20, 242, 1330),
            (Profile::Express, Operation::Put, 1 << 20, 19, 31),
        ] {
            let found = percentiles(profile, operation, bytes);
            near(found.0, p50);
            near(found.1, p99);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_store() {
        let draw = |seed| {
            let mut rng = StdRng::seed_from_u64(seed);
            (0..100).map(|_| Simulate::Profile(Profile::S3).draw(Operation::Put, 0, &mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn profiles_are_read_by_name_or_by_number() {
        let read = |text: &str| serde_json::from_str::<Simulate>(text).ok();
        assert_eq!(read("\"s3-bad\""), Some(Simulate::Profile(Profile::S3Bad)));
        assert_eq!(read("{\"put_ms\": 5, \"get_ms\": 1}"), Some(Simulate::Fixed { put_ms: 5, get_ms: 1 }));
        assert_eq!(read("\"s4\""), None);
    }
}
