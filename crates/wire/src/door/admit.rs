//! Coming in: frames become verified messages.

use alloc::sync::Arc;

use super::{Admitted, Door, DoorError, Verified};
use crate::batch::Batch;
use crate::codec::{Decoded, Reader};
use crate::digest::{Digest, Domains};
use crate::exchange::{Exchange, Freshness, Mismatch};
use crate::frame::{Auth, Frame};
use crate::id::{Principal, ReplicaId};
use crate::keys::{message_hash, request_hash};
use crate::message::{
    BodyFetch, BodyKind, BodyMessage, Checkpoint, Commit, Committed, Data, Fetch, Kind, Message, MetaData,
    NewKey, NewView, PrePrepare, PrePrepareHead, Prepare, Proof, ProofMessage, QueryStable, Reply,
    ReplyStable, ReqAck, ReqReject, Request, Status, Suspect, VcFetch, ViewChange, fixed_len,
};
use crate::sign::{Signed, request_digest, signed_digest};

/// Who a node is to its peers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Replica,
    Client,
}

fn role(of: Principal) -> Role {
    match of {
        Principal::Replica(_) => Role::Replica,
        Principal::Client(_) => Role::Client,
    }
}

impl Door {
    /// Takes one frame, which [`Frame::take`] has split from a datagram.
    ///
    /// # Errors
    ///
    /// The frame is not what its sender made, or breaks a rule of its form. Nothing of it counts.
    pub fn admit<'a>(&mut self, mono_ns: u64, frame: Frame<'a>) -> Result<Admitted<'a>, DoorError> {
        self.exchange.observe(mono_ns);
        self.check_sender(&frame)?;
        let message = match frame.kind {
            Kind::NewKey => return self.admit_new_key(&frame).map(|()| Admitted::Keys),
            Kind::Request => Message::Request(self.admit_request(&frame)?),
            Kind::Suspect | Kind::ViewChange | Kind::NewView => self.admit_signed(&frame)?,
            Kind::Reply
            | Kind::PrePrepare
            | Kind::Prepare
            | Kind::Commit
            | Kind::Checkpoint
            | Kind::Status
            | Kind::MetaData
            | Kind::Data
            | Kind::Fetch
            | Kind::QueryStable
            | Kind::ReplyStable
            | Kind::BodyFetch
            | Kind::Body
            | Kind::Committed
            | Kind::Proof
            | Kind::ReqAck
            | Kind::VcFetch
            | Kind::ReqReject => {
                self.check_mac(&frame)?;
                self.decode(&frame)?
            }
        };
        Ok(Admitted::Message(Verified { sender: frame.sender, message }))
    }

    /// Checks that the frame is of this epoch, from someone who is known and may send its kind here.
    fn check_sender(&self, frame: &Frame<'_>) -> Result<(), DoorError> {
        let sender = frame.sender;
        if frame.epoch != self.epoch {
            return Err(DoorError::WrongEpoch { epoch: frame.epoch, own: self.epoch });
        }
        if sender.key_holder() == self.own.key_holder() {
            return Err(DoorError::OwnIdentity);
        }
        if !self.exchange.knows(sender) {
            return Err(DoorError::UnknownSender(sender));
        }
        let may = match (frame.kind, role(sender), role(self.own)) {
            (Kind::Request, _, own) => own == Role::Replica,
            (Kind::Reply, sender, _) => sender == Role::Replica,
            (Kind::NewKey, sender, own) => sender == Role::Replica || own == Role::Replica,
            (_, sender, own) => sender == Role::Replica && own == Role::Replica,
        };
        if may { Ok(()) } else { Err(DoorError::WrongRole { kind: frame.kind, sender }) }
    }

    /// Checks this node's entry of a frame with a MAC or an authenticator.
    fn check_mac(&mut self, frame: &Frame<'_>) -> Result<(), DoorError> {
        let fixed = frame.body.get(..fixed_len(frame.kind, frame.body)).unwrap_or(frame.body);
        let hash = message_hash(&self.domains, frame.kind, frame.epoch, frame.sender, fixed);
        check_entry(&mut self.exchange, self.cluster.n(), self.own, frame, &hash)
    }

    /// Decodes a message whose MAC is right, and recomputes its digests.
    fn decode<'a>(&mut self, frame: &Frame<'a>) -> Result<Message<'a>, DoorError> {
        let body = frame.body;
        Ok(match frame.kind {
            Kind::Reply => Message::Reply(self.check_reply(Reply::decode(body)?)?),
            Kind::PrePrepare => Message::PrePrepare(self.decode_pre_prepare(body)?),
            Kind::Prepare => Message::Prepare(Prepare::decode(body)?),
            Kind::Commit => Message::Commit(Commit::decode(body)?),
            Kind::Checkpoint => Message::Checkpoint(Checkpoint::decode(body)?),
            Kind::Status => Message::Status(Status::decode(body)?),
            Kind::MetaData => Message::MetaData(MetaData::decode(body)?),
            Kind::Data => Message::Data(Data::decode(body)?),
            Kind::Fetch => Message::Fetch(Fetch::decode(body)?),
            Kind::QueryStable => Message::QueryStable(QueryStable::decode(body)?),
            Kind::ReplyStable => Message::ReplyStable(ReplyStable::decode(body)?),
            Kind::BodyFetch => Message::BodyFetch(BodyFetch::decode(body)?),
            Kind::Body => Message::Body(self.decode_body(body)?),
            Kind::Committed => Message::Committed(Committed::decode(body)?),
            Kind::Proof => Message::Proof(ProofMessage::decode(body)?),
            Kind::ReqAck => Message::ReqAck(ReqAck::decode(body)?),
            Kind::VcFetch => Message::VcFetch(VcFetch::decode(body)?),
            Kind::ReqReject => Message::ReqReject(ReqReject::decode(body)?),
            Kind::Request | Kind::ViewChange | Kind::NewView | Kind::NewKey | Kind::Suspect => {
                unreachable!("handled before")
            }
        })
    }

    /// Checks that a reply is for this node, any lane of it, and that a result has the digest that
    /// stands in the reply (K11, K12).
    fn check_reply<'a>(&self, reply: Reply<'a>) -> Result<Reply<'a>, DoorError> {
        if Principal::from_wire(reply.client.0).key_holder() != self.own.key_holder() {
            return Err(DoorError::OtherClient(reply.client));
        }
        if let Some(result) = reply.result
            && self.domains.reply(reply.client.0, reply.timestamp.0, result) != reply.digest
        {
            return Err(DoorError::WrongDigest(Kind::Reply));
        }
        Ok(reply)
    }

    /// Copies the batch of a PRE-PREPARE, authenticates each request in it as far as that can be
    /// done with a MAC, and compares the batch's digest with the one that the sender claims.
    fn decode_pre_prepare<'a>(&mut self, body: &'a [u8]) -> Result<PrePrepare<'a>, DoorError> {
        let head = PrePrepareHead::decode(body)?;
        let Self { batches, domains, exchange, cluster, own, epoch, .. } = self;
        let batch = batches.fill(|batch| -> Decoded<()> {
            let mut payload = Reader::new(head.payload);
            batch.decode_payload(&mut payload, head.counts, head.choice, domains, |bytes| {
                inner_request(exchange, domains, (cluster.n(), *own, *epoch), bytes)
            })
        })?;
        if batch.digest() != head.digest {
            return Err(DoorError::WrongDigest(Kind::PrePrepare));
        }
        Ok(PrePrepare { view: head.view, seq: head.seq, batch, piggyback: head.piggyback })
    }

    /// Reads a request or batch that was asked for and computes its digest; whether that is the one
    /// that was asked for is for the core to see (SR-2).
    fn decode_body<'a>(&mut self, body: &'a [u8]) -> Result<BodyMessage<'a>, DoorError> {
        let (kind, bytes) = BodyMessage::split(body)?;
        let Self { batches, domains, exchange, cluster, own, epoch, .. } = self;
        let mut request = |bytes| inner_request(exchange, domains, (cluster.n(), *own, *epoch), bytes);
        Ok(match kind {
            BodyKind::Request => BodyMessage::Request(request(bytes)?),
            BodyKind::Batch => BodyMessage::Batch(
                batches.fill(|batch: &mut Batch| batch.decode(&mut Reader::new(bytes), domains, request))?,
            ),
        })
    }

    /// Authenticates a REQUEST: by this replica's entry of the authenticator; by the signature where
    /// there is none, or where the entry is wrong and the client has signed (AU-1). A replica that
    /// acts as a client has to sign.
    fn admit_request<'a>(&mut self, frame: &Frame<'a>) -> Result<Request<'a>, DoorError> {
        let mut request = Request::decode(frame, &self.domains)?;
        let by_mac = match frame.auth {
            Auth::Authenticator { .. } | Auth::Both { .. } => check_request_entry(
                &mut self.exchange,
                &self.domains,
                self.cluster.n(),
                self.own,
                frame,
                &request,
            ),
            Auth::Signature(_) | Auth::Mac { .. } => Err(DoorError::WrongSeal(Kind::Request)),
        };
        request.proof = match (role(frame.sender), by_mac, frame.auth) {
            (Role::Client, Ok(()), _) => Proof::Mac,
            (Role::Client, Err(error), Auth::Both { signature, .. }) => {
                if !self.exchange.may_check_signature(frame.sender) {
                    return Err(error);
                }
                self.check_request_signature(frame, &request, signature)?
            }
            (Role::Replica, _, Auth::Signature(signature) | Auth::Both { signature, .. }) => {
                self.check_request_signature(frame, &request, signature)?
            }
            (Role::Replica, Ok(()), _) => return Err(DoorError::WrongSeal(Kind::Request)),
            (_, Err(error), _) => return Err(error),
        };
        Ok(request)
    }

    fn check_request_signature(
        &self,
        frame: &Frame<'_>,
        request: &Request<'_>,
        signature: &[u8; 64],
    ) -> Result<Proof, DoorError> {
        let covered = request_digest(&self.domains, frame.epoch, frame.sender, &request.digest);
        let right = self.verifier.verify(frame.sender, &covered, signature);
        if right { Ok(Proof::Signed) } else { Err(DoorError::NotAuthentic(frame.sender)) }
    }

    /// Takes a NEW-KEY. Its signature is looked at only if it is new, so that replays are cheap.
    fn admit_new_key(&mut self, frame: &Frame<'_>) -> Result<(), DoorError> {
        let Auth::Signature(signature) = frame.auth else { return Err(DoorError::WrongSeal(frame.kind)) };
        let new_key = NewKey::decode(frame.body)?;
        match self.exchange.judge(frame.sender, &new_key) {
            Freshness::Stale => return Err(DoorError::StaleKey(frame.sender)),
            Freshness::Known => {}
            Freshness::New => self.check_signed(frame, signature)?,
        }
        self.exchange.accept(frame.sender, &new_key);
        Ok(())
    }

    /// Verifies SUSPECT, VIEW-CHANGE and NEW-VIEW, and keeps the frames of the latter two as evidence.
    fn admit_signed<'a>(&mut self, frame: &Frame<'a>) -> Result<Message<'a>, DoorError> {
        let (Auth::Signature(signature), Principal::Replica(sender)) = (frame.auth, frame.sender) else {
            return Err(DoorError::WrongSeal(frame.kind));
        };
        self.check_signed(frame, signature)?;
        if frame.kind == Kind::Suspect {
            return Ok(Message::Suspect(Suspect::decode(frame.body, *signature)?));
        }
        let digest = self.domains.view_change(frame.body);
        if frame.kind == Kind::NewView {
            let body = NewView::decode(frame.body)?;
            return Ok(Message::NewView(Arc::new(Signed::new(sender, body, digest, frame.bytes))));
        }
        let body = ViewChange::decode(frame.body)?;
        for (replica, suspect) in &body.leave.suspects {
            self.check_suspect(*replica, suspect)?;
        }
        Ok(Message::ViewChange(Arc::new(Signed::new(sender, body, digest, frame.bytes))))
    }

    fn check_signed(&self, frame: &Frame<'_>, signature: &[u8; 64]) -> Result<(), DoorError> {
        let covered = signed_digest(&self.domains, frame.kind, frame.epoch, frame.sender, frame.body);
        let right = self.verifier.verify(frame.sender, &covered, signature);
        if right { Ok(()) } else { Err(DoorError::NotAuthentic(frame.sender)) }
    }

    /// Checks a SUSPECT of a `LeaveCert`, whose view is the one before the VIEW-CHANGE's (LV-2).
    fn check_suspect(&self, replica: ReplicaId, suspect: &Suspect) -> Result<(), DoorError> {
        let covered = suspect.signed_digest(&self.domains, self.epoch, replica);
        let member = self.cluster.contains(replica);
        let right = member && self.verifier.verify(replica.into(), &covered, &suspect.signature);
        if right { Ok(()) } else { Err(DoorError::BadLeaveCert(replica)) }
    }
}

