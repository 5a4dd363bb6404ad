//! Clients and their requests.

pub(crate) mod table;
