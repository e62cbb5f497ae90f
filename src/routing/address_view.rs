//! Every field of a response that names a broker or its address is rewritten here, and nowhere else (R14).
//!
//! Clients must never learn an address that bypasses the proxies, nor one that leads them out of their zone. Real
//! brokers keep their ids and get the address of a mapped listener; the virtual brokers are added; diskless
//! partitions get virtual brokers as leader and replicas. Ids, racks and replica lists are the same in every
//! answer, only leaders and addresses are the answering zone's.
//!
//! Never touches errors of topics, authorized operations, the controller id, or the order of entries.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_topic_partitions_response::DescribeTopicPartitionsResponsePartition;
use kafka_protocol::messages::metadata_response::{MetadataResponseBroker, MetadataResponsePartition};
use kafka_protocol::messages::{
    BrokerId, DescribeClusterResponse, DescribeTopicPartitionsResponse, FindCoordinatorResponse, MetadataResponse,
};

use super::placement::Placement;
use crate::diskless_coordinator::view::{Proxies, ProxyInfo, Topics};
use crate::types::{Endpoint, ErrorCode, ProxyId, Rack, TimestampMs, TopicId, TopicPartition, virtual_broker_id};
use crate::wire::StrBytes;

/// A broker that is a proxy, as clients of one zone see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VirtualBroker {
    pub id: i32,
    pub rack: Rack,
    /// Of a live proxy of the answering proxy's zone, whichever zone the broker is in.
    pub endpoint: Endpoint,
}

/// Every listed proxy as clients of `zone` see it (R14): under the address of a live proxy of that zone, its own
/// where it is one. `own` is the answering proxy's address, the one that is live for certain.
pub fn virtual_brokers(proxies: &Proxies, now: TimestampMs, zone: &str, own: &Endpoint) -> Vec<VirtualBroker> {
    let listed = proxies.by_id.iter().filter(|(_, info)| info.is_listed(now));
    let virtual_broker = |(id, info): (&ProxyId, &ProxyInfo)| VirtualBroker {
        id: virtual_broker_id(*id),
        rack: info.zone.clone(),
        endpoint: if info.zone == zone && info.is_live(now) { info.endpoint.clone() } else { own.clone() },
    };
    listed.map(virtual_broker).collect()
}

/// What clients are told about brokers, by one proxy at one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AddressView {
    /// The zone of the answering proxy.
    pub zone: Rack,
    pub virtual_brokers: Vec<VirtualBroker>,
    /// The mapped listener of each real broker. Its port is bound already.
    pub mapped: BTreeMap<i32, Endpoint>,
    pub placement: Placement,
}

/// A diskless topic, as far as answers need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DisklessTopic {
    pub id: TopicId,
    /// The same for all partitions.
    pub leader_epoch: i32,
}

/// Which topics are diskless.
pub trait DisklessTopics {
    /// Finds a topic of an answer: by its id, or by its name where the answer's version has no ids.
    fn find(&self, id: TopicId, name: Option<&str>) -> Option<DisklessTopic>;
}

impl DisklessTopics for Topics {
    fn find(&self, id: TopicId, name: Option<&str>) -> Option<DisklessTopic> {
        let topic = if id.is_zero() { self.named(name?)? } else { self.by_id.get(&id)? };
        Some(DisklessTopic { id: topic.id, leader_epoch: topic.leader_epoch })
    }
}

/// A real broker in an answer has no mapped listener yet. Its address must not be handed out: open the listener
/// first, then rewrite again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("broker {0} has no mapped listener")]
pub struct UnmappedBroker(pub i32);

impl AddressView {
    /// The answer is left as it was when a broker is unmapped.
    pub fn rewrite_metadata(
        &self,
        response: &mut MetadataResponse,
        diskless: &impl DisklessTopics,
    ) -> Result<(), UnmappedBroker> {
        self.check_mapped(response.brokers.iter().map(|broker| *broker.node_id))?;
        for broker in &mut response.brokers {
            let mapped = self.endpoint(*broker.node_id)?;
            broker.host = host(mapped);
            broker.port = i32::from(mapped.port);
        }
        response.brokers.extend(self.virtual_brokers.iter().map(|broker| {
            MetadataResponseBroker::default()
                .with_node_id(BrokerId(broker.id))
                .with_host(host(&broker.endpoint))
                .with_port(i32::from(broker.endpoint.port))
                .with_rack(Some(StrBytes::from_string(broker.rack.clone())))
        }));
        for topic in &mut response.topics {
            let name = topic.name.as_ref().map(|name| name.as_str());
            let Some(found) = diskless.find(topic.topic_id.into(), name) else { continue };
            for partition in &mut topic.partitions {
                self.lead(found, partition.partition_index).write_metadata(partition);
            }
        }
        Ok(())
    }