/// Checks this node's entry of a frame, and that there are as many entries as there are receivers.
fn check_entry(
    exchange: &mut Exchange,
    n: usize,
    own: Principal,
    frame: &Frame<'_>,
    hash: &Digest,
) -> Result<(), DoorError> {
    let wrong_seal = DoorError::WrongSeal(frame.kind);
    let (key_id, entry) = match (frame.auth, frame.kind.seal(), own) {
        (Auth::Mac { key_id, entries }, crate::message::Seal::Mac, _) => (key_id, entries.get(0)),
        (
            Auth::Authenticator { key_id, entries } | Auth::Both { key_id, entries, .. },
            crate::message::Seal::Authenticator,
            Principal::Replica(own),
        ) => {
            let (count, index) = match frame.sender {
                Principal::Client(_) => (n, own.index()),
                Principal::Replica(sender) => (n - 1, own.index() - usize::from(own > sender)),
            };
            if entries.len() != count {
                return Err(wrong_seal);
            }
            (key_id, entries.get(index))
        }
        _ => return Err(wrong_seal),
    };
    let entry = entry.ok_or(wrong_seal)?;
    exchange.check(frame.sender, key_id, entry, hash).map_err(|mismatch| match mismatch {
        Mismatch::NoKey => DoorError::NoKey(frame.sender),
        Mismatch::WrongTag => DoorError::NotAuthentic(frame.sender),
    })
}

