//! Where the file lies, and what is done with one that cannot be used: it is moved aside and an empty one takes its
//! place.

use std::fmt;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::backends::InMemoryBackend;
use redb::{Database, DatabaseError};

use super::OpenError;
use super::rows::{self, LoadError, Loaded};
use crate::diskless_coordinator::state::State;
use crate::types::{LogId, LogPosition};

/// A place for one database.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Opens what is there, or an empty database.
    fn open(&self) -> Result<Database, DatabaseError>;

    /// Takes away what is there, since it cannot be used.
    fn set_aside(&self, why: &str) -> Result<(), OpenError>;
}

/// A file.
pub(super) struct File(pub(super) PathBuf);

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

impl Disk for File {
    fn open(&self) -> Result<Database, DatabaseError> {
        Database::create(&self.0)
    }

    /// Keeps the one file that was moved aside last.
    fn set_aside(&self, why: &str) -> Result<(), OpenError> {
        let mut aside = self.0.as_os_str().to_owned();
        aside.push(".aside");
        let aside = PathBuf::from(aside);
        let path: &Path = &self.0;
        tracing::warn!(file = %path.display(), aside = %aside.display(), why, "the metadata store is rebuilt from the log");
        std::fs::rename(path, &aside).map_err(failed)
    }
}

/// Gone with the process.
#[derive(Debug)]
pub(super) struct Memory;

impl Disk for Memory {
    fn open(&self) -> Result<Database, DatabaseError> {
        Database::builder().create_with_backend(InMemoryBackend::new())
    }

    fn set_aside(&self, _why: &str) -> Result<(), OpenError> {
        Ok(())
    }
}

pub(super) fn failed(error: impl fmt::Display) -> OpenError {
    OpenError::Failed(error.to_string())
}

/// Opens the database if it is of the log `log_id` and whole, else an empty one in its place.
pub(super) fn open(disk: &dyn Disk, log_id: Option<LogId>) -> Result<(Database, Loaded), OpenError> {
    // A database can be damaged in ways that its own checks do not see, and that make it panic.
    let loaded = catch_unwind(AssertUnwindSafe(|| load(disk)));
    let loaded = loaded.unwrap_or_else(|_| Err(Unusable::Damaged("reading it made the database panic".to_owned())));
    match loaded {
        Ok((database, loaded)) if belongs(&loaded.state, log_id) => return Ok((database, loaded)),
        Ok((database, _)) => {
            drop(database);
            disk.set_aside("it holds another metadata log's state")?;
        }
        Err(Unusable::Damaged(why)) => disk.set_aside(&why)?,
        Err(other) => return Err(other.into_error(disk)),
    }
    load(disk).map_err(|unusable| unusable.into_error(disk))
}

fn belongs(state: &State, log_id: Option<LogId>) -> bool {
    match (&state.genesis, log_id) {
        (Some(genesis), Some(log_id)) => genesis.log_id == log_id,
        // The log is empty, though something of it was applied: the caller must see that.
        (Some(_), None) => true,
        (None, _) => state.applied == LogPosition::NONE,
    }
}

enum Unusable {
    InUse,
    /// What is there is of no use.
    Damaged(String),
    /// What is there may be good; the disk is not.
    Unreachable(String),
}

impl Unusable {
    fn into_error(self, disk: &dyn Disk) -> OpenError {
        match self {
            Self::InUse => OpenError::InUse { path: format!("{disk:?}") },
            Self::Damaged(why) | Self::Unreachable(why) => OpenError::Failed(format!("{disk:?}: {why}")),
        }
    }
}

impl From<redb::Error> for Unusable {
    /// A full disk or a missing right says nothing about the file.
    fn from(error: redb::Error) -> Self {
        let is_damage = |kind| matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::InvalidData);
        match error {
            redb::Error::DatabaseAlreadyOpen => Self::InUse,
            redb::Error::Io(error) if !is_damage(error.kind()) => Self::Unreachable(error.to_string()),
            other => Self::Damaged(other.to_string()),
        }
    }
}

impl From<LoadError> for Unusable {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Redb(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

fn load(disk: &dyn Disk) -> Result<(Database, Loaded), Unusable> {
    let database = disk.open().map_err(redb::Error::from)?;
    if rows::is_new(&database)? {
        rows::create_tables(&database)?;
    }
    let loaded = rows::load(&database)?;
    Ok((database, loaded))
}
