//! NFS version 3: its values, the arguments of its procedures, their results [RFC 1813].
//!
//! Names are those of the RFC without their numbers and prefixes; the RFC describes the fields.

mod answer;
mod call;
pub mod calls;
pub mod mount3;
pub mod operation;
pub mod relay;
mod reply;
mod reply_cache;
pub mod service;
mod types;

pub use call::*;
pub use reply::*;
pub use types::*;

/// The program's number.
pub const PROGRAM: u32 = 100_003;
/// Its version.
pub const VERSION: u32 = 3;
/// Maximum length of a handle, in bytes.
pub const HANDLE_BYTES_MAX: usize = 64;
/// Maximum length of a decoded name or path, in bytes. It is above the accepted length, so that a longer name gets
/// NAMETOOLONG, not `GARBAGE_ARGS`.
pub const NAME_BYTES_MAX: usize = 4096;
/// Maximum size of a READ or WRITE, in bytes.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;
