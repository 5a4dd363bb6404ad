//! Frames of this protocol.

pub use crate::envelope::frame::*;

use crate::protocol::kinds::Kind;

/// A frame taken apart, not yet believed.
pub type Frame<'a> = crate::envelope::frame::Frame<'a, Kind>;

/// Returns the signature of a frame, if it carries one.
pub fn signature_of(frame: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
    Frame::decode(frame).ok()?.auth.signature().copied()
}
