//! Tries again, with full jitter, until a deadline. Never ends the process, never hides that an attempt may have
//! been carried out.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Instant, sleep, timeout_at};

use super::Timeouts;
use super::metered::StoreStats;
use super::request::{Failure, Layer, Reply, Request};

const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// Up to this size an attempt has the plain timeout, above it twice that.
const SMALL: u64 = 1 << 20;

pub(super) struct Retrying {
    inner: Box<dyn Layer>,
    stats: Arc<StoreStats>,
    timeouts: Timeouts,
    chance: Mutex<StdRng>,
}

#[async_trait]
impl Layer for Retrying {
    async fn call(&self, request: &Request) -> Result<Reply, Failure> {
        let deadline = Instant::now() + self.timeouts.operation;
        let mut perhaps_done = false;
        let mut attempt = 0;
        loop {
            self.stats.of(request.operation()).count_attempt();
            let failure = match self.attempt(request, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            perhaps_done |= matches!(failure, Failure::Unknown(_));
            let pause = backoff(attempt, self.chance.lock().random());
            if is_final(&failure) || Instant::now() + pause >= deadline {
                return Err(summary(failure, perhaps_done));
            }
            tracing::debug!(operation = request.operation().name(), attempt, %failure, "object store: trying again");
            attempt += 1;
            sleep(pause).await;
        }
    }
}

impl Retrying {
    pub(super) fn new(inner: Box<dyn Layer>, stats: Arc<StoreStats>, timeouts: Timeouts, seed: u64) -> Self {
        Self { inner, stats, timeouts, chance: Mutex::new(StdRng::seed_from_u64(seed)) }
    }

    async fn attempt(&self, request: &Request, deadline: Instant) -> Result<Reply, Failure> {
        let timeout = self.timeouts.attempt * if request.size() <= SMALL { 1 } else { 2 };
        let until = deadline.min(Instant::now() + timeout);
        match timeout_at(until, self.inner.call(request)).await {
            Ok(result) => result,
            Err(_) => Err(Failure::Unknown("no answer in time".to_owned())),
        }
    }
}

/// Asking again cannot give another answer.
fn is_final(failure: &Failure) -> bool {
    match failure {
        Failure::NotFound | Failure::Refused(_) => true,
        Failure::Corrupt(_) | Failure::NotDone(_) | Failure::Unknown(_) => false,
    }
}

/// The last failure, unless an attempt before it may have been carried out.
fn summary(last: Failure, perhaps_done: bool) -> Failure {
    match last {
        Failure::Refused(reason) | Failure::NotDone(reason) if perhaps_done => Failure::Unknown(reason),
        other => other,
    }
}

/// Full jitter: anywhere between zero and a ceiling that doubles. `chance` is in 0..1.
fn backoff(attempt: u32, chance: f64) -> Duration {
    let ceiling = FIRST_BACKOFF.saturating_mul(1 << attempt.min(10)).min(MAX_BACKOFF);
    ceiling.mul_f64(chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_second() {
        let ceilings: Vec<_> = (0..6).map(|attempt| backoff(attempt, 1.0).as_millis()).collect();
        assert_eq!(ceilings, [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(backoff(u32::MAX, 0.5), Duration::from_millis(500));
    }

    #[test]
    fn one_unknown_attempt_makes_the_whole_unknown() {
        let refused = || Failure::Refused("no right".to_owned());
        assert_eq!(summary(refused(), false), refused());
        assert_eq!(summary(refused(), true), Failure::Unknown("no right".to_owned()));
        assert_eq!(summary(Failure::NotFound, true), Failure::NotFound);
    }
}
