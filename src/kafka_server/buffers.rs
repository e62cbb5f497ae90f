//! Buffers for large frames, used again and again: memory that is fresh from the kernel costs more than all that is
//! done to the bytes in it.
//!
//! A buffer that is filled becomes [`Bytes`], shared by whoever needs the frame (the WAL segment, the zone cache), and
//! comes back when the last of them lets go.

use std::sync::Arc;

use bytes::Bytes;
use crossbeam_queue::ArrayQueue;

use super::splice::Pipes;

/// The smallest class; smaller frames do not come here.
pub(super) const SMALLEST: usize = 8 * 1024;
/// Classes double, up to 8 MiB. What is larger than the last is allocated and freed.
const CLASSES: usize = 11;
/// Unused bytes kept in each class.
const KEPT: usize = 16 * 1024 * 1024;

/// All unused buffers of one process, and its pipes. Lock-free.
pub struct Buffers {
    classes: [ArrayQueue<Vec<u8>>; CLASSES],
    pub(super) pipes: Arc<Pipes>,
}

impl Default for Buffers {
    fn default() -> Self {
        let classes = std::array::from_fn(|class| ArrayQueue::new((KEPT / (SMALLEST << class)).max(1)));
        Self { classes, pipes: Arc::default() }
    }
}

impl Buffers {
    /// An empty buffer with room for so many bytes.
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Buffer {
        let class = class_of(bytes);
        let kept = self.classes.get(class).and_then(ArrayQueue::pop);
        let room = if class < CLASSES { SMALLEST << class } else { bytes };
        Buffer { bytes: kept.unwrap_or_else(|| Vec::with_capacity(room)), home: Arc::clone(self) }
    }

    fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        if let Some(class) = self.classes.get(class_of(bytes.capacity())) {
            // A full class lets the buffer go.
            let _ = class.push(bytes);
        }
    }
}

/// The first class with room for so many bytes; `CLASSES` or more where none has.
fn class_of(bytes: usize) -> usize {
    (0..CLASSES).find(|class| SMALLEST << class >= bytes).unwrap_or(CLASSES)
}

/// A buffer that goes back when it is dropped.
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    home: Arc<Buffers>,
}

impl Buffer {
    /// The bytes in it, to be shared.
    pub(super) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_the_last_slice_is_gone() {
        let buffers = Arc::<Buffers>::default();
        let mut buffer = buffers.take(100_000);
        buffer.bytes.extend_from_slice(&[7; 100_000]);
        let address = buffer.bytes.as_ptr();
        let whole = buffer.freeze();
        let slice = whole.slice(5..10);
        drop(whole);
        assert_ne!(buffers.take(100_000).bytes.as_ptr(), address, "a slice is still there");
        drop(slice);
        // The class is a queue: the buffer that was taken and dropped above comes first.
        let (first, second) = (buffers.take(100_000), buffers.take(100_000));
        assert!(first.bytes.is_empty() && second.bytes.is_empty());
        assert!([first.bytes.as_ptr(), second.bytes.as_ptr()].contains(&address));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let buffers = Arc::<Buffers>::default();
        let taken: Vec<_> = (0..100).map(|_| buffers.take(1 << 20)).collect();
        drop(taken);
        assert_eq!(buffers.classes[class_of(1 << 20)].len(), KEPT >> 20);
        drop(buffers.take((SMALLEST << CLASSES) + 1));
        assert_eq!(buffers.classes.iter().map(ArrayQueue::len).sum::<usize>(), KEPT >> 20, "the largest is let go");
    }
}
