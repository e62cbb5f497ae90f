//! What the operator says of the object store, and the store of crate `object_store` that comes of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::prefix::PrefixStore;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};
use serde::Deserialize;

use super::simulated::Simulate;

/// Where the objects are kept.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `file:///directory` or `memory://`.
    pub url: String,
    /// Endpoint, region, credentials and so on, by the names of crate `object_store` (`aws_endpoint`,
    /// `aws_access_key_id`...). What is absent is taken from the environment. Values are never shown. A store that
    /// speaks S3 but knows no CRC64-NVME wants `aws_checksum_algorithm = "sha256"`.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// For one attempt of up to 1 MiB; a larger one has twice this.
    #[serde(default = "default_attempt_timeout_ms", rename = "attempt.timeout.ms")]
    pub attempt_timeout_ms: u64,
    /// For one operation with all its attempts.
    #[serde(default = "default_timeout_ms", rename = "timeout.ms")]
    pub timeout_ms: u64,
    /// Gives the store the latency of another one.
    #[serde(default)]
    pub simulate: Option<Simulate>,
}

fn default_attempt_timeout_ms() -> u64 {
    2_000
}

fn default_timeout_ms() -> u64 {
    10_000
}

impl Config {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            options: BTreeMap::new(),
            attempt_timeout_ms: default_attempt_timeout_ms(),
            timeout_ms: default_timeout_ms(),
            simulate: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("url", &self.url)
            .field("options", &self.options.keys())
            .field("attempt_timeout_ms", &self.attempt_timeout_ms)
            .field("timeout_ms", &self.timeout_ms)
            .field("simulate", &self.simulate)
            .finish()
    }
}

/// The settings make no store.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "object store url {0:?} is not one of s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///directory, memory://"
    )]
    Url(String),
    #[error("object store option {name:?} is not known for {scheme}://")]
    Option { scheme: &'static str, name: String },
    #[error("the directory {directory:?} cannot be made: {source}")]
    Directory { directory: PathBuf, source: std::io::Error },
    #[error("the object store cannot be opened: {0}")]
    Store(#[from] object_store::Error),
}

/// A store, and what must be known to use it.
pub(super) enum Opened {
    Memory,
    Store {
        store: Box<dyn ObjectStore>,
        /// Where a PUT carries no checksum that the store verifies.
        verify_size: bool,
    },
}

/// A url, taken apart.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Location {
    S3 { bucket: String, prefix: String },
    Gcs { bucket: String, prefix: String },
    Azure { container: String, prefix: String },
    Directory(PathBuf),
    Memory,
}

impl FromStr for Location {
    type Err = ConfigError;

    fn from_str(url: &str) -> Result<Self, ConfigError> {
        let bad = || ConfigError::Url(url.to_owned());
        let (scheme, rest) = url.split_once("://").ok_or_else(bad)?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, prefix) = (host.to_owned(), path.trim_matches('/').to_owned());
        match scheme {
            "memory" if rest.trim_matches('/').is_empty() => Ok(Self::Memory),
            "file" if host.is_empty() && !prefix.is_empty() => Ok(Self::Directory(PathBuf::from("/").join(prefix))),
            "s3" if !host.is_empty() => Ok(Self::S3 { bucket: host, prefix }),
            "gs" if !host.is_empty() => Ok(Self::Gcs { bucket: host, prefix }),
            "az" if !host.is_empty() => Ok(Self::Azure { container: host, prefix }),
            _ => Err(bad()),
        }
    }
}

impl Config {
    /// Whether the settings can be read, without opening anything.
    pub fn check(&self) -> Result<(), ConfigError> {
        let options = &self.options;
        match self.url.parse()? {
            Location::S3 { .. } => parsed::<AmazonS3ConfigKey>("s3", options).map(drop),
            Location::Gcs { .. } => parsed::<GoogleConfigKey>("gs", options).map(drop),
            Location::Azure { .. } => parsed::<AzureConfigKey>("az", options).map(drop),
            Location::Directory(_) => none("file", options),
            Location::Memory => none("memory", options),
        }
    }

    pub(super) fn open(&self) -> Result<Opened, ConfigError> {
        self.check()?;
        match self.url.parse()? {
            Location::S3 { bucket, prefix } => self.open_s3(bucket, prefix),
            Location::Gcs { bucket, prefix } => self.open_gcs(bucket, prefix),
            Location::Azure { container, prefix } => self.open_azure(container, prefix),
            Location::Directory(directory) => open_directory(directory),
            Location::Memory => Ok(Opened::Memory),
        }
    }

