//! Whose signatures an experiment on registers makes.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signatures {
    /// A keyed hash, whose price is that of a signature of 2006.
    Emulated,
    /// Ed25519, as fast as it is here.
    Ed25519,
    /// RSA with keys of this many bits, as fast as it is here.
    Rsa(usize),
}

impl Signatures {
    /// Those that are made for real.
    pub const REAL: [Self; 3] = [Self::Ed25519, Self::Rsa(1024), Self::Rsa(2048)];

    /// Returns their name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Emulated => "machines of 2006",
            Self::Ed25519 => "ed25519",
            Self::Rsa(1024) => "rsa1024",
            Self::Rsa(_) => "rsa2048",
        }
    }
}
