//! Who may have what executed: rights (EX-3), and a place in the client table (EX-2, §8.2).

use quorate_wire::reply::ReplyOutcome;
use quorate_wire::{ClientId, Timestamp};

use super::{Executor, fault};
use crate::page::{PageFault, PageStore};
use crate::registry::{self, Rights, Setting};
use crate::replies::shares::Holder;
use crate::service::Service;

/// How far a replica's timestamp may be ahead of the agreed time, in nanoseconds: a day.
const AHEAD_NS: u64 = 24 * 3_600 * 1_000_000_000;

impl<S: Service, P: PageStore> Executor<S, P> {
    /// Says whether a request can have this timestamp at an agreed time. In the state, 0 says that nothing was lost or refused,
    /// so that the lane could not give its place away (L62). A replica's is a time (RC-6), and later ones have to be left for
    /// its next recovery request and those of the others (L63).
    #[inline]
    pub(super) fn is_possible(client: ClientId, timestamp: Timestamp, time_ns: u64) -> bool {
        let too_late = client.replica().is_some() && timestamp.0 > time_ns.saturating_add(AHEAD_NS);
        timestamp.0 > 0 && !too_late
    }

    /// Returns how many client lanes have an entry, and how many clients' lanes can have one (`clients_max` without
    /// what is reserved).
    pub fn lanes(&self) -> (u32, u32) {
        self.lanes.count()
    }

    /// Says what has become of the request of a lane that is not in the table and can have no slot: it stays so, and
    /// the request is never executed later. None: there is a slot.
    #[cold]
    pub(super) fn refusal(
        &mut self,
        client: ClientId,
        timestamp: Timestamp,
        time_ns: u64,
    ) -> Result<Option<ReplyOutcome>, PageFault> {
        let (released, refused) = self.lanes.numbers(client);
        if released.0 > 0 && timestamp <= released {
            return Ok(Some(ReplyOutcome::Overtaken));
        }
        let rights = self.registry.as_ref().and_then(|registry| registry.rights(client));
        let holder = match rights {
            _ if client.replica().is_some() => Holder::Replica,
            Some(Rights::Admin) => Holder::Admin,
            Some(_) | None => Holder::Client,
        };
        let set = self.registry.as_ref().and_then(|registry| registry.setting(Setting::ClientLanesMax));
        let set = set.and_then(|lanes| u32::try_from(lanes).ok());
        self.lanes.set_quota(set.unwrap_or(self.options.lanes_max));
        let mut view = self.state.view(self.reply_pages);
        if refused.0 == 0 || timestamp > refused {
            let room = self.lanes.make_room(&mut view, client, holder, time_ns);
            if fault(room)?.unwrap_or(false) {
                return Ok(None);
            }
        }
        // If that cannot be kept, nothing is said: the client does not hear that nothing was done.
        let kept = fault(self.lanes.refuse(&mut view, client, timestamp))?.unwrap_or(false);
        Ok(Some(if kept { ReplyOutcome::Refused } else { ReplyOutcome::Superseded }))
    }

    /// Returns why an operation is not passed to the service: it changes the client registry, which is done here, or
    /// the client lacks the right (EX-3).
    #[inline]
    pub(super) fn govern(
        &mut self,
        client: ClientId,
        operation: &[u8],
    ) -> Result<Option<registry::RegistryResult>, PageFault> {
        if self.registry.is_none() { Ok(None) } else { self.judge(client, operation) }
    }

    /// The same, where clients are registered.
    #[inline(never)]
    fn judge(
        &mut self,
        client: ClientId,
        operation: &[u8],
    ) -> Result<Option<registry::RegistryResult>, PageFault> {
        let pages = self.registry_pages();
        let Some(registry) = &mut self.registry else { return Ok(None) };
        let Some(rights) = registry.rights(client) else {
            return Ok(Some(registry::RegistryResult::NoClient));
        };
        let Some(order) = registry::RegistryOp::decode(operation) else {
            let may = rights >= Rights::Write || self.service.is_read_only(operation);
            return Ok((!may).then_some(registry::RegistryResult::NoRight));
        };
        if rights < Rights::Admin {
            return Ok(Some(registry::RegistryResult::NoRight));
        }
        let order = match order {
            Ok(order) => order,
            Err(answer) => return Ok(Some(answer)),
        };
        let mut view = self.state.view(pages);
        // A page that is damaged shows at the next checkpoint (CK-6).
        let answer = fault(registry.apply(order, &mut view))?.unwrap_or(registry::RegistryResult::Malformed);
        if let (registry::RegistryOp::Remove(principal), registry::RegistryResult::Done) = (order, answer) {
            let mut view = self.state.view(self.reply_pages);
            fault(self.lanes.release_all(&mut view, principal))?;
        }
        Ok(Some(answer))
    }
}
