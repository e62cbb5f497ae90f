//! `sidestream inspect`: what is stored: objects, the metadata log, and the state that comes of it.

mod log;
mod segment;
mod state;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Print what one WAL segment holds, and check it against its checksums.
    Segment {
        /// A WAL segment that was copied from the object store.
        file: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print the commands in the metadata log, and what became of each when it was applied.
    Log(log::Options),
    /// Print a summary of the applied state, and check its invariants.
    State(state::Options),
}

pub(super) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Segment { file, json } => segment::run(&file, json).await,
        Command::Log(options) => log::run(&options).await,
        Command::State(options) => state::run(&options).await,
    }
}
