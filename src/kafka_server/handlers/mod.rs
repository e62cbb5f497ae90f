//! The requests that are answered or looked at here, one file for each group of them.

pub(super) mod admin;
pub(super) mod broker;
pub(super) mod fetch;
pub(super) mod metadata;
pub(super) mod produce;
pub(super) mod records;
pub(super) mod sasl;
pub(super) mod topics;
