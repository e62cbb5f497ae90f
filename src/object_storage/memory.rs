//! `memory://`: objects as the parts that they were written in, so that a benchmark measures the proxy and not the
//! copying of its store. (`InMemory` of crate `object_store` makes one piece of each object.) Nothing survives the
//! process.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::RwLock;

use super::request::{Failure, Layer, ListedObject, Reply, Request};
use crate::clock::wall_time_ms;

#[derive(Default)]
pub(super) struct Memory {
    objects: RwLock<BTreeMap<String, Object>>,
}

struct Object {
    parts: Vec<Bytes>,
    written_ms: i64,
}

#[async_trait]
impl Layer for Memory {
    async fn call(&self, request: &Request) -> Result<Reply, Failure> {
        match request {
            Request::Put { key, parts } => {
                let object = Object { parts: parts.clone(), written_ms: wall_time_ms() };
                self.objects.write().insert(key.clone(), object);
                Ok(Reply::Done)
            }
            Request::Get { key, range } => self.of(key, |object| object.range(range))?.map(Reply::Bytes),
            Request::Head { key } => self.of(key, |object| Reply::Size(object.size())),
            Request::Delete { key } => {
                self.objects.write().remove(key);
                Ok(Reply::Done)
            }
            Request::List { prefix, after, limit } => Ok(Reply::Objects(self.list(prefix, after.as_deref(), *limit))),
        }
    }
}

impl Memory {
    fn of<T>(&self, key: &str, look: impl FnOnce(&Object) -> T) -> Result<T, Failure> {
        self.objects.read().get(key).map(look).ok_or(Failure::NotFound)
    }

    fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Vec<ListedObject> {
        let first = after.filter(|after| *after >= prefix).map_or(Bound::Included(prefix), Bound::Excluded);
        // The prefix is a whole segment of the path: `a` does not cover `ab/c`.
        let is_below =
            |key: &str| prefix.is_empty() || key.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
        let objects = self.objects.read();
        let from = objects.range::<str, _>((first, Bound::Unbounded));
        from.take_while(|(key, _)| key.starts_with(prefix))
            .filter(|(key, _)| is_below(key))
            .take(limit)
            .map(|(key, object)| ListedObject {
                key: key.clone(),
                size: object.size(),
                last_modified_ms: object.written_ms,
            })
            .collect()
    }
}

impl Object {
    fn size(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }

    /// These bytes, copied only where they lie in several parts.
    fn range(&self, range: &Range<u64>) -> Result<Bytes, Failure> {
        let mut found: Vec<Bytes> = Vec::new();
        let mut start = 0u64;
        for part in &self.parts {
            let end = start + part.len() as u64;
            let (from, to) = (range.start.max(start), range.end.min(end));
            if from < to {
                // Both lie in the part, whose length is a usize.
                found.push(part.slice((from - start) as usize..(to - start) as usize));
            }
            start = end;
        }
        let length: u64 = found.iter().map(|piece| piece.len() as u64).sum();
        if range.end < range.start || length != range.end - range.start {
            return Err(Failure::Corrupt(format!("the object has {start} bytes, not {range:?}")));
        }
        match found.len() {
            1 => Ok(found.swap_remove(0)),
            _ => {
                let mut whole = BytesMut::with_capacity(usize::try_from(length).unwrap_or(0));
                found.iter().for_each(|piece| whole.extend_from_slice(piece));
                Ok(whole.freeze())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_may_cross_parts_and_never_leave_the_object() {
        let parts = [&b"abc"[..], b"", b"defg", b"h"].map(Bytes::from_static).to_vec();
        let object = Object { parts, written_ms: 0 };
        assert_eq!(object.size(), 8);
        for from in 0..=8u64 {
            for to in from..=8 {
                assert_eq!(object.range(&(from..to)).expect("inside"), b"abcdefgh"[from as usize..to as usize]);
            }
        }
        assert!(object.range(&(0..9)).is_err());
    }
}
