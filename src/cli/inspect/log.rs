//! `inspect log`: reads the metadata log from its start, applies it as a proxy does, and shows the commands.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde_json::json;

use crate::app::kafka_log_settings;
use crate::cli::table::{Align, Column, layout};
use crate::cli::{Configured, say};
use crate::clock::WallClock;
use crate::config::{Config, MetadataMode};
use crate::diskless_coordinator::apply::{Applied, apply};
use crate::diskless_coordinator::command::Command;
use crate::diskless_coordinator::encoding::{Decoded, decode};
use crate::diskless_coordinator::outcome::{BatchOutcome, Outcome};
use crate::diskless_coordinator::state::State;
use crate::metadata_log::{EmbeddedLog, KafkaLog, LogLocation, LogRecord, MetadataLog};
use crate::types::LogPosition;

#[derive(Args, Debug)]
pub(in crate::cli) struct Options {
    #[command(flatten)]
    configured: Configured,
    /// Show from this position on.
    #[arg(long, value_name = "POSITION", default_value = "0")]
    from: i64,
    /// Show only the last so many of them; 0 shows all.
    #[arg(long, value_name = "COUNT", default_value = "50")]
    last: usize,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

/// How long the log may give nothing before its end.
const STALLED: Duration = Duration::from_secs(30);

pub(super) async fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let config = match options.configured.load() {
        Ok(config) => config,
        Err(code) => return Ok(code),
    };
    let log = open(&config)?;
    let (mut lines, mut state) = (VecDeque::new(), State::default());
    let read = read(log.as_ref(), options, &mut lines, &mut state).await;
    // A log that proxies stop at is looked at for what stands before that record.
    if read.is_ok() || !lines.is_empty() {
        show(options, &lines, &state);
    }
    read.map(|()| ExitCode::SUCCESS)
}

async fn read(
    log: &dyn MetadataLog,
    options: &Options,
    lines: &mut VecDeque<Line>,
    state: &mut State,
) -> anyhow::Result<()> {
    let (start, end) = (log.start().await?, log.end().await?);
    let mut tail = log.tail(start)?;
    while state.applied.next() < end && start < end {
        let group = tokio::time::timeout(STALLED, tail.groups.recv()).await;
        let group = group.with_context(|| format!("the log gave nothing for {} s", STALLED.as_secs()))?;
        for record in group.context("the log ended")?? {
            let applied = apply(state, &record)?;
            if record.position.0 >= options.from {
                lines.push_back(Line::of(&record, &applied));
            }
            if options.last > 0 && lines.len() > options.last {
                lines.pop_front();
            }
        }
    }
    Ok(())
}

fn open(config: &Config) -> anyhow::Result<Arc<dyn MetadataLog>> {
    match config.metadata.mode {
        MetadataMode::Distributed => Ok(Arc::new(KafkaLog::open(kafka_log_settings(config))?)),
        MetadataMode::Standalone => {
            let path: PathBuf = config.metadata.directory.join("log.redb");
            ensure!(path.exists(), "there is no metadata log at {}: check metadata.directory", path.display());
            match EmbeddedLog::open(&LogLocation::File(path.clone()), WallClock::system()) {
                Ok(log) => Ok(Arc::new(log)),
                Err(error) => bail!("{error}: if the proxy is running, stop it first ({} is its own)", path.display()),
            }
        }
    }
}

/// One record, as it is shown.
struct Line {
    position: LogPosition,
    time: i64,
    proxy: String,
    command: String,
    details: String,
    outcome: String,
}

impl Line {
    fn of(record: &LogRecord, applied: &Applied) -> Self {
        let (proxy, command, details) = match decode(&record.bytes) {
            Ok(Decoded::Proposal(proposal)) => {
                let (command, details) = describe(&proposal.command);
                (proposal.proposer.proxy.to_string(), command, details)
            }
            _ => (String::new(), "(not a command)", String::new()),
        };
        let outcome = applied.answer.as_ref().map_or_else(|| "skipped".to_owned(), |a| describe_outcome(&a.outcome));
        Self { position: record.position, time: applied.time, proxy, command: command.to_owned(), details, outcome }
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.position.to_string(),
            self.time.to_string(),
            self.proxy.clone(),
            self.command.clone(),
            self.details.clone(),
            self.outcome.clone(),
        ]
    }

    fn json(&self) -> String {
        json!({
            "position": self.position.0, "log_time_ms": self.time, "proxy": self.proxy, "command": self.command,
            "details": self.details, "outcome": self.outcome,
        })
        .to_string()
    }
}

