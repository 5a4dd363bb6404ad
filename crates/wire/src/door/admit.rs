//! Receiving: frames become verified messages.

use alloc::boxed::Box;
use alloc::sync::Arc;

use super::checks::{Checks, Payer};
use super::macs::Macs;
use super::{Admitted, Door, DoorError, Source, Verified};
use crate::batch::BatchPool;
use crate::codec::Reader;
use crate::digest::Digest;
use crate::exchange::Freshness;
use crate::frame::{Auth, Frame};
use crate::id::{Principal, ViewNum};
use crate::keys::Covered;
use crate::kind::kinds;
use crate::message::{
    BodyFetch, BodyKind, BodyMessage, Checkpoint, Collect, Commit, Committed, Data, Fetch, Kind, Message,
    MetaData, NewKey, NewView, PrePrepare, PrePrepareHead, Prepare, Probe, Proof, ProofMessage, QueryStable,
    Reply, ReplyStable, ReqAck, ReqReject, Request, Seal, Statement, Status, Suspect, VcFetch, ViewChange,
};
use crate::sign::{Signed, request_digest, signed_digest};

/// Reads the body of a kind whose frame is authentic.
macro_rules! read {
    (Reply, own $body:ty, $door:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        $door.check_reply(Reply::decode($frame.body)?)?
    };
    (PrePrepare, own $body:ty, $door:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        $door.decode_pre_prepare($frame.body)?
    };
    (Body, own $body:ty, $door:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        $door.decode_body($frame.body)?
    };
    (Suspect, own $body:ty, $door:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        Suspect::decode($frame.body, signature_of($frame)?)?
    };
    (Request, own $body:ty, $door:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        unreachable!("admitted in its own way")
    };
    (ViewChange, signed $body:ty, $door:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {{
        let view_change = $door.check_leave_cert($mono_ns, $payer, ViewChange::decode($frame.body)?)?;
        $door.signed($frame, view_change)?
    }};
    ($kind:ident, signed $body:ty, $door:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        $door.signed($frame, <$body>::decode($frame.body)?)?
    };
    ($kind:ident, boxed $body:ty, $door:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        Box::new(<$body>::decode($frame.body)?)
    };
    ($kind:ident, plain $body:ty, $door:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        <$body>::decode($frame.body)?
    };
}

macro_rules! decode {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $seal:ident, $route:ident
        $(=> $way:ident $body:ty)?;)*) => {
        impl Door {
            /// Decodes a message whose MAC or signature is right, and recomputes its digests. `payer` has paid for the
            /// signature, and pays for those inside.
            #[allow(unreachable_code, reason = "a REQUEST is admitted in its own way")]
            fn decode<'a>(
                &mut self,
                mono_ns: u64,
                payer: Payer,
                frame: &Frame<'a>,
            ) -> Result<Message<'a>, DoorError> {
                let door = self;
                Ok(match frame.kind {
                    Kind::NewKey => unreachable!("stays in the authenticator"),
                    $($(Kind::$kind => Message::$kind(read!($kind, $way $body, door, mono_ns, payer, frame)),)?)*
                })
            }
        }
    };
}

kinds!(decode);

