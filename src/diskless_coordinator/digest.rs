//! Hashes by which proxies find out that they disagree: of the log as it was read, and of the state that came of it.
//!
//! The state's hash is kept up incrementally: a sum, over all rows of all tables, of the hash of the row. So it costs
//! as much as what changed, and the order of the changes does not matter. These hashes find mistakes and damage; they
//! are no protection against somebody who wants to deceive.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::encoding::LogRecord;

/// The first half of a SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Hash(pub [u8; 16]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Hash {
    /// Of a value as it is written in postcard.
    pub fn of(value: &impl Serialize) -> Self {
        let bytes = postcard::to_stdvec(value).expect("every sequence in the state has a known length");
        Self::first_half(Sha256::new().chain_update(bytes))
    }

    /// Of the log up to and including `record`, when `self` is that of the log before it.
    #[must_use]
    pub fn chain(self, record: &LogRecord) -> Self {
        let hasher = Sha256::new()
            .chain_update(self.0)
            .chain_update(record.position.0.to_le_bytes())
            .chain_update(record.append_time_ms.to_le_bytes())
            .chain_update(&record.bytes);
        Self::first_half(hasher)
    }

    fn first_half(hasher: Sha256) -> Self {
        let mut half = [0; 16];
        half.copy_from_slice(&hasher.finalize()[..16]);
        Self(half)
    }

    /// The first 48 bits: as many as a metric's number holds exactly.
    pub fn prefix(self) -> u64 {
        self.0[..6].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// As a number, to be summed up.
    pub fn number(self) -> u128 {
        u128::from_le_bytes(self.0)
    }
}

/// A table of the state that knows the sum of the hashes of its rows.
#[derive(Clone)]
pub struct DigestedMap<K, V> {
    rows: BTreeMap<K, V>,
    /// Of all rows but the changed ones.
    sum: u128,
    /// What was changed since the sum was last brought up to date. A row that changes often is hashed once.
    changed: BTreeSet<K>,
}

impl<K, V> Default for DigestedMap<K, V> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), sum: 0, changed: BTreeSet::new() }
    }
}

impl<K, V> Deref for DigestedMap<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.rows
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for DigestedMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.rows == other.rows
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for DigestedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows.fmt(f)
    }
}

impl<'a, K, V> IntoIterator for &'a DigestedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = std::collections::btree_map::Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter()
    }
}

impl<K: Ord + Clone + Serialize, V: Serialize> DigestedMap<K, V> {
    pub fn insert(&mut self, key: K, value: V) {
        self.touch(&key);
        self.rows.insert(key, value);
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.touch(key);
        self.rows.remove(key)
    }

    /// A row that is about to change.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.touch(key);
        self.rows.get_mut(key)
    }

    /// Drops every row of which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        let gone: Vec<K> = self.rows.iter().filter(|(key, row)| !keep(key, row)).map(|(key, _)| key.clone()).collect();
        for key in gone {
            self.remove(&key);
        }
    }

    fn touch(&mut self, key: &K) {
        if self.changed.contains(key) {
            return;
        }
        if let Some(row) = self.rows.get(key) {
            self.sum = self.sum.wrapping_sub(Hash::of(&(key, row)).number());
        }
        self.changed.insert(key.clone());
    }

    /// The sum over all rows.
    pub fn sum(&self) -> u128 {
        let changed = self.changed.iter().filter_map(|key| self.rows.get_key_value(key));
        changed.fold(self.sum, |sum, row| sum.wrapping_add(Hash::of(&row).number()))
    }

    /// Brings the sum up to date, so that what changed is not hashed again.
    pub fn settle(&mut self) {
        self.sum = self.sum();
        self.changed.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::LogPosition;

    proptest! {
        #[test]
        fn the_sum_is_that_of_the_rows_whatever_the_way_to_them(
            steps in proptest::collection::vec((0u8..8, 0u8..6, any::<u16>()), 0..60)
        ) {
            let mut map = DigestedMap::default();
            for (key, step, value) in steps {
                match step {
                    0 => drop(map.remove(&key)),
                    1 => map.settle(),
                    2 => map.retain(|_, row| row % 3 != 0),
                    3 => if let Some(row) = map.get_mut(&key) { *row = value },
                    _ => map.insert(key, value),
                }
            }
            let mut afresh = DigestedMap::default();
            for (key, row) in &map {
                afresh.insert(*key, *row);
            }
            prop_assert_eq!(map.sum(), afresh.sum());
            afresh.settle();
            prop_assert_eq!(map.sum(), afresh.sum());
        }
    }

    #[test]
    fn every_part_of_a_record_and_its_place_change_the_chain() {
        let record = |position, append_time_ms, bytes: &'static [u8]| LogRecord {
            position: LogPosition(position),
            append_time_ms,
            bytes: bytes::Bytes::from_static(bytes),
        };
        let start = Hash::default();
        let of = |record: &LogRecord| start.chain(record);
        let first = of(&record(1, 2, b"a"));
        assert_eq!(first, of(&record(1, 2, b"a")));
        for other in [record(2, 2, b"a"), record(1, 3, b"a"), record(1, 2, b"b"), record(1, 2, b"")] {
            assert_ne!(first, of(&other));
        }
        assert_ne!(first.chain(&record(2, 2, b"a")), of(&record(2, 2, b"a")), "what was before counts");
    }

    #[test]
    fn a_hash_is_shown_in_hexadecimal() {
        assert_eq!(Hash([0xab; 16]).to_string(), "ab".repeat(16));
    }
}
