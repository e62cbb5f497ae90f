//! Simulated time: the runtime's, which goes on by itself when nobody has anything to do.

use tokio::time::Instant;

/// When the simulated world began, by its true clock, in milliseconds since the Unix epoch.
const BEGINNING_MS: i64 = 1_700_000_000_000;

#[derive(Clone, Copy)]
pub(crate) struct SimTime(Instant);

impl SimTime {
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now_ms(self) -> i64 {
        BEGINNING_MS + i64::try_from(self.0.elapsed().as_millis()).expect("not that long")
    }

    pub(crate) fn elapsed_ns(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).expect("not that long")
    }
}
