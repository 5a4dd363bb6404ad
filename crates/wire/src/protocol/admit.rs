//! Receiving: frames become verified messages.
//!
//! The envelope has looked at the header. What is here is this protocol's own: a REQUEST may be signed as well, requests
//! in a batch prove themselves, a VIEW-CHANGE has the SUSPECTs of others with it. One row of
//! [`kinds`](super::kinds) for each kind says how its body is read, so that no kind can be omitted (B27).

use alloc::boxed::Box;
use alloc::sync::Arc;

use crate::envelope::auth::{Arrival, AuthError, Authenticator, Macs, Payer, Protocol, signature_of};
use crate::envelope::codec::{Decoded, Reader};
use crate::envelope::digest::{Digest, Domains};
use crate::envelope::id::{ClientId, Principal, ViewNum};
use crate::envelope::keys::Covered;
use crate::envelope::memo::Memo;
use crate::envelope::seal::Seal;
use crate::protocol::frame::Frame;
use crate::protocol::kinds::{Kind, kinds};
use crate::protocol::message::{
    self, BodyKind, BodyMessage, Message, PrePrepare, PrePrepareHead, Proof, Reply, Request, Suspect,
    ViewChange, fixed_len,
};
use crate::protocol::pool::BatchPool;
use crate::protocol::sign::{Signed, request_digest};

/// Maximum number of batches whose memory the authenticator keeps for use again. With the default settings, this is
/// more than the batches that a replica keeps up to h (4 K = 512) and in the first three checkpoint intervals above h.
/// It is less than a full window (L = 2048). If the oldest batch is still in use, a new batch gets new memory.
const BATCHES_KEPT: usize = 1024;

/// The protocol of agreement, state transfer and PROBE, and what it keeps in an authenticator.
#[derive(Debug)]
pub struct Pbft {
    last_result: Memo,
    batches: BatchPool,
    /// The replica's view: what is of an older one is not looked at.
    view: ViewNum,
}

impl Default for Pbft {
    fn default() -> Self {
        Self { last_result: Memo::default(), batches: BatchPool::new(BATCHES_KEPT), view: ViewNum(0) }
    }
}

impl Protocol for Pbft {
    type Kind = Kind;
    type Message<'a> = Message<'a>;

    #[inline]
    fn covered(
        domains: &Domains,
        memo: &mut Memo,
        kind: Kind,
        epoch: u32,
        sender: Principal,
        body: &[u8],
    ) -> Covered {
        assert!(kind != Kind::Request, "seal_request seals REQUESTs");
        let fixed = body.get(..fixed_len(kind, body)).unwrap_or(body);
        Covered::message(domains, memo, kind.to_wire(), epoch, sender, fixed)
    }

    #[inline]
    fn admit<'a>(
        auth: &mut Authenticator<Self>,
        arrival: Arrival,
        frame: &Frame<'a>,
    ) -> Result<Message<'a>, AuthError> {
        let Arrival { mono_ns, source } = arrival;
        if frame.kind == Kind::Request {
            return admit_request(auth, arrival, frame).map(Message::Request);
        }
        let payer = match frame.kind.seal() {
            Seal::Mac | Seal::Authenticator => {
                auth.check_mac(frame)?;
                Payer::Stranger(source)
            }
            Seal::Signature => {
                if view_of(frame).is_some_and(|view| view < auth.protocol().view) {
                    return Err(AuthError::OldView(frame.kind.name()));
                }
                auth.check_signed(arrival, frame)?
            }
        };
        decode_body_of(auth, mono_ns, payer, frame)
    }
}

impl Authenticator<Pbft> {
    /// Tells the replica's view. What was signed for an older one is turned away before its signature is
    /// looked at: nothing can come of it.
    #[inline]
    pub fn enter_view(&mut self, view: ViewNum) {
        self.split().1.view = view;
    }

    /// Returns whether `signature` is `client`'s over the request with digest `request`, as it stands
    /// in the frame. Costs 30 us: call it outside of the step (`Action::CheckSignature`).
    pub fn check_signature(&self, client: ClientId, request: &Digest, signature: &[u8; 64]) -> bool {
        let client = Principal::from_wire(client.0);
        let covered = request_digest(self.domains(), self.epoch(), client, request);
        self.verify(client, &covered, signature)
    }
}

