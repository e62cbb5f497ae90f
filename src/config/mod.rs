//! The whole configuration: read from TOML, arguments and environment, validated before a port opens.
//!
//! `settings` is the only list of setting names and defaults; `proxy-config/distributed.toml` shows them all.

pub mod file;
pub mod reader;
mod settings;

use std::path::{Path, PathBuf};

pub use settings::{
    AdminConfig, Authorization, DisklessConfig, FetchConfig, IdempotencePolicy, ListenerConfig, ListenerTls,
    MetadataConfig, MetadataMode, ProxyConfig, TestingConfig, UpstreamConfig,
};

use crate::object_storage;
use file::Settings;

/// Everything a proxy needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    pub proxy: ProxyConfig,
    pub listener: ListenerConfig,
    pub upstream: UpstreamConfig,
    pub metadata: MetadataConfig,
    pub store: object_storage::Config,
    pub diskless: DisklessConfig,
    pub fetch: FetchConfig,
    pub admin: AdminConfig,
    pub testing: TestingConfig,
}

/// What is wrong with a configuration: all of it, one line each.
#[derive(Debug, thiserror::Error)]
#[error("{} has {} mistake{}:\n  {}", .path.display(), .mistakes.len(), if .mistakes.len() == 1 { "" } else { "s" }, .mistakes.join("\n  "))]
pub struct ConfigError {
    pub path: PathBuf,
    pub mistakes: Vec<String>,
}

/// Environment variables that give a secret without writing it into a file.
const SECRETS: [(&str, &str); 4] = [
    ("SIDESTREAM_UPSTREAM_SASL_USERNAME", "upstream.sasl.username"),
    ("SIDESTREAM_UPSTREAM_SASL_PASSWORD", "upstream.sasl.password"),
    ("SIDESTREAM_STORE_ACCESS_KEY_ID", "store.option.access_key_id"),
    ("SIDESTREAM_STORE_SECRET_ACCESS_KEY", "store.option.secret_access_key"),
];

/// Whether a secret means anything beside these settings: the environment may carry it for another program.
fn applies(secret: &str, given: &Settings) -> bool {
    let text = |name: &str| given.values.get(name).and_then(|(value, _)| value.as_str()).unwrap_or_default();
    if secret.starts_with("store.") {
        text("store.url").starts_with("s3://")
    } else {
        text("upstream.security.protocol").starts_with("SASL")
    }
}

impl Config {
    /// Reads a file, then the environment, then `--set` arguments: the later wins.
    pub fn load(path: &Path, arguments: &[String]) -> Result<Self, ConfigError> {
        let fail = |mistakes| ConfigError { path: path.to_owned(), mistakes };
        let text = std::fs::read_to_string(path)
            .map_err(|e| fail(vec![format!("the file cannot be read: {e}; give another with --config FILE")]))?;
        Self::parse(&text, arguments, |name| std::env::var(name).ok()).map_err(fail)
    }

    /// Reads a configuration from text.
    pub fn parse(
        text: &str,
        arguments: &[String],
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<String>> {
        let mut given = Settings::parse(text)?;
        for (variable, name) in SECRETS {
            if let Some(value) = environment(variable).filter(|_| applies(name, &given)) {
                given.set_environment(name, variable, &value);
            }
        }
        let mut mistakes: Vec<_> = arguments.iter().filter_map(|a| given.set_argument(a).err()).collect();
        match settings::read(given) {
            Ok(config) if mistakes.is_empty() => Ok(config),
            Ok(_) => Err(mistakes),
            Err(more) => {
                mistakes.extend(more);
                Err(mistakes)
            }
        }
    }
}
