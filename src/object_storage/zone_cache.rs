//! Bytes of WAL segments kept in memory for the readers of this zone.
