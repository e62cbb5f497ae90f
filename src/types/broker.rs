//! Brokers, racks and addresses as clients see them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ProxyId;

/// An availability zone as Kafka sees it (`broker.rack`, `client.rack`).
pub type Rack = String;

/// Virtual broker ids start here. Far from 2^31: the Java consumer opens its coordinator connection under
/// `Integer.MAX_VALUE - id`, which must not meet another broker's id.
pub const VIRTUAL_BROKER_BASE: i32 = 100_000;

/// The broker id under which a proxy leads diskless partitions.
pub fn virtual_broker_id(proxy: ProxyId) -> i32 {
    VIRTUAL_BROKER_BASE + i32::try_from(proxy.0).unwrap_or(i32::MAX - VIRTUAL_BROKER_BASE)
}

/// A host and port that a client dials.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is not an address: HOST:PORT is expected");
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(bad());
        }
        Ok(Self { host: host.to_owned(), port: port.parse().map_err(|_| bad())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_also_for_ip_version_6() {
        for text in ["kafka:9092", "127.0.0.1:1", "[::1]:9092"] {
            assert_eq!(text.parse::<Endpoint>().map(|e| e.to_string()), Ok(text.to_owned()));
        }
        for text in ["kafka", ":9092", "kafka:", "kafka:70000"] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
