//! `sidestream check` (under construction)

use std::process::ExitCode;

use super::Configured;

pub(super) async fn run(configured: &Configured) -> ExitCode {
    match configured.load() {
        Ok(_) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}
