//! Applies groups of records, writes what they changed in one transaction, shows it to readers, and hands the answers
//! back, in this order.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use redb::{Database, Durability};
use tokio::time::Instant;

use super::rows::{self, Changes, LoadError};
use crate::diskless_coordinator::apply::{Applied, apply};
use crate::diskless_coordinator::encoding::LogRecord;
use crate::diskless_coordinator::publish::Publisher;
use crate::diskless_coordinator::state::State;

/// How much may have to be replayed after a crash.
pub(super) const DURABLE_EVERY: Duration = Duration::from_secs(1);

/// Hears what was applied, where it was applied: it must not wait for anything.
pub trait StoreObserver: Send + Sync {
    /// A group was applied, written and published. To break off condemns the file: the next start rebuilds it.
    fn applied(&self, group: Vec<Applied>) -> ControlFlow<String>;
    /// Nothing more will be applied.
    fn failed(&self, reason: String);
}

pub(super) struct Writer {
    pub(super) database: Database,
    pub(super) state: State,
    pub(super) publisher: Publisher,
    pub(super) observer: Arc<dyn StoreObserver>,
    pub(super) durable_at: Instant,
    pub(super) is_durable: bool,
}

impl Writer {
    /// Applies a group. On failure nothing of it is shown, and the writer must not be used again; a panic counts as one.
    pub(super) fn apply_or_say_why(&mut self, records: &[LogRecord]) -> Result<(), String> {
        catch_unwind(AssertUnwindSafe(|| self.apply_group(records)))
            .unwrap_or_else(|_| Err("a record of the metadata log made this proxy panic".to_owned()))
    }

    fn apply_group(&mut self, records: &[LogRecord]) -> Result<(), String> {
        let mut group = Vec::with_capacity(records.len());
        let mut changes = Changes::default();
        for record in records {
            let applied = apply(&mut self.state, record).map_err(|error| error.to_string())?;
            applied.effects.iter().for_each(|effect| changes.take(effect));
            group.push(applied);
        }
        let durable = self.durable_at.elapsed() >= DURABLE_EVERY;
        self.write(&changes, durable).map_err(|error| format!("metadata.redb cannot be written: {error}"))?;
        self.publisher.publish(group.iter().flat_map(|applied| &applied.effects), self.state.clock.time);
        match self.observer.applied(group) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(why) => {
                rows::condemn(&self.database, &why)
                    .map_err(|error| format!("{why}; and metadata.redb could not be marked: {error}"))?;
                Err(why)
            }
        }
    }

    pub(super) fn make_durable(&mut self) -> Result<(), String> {
        if self.is_durable {
            return Ok(());
        }
        self.write(&Changes::default(), true).map_err(|error| format!("metadata.redb cannot be written: {error}"))
    }

    fn write(&mut self, changes: &Changes, durable: bool) -> Result<(), LoadError> {
        let mut write = self.database.begin_write()?;
        let durability = if durable { Durability::Immediate } else { Durability::None };
        write.set_durability(durability).map_err(|error| LoadError::Redb(error.into()))?;
        write.set_quick_repair(durable);
        rows::write(&write, changes, &self.state, durable)?;
        write.commit()?;
        self.is_durable = durable;
        if durable {
            self.durable_at = Instant::now();
        }
        Ok(())
    }
}
