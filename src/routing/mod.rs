//! Where requests go: which broker leads a diskless partition, and which addresses clients are told.
//!
//! Pure functions over decoded messages. Never does I/O, never changes the topics or offsets of an answer.

pub mod address_view;
pub mod placement;
