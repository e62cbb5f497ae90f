//! All randomness of a simulation comes from its seed, in streams of their own for each part, so that one part that
//! asks more often does not change the others.

use std::hash::Hasher as _;
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

pub(crate) struct Chance(Mutex<StdRng>);

impl Chance {
    /// The stream of one part.
    pub(crate) fn of(seed: u64, part: &str) -> Self {
        // Not the standard hasher: what it gives may change with the compiler.
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        hasher.write(part.as_bytes());
        Self(Mutex::new(StdRng::seed_from_u64(seed ^ hasher.finish())))
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        self.0.lock().random_range(0..end.max(1))
    }

    pub(crate) fn between(&self, from: i64, to: i64) -> i64 {
        self.0.lock().random_range(from..=to)
    }

    pub(crate) fn index(&self, length: usize) -> usize {
        self.0.lock().random_range(0..length.max(1))
    }

    pub(crate) fn pick<'a, T>(&self, all: &'a [T]) -> &'a T {
        &all[self.index(all.len())]
    }

    pub(crate) fn percent(&self, percent: f64) -> bool {
        self.0.lock().random_bool((percent / 100.0).clamp(0.0, 1.0))
    }

    pub(crate) fn millis(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.0.lock().random_range(from..=to))
    }

    /// Mostly near `typical`, sometimes many times that: as networks and stores are.
    pub(crate) fn skewed(&self, typical: Duration) -> Duration {
        let stretch: f64 = self.0.lock().random_range(-1.0..1.0);
        typical.mul_f64((stretch * 1.2).exp())
    }

    pub(crate) fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut rng = self.0.lock();
        std::array::from_fn(|_| rng.random())
    }
}

struct Fnv(u64);

impl std::hash::Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
