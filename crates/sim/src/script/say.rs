//! Messages that a faulty node sends in a script, sealed with only its own keys.
//!
//! | Kind | Fields |
//! |---|---|
//! | REQUEST (of a client) | `t`, `"OPERATION"`; `read-only`, `signed`; `bad-mac=r1,r2`: entries that are wrong; `bad-signature` |
//! | REPLY (to a client) | `t`, `v`, `"VALUE"`; `tentative` |
//! | PRE-PREPARE | `v`, `n`; `null`, `as=3`: the batch that was proposed as 3, or `of=c0:1,c1:4`: these requests; `later=1h`, `earlier=1h`: the choice |
//! | PREPARE, COMMIT, COMMITTED | `v`, `n`, `d` |
//! | CHECKPOINT | `n`, `root`; `stable` |
//! | SUSPECT | `v`; `hand-over` |
//! | VIEW-CHANGE | `v`; empty, or `own`: its first one again; `P={}`: without P; `leave=own`: its own suspicion alone |
//! | REQ-ACK, REQ-REJECT | `c`, `t`; the latter `v`, `n` |
//! | PROOF | `n`, `d`, `u` |
//! | QUERY-STABLE, REPLY-STABLE | `nonce`; the latter `c`, `p`, and `v` unless it is 0 |
//! | BODY | `as=3` |
//!
//! A digest is `null`, `of(3)`: of the batch that was proposed as 3 last, or `of(3,r2)`: as 3 to r2, or up to 64
//! hexadecimal digits that nobody has the content of.

use quorate_pbft::step::{Actions, Recipient};
use quorate_service::kv::Answer;
use quorate_wire::codec::Writer;
use quorate_wire::frame::{ENTRY_BYTES, Frame, SIGNATURE_BYTES};
use quorate_wire::life::Life;
use quorate_wire::message::{
    BodyMessage, Checkpoint, Commit, Committed, LeaveCert, PrePrepareHead, Prepare, ProofMessage,
    QueryStable, Reply, ReplyStable, ReqAck, ReqReject, Request, RequestBody, RequestFlags, Suspect,
    SuspectReason, ViewChange, encode_pre_prepare,
};
use quorate_wire::{Batch, ClientId, Digest, Kind, ReplicaId, SeqNum, Timestamp, ViewNum};

use super::command::{Saying, duration};
use super::stage::{Stage, not_faulty};
use super::traffic::kind_of;
use crate::adversary;
use crate::describe;
use crate::network::Flight;
use crate::trace::{Line, What};

impl Stage {
    /// A client, or a faulty replica, says something.
    pub(super) fn say(&mut self, saying: &Saying) -> Result<(), String> {
        if saying.who.starts_with('c') {
            return self.say_request(saying);
        }
        let h = self.host(&saying.who)?;
        let id = self.world.hosts[h].id;
        if !self.is_faulty(id) {
            return Err(not_faulty(&saying.who));
        }
        let body = self.body(h, saying)?;
        let to = match saying.to.as_str() {
            "*" => Recipient::All,
            name if name.starts_with('c') => Recipient::Client(self.client(name)?),
            name => Recipient::Replica(self.world.hosts[self.host(name)?].id),
        };
        let (signer, domains) = (self.world.keys.signer(id.into()), self.world.config.domains());
        let mut actions = Actions::new();
        adversary::push(&mut actions, &signer, &domains, (id, to, saying.kind), &body);
        self.world.inject(h, &actions);
        Ok(())
    }

