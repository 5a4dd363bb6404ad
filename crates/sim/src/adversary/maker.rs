//! Liars that begin again at each start.

use quorate_wire::ClusterId;

use super::Liar;

/// Names every simulated cluster.
pub(crate) const CLUSTER_ID: ClusterId = ClusterId(*b"a simulated cluster of quorate  ");

/// Makes a liar, again at each start of its replica.
pub struct LiarMaker(Box<dyn Fn() -> Box<dyn Liar>>);

impl LiarMaker {
    /// Returns a maker of what `make` makes.
    pub fn new<L: Liar + 'static>(make: impl Fn() -> L + 'static) -> Self {
        Self(Box::new(move || Box::new(make())))
    }

    /// Makes one.
    pub fn make(&self) -> Box<dyn Liar> {
        (self.0)()
    }
}

impl std::fmt::Debug for LiarMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.make().fmt(f)
    }
}
