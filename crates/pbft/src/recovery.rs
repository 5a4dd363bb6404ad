//! What a replica needs that has lost its state: a bound on its old statements, the lives of all replicas.

pub mod estimate;
pub(crate) mod history;
pub mod lives;
pub(crate) mod phase;
