//! Which rules are failures although it is known that they are broken.

/// Which rules are failures although it is known that they are broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strict {
    /// None: it is counted where they are broken.
    #[default]
    No,
    /// This one.
    About(&'static str),
    /// All.
    All,
}

impl Strict {
    pub(super) fn is_about(self, rule: &str) -> bool {
        match self {
            Self::No => false,
            Self::About(of) => of == rule,
            Self::All => true,
        }
    }
}
