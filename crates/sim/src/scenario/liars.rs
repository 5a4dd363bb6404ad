//! Liars for one scenario each. Those that a swarm may draw are in [`crate::adversary`].
