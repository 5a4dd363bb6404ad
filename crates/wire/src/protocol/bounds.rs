//! Bounds on what messages contain.

use crate::envelope::frame::FRAME_BYTES_MAX;

/// The longest operation, in bytes (`MAX_OP`): with authenticators, it fills a PRE-PREPARE alone.
pub const OPERATION_BYTES_MAX: usize = FRAME_BYTES_MAX - (8 << 10);
/// The longest result, in bytes.
pub const RESULT_BYTES_MAX: usize = (1 << 20) + (4 << 10);
/// The widest window `L` between the water marks that messages have room for.
pub const WINDOW_MAX: u16 = 4096;
/// The most piggybacked commits in one message (`W` at most).
pub const PIGGYBACK_MAX: u8 = 64;
/// Maximum number of digests in one BODY-FETCH.
pub const FETCH_DIGESTS_MAX: u8 = 64;
/// Maximum number of checkpoints a replica reports in a VIEW-CHANGE.
pub const CHECKPOINTS_MAX: u8 = 64;
/// Maximum number of claims about one sequence number in a VIEW-CHANGE's Q: `f + 2` (VC-4).
pub const CLAIMS_MAX: u8 = 24;
/// Maximum number of proofs asked for in one STATUS.
pub const WANTS_MAX: u8 = 32;
/// The most children in one META-DATA.
pub const CHILDREN_MAX: u8 = 64;
/// The largest page of the state, in bytes.
pub const PAGE_BYTES_MAX: usize = 64 << 10;