/// Reads the body of a kind whose frame is authentic.
macro_rules! read {
    (Reply, own $body:ty, $auth:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        check_reply($auth, Reply::decode($frame.body)?)?
    };
    (PrePrepare, own $body:ty, $auth:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        decode_pre_prepare($auth, $frame.body)?
    };
    (Body, own $body:ty, $auth:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        decode_body($auth, $frame.body)?
    };
    (Suspect, own $body:ty, $auth:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        Suspect::decode($frame.body, signature_of($frame)?)?
    };
    (Request, own $body:ty, $auth:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        unreachable!("admitted in its own way")
    };
    (ViewChange, signed $body:ty, $auth:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {{
        let view_change = check_leave_cert($auth, $mono_ns, $payer, ViewChange::decode($frame.body)?)?;
        signed($auth, $frame, view_change)?
    }};
    ($kind:ident, signed $body:ty, $auth:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        signed($auth, $frame, <$body>::decode($frame.body)?)?
    };
    ($kind:ident, boxed $body:ty, $auth:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        Box::new(<$body>::decode($frame.body)?)
    };
    ($kind:ident, plain $body:ty, $auth:ident, $mono_ns:ident, $payer:ident, $frame:ident) => {
        <$body>::decode($frame.body)?
    };
}

macro_rules! decode {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $seal:ident, $route:ident
        $(=> $way:ident $body:ty)?;)*) => {
        /// Decodes a message whose MAC or signature is right, and recomputes its digests. `payer` has paid for the
        /// signature, and pays for those inside.
        #[allow(unreachable_code, reason = "a REQUEST is admitted in its own way")]
        fn decode_body_of<'a>(
            auth: &mut Authenticator<Pbft>,
            mono_ns: u64,
            payer: Payer,
            frame: &Frame<'a>,
        ) -> Result<Message<'a>, AuthError> {
            Ok(match frame.kind {
                Kind::NewKey => unreachable!("stays in the authenticator"),
                $($(Kind::$kind => Message::$kind(read!($kind, $way $body, auth, mono_ns, payer, frame)),)?)*
            })
        }
    };
}

kinds!(decode);

/// Checks that a reply is for this node, any lane of it, and that a result has the digest that
/// stands in the reply (K11, K12).
fn check_reply<'a>(auth: &mut Authenticator<Pbft>, reply: Reply<'a>) -> Result<Reply<'a>, AuthError> {
    if Principal::from_wire(reply.client.0).key_holder() != auth.own().key_holder() {
        return Err(AuthError::OtherClient(reply.client));
    }
    if let Some(result) = reply.result {
        let (client, timestamp) = (reply.client.0, reply.timestamp.0);
        let head = [client.to_le_bytes(), timestamp.to_le_bytes()];
        let (macs, own) = auth.split();
        let digest = || macs.domains().result(client, timestamp, result);
        if !own.last_result.of(head.as_flattened(), result, digest).is_of_result(&reply.digest) {
            return Err(AuthError::WrongDigest(Kind::Reply.name()));
        }
    }
    Ok(reply)
}

/// Copies the batch of a PRE-PREPARE, authenticates each request in it as far as that can be
/// done with a MAC, and compares the batch's digest with the one that the sender claims.
fn decode_pre_prepare<'a>(
    auth: &mut Authenticator<Pbft>,
    body: &'a [u8],
) -> Result<PrePrepare<'a>, AuthError> {
    let head = PrePrepareHead::decode(body)?;
    let (mut macs, own) = auth.split();
    let batch = own.batches.fill(|batch| {
        let (mut payload, domains) = (Reader::new(head.payload), macs.domains());
        batch.decode_payload(&mut payload, head.counts, head.choice, domains, |bytes| {
            inner_request(&mut macs, bytes)
        })
    })?;
    if batch.digest() != head.digest {
        return Err(AuthError::WrongDigest(Kind::PrePrepare.name()));
    }
    Ok(PrePrepare { view: head.view, seq: head.seq, batch, piggyback: head.piggyback })
}

/// Reads a request or batch that was asked for and computes its digest; whether that is the one
/// that was asked for is for the core to see (SR-2).
fn decode_body<'a>(auth: &mut Authenticator<Pbft>, body: &'a [u8]) -> Result<BodyMessage<'a>, AuthError> {
    let (kind, bytes) = BodyMessage::split(body)?;
    let (mut macs, own) = auth.split();
    Ok(match kind {
        BodyKind::Request => BodyMessage::Request(inner_request(&mut macs, bytes)?),
        BodyKind::Batch => BodyMessage::Batch(own.batches.fill(|batch| {
            let (mut bytes, domains) = (Reader::new(bytes), macs.domains());
            batch.decode(&mut bytes, domains, |bytes| inner_request(&mut macs, bytes))
        })?),
    })
}

