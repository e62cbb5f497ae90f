//! Which virtual broker leads a diskless partition: rendezvous hashing within each zone.
//!
//! Every proxy gives the same winner for the same list, and when a proxy comes or goes only the partitions that it
//! wins move. The winner is a hint for locality alone: any proxy takes any diskless partition.

use std::collections::BTreeMap;

use crate::diskless_coordinator::view::Proxies;
use crate::types::{ProxyId, Rack, TimestampMs, TopicPartition, virtual_broker_id};

/// The proxies that can win partitions, by zone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    zones: BTreeMap<Rack, Vec<ProxyId>>,
}

impl Placement {
    /// In each zone the live proxies; in a zone without one, those that are still listed, so that the set of zones
    /// (which clients see as racks) does not change whenever a proxy restarts.
    pub fn new(proxies: &Proxies, now: TimestampMs) -> Self {
        let mut zones: BTreeMap<Rack, Vec<ProxyId>> = BTreeMap::new();
        let listed = || proxies.by_id.iter().filter(|(_, info)| info.is_listed(now));
        for (id, info) in listed().filter(|(_, info)| info.is_live(now)) {
            zones.entry(info.zone.clone()).or_default().push(*id);
        }
        let empty: Vec<_> = listed().filter(|(_, info)| !zones.contains_key(&info.zone)).collect();
        for (id, info) in empty {
            zones.entry(info.zone.clone()).or_default().push(*id);
        }
        Self { zones }
    }

    /// From zones and their proxies.
    pub fn of_zones(zones: BTreeMap<Rack, Vec<ProxyId>>) -> Self {
        Self { zones }
    }

    /// The virtual broker that leads a partition for clients of this zone.
    pub fn leader(&self, zone: &str, partition: TopicPartition) -> Option<i32> {
        winner(partition, self.zones.get(zone)?).map(virtual_broker_id)
    }

    /// The winner of each zone in the order of the zones: the same from every proxy.
    pub fn replicas(&self, partition: TopicPartition) -> Vec<i32> {
        self.zones.values().filter_map(|proxies| winner(partition, proxies)).map(virtual_broker_id).collect()
    }
}

/// The proxy with the highest score; the lower id where two scores are equal.
fn winner(partition: TopicPartition, proxies: &[ProxyId]) -> Option<ProxyId> {
    proxies.iter().copied().max_by_key(|proxy| (score(partition, *proxy), std::cmp::Reverse(*proxy)))
}

/// FNV-1a (64 bits) over topic id, partition and proxy id, big-endian, and then MurmurHash3's finalizer, since
/// FNV alone hardly mixes its last bytes into the high bits. Every proxy must compute the same, whatever its version.
fn score(partition: TopicPartition, proxy: ProxyId) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let bytes = partition.topic_id.0.into_iter().chain(partition.partition.to_be_bytes()).chain(proxy.0.to_be_bytes());
    for byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diskless_coordinator::view::ProxyInfo;
    use crate::types::{Endpoint, LogPosition, TopicId};

    fn partition(topic: u8, partition: i32) -> TopicPartition {
        TopicPartition { topic_id: TopicId([topic; 16]), partition }
    }

    fn ids(ids: &[u32]) -> Vec<ProxyId> {
        ids.iter().copied().map(ProxyId).collect()
    }

    fn proxy(zone: &str, last_heard: TimestampMs, closed: bool) -> ProxyInfo {
        let endpoint = Endpoint { host: "h".to_owned(), port: 1 };
        ProxyInfo {
            epoch: LogPosition(0),
            zone: zone.to_owned(),
            endpoint,
            last_heard,
            closed,
            min_version: 1,
            max_version: 1,
        }
    }

    #[test]
    fn scores_never_change() {
        let golden = [
            (1, 0, 1, 0x7b57_d4ec_eb09_5590),
            (1, 1, 1, 0xe14b_e420_a6fe_539e),
            (1, 0, 2, 0x6b54_f518_f111_3d31),
            (255, i32::MAX, 7, 0x8c21_fff1_678e_0a6f),
        ];
        for (topic, index, proxy, expected) in golden {
            assert_eq!(score(partition(topic, index), ProxyId(proxy)), expected, "{topic} {index} {proxy}");
        }
    }

    #[test]
    fn partitions_spread_evenly_and_only_the_winners_partitions_move() {
        let three = ids(&[1, 2, 3]);
        let two = ids(&[1, 3]);
        let mut won = BTreeMap::new();
        for index in 0..3000 {
            let first = winner(partition(9, index), &three).expect("a winner");
            let second = winner(partition(9, index), &two).expect("a winner");
            *won.entry(first).or_insert(0) += 1;
            assert!(first == second || first == ProxyId(2), "partition {index} moved without need");
        }
        assert!(won.values().all(|count| (900..1100).contains(count)), "{won:?}");
    }

    #[test]
    fn the_order_of_the_list_does_not_matter() {
        for index in 0..100 {
            assert_eq!(winner(partition(1, index), &ids(&[1, 2, 3])), winner(partition(1, index), &ids(&[3, 1, 2])));
        }
    }

    #[test]
    fn replicas_are_one_per_zone_and_the_leader_is_the_zones_own() {
        let zones = BTreeMap::from([("a".to_owned(), ids(&[1, 2])), ("b".to_owned(), ids(&[3]))]);
        let placement = Placement::of_zones(zones);
        for index in 0..20 {
            let replicas = placement.replicas(partition(1, index));
            assert_eq!(replicas.len(), 2);
            assert_eq!(placement.leader("a", partition(1, index)), Some(replicas[0]));
            assert_eq!(placement.leader("b", partition(1, index)), Some(100_003));
        }
        assert_eq!(placement.leader("c", partition(1, 0)), None);
    }

    #[test]
    fn live_proxies_win_and_a_zone_without_any_keeps_its_place() {
        let by_id = BTreeMap::from([
            (ProxyId(1), proxy("a", 1_000_000, false)),
            (ProxyId(2), proxy("a", 900_000, false)),
            (ProxyId(3), proxy("b", 900_000, true)),
            (ProxyId(4), proxy("c", 0, false)),
        ]);
        let proxies = Proxies { by_id, ..Proxies::default() };
        let placement = Placement::new(&proxies, 1_000_000);
        let expected = BTreeMap::from([("a".to_owned(), ids(&[1])), ("b".to_owned(), ids(&[3]))]);
        assert_eq!(placement, Placement::of_zones(expected));
    }
}
