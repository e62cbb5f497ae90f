//! Orders batches: takes commands in log order and decides what each partition's log becomes.

pub mod command;
pub mod outcome;
pub mod view;
