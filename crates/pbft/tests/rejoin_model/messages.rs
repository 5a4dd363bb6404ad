//! The messages of the model as the real ones, each made once.

use std::collections::HashMap;

use quorate_pbft::decision::ViewChangeOf;
use quorate_wire::life::Life;
use quorate_wire::message::{LeaveCert, PrePrepared, Prepared, Suspect, SuspectReason, ViewChange};
use quorate_wire::{Digest, ReplicaId, SeqNum, Timestamp, ViewNum};

use crate::case::Case;
use crate::state::{DIGESTS, Rep};

/// What a VIEW-CHANGE says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Said {
    pub(crate) sender: u8,
    pub(crate) life: u8,
    pub(crate) view: u8,
    stable: u8,
    exec: u8,
    p: Option<(u8, u8)>,
    q: [u8; DIGESTS],
}

impl Said {
    /// What `rep` says when it leaves for `view`.
    pub(crate) fn of(sender: usize, life: u8, view: u8, rep: &Rep) -> Self {
        Self { sender: sender as u8, life, view, stable: rep.stable, exec: rep.exec, p: rep.p, q: rep.q }
    }
}

/// Every VIEW-CHANGE, by number.
#[derive(Default)]
pub(crate) struct Messages {
    numbers: HashMap<Said, u16>,
    said: Vec<Said>,
    real: Vec<ViewChangeOf<'static>>,
}

impl Messages {
    pub(crate) fn number(&mut self, case: &Case, said: Said) -> u16 {
        if let Some(number) = self.numbers.get(&said) {
            return *number;
        }
        let number = u16::try_from(self.said.len()).unwrap();
        self.numbers.insert(said, number);
        self.said.push(said);
        self.real.push(real(case, &said));
        number
    }

    pub(crate) fn said(&self, number: u16) -> &Said {
        &self.said[usize::from(number)]
    }

    pub(crate) fn real(&self, number: u16) -> ViewChangeOf<'static> {
        self.real[usize::from(number)]
    }

    /// Every lie of `sender` that can help a NEW-VIEW for `view` that starts from `start`: it vouches for that
    /// checkpoint, has collected nothing above it, and says of the target nothing, or that it pre-prepared all there is,
    /// or that it prepared one of them as well. What else it could say helps no choice more.
    pub(crate) fn lies(&mut self, case: &Case, sender: usize, life: u8, view: u8, start: u8) -> Vec<u16> {
        let silent =
            Said { sender: sender as u8, life, view, stable: start, exec: start, p: None, q: [0; DIGESTS] };
        let mut lies = vec![self.number(case, silent)];
        if start < case.target && case.target <= start + case.window {
            let q = std::array::from_fn(|batch| if batch <= usize::from(view) { view } else { 0 });
            let all = Said { q, ..silent };
            lies.push(self.number(case, all));
            for batch in 0..=view {
                for of in 0..view {
                    lies.push(self.number(case, Said { p: Some((batch, of)), ..all }));
                }
            }
        }
        lies
    }
}

/// The life with this number. What matters of a real one is its order, and that nobody can guess the next.
pub(crate) fn life(number: u8) -> Life {
    Life { timestamp: Timestamp(u64::from(number)), bits: u64::from(number) }
}

/// The state after `seq`.
pub(crate) fn root(seq: u8) -> Digest {
    Digest([100 + seq; 32])
}

pub(crate) fn digest(batch: u8) -> Digest {
    Digest([200 + batch; 32])
}

/// The message, never freed: there are some hundreds.
fn real(case: &Case, said: &Said) -> ViewChangeOf<'static> {
    let sender = ReplicaId(u16::from(said.sender));
    let left = ViewNum(u64::from(said.view) - 1);
    let suspect = Suspect { view: left, reason: SuspectReason::SelfHandoff, signature: [0; 64] };
    let target = SeqNum(u64::from(case.target));
    let mut claims: Vec<_> = (0..DIGESTS as u8)
        .filter(|d| said.q[usize::from(*d)] > 0)
        .map(|d| (digest(d), ViewNum(u64::from(said.q[usize::from(d)]) - 1)))
        .collect();
    let prepared = said.p.map(|(d, view)| (digest(d), ViewNum(u64::from(view))));
    // VC-4: the highest views first, the one of P always among them.
    claims.sort_by_key(|(d, view)| (prepared.is_none_or(|(p, _)| p != *d), std::cmp::Reverse(*view)));
    claims.truncate(case.cluster.f() + 2);
    claims.sort_by_key(|(_, view)| std::cmp::Reverse(*view));
    let top = said.exec.min(said.stable + case.window);
    let message = ViewChange {
        view: ViewNum(u64::from(said.view)),
        stable: SeqNum(u64::from(said.stable)),
        life: life(said.life),
        checkpoints: (said.stable..=top).map(|m| (SeqNum(u64::from(m)), root(m))).collect(),
        prepared: prepared.into_iter().map(|(digest, view)| Prepared { seq: target, digest, view }).collect(),
        pre_prepared: if claims.is_empty() { vec![] } else { vec![PrePrepared { seq: target, claims }] },
        leave: LeaveCert { suspects: vec![(case.cluster.primary(left), suspect)] },
    };
    let message = Box::leak(Box::new(message));
    ViewChangeOf::new(case.cluster, 1, u64::from(case.window), sender, message).unwrap()
}
