//! What clients ask a server about itself, and what they tell it.

use std::sync::Arc;

use quorate_quorum::Past;
use quorate_wire::Principal;

use super::Server;
use crate::note::{Note, State};

impl Server {
    pub(super) fn note(&mut self, now_ns: u64, from: Principal, note: &Note) {
        let Principal::Client(_) = from else { return };
        match *note {
            Note::Watch(object) => {
                let may = self.around.pushes && self.drive.process().may_read(from, &object);
                if !may || !self.around.watchers.watch(from, object, now_ns) {
                    self.around.refused += 1;
                }
            }
            Note::Unwatch(object) => self.around.watchers.unwatch(from, object),
            Note::Fetch(object, version) if self.drive.process().may_read(from, &object) => {
                let found = self
                    .around
                    .forwarded
                    .iter()
                    .find(|(about, other, _)| (*about, *other) == (object, version));
                if let Some((.., value)) = found {
                    let note = Note::Fetched(object, version, Arc::clone(value));
                    self.around.notes.push((from, note));
                }
            }
            Note::Probe(number) => {
                let state = self.state(now_ns);
                self.around.notes.push((from, Note::State(number, state)));
            }
            Note::Suspect(said) if self.settings.thresholds.contains(said.server) => {
                self.around.suspicions.told(now_ns, from, said);
            }
            Note::AskEvidence(first) => {
                let (total, part) = self.around.evidence.part(first);
                self.around.notes.push((from, Note::Evidence(first, total, part)));
            }
            Note::Suspect(_)
            | Note::Fetch(..)
            | Note::News(..)
            | Note::Forwarded(..)
            | Note::Fetched(..)
            | Note::Evidence(..)
            | Note::State(..) => {
                self.around.refused += 1;
            }
        }
    }

    pub(super) fn state(&mut self, now_ns: u64) -> State {
        let suspicions = self.around.suspicions.list(now_ns).into();
        let carried = self.link.carried();
        let store = &self.around.store;
        State {
            up_ms: now_ns / 1_000_000,
            // Not those that were only asked for.
            objects: u64::try_from(store.objects()).unwrap_or(u64::MAX),
            bytes: u64::try_from(store.live_bytes()).unwrap_or(u64::MAX),
            log_bytes: store.log_bytes(),
            taken: carried.taken(),
            refused: carried.refused().values().sum::<u64>() + self.around.refused,
            watchers: self.around.watchers.len(),
            lost: !self.is_repaired(),
            repaired: store.past() != Past::Whole,
            suspicions,
        }
    }
}
