//! digest-mismatch: proxies that have applied the same records are in the same state.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::history::operations::{Digest, Operations};
use crate::history::verdict::{AnomalyClass, Findings, OpId, Told};

pub(super) fn judge(operations: &Operations, findings: &mut Findings) {
    let mut digests: Vec<&Digest> = operations.digests.iter().collect();
    digests.sort_by_key(|digest| digest.time_ns);
    let mut first: HashMap<i64, &Digest> = HashMap::new();
    for digest in digests {
        let earlier = match first.entry(digest.position) {
            Entry::Vacant(place) => {
                place.insert(digest);
                continue;
            }
            Entry::Occupied(place) => *place.get(),
        };
        if earlier.digest != digest.digest {
            findings.add(AnomalyClass::DigestMismatch, digest.time_ns, || Told {
                key: String::new(),
                text: format!(
                    "at position {} of the metadata log, {} but {}",
                    digest.position,
                    told(operations, earlier),
                    told(operations, digest)
                ),
                ops: [earlier, digest].map(|d| id(operations, d)).into(),
            });
        }
    }
}

fn told(operations: &Operations, digest: &Digest) -> String {
    let proxy = digest.proxy.as_deref().unwrap_or_else(|| operations.processes.name(digest.process));
    format!("{proxy} has digest {} ({})", digest.digest, operations.when(digest.time_ns))
}

fn id(operations: &Operations, digest: &Digest) -> OpId {
    OpId { process: operations.processes.name(digest.process).to_owned(), op: digest.op }
}
