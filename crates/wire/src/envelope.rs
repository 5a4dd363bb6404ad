//! What every protocol needs: the encoding, digests, identifiers, quorum sizes, session keys, signatures, frames, and the
//! authenticator, which a protocol tells about its messages.

pub mod auth;
pub mod cluster;
pub mod codec;
pub mod digest;
pub mod exchange;
pub mod frame;
pub mod id;
pub mod keys;
pub mod memo;
pub mod new_key;
pub(crate) mod parts;
pub mod seal;
mod short;
pub mod sign;
