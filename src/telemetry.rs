//! Logs: structured lines to standard error, levels by `RUST_LOG` or `SIDESTREAM_LOG`.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// Starts logging. Only the first call in a process counts.
pub fn start(format: LogFormat, default_level: &str) {
    let filter = std::env::var("SIDESTREAM_LOG")
        .or_else(|_| std::env::var("RUST_LOG"))
        .ok()
        .and_then(|text| EnvFilter::try_new(text).ok())
        .unwrap_or_else(|| EnvFilter::new(default_level));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let started = match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    // Another test in the same process was first.
    drop(started);
}