    /// Returns the body of what a replica says.
    #[allow(clippy::wildcard_enum_match_arm, reason = "a script says only the kinds that a trace has needed")]
    fn body(&self, h: usize, saying: &Saying) -> Result<Vec<u8>, String> {
        let number = |key| saying.number(key);
        let view = || number("v").map(ViewNum);
        let seq = || number("n").map(SeqNum);
        let digest = |key| self.digest(saying, key);
        let mut body = Vec::new();
        let w = &mut Writer::new(&mut body);
        match saying.kind {
            Kind::PrePrepare => encode_pre_prepare(view()?, seq()?, &self.batch(h, saying)?, &[], w),
            Kind::Prepare => Prepare::encode(view()?, seq()?, &digest("d")?, &[], w),
            Kind::Commit => Commit { view: view()?, seq: seq()?, digest: digest("d")? }.encode(w),
            Kind::Committed => Committed { view: view()?, seq: seq()?, digest: digest("d")? }.encode(w),
            Kind::Checkpoint => {
                let stable = saying.has("stable");
                Checkpoint { seq: seq()?, digest: digest("root")?, stable }.encode(w);
            }
            Kind::Suspect => {
                let reason =
                    if saying.has("hand-over") { SuspectReason::SelfHandoff } else { SuspectReason::Timeout };
                Suspect { view: view()?, reason, signature: [0; 64] }.encode(w);
            }
            Kind::ViewChange => self.view_change(h, saying)?.encode(w),
            Kind::ReqAck => {
                let (client, timestamp, digest) = self.request(saying)?;
                ReqAck { client, timestamp, digest }.encode(w);
            }
            Kind::ReqReject => {
                let (client, timestamp, digest) = self.request(saying)?;
                ReqReject { view: view()?, seq: seq()?, client, timestamp, digest }.encode(w);
            }
            Kind::Proof => {
                let view = number("u").map(ViewNum)?;
                ProofMessage { seq: seq()?, digest: digest("d")?, view }.encode(w);
            }
            Kind::QueryStable => QueryStable { nonce: number("nonce")? }.encode(w),
            Kind::ReplyStable => {
                let (checkpoint, prepared) = (number("c").map(SeqNum)?, number("p").map(SeqNum)?);
                let view = ViewNum(number("v").unwrap_or(0));
                ReplyStable { nonce: number("nonce")?, checkpoint, prepared, view }.encode(w);
            }
            Kind::Reply => {
                let (client, timestamp) = (self.client(&saying.to)?, Timestamp(number("t")?));
                let mut result = Vec::new();
                let value = saying.field("operation").unwrap_or_default();
                Answer::Value(value.as_bytes()).encode(&mut result);
                let lanes = self.world.clients.iter().flat_map(|client| &client.lanes);
                let asked = lanes.filter(|lane| lane.id == client).find_map(|lane| lane.outstanding.as_ref());
                let operation = asked.map_or(&[][..], |(ask, _)| &ask.operation);
                let domains = self.world.config.domains();
                let request = domains.request(client.0, timestamp.0, operation);
                let digest = domains.reply(client.0, timestamp.0, &request, &result);
                let (view, tentative) = (view()?, saying.has("tentative"));
                Reply { view, timestamp, client, tentative, digest, result: Some(&result) }.encode(w);
            }
            Kind::Body => BodyMessage::encode_batch(&self.batch(h, saying)?, w),
            _ => return Err(format!("{} cannot be said", saying.kind.name())),
        }
        Ok(body)
    }

