//! A disk that forgets at a crash what was not synced, or remembers some of it: each page write for itself.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, DatabaseError, StorageBackend};
use sidestream::metadata_store::{Disk, OpenError};

use super::chance::Chance;
use super::crash_points::{Point, Probe};

#[derive(Clone, Default)]
pub(crate) struct CrashDisk(Arc<Mutex<Image>>);

#[derive(Default)]
struct Image {
    live: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<Change>,
    /// Why files were set aside.
    set_aside: Vec<String>,
    /// A disk that is full takes no more writes.
    is_full: bool,
    /// Grows with every crash: a handle from before it writes into the void.
    generation: u32,
    /// Of the process that has it open.
    probe: Option<Probe>,
}

#[derive(Clone)]
enum Change {
    Length(u64),
    Write(u64, Vec<u8>),
}

impl Image {
    fn apply(bytes: &mut Vec<u8>, change: &Change) {
        match change {
            Change::Length(length) => bytes.resize(usize::try_from(*length).expect("small"), 0),
            Change::Write(offset, data) => {
                let from = usize::try_from(*offset).expect("small");
                if bytes.len() < from + data.len() {
                    bytes.resize(from + data.len(), 0);
                }
                bytes[from..from + data.len()].copy_from_slice(data);
            }
        }
    }

    fn change(&mut self, change: Change) {
        Self::apply(&mut self.live, &change);
        self.unsynced.push(change);
    }
}

impl CrashDisk {
    /// The process died: of what was not synced any part may be there.
    pub(crate) fn crash(&self, chance: &Chance) {
        let mut image = self.0.lock();
        let unsynced = std::mem::take(&mut image.unsynced);
        let keep_percent = *chance.pick(&[0.0, 50.0, 100.0]);
        for change in &unsynced {
            // A file that grew may have grown all the same; redb finds out its length by itself.
            if matches!(change, Change::Length(_)) || chance.percent(keep_percent) {
                Image::apply(&mut image.synced, change);
            }
        }
        image.live = image.synced.clone();
        image.generation += 1;
    }

    pub(crate) fn erase(&self) {
        let mut image = self.0.lock();
        let (set_aside, generation) = (std::mem::take(&mut image.set_aside), image.generation + 1);
        *image = Image { set_aside, generation, ..Image::default() };
    }

    pub(crate) fn watch(&self, probe: Probe) {
        self.0.lock().probe = Some(probe);
    }

    /// Not with the image locked: whoever dies here crashes the disk.
    fn reach(&self, point: Point) {
        let probe = self.0.lock().probe.clone();
        if let Some(probe) = probe {
            probe.reach(point);
        }
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        self.0.lock().is_full = is_full;
    }

    pub(crate) fn reasons_set_aside(&self) -> Vec<String> {
        self.0.lock().set_aside.clone()
    }
}

impl fmt::Debug for CrashDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CrashDisk")
    }
}

impl Disk for CrashDisk {
    fn open(&self) -> Result<Database, DatabaseError> {
        let generation = self.0.lock().generation;
        Database::builder().set_cache_size(4 << 20).create_with_backend(Handle { disk: self.clone(), generation })
    }

    fn set_aside(&self, why: &str) -> Result<(), OpenError> {
        self.erase();
        self.0.lock().set_aside.push(why.to_owned());
        Ok(())
    }
}

/// What one process has open.
#[derive(Debug)]
struct Handle {
    disk: CrashDisk,
    generation: u32,
}

impl Handle {
    fn change(&self, change: Change) -> Result<(), std::io::Error> {
        let mut image = self.disk.0.lock();
        if image.generation != self.generation {
            return Ok(());
        }
        if image.is_full {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
        }
        image.change(change);
        drop(image);
        self.disk.reach(Point::StateWritten);
        Ok(())
    }
}

impl StorageBackend for Handle {
    fn len(&self) -> Result<u64, std::io::Error> {
        Ok(self.disk.0.lock().live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), std::io::Error> {
        let image = self.disk.0.lock();
        let from = usize::try_from(offset).expect("small");
        match image.live.get(from..from + out.len()) {
            Some(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)),
        }
    }

    fn set_len(&self, len: u64) -> Result<(), std::io::Error> {
        self.change(Change::Length(len))
    }

    fn sync_data(&self) -> Result<(), std::io::Error> {
        let mut image = self.disk.0.lock();
        if image.generation != self.generation {
            return Ok(());
        }
        if image.is_full {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
        }
        for change in std::mem::take(&mut image.unsynced) {
            Image::apply(&mut image.synced, &change);
        }
        drop(image);
        self.disk.reach(Point::StateSynced);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), std::io::Error> {
        self.change(Change::Write(offset, data.to_vec()))
    }
}
