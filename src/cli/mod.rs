//! The command line. Output for people is a table or sentences; `--json` is for programs.

mod admin_client;
mod bench;
mod check;
mod inspect;
mod run;
mod table;
mod topics;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};

use crate::telemetry::LogFormat;

/// A per-zone Kafka proxy that stores the topics you choose in object storage.
#[derive(Parser, Debug)]
#[command(name = "sidestream", version, propagate_version = true)]
pub struct Arguments {
    /// How log lines look.
    #[arg(long, global = true, value_enum, default_value = "text")]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run a proxy until SIGTERM or Ctrl-C.
    Run(Configured),
    /// Try it: three zones, a mock Kafka and a workload in one process, nothing to install.
    Demo(crate::demo::Options),
    /// Try everything that a proxy needs, without starting one. Exits with 1 if anything fails.
    Check(Configured),
    /// List, describe and create topics.
    #[command(subcommand)]
    Topics(topics::Command),
    /// Measure any Kafka address: throughput and latencies, through librdkafka.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Look into what is stored: objects, the metadata log, the applied state.
    #[command(subcommand)]
    Inspect(inspect::Command),
    /// Judge what clients recorded: was anything lost, doubled, reordered? Exits with 1 if so, with 2 if it cannot tell.
    Verify(verify::Options),
}

/// A configuration file, with changes to it.
#[derive(Args, Debug)]
struct Configured {
    /// The configuration file (TOML).
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Change a setting: section.key=value. Can be given many times.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Exit code for a configuration that is not valid (`EX_USAGE`).
const BAD_CONFIGURATION: u8 = 64;

impl Configured {
    fn load(&self) -> Result<crate::config::Config, ExitCode> {
        crate::config::Config::load(&self.config, &self.set).map_err(|error| {
            complain(&error.to_string());
            ExitCode::from(BAD_CONFIGURATION)
        })
    }
}

impl Arguments {
    /// Runs the command to its end.
    pub fn run(self) -> ExitCode {
        let is_service = matches!(self.command, Command::Run(_));
        crate::telemetry::start(self.log_format, if is_service { "info" } else { "warn" });
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return fail(&anyhow::Error::new(error).context("the runtime cannot be started")),
        };
        runtime.block_on(async {
            match self.command {
                Command::Run(configured) => run::run(&configured).await,
                Command::Demo(options) => finish(crate::demo::run(options).await),
                Command::Check(configured) => check::run(&configured).await,
                Command::Topics(command) => finish(topics::run(command).await),
                Command::Bench(command) => finish(bench::run(command).await),
                Command::Inspect(command) => finish(inspect::run(command).await),
                Command::Verify(options) => verify::run(&options),
            }
        })
    }
}

fn finish(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| fail(&error))
}

fn fail(error: &anyhow::Error) -> ExitCode {
    complain(&format!("{error:#}"));
    ExitCode::FAILURE
}

/// A line to standard error, whoever listens.
fn complain(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "sidestream: {text}");
}

/// The two halves of a `KEY=VALUE` argument.
fn assignment<'a>(option: &str, text: &'a str) -> anyhow::Result<(&'a str, &'a str)> {
    text.split_once('=').with_context(|| format!("{option} {text}: KEY=VALUE is expected"))
}

/// Lines to standard output. A reader that has gone (`| head`) is no failure.
fn say(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "{text}");
}