    /// Returns a digest as the script writes it.
    fn digest(&self, saying: &Saying, key: &str) -> Result<Digest, String> {
        let text = saying.field(key).ok_or_else(|| format!("{} needs {key}=DIGEST", saying.kind.name()))?;
        if text == "null" {
            return Ok(self.world.config.domains().null_batch());
        }
        if let Some(seq) = text.strip_prefix("of(").and_then(|rest| rest.strip_suffix(')')) {
            return self.proposed(seq).map(|batch| batch.digest());
        }
        let mut digest = Digest::ZERO;
        for (byte, pair) in digest.0.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
            *byte = pair.ok_or_else(|| format!("{key}={text}: a digest was expected"))?;
        }
        Ok(digest)
    }

    /// Returns the batch that was proposed with this number last, by any replica: `3`, or `3,r2` if it was
    /// proposed to r2.
    fn proposed(&self, which: &str) -> Result<Batch, String> {
        let domains = self.world.config.domains();
        let (number, to) = which.split_once(',').map_or((which, None), |(number, to)| (number, Some(to)));
        let seq = SeqNum(number.parse().map_err(|_| format!("`{which}`: 3 or 3,r2 was expected"))?);
        let to = to.map(|to| self.host(to).map(|h| self.world.hosts[h].node)).transpose()?;
        let there = |flight: &&Flight| to.is_none_or(|to| flight.to == to);
        let proposals = self.traffic.history().filter(|flight| kind_of(flight) == Some(Kind::PrePrepare));
        for flight in proposals.filter(there) {
            let Ok(frame) = Frame::decode(&flight.frame) else { continue };
            let Ok(head) = PrePrepareHead::decode(frame.body) else { continue };
            let mut batch = Batch::default();
            let mut payload = quorate_wire::codec::Reader::new(head.payload);
            let request = |bytes| Request::decode(&Frame::decode(bytes)?, &domains);
            let whole = batch.decode_payload(&mut payload, head.counts, head.choice, &domains, request);
            if head.seq == seq && whole.is_ok() {
                return Ok(batch);
            }
        }
        Err(format!("n={} was never proposed", seq.0))
    }

    /// Returns the batch of a PRE-PREPARE or BODY.
    fn batch(&self, h: usize, saying: &Saying) -> Result<Batch, String> {
        let domains = self.world.config.domains();
        let mut batch = Batch::default();
        if saying.has("null") {
            batch.seal(&domains, &[]);
            return Ok(batch);
        }
        let mut choice = self.world.now(h).wall_ns;
        if let Some(which) = saying.field("as") {
            batch = self.proposed(which)?;
            choice = quorate_pbft::choice::decode(batch.choice()).unwrap_or(choice);
        } else {
            let of = saying.field("of").ok_or("it needs of=c0:1,.. or as=NUMBER or null")?;
            for name in of.split(',') {
                let (client, t) =
                    name.split_once(':').ok_or_else(|| format!("`{name}`: c0:1 was expected"))?;
                let timestamp = Timestamp(t.parse().map_err(|_| format!("`{name}`: c0:1 was expected"))?);
                let bytes = self.sent_request(self.client(client)?, timestamp)?;
                let request = Frame::decode(&bytes).and_then(|frame| Request::decode(&frame, &domains));
                batch.push_inlined(&request.map_err(|why| format!("{name}: {why:?}"))?);
            }
        }
        choice += saying.field("later").map_or(Ok(0), duration)?;
        choice -= saying.field("earlier").map_or(Ok(0), duration)?;
        batch.seal(&domains, &choice.to_le_bytes());
        Ok(batch)
    }

    /// Returns the frame of a request that a client has sent, the last with this number.
    fn sent_request(&self, client: ClientId, timestamp: Timestamp) -> Result<Vec<u8>, String> {
        let is_it = |frame: &Frame<'_>| {
            frame.kind == Kind::Request
                && frame.sender.as_client() == client
                && RequestBody::decode(frame.body).is_ok_and(|body| body.timestamp == timestamp)
        };
        let mut frames = self.traffic.history().filter_map(|flight| Frame::decode(&flight.frame).ok());
        let found = frames.find(is_it).map(|frame| frame.bytes.to_vec());
        found.ok_or_else(|| format!("{client} has never sent t={}", timestamp.0))
    }

    /// Returns the request that the fields `c` and `t` name.
    fn request(&self, saying: &Saying) -> Result<(ClientId, Timestamp, Digest), String> {
        let client = self.client(saying.field("c").ok_or("it needs c=CLIENT")?)?;
        let timestamp = Timestamp(saying.number("t")?);
        let domains = self.world.config.domains();
        let digest = match self.sent_request(client, timestamp) {
            Ok(bytes) => {
                let request = Frame::decode(&bytes).and_then(|frame| Request::decode(&frame, &domains));
                request.map_err(|why| format!("{why:?}"))?.digest
            }
            Err(_) => domains.request(client.0, timestamp.0, b"never sent"),
        };
        Ok((client, timestamp, digest))
    }

    /// Returns a VIEW-CHANGE: an empty one, or the replica's first with changes.
    fn view_change(&self, h: usize, saying: &Saying) -> Result<ViewChange, String> {
        let view = ViewNum(saying.number("v")?);
        if !saying.has("own") {
            return Ok(ViewChange {
                view,
                stable: SeqNum(0),
                life: Life::default(),
                checkpoints: Vec::new(),
                prepared: Vec::new(),
                pre_prepared: Vec::new(),
                leave: LeaveCert::default(),
            });
        }
        let own = self.world.hosts[h].id;
        let frames = self.traffic.history().filter_map(|flight| Frame::decode(&flight.frame).ok());
        let sent = frames.filter(|f| f.kind == Kind::ViewChange && f.sender == ReplicaId(own.0).into());
        let honest =
            sent.filter_map(|f| ViewChange::decode(f.body).ok()).filter(|m| !m.checkpoints.is_empty());
        let mut message = honest.last().ok_or_else(|| format!("{own} has never sent a VIEW-CHANGE"))?;
        message.view = view;
        if saying.field("P") == Some("{}") {
            message.prepared.clear();
        }
        if saying.field("leave") == Some("own") {
            let domains = self.world.config.domains();
            let left = ViewNum(view.0.saturating_sub(1));
            let mut suspect = Suspect { view: left, reason: SuspectReason::Timeout, signature: [0; 64] };
            let covered = suspect.signed_digest(&domains, 0, own);
            suspect.signature = self.world.keys.signer(own.into()).sign(&covered);
            message.leave = LeaveCert { suspects: vec![(own, suspect)] };
        }
        Ok(message)
    }

    /// A client sends a request that its own code would not send.
    fn say_request(&mut self, saying: &Saying) -> Result<(), String> {
        if saying.kind != Kind::Request {
            return Err("a client says REQUEST only".to_owned());
        }
        let (c, l) = self.lane(&saying.who)?;
        let operation = self.operation(saying.field("operation").ok_or("it needs an \"OPERATION\"")?)?;
        let flags = RequestFlags { read_only: saying.has("read-only"), signed: false };
        let timestamp = Timestamp(saying.number("t")?);
        let body = RequestBody { timestamp, flags, replier: None, operation: &operation };
        let client = &mut self.world.clients[c];
        let (id, node) = (client.lanes[l].id, client.node);
        let mut frame = Vec::new();
        if saying.has("bad-signature") {
            client.door.seal_request_with(&body, id, Some(&[7; SIGNATURE_BYTES]), &mut frame);
        } else {
            client.door.seal_request(&body, id, saying.has("signed"), &mut frame);
        }
        let entries = self.world.config.cluster.n() * ENTRY_BYTES;
        for name in saying.field("bad-mac").into_iter().flat_map(|names| names.split(',')) {
            let entry = self.world.hosts[self.host(name)?].id.index() + 1;
            let end = frame.len() - entries + entry * ENTRY_BYTES - 1;
            frame[end] ^= 1;
        }
        let to: Vec<usize> = match saying.to.as_str() {
            "*" => (0..self.world.hosts.len()).collect(),
            names => names.split(',').map(|name| self.host(name)).collect::<Result<_, _>>()?,
        };
        if let Some(trace) = &mut self.world.trace {
            let text = describe::frame(&frame, &self.world.app);
            let what = What::Sent { to: saying.to.clone(), text };
            let (step, at) = (self.world.step, self.world.at);
            trace.push(Line { step, at, who: id.to_string(), what });
        }
        for h in to {
            let to = self.world.hosts[h].node;
            self.world.transmit(node, to, &frame.as_slice().into());
        }
        Ok(())
    }

    fn client(&self, name: &str) -> Result<ClientId, String> {
        let (c, l) = self.lane(name)?;
        Ok(self.world.clients[c].lanes[l].id)
    }
}

