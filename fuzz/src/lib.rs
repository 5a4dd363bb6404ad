//! The fuzz targets. A target takes any bytes and must neither panic, nor hang, nor take more
//! memory than its bound; that is all it says (B36, N9).
//!
//! The same functions run under libFuzzer (`fuzz/libfuzzer`) and under the runner of this crate,
//! which needs stable Rust alone: `cargo xtask fuzz --minutes 10`.

mod alloc;
pub mod decode;
pub mod fs;
pub mod liar;
pub mod mutate;
pub mod nfs;
pub mod registers;
pub mod resp;
pub mod runner;
pub mod xdr;

/// A function of any bytes, with what it may cost.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Takes an input, and returns a feature: inputs that show a new one are worth keeping.
    pub run: fn(&[u8]) -> u64,
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// The longest input that the runner makes, in bytes.
    pub input_bytes_max: usize,
    /// The most memory that one execution may take at its peak, in bytes.
    pub memory_bytes_max: usize,
    /// The longest that one execution may take, in milliseconds.
    pub millis_max: u64,
}

/// Every target.
pub const TARGETS: &[Target] =
    &[decode::TARGET, liar::TARGET, registers::TARGET, resp::TARGET, nfs::TARGET, fs::TARGET, xdr::TARGET];

/// Returns a feature made of what an execution has shown, in any order of growth.
pub(crate) fn feature(parts: &[u64]) -> u64 {
    parts.iter().fold(0xcbf2_9ce4_8422_2325, |hash, part| {
        (hash ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17)
    })
}
