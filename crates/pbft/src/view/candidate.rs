//! A NEW-VIEW under examination, or the one that a view was entered by, with all that it rests on.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::Signed;
use quorate_wire::id::{ReplicaId, ViewNum};
use quorate_wire::message::{NewView, ProofMessage, ViewChange};

use crate::order::votes::bit;

/// A NEW-VIEW with the VIEW-CHANGEs that it names, as far as they are here.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    message: Arc<Signed<NewView>>,
    /// In the order of the message.
    named: Vec<Option<Arc<Signed<ViewChange>>>>,
    /// The PROOFs that it also depends on, once it was found valid: others can receive them.
    proofs: Vec<Arc<Signed<ProofMessage>>>,
}

impl Candidate {
    /// Returns it before any VIEW-CHANGE that it names is here.
    pub(crate) fn new(message: Arc<Signed<NewView>>) -> Self {
        let named = alloc::vec![None; message.body().view_changes.len()];
        Self { message, named, proofs: Vec::new() }
    }

    /// Returns it with all that it rests on: the VIEW-CHANGEs in the order of the message, and PROOFs.
    pub(crate) fn whole(
        message: Arc<Signed<NewView>>,
        named: Vec<Arc<Signed<ViewChange>>>,
        proofs: Vec<Arc<Signed<ProofMessage>>>,
    ) -> Self {
        Self { message, named: named.into_iter().map(Some).collect(), proofs }
    }

    /// Returns it with the PROOFs that it also depends on, once it was found valid.
    pub(crate) fn with_proofs(&self, proofs: Vec<Arc<Signed<ProofMessage>>>) -> Self {
        Self { proofs, ..self.clone() }
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> &Arc<Signed<NewView>> {
        &self.message
    }

    /// Returns the VIEW-CHANGEs that it names and that are here.
    pub(crate) fn named(&self) -> impl Iterator<Item = &Arc<Signed<ViewChange>>> {
        self.named.iter().flatten()
    }

    /// Returns the PROOFs that it also depends on.
    pub(crate) fn proofs(&self) -> &[Arc<Signed<ProofMessage>>] {
        &self.proofs
    }

    /// Returns its view.
    pub(crate) fn view(&self) -> ViewNum {
        self.message.body().view
    }

    /// Returns the VIEW-CHANGEs that it names and that are here, with who made them.
    pub(crate) fn members(&self) -> impl Iterator<Item = (ReplicaId, &ViewChange)> {
        self.named.iter().flatten().map(|m| (m.sender(), m.body()))
    }

    /// Keeps a VIEW-CHANGE that it names. Says whether it was missing.
    pub(crate) fn supply(&mut self, m: &Arc<Signed<ViewChange>>) -> bool {
        for ((replica, digest), place) in self.message.body().view_changes.iter().zip(&mut self.named) {
            if *replica == m.sender() && *digest == m.digest() && place.is_none() {
                *place = Some(m.clone());
                return true;
            }
        }
        false
    }

    /// Returns whose VIEW-CHANGEs are missing.
    pub(crate) fn missing(&self) -> u64 {
        let places = self.message.body().view_changes.iter().zip(&self.named);
        places.filter(|(_, m)| m.is_none()).fold(0, |set, ((replica, _), _)| set | bit(*replica))
    }
}
