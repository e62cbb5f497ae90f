//! One JSON line for each request: when, what, how it was answered, and which fault it met.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Where lines go; nowhere when no file is named.
#[derive(Clone)]
pub(crate) struct RequestLog {
    file: Option<Arc<Mutex<File>>>,
}

#[derive(Serialize)]
struct Line<'a> {
    time_ns: u64,
    took_us: u64,
    operation: &'a str,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<&'a str>,
    /// Of the request's body for a PUT, of the answer's for the rest.
    bytes: u64,
    /// Absent when the client went away without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// Whether the store has done what was asked.
    done: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: &'a Vec<String>,
}

/// A request under way. Its line is written when it ends, also when it ends because the client gave up.
pub(crate) struct Entry {
    log: RequestLog,
    begun_ns: u64,
    pub(crate) operation: &'static str,
    pub(crate) key: String,
    pub(crate) range: Option<String>,
    pub(crate) bytes: u64,
    pub(crate) status: Option<u16>,
    pub(crate) done: bool,
    pub(crate) faults: Vec<String>,
}

impl RequestLog {
    pub(crate) fn open(path: Option<PathBuf>) -> std::io::Result<Self> {
        let open = |path| File::options().create(true).append(true).open(path);
        Ok(Self { file: path.map(open).transpose()?.map(|file| Arc::new(Mutex::new(file))) })
    }

    pub(crate) fn begin(&self, operation: &'static str, key: String) -> Entry {
        Entry {
            log: self.clone(),
            begun_ns: monotonic_ns(),
            operation,
            key,
            range: None,
            bytes: 0,
            status: None,
            done: false,
            faults: Vec::new(),
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(file) = &self.log.file else { return };
        let line = Line {
            time_ns: self.begun_ns,
            took_us: monotonic_ns().saturating_sub(self.begun_ns) / 1_000,
            operation: self.operation,
            key: &self.key,
            range: self.range.as_deref(),
            bytes: self.bytes,
            status: self.status,
            done: self.done,
            faults: &self.faults,
        };
        if let (Ok(mut file), Ok(mut text)) = (file.lock(), serde_json::to_string(&line)) {
            text.push('\n');
            // A full disk must not take the store down: the log is for later, the answers are for now.
            let _ = file.write_all(text.as_bytes());
        }
    }
}

/// The clock that Python calls `time.monotonic_ns`, so that this log and a history can be read side by side.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec)
}
