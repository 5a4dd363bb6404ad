//! Clients and their requests, and what a backup watches.

pub(crate) mod table;
pub(crate) mod watch;
