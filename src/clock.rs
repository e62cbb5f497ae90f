//! The one door to the wall clock. Rules get time as an argument; services ask this.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The wall clock in milliseconds since the Unix epoch.
pub fn wall_time_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
