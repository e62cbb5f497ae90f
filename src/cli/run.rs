//! `sidestream run`

use std::process::ExitCode;

use super::Configured;
use crate::app::{App, SharedParts, termination};

pub(super) async fn run(configured: &Configured) -> ExitCode {
    let config = match configured.load() {
        Ok(config) => config,
        Err(code) => return code,
    };
    let served = async {
        let app = App::start(config, SharedParts::default()).await?;
        app.run_until(async {
            if let Err(error) = termination().await {
                tracing::error!(%error, "signals cannot be received, so this proxy stops at once");
            }
        })
        .await
    };
    super::finish(served.await.map(|()| ExitCode::SUCCESS))
}
