//! Who may write (§15). The list applies to a client's own STORE, WR, PREPARE and READ-TS-PREP only:
//! no correct server may refuse what another correct server has accepted.

use alloc::collections::BTreeSet;

use quorate_wire::ClientId;

/// The most clients that a list can name.
const REVOKED_MAX: usize = 65_536;

/// The clients that may not write. It is the administrator's, so no client can make it grow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    revoked: BTreeSet<ClientId>,
}

impl Access {
    pub(crate) fn set(&mut self, client: ClientId, allowed: bool) {
        if allowed {
            self.revoked.remove(&client);
        } else if self.revoked.len() < REVOKED_MAX {
            self.revoked.insert(client);
        }
    }

    pub(crate) fn may_write(&self, client: ClientId) -> bool {
        !self.revoked.contains(&client)
    }
}
