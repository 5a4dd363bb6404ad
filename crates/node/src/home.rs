//! The directory of a node: settings, members, keys, lock.

pub mod examine;
pub mod fsck;
mod hex;
pub mod identity;
pub mod init;
pub mod members;
pub mod place;
pub(crate) mod secret;
pub mod settings;
pub mod timestamps;
