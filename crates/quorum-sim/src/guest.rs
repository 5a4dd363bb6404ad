//! A register that is not in `quorate-quorum` (`docs/quorum/simulator.md`, "A protocol of your own"). It uses the messages
//! there.

use std::sync::Arc;

use quorate_quorum::{Past, Process, ServerId, Settings};
use quorate_wire::ClientId;

use crate::profile::{Behaviour, Liar, Profile};

/// Its processes.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// Its name.
    pub name: &'static str,
    /// Returns a server.
    pub server: fn(ServerId, Arc<Settings>, Past) -> Box<dyn Process + Send>,
    /// Returns a client.
    pub client: fn(ClientId, u32, Arc<Settings>) -> Box<dyn Process + Send>,
}

/// A register that is not in `quorate-quorum`, and what its faulty servers do.
#[derive(Clone, Copy, Debug)]
pub struct Guest {
    /// The register.
    pub own: Own,
    /// What faulty servers do, if it is not one of the profiles here.
    pub behaviour: Option<fn() -> Box<dyn Behaviour + Send>>,
    /// Otherwise: the profile.
    pub profile: Profile,
}

impl Guest {
    /// Returns a faulty server's behaviour.
    pub fn behave(&self, from: u64) -> Box<dyn Behaviour + Send> {
        self.behaviour.map_or_else(|| Box::new(Liar::new(self.profile, from)) as _, |make| make())
    }
}

/// Returns a server of a guest, or of the register of the settings.
pub fn server(
    guest: Option<Guest>,
    me: ServerId,
    settings: &Arc<Settings>,
    past: Past,
) -> Box<dyn Process + Send> {
    guest.map_or(quorate_quorum::server as fn(_, _, _) -> _, |guest| guest.own.server)(
        me,
        Arc::clone(settings),
        past,
    )
}

/// Returns a client of a guest, or of the register of the settings.
pub fn client(guest: Option<Guest>, me: ClientId, settings: &Arc<Settings>) -> Box<dyn Process + Send> {
    guest.map_or(quorate_quorum::client as fn(_, _, _) -> _, |guest| guest.own.client)(
        me,
        1,
        Arc::clone(settings),
    )
}
