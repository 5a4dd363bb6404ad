//! MINIMAL: SBQ-L [DISC02, on the protocol], an atomic register with listeners (§4, §5).
//!
//! MINIMAL-C needs no signatures and correct clients. In MINIMAL-F writers sign, and servers relay
//! each store that they accept, so that a Byzantine client cannot leave half a write.
//!
//! | Part | Module |
//! |---|---|
//! | a read: entrances, candidates, q equal answers | [`read`] |
//! | a client: writes, reads, what it repeats | [`client`] |
//! | a server: store, forward, acknowledge | [`server`] |
//! | a store, and its acknowledgement | [`store`] |
//! | listeners of an object | [`listeners`] |
//! | objects that are read and not written | [`unwritten`] |
//! | relays between servers (§5) | [`relay`] |
//! | write-backs of clients that may not write (§4) | [`claims`] |

pub(crate) mod claims;
pub(crate) mod client;
pub(crate) mod listeners;
pub(crate) mod read;
pub(crate) mod relay;
pub(crate) mod server;
pub(crate) mod store;
pub(crate) mod unwritten;