impl Door {
    /// Takes one frame, which [`Frame::take`] has split from a datagram.
    ///
    /// # Errors
    ///
    /// The frame is not what its sender made, or breaks a rule of its form. Nothing of it counts.
    #[inline]
    pub fn admit<'a>(&mut self, mono_ns: u64, frame: Frame<'a>) -> Result<Admitted<'a>, DoorError> {
        self.admit_from(mono_ns, Source::UNKNOWN, frame)
    }

    /// Takes one frame that came from `source`, which pays for its signature if nobody better is known.
    ///
    /// # Errors
    ///
    /// As [`Self::admit`].
    pub fn admit_from<'a>(
        &mut self,
        mono_ns: u64,
        source: Source,
        frame: Frame<'a>,
    ) -> Result<Admitted<'a>, DoorError> {
        self.exchange.observe(mono_ns);
        self.check_header(&frame)?;
        if frame.kind == Kind::NewKey {
            return self.admit_new_key(mono_ns, source, &frame).map(|()| Admitted::Keys);
        }
        let message = if frame.kind == Kind::Request {
            Message::Request(self.admit_request(mono_ns, source, &frame)?)
        } else {
            let payer = match frame.kind.seal() {
                Seal::Mac | Seal::Authenticator => {
                    self.macs().0.check(&frame)?;
                    Payer::Stranger(source)
                }
                Seal::Signature => self.check_signed(mono_ns, source, &frame)?,
            };
            self.decode(mono_ns, payer, &frame)?
        };
        Ok(Admitted::Message(Verified { sender: frame.sender, message }))
    }

    /// Checks that the frame is of this epoch, from someone who is known and may send its kind here,
    /// and authenticated in a form that its kind has.
    fn check_header(&self, frame: &Frame<'_>) -> Result<(), DoorError> {
        let sender = frame.sender;
        if frame.epoch != self.epoch {
            return Err(DoorError::WrongEpoch { epoch: frame.epoch, own: self.epoch });
        }
        // Never from the network (CR-4); but a VIEW-CHANGE or PROOF of one's own is evidence that others keep, and a
        // replica that has lost its memory may need it to check the NEW-VIEW that rests on it.
        let evidence = matches!(frame.kind, Kind::ViewChange | Kind::Proof);
        if sender.key_holder() == self.own.key_holder() && !evidence {
            return Err(DoorError::OwnIdentity);
        }
        if !self.exchange.knows(sender) {
            return Err(DoorError::UnknownSender(sender));
        }
        let is_replica = |of| matches!(of, Principal::Replica(_));
        if !frame.kind.route().may(is_replica(sender), is_replica(self.own)) {
            return Err(DoorError::WrongRole { kind: frame.kind, sender });
        }
        if is_form_of(frame.kind, frame.auth) { Ok(()) } else { Err(DoorError::WrongSeal(frame.kind)) }
    }

    fn macs(&mut self) -> (Macs<'_>, &mut BatchPool) {
        let Self { exchange, domains, last_hash, own, epoch, cluster, batches, .. } = self;
        (Macs { exchange, domains, last_hash, own: *own, n: cluster.n(), epoch: *epoch }, batches)
    }

    /// Checks that a reply is for this node, any lane of it, and that a result has the digest that
    /// stands in the reply (K11, K12).
    fn check_reply<'a>(&mut self, reply: Reply<'a>) -> Result<Reply<'a>, DoorError> {
        if Principal::from_wire(reply.client.0).key_holder() != self.own.key_holder() {
            return Err(DoorError::OtherClient(reply.client));
        }
        if let Some(result) = reply.result {
            let (client, timestamp) = (reply.client.0, reply.timestamp.0);
            let head = [client.to_le_bytes(), timestamp.to_le_bytes()];
            let digest = || self.domains.result(client, timestamp, result);
            if !self.last_result.of(head.as_flattened(), result, digest).is_of_result(&reply.digest) {
                return Err(DoorError::WrongDigest(Kind::Reply));
            }
        }
        Ok(reply)
    }

    /// Copies the batch of a PRE-PREPARE, authenticates each request in it as far as that can be
    /// done with a MAC, and compares the batch's digest with the one that the sender claims.
    fn decode_pre_prepare<'a>(&mut self, body: &'a [u8]) -> Result<PrePrepare<'a>, DoorError> {
        let head = PrePrepareHead::decode(body)?;
        let (mut macs, batches) = self.macs();
        let batch = batches.fill(|batch| {
            let (mut payload, domains) = (Reader::new(head.payload), macs.domains);
            batch.decode_payload(&mut payload, head.counts, head.choice, domains, |bytes| {
                macs.inner_request(bytes)
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
        let (mut macs, batches) = self.macs();
        Ok(match kind {
            BodyKind::Request => BodyMessage::Request(macs.inner_request(bytes)?),
            BodyKind::Batch => BodyMessage::Batch(batches.fill(|batch| {
                let (mut bytes, domains) = (Reader::new(bytes), macs.domains);
                batch.decode(&mut bytes, domains, |bytes| macs.inner_request(bytes))
            })?),
        })
    }

    /// Authenticates a REQUEST: by this replica's entry of the authenticator; by the signature where
    /// there is none, or where the entry is wrong and the client has signed (AU-1). A replica that
    /// acts as a client has to sign.
    fn admit_request<'a>(
        &mut self,
        mono_ns: u64,
        source: Source,
        frame: &Frame<'a>,
    ) -> Result<Request<'a>, DoorError> {
        let mut request = Request::decode(frame, &self.domains)?;
        let by_signature = match (frame.sender, frame.auth.signature()) {
            (Principal::Replica(_), None) => return Err(DoorError::WrongSeal(Kind::Request)),
            (Principal::Replica(_), Some(signature)) => Some(signature),
            (Principal::Client(_), signature) => match self.macs().0.check_request(frame, &request) {
                Ok(()) => None,
                Err(_) if signature.is_some() && self.exchange.may_check_signature(frame.sender) => signature,
                Err(error) => return Err(error),
            },
        };
        request.proof = match by_signature {
            None => Proof::Mac,
            Some(signature) => {
                let Request { digest, replier, flags, .. } = &request;
                let covered =
                    Covered::request(frame.epoch, frame.sender, digest, *replier, *flags, Some(signature));
                let payer = match frame.sender {
                    Principal::Replica(_) => self.payer(source, frame, &covered),
                    Principal::Client(_) => Payer::Stranger(source), // its MAC is wrong
                };
                let covered = request_digest(&self.domains, frame.epoch, frame.sender, digest);
                self.check_signature_over(mono_ns, payer, frame.sender, &covered, signature)?;
                Proof::Signed
            }
        };
        Ok(request)
    }

    /// Takes a NEW-KEY. Its signature is looked at only if it is new, so that replays are cheap.
    fn admit_new_key(&mut self, mono_ns: u64, source: Source, frame: &Frame<'_>) -> Result<(), DoorError> {
        let new_key = NewKey::decode(frame.body)?;
        match self.exchange.judge(frame.sender, &new_key) {
            Freshness::Stale => return Err(DoorError::StaleKey(frame.sender)),
            Freshness::Known => {}
            Freshness::New => _ = self.check_signed(mono_ns, source, frame)?,
        }
        self.exchange.accept(frame.sender, &new_key);
        Ok(())
    }

    /// Checks the signature over a whole frame. Says who has paid for it.
    fn check_signed(&mut self, mono_ns: u64, source: Source, frame: &Frame<'_>) -> Result<Payer, DoorError> {
        if view_of(frame).is_some_and(|view| view < self.view) {
            return Err(DoorError::OldView(frame.kind));
        }
        let Frame { kind, epoch, sender, body, .. } = *frame;
        let signature = signature_of(frame)?;
        let digest = signed_digest(&self.domains, kind, epoch, sender, body);
        let covered = Covered::signed(kind, epoch, sender, &digest, &signature);
        let payer = self.payer(source, frame, &covered);
        self.check_signature_over(mono_ns, payer, sender, &digest, &signature)?;
        Ok(payer)
    }

    /// Returns who pays for the signature of a frame: its sender, if this node's entry beside it is right.
    fn payer(&mut self, source: Source, frame: &Frame<'_>, covered: &Covered) -> Payer {
        if !self.macs().0.proves(frame, covered) {
            return Payer::Stranger(source);
        }
        match frame.sender {
            Principal::Replica(sender) => Payer::Sender(sender),
            Principal::Client(_) if self.exchange.may_check_signature(frame.sender) => Payer::Client,
            Principal::Client(_) => Payer::Stranger(source),
        }
    }

    /// Checks a signature of `sender` over `covered`, if `payer` may have it checked.
    fn check_signature_over(
        &mut self,
        mono_ns: u64,
        payer: Payer,
        sender: Principal,
        covered: &Digest,
        signature: &[u8; 64],
    ) -> Result<(), DoorError> {
        let key = Checks::key(covered, signature);
        if self.checks.knows(&key) {
            return Ok(());
        }
        if !self.checks.may(payer, mono_ns) {
            return Err(DoorError::TooManySignatures(sender));
        }
        if !self.verifier.verify(sender, covered, signature) {
            return Err(DoorError::NotAuthentic(sender));
        }
        self.checks.remember(key);
        Ok(())
    }

    /// Binds evidence to the frame that proves it.
    fn signed<M>(&self, frame: &Frame<'_>, body: M) -> Result<Arc<Signed<M>>, DoorError> {
        let Principal::Replica(sender) = frame.sender else {
            return Err(DoorError::WrongRole { kind: frame.kind, sender: frame.sender });
        };
        let digest = self.domains.view_change(frame.body);
        Ok(Arc::new(Signed::new(sender, body, digest, frame)))
    }

    /// Checks each SUSPECT of a `LeaveCert`; their view is the one before the VIEW-CHANGE's (LV-2).
    fn check_leave_cert(
        &mut self,
        mono_ns: u64,
        payer: Payer,
        view_change: ViewChange,
    ) -> Result<ViewChange, DoorError> {
        for (replica, suspect) in &view_change.leave.suspects {
            if !self.cluster.contains(*replica) {
                return Err(DoorError::BadLeaveCert(*replica));
            }
            let covered = suspect.signed_digest(&self.domains, self.epoch, *replica);
            let signer = (*replica).into();
            match self.check_signature_over(mono_ns, payer, signer, &covered, &suspect.signature) {
                Err(DoorError::NotAuthentic(_)) => return Err(DoorError::BadLeaveCert(*replica)),
                checked => checked?,
            }
        }
        Ok(view_change)
    }
}

