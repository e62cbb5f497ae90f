//! `inspect state`: what came of the metadata log, from a running proxy or from the file of one that is stopped.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::{admin_client, say};
use crate::diskless_coordinator::checks::verify;
use crate::metadata_store::read_file;
use crate::types::Endpoint;

#[derive(Args, Debug)]
pub(in crate::cli) struct Options {
    /// The admin address of a running proxy.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    admin: Endpoint,
    /// Read this metadata.redb instead. Its proxy must be stopped.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let (summary, wrong) = match &options.file {
        Some(file) => of_file(file)?,
        None => (admin_client::get(&options.admin, "/state").await?, Vec::new()),
    };
    if options.json {
        say(&summary.to_string());
    } else {
        for (key, value) in summary.as_object().into_iter().flatten() {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            say(&format!("{:<18} {shown}", key.replace('_', " ")));
        }
        wrong.iter().for_each(|sentence| say(&format!("WRONG  {sentence}")));
    }
    Ok(if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A summary of the file, and what is wrong with it.
fn of_file(file: &Path) -> anyhow::Result<(Value, Vec<String>)> {
    let (state, segments) = read_file(file)?;
    let wrong = verify(&state, segments.iter().map(AsRef::as_ref));
    let records: i64 = state.partitions.values().map(|p| p.log_end_offset - p.log_start_offset).sum();
    let summary = json!({
        "log_id": state.genesis.as_ref().map(|g| g.log_id.to_string()),
        "applied_position": state.applied.0,
        "log_time_ms": state.clock.time,
        "state_digest": state.digest().to_string(),
        "topics": state.names.len(),
        "partitions": state.partitions.len(),
        "records": records,
        "segments": segments.len(),
        "segment_bytes": segments.iter().map(|s| s.object_size).sum::<u64>(),
        "producers": state.producers.len(),
        "proxies": state.proxies.len(),
        "invariants": if wrong.is_empty() { "hold".to_owned() } else { format!("{} broken", wrong.len()) },
    });
    Ok((summary, wrong))
}
