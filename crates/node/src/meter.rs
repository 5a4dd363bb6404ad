//! Where the time goes: a driver says when it is done with a part of its work, a meter may look at
//! the clock.

/// A part of the work on one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Authenticating, decoding and digesting what came in.
    Admit,
    /// The protocol's own step.
    Step,
    /// Executing, merging, checkpoints.
    Execute,
    /// Encoding and authenticating what goes out.
    Seal,
}

impl Part {
    /// How many there are.
    pub const COUNT: usize = 4;

    /// Every part.
    pub const ALL: [Self; Self::COUNT] = [Self::Admit, Self::Step, Self::Execute, Self::Seal];

    /// Returns its place in an array.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Step => "step",
            Self::Execute => "execute",
            Self::Seal => "seal",
        }
    }
}

/// Takes note of how a driver spends its time.
pub trait Meter {
    /// Work begins; the time since the last call was somebody else's.
    fn start(&mut self);

    /// The time since the last call went into `part`.
    fn lap(&mut self, part: Part);
}

/// No meter: costs nothing.
impl Meter for () {
    #[inline]
    fn start(&mut self) {}

    #[inline]
    fn lap(&mut self, _part: Part) {}
}
