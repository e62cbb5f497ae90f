//! Parses arguments and runs the command.

use clap::Parser as _;

// The system's allocator gives freed record buffers back slowly; this one keeps the process small and fast.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    sidestream::cli::Arguments::parse().run()
}
