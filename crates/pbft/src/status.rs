//! What is known of the other replicas.

pub(crate) mod peers;
