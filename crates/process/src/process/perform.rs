//! Performs the actions of a core: the one `match` over `Action`.

use alloc::sync::Arc;

use quorate_pbft::step::{Action, Actions};
use quorate_service::{Service, Task};

use super::Process;
use crate::core::Core;
use crate::observer::{Observer, Outgoing};
use crate::storage::queue::DiskQueue;
use crate::storage::store::Store;

impl<S: Service, P: Store, D: DiskQueue, C: Core> Process<S, P, D, C> {
    /// Performs actions in order. Nothing is executed here: the queue gets the tasks of the executor.
    #[inline]
    pub(super) fn perform(&mut self, actions: &Actions, watch: &mut impl Observer<S, P>) {
        for action in actions.list() {
            match action {
                Action::Send { to, kind, form, bytes, after } => {
                    let bytes = actions.bytes(*bytes);
                    let (to, kind, form, after) = (*to, *kind, *form, *after);
                    watch.send(&Outgoing { to, kind, form, bytes, after });
                    self.send(to, kind, form, bytes, after, watch);
                }
                Action::Persist { lsn, bytes } => {
                    let record = actions.bytes(*bytes);
                    watch.persist(*lsn, record);
                    self.disk.append(*lsn, record);
                }
                Action::SetTimer(timer, deadline) => {
                    watch.set_timer(*timer, *deadline);
                    self.deadlines.set(*timer, *deadline);
                }
                Action::StopTimer(timer) => {
                    watch.stop_timer(*timer);
                    self.deadlines.stop(*timer);
                }
                Action::CheckSignature { client, request } => {
                    watch.check_signature(*client, &request.request);
                    self.queue.push(Task::Check((*client, Arc::clone(request))));
                }
                Action::Execute { seq, batch, tentative } => {
                    watch.execute(*seq, batch, *tentative);
                    let (seq, batch, tentative) = (*seq, Arc::clone(batch), *tentative);
                    self.queue.push(Task::Execute { seq, batch, tentative });
                }
                Action::Merge { seq } => {
                    watch.merge(*seq);
                    self.queue.push(Task::Merge(*seq));
                }
                Action::Undo { after } => {
                    watch.undo(*after);
                    self.queue.push(Task::Undo(*after));
                }
                Action::Read { ticket, request } => {
                    watch.read(ticket.0, request);
                    self.queue.push(Task::Read { ticket: ticket.0, request: request.clone() });
                }
                Action::Resend { client } => {
                    watch.resend(*client);
                    self.queue.push(Task::Resend(*client));
                }
                Action::Checkpoint { seq } => {
                    watch.cut(*seq);
                    self.queue.push(Task::Checkpoint(*seq));
                }
                Action::Discard { below } => {
                    watch.discard(*below);
                    self.queue.push(Task::Discard(*below));
                }
                Action::Fetch { seq, root, check } => {
                    watch.fetch(*seq, root, *check);
                    self.queue.push(Task::Fetch { seq: *seq, root: *root, check: *check });
                }
                Action::Report(milestone) => {
                    self.note(milestone);
                    watch.milestone(milestone);
                }
            }
        }
    }
}