/// Authenticates a REQUEST: by this replica's entry of the authenticator; by the signature where
/// there is none, or where the entry is wrong and the client has signed (AU-1). A replica that
/// acts as a client has to sign.
fn admit_request<'a>(
    auth: &mut Authenticator<Pbft>,
    Arrival { mono_ns, source }: Arrival,
    frame: &Frame<'a>,
) -> Result<Request<'a>, AuthError> {
    let mut request = Request::decode(frame, auth.domains())?;
    let by_signature = match (frame.sender, frame.auth.signature()) {
        (Principal::Replica(_), None) => return Err(AuthError::WrongSeal(Kind::Request.name())),
        (Principal::Replica(_), Some(signature)) => Some(signature),
        (Principal::Client(_), signature) => match check_request(&mut auth.split().0, frame, &request) {
            Ok(()) => None,
            Err(_) if signature.is_some() && auth.may_check_signature(frame.sender) => signature,
            Err(error) => return Err(error),
        },
    };
    request.proof = match by_signature {
        None => Proof::Mac,
        Some(signature) => {
            let Request { digest, replier, flags, .. } = &request;
            let payer = match frame.sender {
                Principal::Replica(_) => auth.payer(source, frame, || {
                    Covered::request(frame.epoch, frame.sender, digest, *replier, *flags, Some(signature))
                }),
                Principal::Client(_) => Payer::Stranger(source), // its MAC is wrong
            };
            let covered = request_digest(auth.domains(), frame.epoch, frame.sender, digest);
            auth.check_signature_over(mono_ns, payer, frame.sender, &covered, signature)?;
            Proof::Signed
        }
    };
    Ok(request)
}

/// Checks the MAC of a REQUEST.
fn check_request(macs: &mut Macs<'_>, frame: &Frame<'_>, request: &Request<'_>) -> Result<(), AuthError> {
    let Request { digest, replier, flags, .. } = request;
    let signature = frame.auth.signature();
    let covered = Covered::request(frame.epoch, frame.sender, digest, *replier, *flags, signature);
    macs.check_entry(frame, &covered)
}

/// Reads a REQUEST inside another frame. It counts as proven if this replica's entry is right;
/// otherwise the core decides what else may vouch for it (AU-2, SR-4).
fn inner_request<'a>(macs: &mut Macs<'_>, bytes: &'a [u8]) -> Decoded<Request<'a>> {
    let frame = Frame::decode(bytes)?;
    let mut request = Request::decode(&frame, macs.domains())?;
    let client = matches!(frame.sender, Principal::Client(_)); // replicas sign theirs (AU-1)
    if client && frame.epoch == macs.epoch() && check_request(macs, &frame, &request).is_ok() {
        request.proof = Proof::Mac;
    }
    Ok(request)
}

/// Binds evidence to the frame that proves it.
fn signed<M>(auth: &Authenticator<Pbft>, frame: &Frame<'_>, body: M) -> Result<Arc<Signed<M>>, AuthError> {
    let Principal::Replica(sender) = frame.sender else {
        return Err(AuthError::WrongRole { kind: frame.kind.name(), sender: frame.sender });
    };
    let digest = auth.domains().view_change(frame.body);
    Ok(Arc::new(Signed::new(sender, body, digest, frame)))
}

/// Checks each SUSPECT of a `LeaveCert`; their view is the one before the VIEW-CHANGE's (LV-2).
fn check_leave_cert(
    auth: &mut Authenticator<Pbft>,
    mono_ns: u64,
    payer: Payer,
    view_change: ViewChange,
) -> Result<ViewChange, AuthError> {
    for (replica, suspect) in &view_change.leave.suspects {
        if !auth.cluster().contains(*replica) {
            return Err(AuthError::BadLeaveCert(*replica));
        }
        let covered = suspect.signed_digest(auth.domains(), auth.epoch(), *replica);
        let signer = (*replica).into();
        match auth.check_signature_over(mono_ns, payer, signer, &covered, &suspect.signature) {
            Err(AuthError::NotAuthentic(_)) => return Err(AuthError::BadLeaveCert(*replica)),
            checked => checked?,
        }
    }
    Ok(view_change)
}

/// Returns the view that a frame is signed for, if it is of a kind that says so: at the front of its body.
fn view_of(frame: &Frame<'_>) -> Option<ViewNum> {
    let says = matches!(frame.kind, Kind::Suspect | Kind::ViewChange | Kind::NewView);
    if says { Reader::new(frame.body).u64().ok().map(ViewNum) } else { None }
}
