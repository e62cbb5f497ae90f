//! Mapped listeners: one port of ours for each broker of upstream, open before any client is told of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::Proxy;
use super::listener::Listener;
use super::session::Door;

/// The open mapped listeners.
#[derive(Default)]
pub struct MappedListeners {
    open: Mutex<BTreeMap<i32, Mapped>>,
}

struct Mapped {
    port: u16,
    stop: CancellationToken,
    /// When upstream stopped listing the broker.
    gone_since: Option<Instant>,
}

/// A broker that is restarted keeps its port.
const KEPT_AFTER_GONE: Duration = Duration::from_secs(600);

impl MappedListeners {
    /// The ports for these brokers, opening those that are missing. One that cannot be opened is reported in the log and
    /// left out.
    pub async fn ensure(&self, proxy: &Arc<Proxy>, brokers: &BTreeSet<i32>) -> BTreeMap<i32, u16> {
        let mut open = self.open.lock().await;
        let mut ports = BTreeMap::new();
        for &broker_id in brokers {
            let port = match open.get_mut(&broker_id) {
                Some(mapped) => {
                    mapped.gone_since = None;
                    mapped.port
                }
                None => {
                    let Ok(mapped) = bind(proxy, broker_id).await else { continue };
                    let port = mapped.port;
                    open.insert(broker_id, mapped);
                    port
                }
            };
            ports.insert(broker_id, port);
        }
        ports
    }

    /// Closes the listeners of brokers that upstream has not listed for a while.
    pub async fn follow(&self, listed: &BTreeSet<i32>, now: Instant) {
        self.open.lock().await.retain(|id, mapped| {
            if listed.contains(id) {
                mapped.gone_since = None;
                return true;
            }
            let since = *mapped.gone_since.get_or_insert(now);
            let keep = now.duration_since(since) < KEPT_AFTER_GONE;
            if !keep {
                mapped.stop.cancel();
                tracing::info!(broker = *id, port = mapped.port, "closed the mapped listener of a broker that is gone");
            }
            keep
        });
    }
}

/// The port that stands for a broker; 0 takes a free one.
fn port_of(base: u16, broker_id: i32) -> io::Result<u16> {
    if base == 0 {
        return Ok(0);
    }
    u16::try_from(i64::from(base) + i64::from(broker_id)).map_err(|_| {
        let problem = format!("listener.mapped.port.base {base} plus broker id {broker_id} is no port");
        io::Error::new(io::ErrorKind::InvalidInput, problem)
    })
}

async fn bind(proxy: &Arc<Proxy>, broker_id: i32) -> io::Result<Mapped> {
    let settings = &proxy.config.listener;
    let opened = match port_of(settings.mapped_port_base, broker_id) {
        Ok(port) => Listener::bind(&settings.bind_host, port).await.map_err(|error| (Some(port), error)),
        Err(error) => Err((None, error)),
    };
    let listener = opened.map_err(|(port, error)| {
        tracing::error!(broker = broker_id, port, %error, "a mapped listener cannot be opened, so clients cannot reach this broker: free the port or change listener.mapped.port.base");
        error
    })?;
    let port = listener.local_address()?.port();
    let stop = proxy.tasks.stop_token().child_token();
    let door = Door::Mapped { broker_id };
    proxy.tasks.spawn("mapped listener", listener.serve(Arc::clone(proxy), door, stop.clone()));
    tracing::info!(broker = broker_id, port, "opened a mapped listener");
    Ok(Mapped { port, stop, gone_since: None })
}