/// A command's name and what it is about.
fn describe(command: &Command) -> (&'static str, String) {
    match command {
        Command::Genesis { log_id, upstream_cluster_id, .. } => {
            ("Genesis", format!("log {log_id} of cluster {upstream_cluster_id}"))
        }
        Command::Open { zone, endpoint, min_version, max_version, .. } => {
            ("Open", format!("zone {zone} at {endpoint}, versions {min_version} to {max_version}"))
        }
        Command::Heartbeat => ("Heartbeat", String::new()),
        Command::Close => ("Close", String::new()),
        Command::Barrier => ("Barrier", String::new()),
        Command::CommitSegment(commit) => {
            let batches: usize = commit.partitions.iter().map(|p| p.batches.len()).sum();
            let size = crate::cli::table::bytes(commit.object_size);
            let partitions = commit.partitions.len();
            ("CommitSegment", format!("{}: {size}, {batches} batch(es) of {partitions} partition(s)", commit.segment))
        }
        Command::PendingTopic { name } => ("PendingTopic", name.clone()),
        Command::PendingTopicDropped { name } => ("PendingTopicDropped", name.clone()),
        Command::RegisterTopic { name, topic_id, partitions, .. } => {
            ("RegisterTopic", format!("{name}, id {topic_id}, {partitions} partition(s)"))
        }
        Command::TopicDeleted { topic_id } => ("TopicDeleted", topic_id.to_string()),
        Command::PartitionsCreated { topic_id, partitions } => {
            ("PartitionsCreated", format!("{topic_id}, now {partitions}"))
        }
        Command::TopicConfigChanged { topic_id, config } => {
            ("TopicConfigChanged", format!("{topic_id}, version {}", config.version))
        }
        Command::SetClusterVersion { version } => ("SetClusterVersion", version.to_string()),
    }
}

fn describe_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Opened { epoch } => format!("epoch {epoch}"),
        Outcome::Refused(refusal) => format!("refused: {refusal}"),
        Outcome::Committed(partitions) => {
            let (mut accepted, mut duplicates, mut rejected) = (0, 0, 0);
            for batch in partitions.iter().flatten() {
                match batch {
                    BatchOutcome::Accepted(_) => accepted += 1,
                    BatchOutcome::Duplicate(_) => duplicates += 1,
                    BatchOutcome::Rejected(_) => rejected += 1,
                }
            }
            let more = |count: u32, what: &str| if count == 0 { String::new() } else { format!(", {count} {what}") };
            format!("{accepted} accepted{}{}", more(duplicates, "duplicate"), more(rejected, "rejected"))
        }
    }
}

const COLUMNS: [Column; 6] = [
    Column("POSITION", Align::Right),
    Column("LOG TIME", Align::Right),
    Column("PROXY", Align::Right),
    Column("COMMAND", Align::Left),
    Column("ABOUT", Align::Left),
    Column("OUTCOME", Align::Left),
];

fn show(options: &Options, lines: &VecDeque<Line>, state: &State) {
    if options.json {
        lines.iter().for_each(|line| say(&line.json()));
        return;
    }
    say(&layout(&COLUMNS, &lines.iter().map(Line::row).collect::<Vec<_>>()));
    say(&format!("applied up to {}; state digest {}", state.applied, state.digest()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diskless_coordinator::command::Proposer;
    use crate::diskless_coordinator::encoding::encode;
    use crate::diskless_coordinator::rules::agreement::Checkpoint;
    use crate::types::ProxyId;

    #[tokio::test]
    async fn what_stands_before_a_record_that_cannot_be_read_is_shown() {
        let log = EmbeddedLog::open(&LogLocation::Memory, WallClock::system()).expect("an empty log");
        let proposer =
            Proposer { proxy: ProxyId(1), epoch: LogPosition(0), counter: 0, wall_time: 0, quoted: Checkpoint::NONE };
        let record = encode(&proposer, &Command::Barrier);
        let mut damaged = record.clone();
        damaged[5] ^= 1;
        for record in [record, damaged] {
            log.append(record).await.expect("appended");
        }
        let configured = Configured { config: PathBuf::new(), set: Vec::new() };
        let options = Options { configured, from: 0, last: 0, json: false };
        let (mut lines, mut state) = (VecDeque::new(), State::default());
        let read = read(&log, &options, &mut lines, &mut state).await;
        assert!(read.is_err());
        assert_eq!(lines.iter().map(|line| line.command.as_str()).collect::<Vec<_>>(), ["Barrier"]);
    }
}
