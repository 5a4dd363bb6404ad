//! What replicas that are not on the desk sign.

use quorate_wire::Digest;
use quorate_wire::codec::Writer;
use quorate_wire::frame::Frame;
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};
use quorate_wire::life::Life;
use quorate_wire::message::{Kind, LeaveCert, NewView, ProofMessage, Suspect, ViewChange};

use super::{Desk, R0, R1, root, suspect};

impl Desk {
    /// A PROOF as its sender seals it.
    pub fn proof(&mut self, from: ReplicaId, seq: u64, digest: Digest, view: u64) -> Vec<u8> {
        let mut body = Vec::new();
        let (seq, view) = (SeqNum(seq), ViewNum(view));
        ProofMessage { seq, digest, view }.encode(&mut Writer::new(&mut body));
        let mut frame = Vec::new();
        self.door(from.into()).seal(Kind::Proof, None, &body, &mut frame);
        frame
    }

    /// A LeaveCert for `view`, by `f + 1` others.
    pub fn leave_cert(&mut self, view: u64, by: &[ReplicaId]) -> LeaveCert {
        let mut suspects = Vec::new();
        for from in by {
            let mut body = Vec::new();
            suspect(view).encode(&mut Writer::new(&mut body));
            let mut frame = Vec::new();
            self.door((*from).into()).seal(Kind::Suspect, None, &body, &mut frame);
            let signature = quorate_wire::frame::signature_of(&frame).unwrap();
            suspects.push((*from, Suspect { signature, ..suspect(view) }));
        }
        LeaveCert { suspects }
    }

    pub fn view_change(&mut self, from: ReplicaId, m: &ViewChange) -> Vec<u8> {
        let mut body = Vec::new();
        m.encode(&mut Writer::new(&mut body));
        let mut frame = Vec::new();
        self.door(from.into()).seal(Kind::ViewChange, None, &body, &mut frame);
        frame
    }

    pub fn new_view(&mut self, from: ReplicaId, m: &NewView) -> Vec<u8> {
        let mut body = Vec::new();
        m.encode(&mut Writer::new(&mut body));
        let mut frame = Vec::new();
        self.door(from.into()).seal(Kind::NewView, None, &body, &mut frame);
        frame
    }

    /// The digest by which a NEW-VIEW names a VIEW-CHANGE.
    pub fn digest_of(&self, frame: &[u8]) -> Digest {
        self.domains.view_change(Frame::decode(frame).unwrap().body)
    }

    /// An empty VIEW-CHANGE for `view`: nothing stable, nothing prepared.
    pub fn empty_view_change(&mut self, view: u64) -> ViewChange {
        ViewChange {
            view: ViewNum(view),
            stable: SeqNum(0),
            life: Life::default(),
            checkpoints: vec![(SeqNum(0), root(SeqNum(0)))],
            prepared: vec![],
            pre_prepared: vec![],
            leave: self.leave_cert(view - 1, &[R0, R1]),
        }
    }
}