    /// The checksum travels with the bytes, so on https the payload need not be hashed a second time for the
    /// signature.
    fn open_s3(&self, bucket: String, prefix: String) -> Result<Opened, ConfigError> {
        let options = parsed::<AmazonS3ConfigKey>("s3", &self.options)?;
        let is_plain = options
            .iter()
            .any(|(key, value)| matches!(key, AmazonS3ConfigKey::Endpoint) && value.starts_with("http://"));
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_checksum_algorithm(Checksum::CRC64NVME)
            .with_unsigned_payload(!is_plain)
            .with_allow_http(is_plain)
            .with_retry(no_retries());
        for (key, value) in options {
            builder = builder.with_config(key, value);
        }
        Ok(prefixed(builder.build()?, prefix, false))
    }

    fn open_gcs(&self, bucket: String, prefix: String) -> Result<Opened, ConfigError> {
        let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(no_retries());
        for (key, value) in parsed::<GoogleConfigKey>("gs", &self.options)? {
            builder = builder.with_config(key, value);
        }
        Ok(prefixed(builder.build()?, prefix, true))
    }

    fn open_azure(&self, container: String, prefix: String) -> Result<Opened, ConfigError> {
        let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(container).with_retry(no_retries());
        for (key, value) in parsed::<AzureConfigKey>("az", &self.options)? {
            builder = builder.with_config(key, value);
        }
        Ok(prefixed(builder.build()?, prefix, true))
    }
}

fn open_directory(directory: PathBuf) -> Result<Opened, ConfigError> {
    if let Err(source) = std::fs::create_dir_all(&directory) {
        return Err(ConfigError::Directory { directory, source });
    }
    let store = LocalFileSystem::new_with_prefix(&directory)?.with_fsync(true);
    Ok(Opened::Store { store: Box::new(store), verify_size: true })
}

fn prefixed(store: impl ObjectStore, prefix: String, verify_size: bool) -> Opened {
    if prefix.is_empty() {
        return Opened::Store { store: Box::new(store), verify_size };
    }
    Opened::Store { store: Box::new(PrefixStore::new(store, prefix)), verify_size }
}

/// The layer above retries, where it is counted and bounded.
fn no_retries() -> RetryConfig {
    RetryConfig { backoff: BackoffConfig::default(), max_retries: 0, retry_timeout: Duration::ZERO }
}

fn parsed<K: FromStr>(
    scheme: &'static str,
    options: &BTreeMap<String, String>,
) -> Result<Vec<(K, String)>, ConfigError> {
    let key = |name: &String| {
        name.to_ascii_lowercase().parse().map_err(|_| ConfigError::Option { scheme, name: name.clone() })
    };
    options.iter().map(|(name, value)| Ok((key(name)?, value.clone()))).collect()
}

fn none(scheme: &'static str, options: &BTreeMap<String, String>) -> Result<(), ConfigError> {
    match options.keys().next() {
        None => Ok(()),
        Some(name) => Err(ConfigError::Option { scheme, name: name.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let s3 = |prefix: &str| Location::S3 { bucket: "b".to_owned(), prefix: prefix.to_owned() };
        assert_eq!("s3://b".parse::<Location>().ok(), Some(s3("")));
        assert_eq!("s3://b/p/q/".parse::<Location>().ok(), Some(s3("p/q")));
        assert_eq!("file:///var/x".parse::<Location>().ok(), Some(Location::Directory("/var/x".into())));
        assert_eq!("memory://".parse::<Location>().ok(), Some(Location::Memory));
        for bad in ["", "b", "s3://", "s3:b", "ftp://b", "file://host/x", "file:///", "memory://x"] {
            assert!(bad.parse::<Location>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_unknown_option_is_named() {
        let mut config = Config::new("s3://b");
        config.options.insert("aws_endpoint".to_owned(), "http://127.0.0.1:9000".to_owned());
        assert!(config.check().is_ok());
        config.options.insert("aws_endpiont".to_owned(), String::new());
        assert!(config.check().is_err_and(|e| e.to_string().contains("aws_endpiont")));
    }

    #[test]
    fn stores_of_every_kind_are_made_without_a_request() {
        let mut s3 = Config::new("s3://bucket/prefix");
        for (name, value) in [("aws_region", "eu-west-1"), ("aws_access_key_id", "a"), ("aws_secret_access_key", "b")] {
            s3.options.insert(name.to_owned(), value.to_owned());
        }
        assert!(matches!(s3.open(), Ok(Opened::Store { verify_size: false, .. })));
        let mut azure = Config::new("az://container");
        for (name, value) in [("azure_storage_account_name", "a"), ("azure_storage_account_key", "YQ==")] {
            azure.options.insert(name.to_owned(), value.to_owned());
        }
        assert!(matches!(azure.open(), Ok(Opened::Store { verify_size: true, .. })));
    }

    #[test]
    fn secrets_are_not_shown() {
        let mut config = Config::new("s3://b");
        config.options.insert("aws_secret_access_key".to_owned(), "hush".to_owned());
        let shown = format!("{config:?}");
        assert!(shown.contains("aws_secret_access_key") && !shown.contains("hush"));
    }
}
