//! Connections of clients: requests take time, arrive in order, and may break off before or after they arrived.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::chance::Chance;
use super::proxy::Ask;
use super::world::World;

/// Requests that a connection holds.
const QUEUE: usize = 64;

/// One connection to one proxy. A client that sees it closed makes another.
pub(crate) struct Connection {
    asks: mpsc::Sender<Ask>,
    pub(crate) machine: usize,
}

impl Connection {
    /// To a proxy that answers; any of them. Tries until there is one.
    pub(crate) async fn open(world: &Arc<World>, chance: &Arc<Chance>) -> Self {
        loop {
            sleep(chance.skewed(Duration::from_millis(20))).await;
            let machine = chance.index(world.machines.len());
            let Some(proxy) = world.machines[machine].running().and_then(|running| running.connect()) else {
                continue;
            };
            let (asks, waiting) = mpsc::channel(QUEUE);
            tokio::spawn(carry(Arc::clone(world), Arc::clone(chance), waiting, proxy));
            return Self { asks, machine };
        }
    }

    /// Sends a request. An error means that the connection is closed.
    pub(crate) async fn send(&self, ask: Ask) -> Result<(), ()> {
        self.asks.send(ask).await.map_err(|_| ())
    }
}

/// Carries requests to the proxy, in order.
async fn carry(world: Arc<World>, chance: Arc<Chance>, mut waiting: mpsc::Receiver<Ask>, proxy: mpsc::Sender<Ask>) {
    while let Some(ask) = waiting.recv().await {
        let (breaks, slow) = world.faults.look(|faults| (faults.connections_break, faults.network_ms));
        sleep(chance.skewed(Duration::from_millis(1 + slow))).await;
        // Before it arrived: the request is dropped with this task. Whoever waits for an answer sees that.
        if chance.percent(breaks) || proxy.send(ask).await.is_err() {
            return;
        }
        if chance.percent(breaks) {
            return;
        }
    }
}