    /// Both shapes: flat up to version 3, a list since version 4. Entries without a broker stay as they are.
    pub fn rewrite_find_coordinator(&self, response: &mut FindCoordinatorResponse) -> Result<(), UnmappedBroker> {
        let listed = response.coordinators.iter().filter(|c| names_broker(c.error_code, *c.node_id, &c.host));
        self.check_mapped(listed.map(|c| *c.node_id))?;
        if names_broker(response.error_code, *response.node_id, &response.host) {
            let mapped = self.endpoint(*response.node_id)?;
            response.host = host(mapped);
            response.port = i32::from(mapped.port);
        }
        for coordinator in &mut response.coordinators {
            if names_broker(coordinator.error_code, *coordinator.node_id, &coordinator.host) {
                let mapped = self.endpoint(*coordinator.node_id)?;
                coordinator.host = host(mapped);
                coordinator.port = i32::from(mapped.port);
            }
        }
        Ok(())
    }

    pub fn rewrite_describe_cluster(&self, response: &mut DescribeClusterResponse) -> Result<(), UnmappedBroker> {
        if response.error_code != ErrorCode::None.code() {
            // A refusal, such as MISMATCHED_ENDPOINT_TYPE, lists nobody.
            response.brokers.clear();
            return Ok(());
        }
        // A fenced broker that never came up has no address, and needs none.
        let dialed = |broker: &&DescribeClusterBroker| !broker.host.is_empty();
        self.check_mapped(response.brokers.iter().filter(dialed).map(|broker| *broker.broker_id))?;
        for broker in response.brokers.iter_mut().filter(|broker| !broker.host.is_empty()) {
            let mapped = self.endpoint(*broker.broker_id)?;
            broker.host = host(mapped);
            broker.port = i32::from(mapped.port);
        }
        response.brokers.extend(self.virtual_brokers.iter().map(|broker| {
            DescribeClusterBroker::default()
                .with_broker_id(BrokerId(broker.id))
                .with_host(host(&broker.endpoint))
                .with_port(i32::from(broker.endpoint.port))
                .with_rack(Some(StrBytes::from_string(broker.rack.clone())))
        }));
        Ok(())
    }

    pub fn rewrite_describe_topic_partitions(
        &self,
        response: &mut DescribeTopicPartitionsResponse,
        diskless: &impl DisklessTopics,
    ) {
        for topic in &mut response.topics {
            let name = topic.name.as_ref().map(|name| name.as_str());
            let Some(found) = diskless.find(topic.topic_id.into(), name) else { continue };
            for partition in &mut topic.partitions {
                self.lead(found, partition.partition_index).write_described(partition);
            }
        }
    }

    fn lead(&self, topic: DisklessTopic, partition: i32) -> Leadership {
        let partition = TopicPartition { topic_id: topic.id, partition };
        Leadership {
            leader: self.placement.leader(&self.zone, partition),
            leader_epoch: topic.leader_epoch,
            replicas: self.placement.replicas(partition).into_iter().map(BrokerId).collect(),
        }
    }

    fn endpoint(&self, broker: i32) -> Result<&Endpoint, UnmappedBroker> {
        self.mapped.get(&broker).ok_or(UnmappedBroker(broker))
    }

    fn check_mapped(&self, mut brokers: impl Iterator<Item = i32>) -> Result<(), UnmappedBroker> {
        brokers.find(|id| !self.mapped.contains_key(id)).map_or(Ok(()), |id| Err(UnmappedBroker(id)))
    }
}

/// How a diskless partition looks to clients.
struct Leadership {
    leader: Option<i32>,
    leader_epoch: i32,
    replicas: Vec<BrokerId>,
}

impl Leadership {
    /// The shadow partition's error goes away, since the data does not depend on its leader.
    fn error(&self) -> i16 {
        if self.leader.is_some() { ErrorCode::None.code() } else { ErrorCode::LeaderNotAvailable.code() }
    }

    fn write_metadata(self, partition: &mut MetadataResponsePartition) {
        partition.error_code = self.error();
        partition.leader_id = BrokerId(self.leader.unwrap_or(-1));
        partition.leader_epoch = self.leader_epoch;
        partition.isr_nodes = self.replicas.clone();
        partition.replica_nodes = self.replicas;
        partition.offline_replicas = Vec::new();
    }

    fn write_described(self, partition: &mut DescribeTopicPartitionsResponsePartition) {
        partition.error_code = self.error();
        partition.leader_id = BrokerId(self.leader.unwrap_or(-1));
        partition.leader_epoch = self.leader_epoch;
        partition.isr_nodes = self.replicas.clone();
        partition.replica_nodes = self.replicas;
        partition.offline_replicas = Vec::new();
        partition.eligible_leader_replicas = Some(Vec::new());
        partition.last_known_elr = Some(Vec::new());
    }
}

/// Whether an entry names a broker to dial: one with an error has the id -1 and no host.
fn names_broker(error_code: i16, node_id: i32, host: &str) -> bool {
    error_code == ErrorCode::None.code() && node_id >= 0 && !host.is_empty()
}

fn host(endpoint: &Endpoint) -> StrBytes {
    StrBytes::from_string(endpoint.host.clone())
}

#[cfg(test)]
mod tests;
