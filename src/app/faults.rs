//! Faults of the object store on demand, from a file of rules: how tests of whole processes make a store fail.

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::object_storage::{FaultHandle, FaultRule};

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Applies the file's rules whenever its content changes. A file that is absent or empty means no faults.
pub(super) async fn follow(file: PathBuf, faults: FaultHandle, stop: CancellationToken) {
    tracing::warn!(file = %file.display(), "store.fault.file is set: the object store fails on demand. Not for production");
    let mut applied = String::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let text = tokio::fs::read_to_string(&file).await.unwrap_or_default();
        if text == applied {
            continue;
        }
        let rules = if text.trim().is_empty() { Ok(Vec::new()) } else { serde_json::from_str::<Vec<FaultRule>>(&text) };
        match rules {
            Ok(rules) => {
                tracing::info!(rules = rules.len(), "fault rules changed");
                faults.set(rules);
            }
            Err(error) => tracing::warn!(%error, "the fault rules are not valid; those before stay"),
        }
        applied = text;
    }
}