/// Returns the view that a frame is signed for, if it is of a kind that says so: at the front of its body.
fn view_of(frame: &Frame<'_>) -> Option<ViewNum> {
    let says = matches!(frame.kind, Kind::Suspect | Kind::ViewChange | Kind::NewView);
    if says { Reader::new(frame.body).u64().ok().map(ViewNum) } else { None }
}

/// Returns the signature of a frame.
fn signature_of(frame: &Frame<'_>) -> Result<[u8; 64], DoorError> {
    frame.auth.signature().copied().ok_or(DoorError::WrongSeal(frame.kind))
}

/// Returns whether a kind of message may be authenticated in this form. With [`Kind::seal`], the one
/// place that says so: no form is missing, none is left to chance (B27).
fn is_form_of(kind: Kind, auth: Auth<'_>) -> bool {
    match (auth, kind.seal()) {
        (Auth::Mac { .. }, Seal::Mac)
        | (Auth::Authenticator { .. }, Seal::Authenticator)
        // What is signed may have MACs beside the signature (A5).
        | (Auth::Signature(_) | Auth::Both { .. }, Seal::Signature) => true,
        // A client on probation signs as well, a replica that acts as a client always (AU-1, AU-5).
        (Auth::Signature(_) | Auth::Both { .. }, _) => kind == Kind::Request,
        (Auth::Mac { .. } | Auth::Authenticator { .. }, _) => false,
    }
}
