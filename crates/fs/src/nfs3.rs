//! NFS version 3: its values, the arguments of its procedures, their results [RFC 1813].
//!
//! Names are those of the RFC without their numbers and prefixes; what a field means is said there.

mod call;
mod reply;
mod types;

pub use call::*;
pub use reply::*;
pub use types::*;

/// The program's number.
pub const PROGRAM: u32 = 100_003;
/// Its version.
pub const VERSION: u32 = 3;
/// The longest handle, in bytes.
pub const HANDLE_BYTES_MAX: usize = 64;
/// The longest name or path that is decoded, in bytes. Longer than any that is accepted, so that one that
/// is too long gets NAMETOOLONG and not `GARBAGE_ARGS`.
pub const NAME_BYTES_MAX: usize = 4096;
/// Maximum number of bytes of one READ or WRITE.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;
