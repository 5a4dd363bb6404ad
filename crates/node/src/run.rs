//! The loops of processes: replicas, clients, and nodes of other protocols.

pub mod caller;
pub mod client;
pub mod client_node;
pub mod clock;
pub mod enlist;
pub mod key_times;
pub mod member;
pub mod memory;
pub mod replica;
pub mod signals;
pub mod supervise;
pub mod surroundings;
mod watch;
pub mod workers;
