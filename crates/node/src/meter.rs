//! Measures where time is spent: a driver reports when it has finished a part of its work, and a meter may read the
//! clock.

/// A part of the work on one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Authenticating, decoding and digesting input.
    Admit,
    /// The protocol's own step.
    Step,
    /// Executing, merging, checkpoints.
    Execute,
    /// Encoding and authenticating output.
    Seal,
}

impl Part {
    /// Number of parts.
    pub const COUNT: usize = 4;

    /// Every part.
    pub const ALL: [Self; Self::COUNT] = [Self::Admit, Self::Step, Self::Execute, Self::Seal];

    /// Returns its index in an array.
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

/// Records how a driver spends its time.
pub trait Meter {
    /// Work begins; the time since the last call is not counted.
    fn start(&mut self);

    /// The time since the last call was spent on `part`.
    fn lap(&mut self, part: Part);
}

/// No meter, without cost.
impl Meter for () {
    #[inline]
    fn start(&mut self) {}

    #[inline]
    fn lap(&mut self, _part: Part) {}
}
