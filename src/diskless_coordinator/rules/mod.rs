//! One rule a file. Each is a plain function of the state and a command; none knows of the others' callers.

pub mod agreement;
pub mod commit;
pub mod incarnations;
pub mod log_time;
pub mod placement;
pub mod topics;
pub mod versions;