#[cfg(test)]
mod tests {
    use crate::script::play;

    #[test]
    fn a_correct_replica_does_not_lie() {
        let played = play("cluster f=1 faulty=r3\nsay r2 -> r1 PREPARE v=0 n=1 d=beef\n");
        assert!(played.troubles[0].text.contains("r2 is correct"), "{:?}", played.troubles);
    }

    /// A faulty replica speaks with its own keys: what it says is admitted as its own, and judged.
    #[test]
    fn what_is_said_is_heard_as_the_speakers() {
        let story = "cluster f=1 faulty=r3\nsay r3 -> r1 COMMIT v=7 n=1 d=beef\nrun\n";
        let played = play(story);
        assert_eq!(played.troubles, []);
        assert!(played.text.contains("r1  .    rejected: other-view (COMMIT of r3)"), "{}", played.text);
    }

    #[test]
    fn entries_of_an_authenticator_can_be_made_wrong_one_by_one() {
        let story = "cluster f=1\nsay c0 -> * REQUEST t=1 \"put x 1\" bad-mac=r0,r2\ndeliver\n";
        let turned =
            |who: &str| play(story).text.contains(&format!("{who}  .    turned away: not-authentic"));
        assert_eq!(["r0", "r1", "r2", "r3"].map(turned), [true, false, true, false]);
    }

    #[test]
    fn what_was_never_proposed_cannot_be_named() {
        let played = play("cluster f=1 faulty=r0\nsay r0 -> r1 PREPARE v=0 n=1 d=of(1)\n");
        assert!(played.troubles[0].text.contains("never proposed"), "{:?}", played.troubles);
    }
}
