//! The protocol of replicas and their clients: the messages of agreement, state transfer and PROBE, and how each is
//! authenticated.

pub mod admit;
pub mod batch;
pub mod bounds;
pub mod frame;
pub mod kinds;
pub mod life;
pub mod message;
pub mod pool;
pub mod recall;
pub mod reply;
mod seal;
pub mod sign;