/// Checks this replica's entry of a REQUEST.
fn check_request_entry(
    exchange: &mut Exchange,
    domains: &Domains,
    n: usize,
    own: Principal,
    frame: &Frame<'_>,
    request: &Request<'_>,
) -> Result<(), DoorError> {
    let Request { digest, replier, flags, .. } = request;
    let hash = request_hash(domains, frame.epoch, frame.sender, digest, *replier, *flags);
    check_entry(exchange, n, own, frame, &hash)
}

/// Reads a request inside another frame. It counts as proven if this replica's entry is right;
/// otherwise the core decides what else may vouch for it (AU-2, SR-4).
fn inner_request<'a>(
    exchange: &mut Exchange,
    domains: &Domains,
    (n, own, epoch): (usize, Principal, u32),
    bytes: &'a [u8],
) -> Decoded<Request<'a>> {
    let frame = Frame::decode(bytes)?;
    let mut request = Request::decode(&frame, domains)?;
    let known = frame.epoch == epoch
        && frame.sender.key_holder() != own.key_holder()
        && role(frame.sender) == Role::Client
        && exchange.knows(frame.sender);
    if known && check_request_entry(exchange, domains, n, own, &frame, &request).is_ok() {
        request.proof = Proof::Mac;
    }
    Ok(request)
}
