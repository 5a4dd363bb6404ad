//! What must hold, and the watchers that see to it.

pub mod linearizable;
