//! Ways of lying, each at a server with a socket that nobody uses: what it would send, beside what an honest one would.

use std::time::{Duration, Instant};

use quorate_quorum::bftbc::optimistic_digest;
use quorate_quorum::crypto::{Crypto, Statement, lock_of};
use quorate_quorum::message::OptimisticRequest;
use quorate_quorum::settings::Variant;

use super::*;
use crate::lie::SLOW;
use crate::suspicion::Suspicion;

const OP: Op = Op { incarnation: 1, number: 1, phase: 1 };

/// A server, with the keys of client 0 and of another server.
struct Watched {
    server: Server,
    client: Secrets,
    peer: Secrets,
    dir: TempDir,
}

/// Returns a server that lies like this. `host` is the last but two of its address, one for each call.
fn server(host: u8, protocol: Protocol, lie: Option<Lie>) -> Watched {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let name = format!("lies-{host}-{}", lie.is_some());
    let lines = vec!["durability = \"memory\"".to_owned()];
    let dir = made_with(&name, [127, host, high, low.max(1)], Config::new(protocol), lines);
    let secrets = |of: PathBuf, own: Principal| {
        let config = Config::read(&of).unwrap();
        let member = Member::open(&of, own, config.epoch, LONG_ABOVE).unwrap();
        let epoch = (member.members.cluster_id(), config.epoch);
        Secrets::new(epoch, own, member.signer.clone(), member.verifier.clone(), [1; 32])
    };
    let client = secrets(dir.0.join("client-0"), client_identity(0));
    let peer = secrets(server_dir(&dir.0, ReplicaId(1)), ReplicaId(1).into());
    let mut server = Server::open(&server_dir(&dir.0, ReplicaId(0)), lie, Carrier::Udp).unwrap();
    server.turn(1).unwrap();
    server.around.held.clear();
    Watched { server, client, peer, dir }
}

impl Watched {
    /// Returns what it would send on this message of client 0.
    fn asked(&mut self, body: Body) -> Vec<Body> {
        self.server.take(1, client_identity(0), &Message { object: object(), body });
        self.server.around.held.drain(..).map(|(_, message)| message.body).collect()
    }

    /// Says whether a server would take this for a signature of server 0.
    fn is_signed(&mut self, statement: &Statement, signature: &[u8; 64]) -> bool {
        self.peer.verify(ReplicaId(0).into(), &object(), statement, signature)
    }
}

fn object() -> ObjectId {
    ObjectId::new(b"", b"key")
}

fn read(counter: u64) -> Body {
    Body::Read { rid: Rid { incarnation: 1, counter }, attempt: 0 }
}

fn version_of(stored: &Body) -> Version {
    let Body::Store { version, .. } = stored else { unreachable!() };
    *version
}

#[test]
fn fake_same_has_another_value_under_the_true_counter() {
    for (host, lie) in [(100, None), (101, Some(Lie::FakeSame))] {
        let mut watched = server(host, Protocol::MinimalC, lie);
        let stored = store(5, 64);
        assert_eq!(watched.asked(stored.clone()).len(), 1);
        let sent = watched.asked(read(1));
        let [Body::Val { version, value, .. }] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(version.val, 5);
        assert_eq!(version.digest, value_digest(value), "no reader sees that it is made up");
        assert_eq!(*version != version_of(&stored), lie.is_some(), "{lie:?}");
    }
}

#[test]
fn omit_leaves_out_half_of_the_messages() {
    for (host, lie, sent) in [(102, None, 20), (103, Some(Lie::Omit), 10)] {
        let mut watched = server(host, Protocol::MinimalC, lie);
        let answers: usize = (1..=20).map(|counter| watched.asked(read(counter)).len()).sum();
        assert_eq!(answers, sent, "{lie:?}");
    }
}

#[test]
fn slow_takes_its_time_for_each_message() {
    let mut watched = server(104, Protocol::MinimalC, Some(Lie::Slow));
    let begin = Instant::now();
    let answers: usize = (1..=8).map(|counter| watched.asked(read(counter)).len()).sum();
    assert_eq!(answers, 8, "it answers all");
    assert!(begin.elapsed() >= 8 * SLOW && SLOW > Duration::ZERO, "{:?}", begin.elapsed());
}

/// PHALANX: what a server sends of a writer's signature.
#[test]
fn bad_crypto_spoils_the_signature_of_a_value() {
    for (host, lie) in [(105, None), (106, Some(Lie::BadCrypto))] {
        let mut watched = server(host, Protocol::Phalanx, lie);
        let mut stored = store(1, 64);
        let written = Statement::Written(version_of(&stored));
        if let Body::Store { proof, .. } = &mut stored {
            proof.signature = Some(watched.client.sign(&object(), &written));
        }
        assert_eq!(watched.asked(stored).len(), 1, "it is stored");
        let sent = watched.asked(Body::Rd { op: OP });
        let [Body::RdVal { proof, .. }] = &sent[..] else { panic!("{sent:?}") };
        let valid = watched.peer.verify(client_identity(0), &object(), &written, &proof.signature.unwrap());
        assert_eq!(valid, lie.is_none(), "{lie:?}");
    }
}

/// BFT-BC: what a server signs of a version that it predicts. One that mispredicts signs validly.
#[test]
fn mispredict_signs_another_version_and_bad_crypto_none() {
    let cases =
        [(107, None, 1, true), (108, Some(Lie::Mispredict), 2, true), (109, Some(Lie::BadCrypto), 1, false)];
    for (host, lie, val, valid) in cases {
        let mut watched = server(host, Protocol::BftBc(Variant::Optimized), lie);
        let lock = lock_of(&[9; 16]);
        let client = client_identity(0).as_client();
        let digest = value_digest(b"value");
        let request = OptimisticRequest { client, digest, lock, own: None, predecessor: None };
        let asks = Statement::AskOptimistic(client, optimistic_digest(OP, &request));
        let auth = Some(watched.client.sign(&object(), &asks));
        let sent = watched.asked(Body::ReadTsPrep { op: OP, nonce: 0, request: Arc::new(request), auth });
        let [Body::ReadTsPrepReply { opt: Some((version, signature)), .. }] = &sent[..] else {
            panic!("{sent:?}")
        };
        assert_eq!(*version, Version { val, client, digest }, "{lie:?}");
        let approved = Statement::Prepared(*version, Some(lock));
        assert_eq!(watched.is_signed(&approved, signature), valid, "{lie:?}");
    }
}

/// What a peer relays without a valid signature is in the state that observers see.
#[test]
fn a_server_notes_what_its_peer_relays() {
    let mut watched = server(110, Protocol::MinimalF, None);
    let Body::Store { version, value, .. } = store(5, 64) else { unreachable!() };
    let proof = Proof { signature: Some([7; 64]), evidence: None };
    let body = Body::Fstore { version, value, proof };
    for count in 1..3 {
        let message = Message { object: object(), body: body.clone() };
        watched.server.take(1, ReplicaId(3).into(), &message);
        let seen = Suspicion { server: ReplicaId(3), wrong: Wrong::Invalid, witness: 0, count };
        assert_eq!(watched.server.state(1).suspicions[..], [seen]);
    }
    let told = Suspicion { server: ReplicaId(2), wrong: Wrong::Older, witness: 77, count: 9 };
    watched.server.note(1, client_identity(0), &Note::Suspect(told));
    let noted = Suspicion { witness: client_identity(0).key_holder(), ..told };
    assert_eq!(watched.server.state(1).suspicions[0], noted, "the witness is the sender");
}

/// §15: a client that signs two versions with one counter is proved to have done so, and the proof outlives the server.
#[test]
fn a_client_that_signs_twice_leaves_evidence() {
    let mut watched = server(89, Protocol::MinimalF, None);
    // In the order of their versions: what is at or below the version that a server holds is not verified.
    let mut values = [&b"one"[..], b"two", b"three"];
    values.sort_unstable_by_key(|value| value_digest(value));
    for value in values {
        let version = Version { val: 1, client: client_identity(0).as_client(), digest: value_digest(value) };
        let signature = Some(watched.client.sign(&object(), &Statement::Written(version)));
        let proof = Proof { signature, evidence: None };
        watched.asked(Body::Store { op: OP, version, value: value.into(), proof, write_back: false });
        watched.server.settle(1).unwrap();
    }
    watched.server.note(1, client_identity(1), &Note::AskEvidence(0));
    let Some((_, Note::Evidence(0, 1, said))) = watched.server.around.notes.pop() else {
        panic!("{:?}", watched.server.around.notes)
    };
    let dir = server_dir(&watched.dir.0, ReplicaId(0));
    let members = quorate_node::members::Members::read(&dir.join("cluster.toml")).unwrap();
    let public = crate::evidence::Public::new(&members, 1).unwrap();
    assert!(public.holds(&said[0]) && said[0].accused == client_identity(0));
    drop(watched.server);
    let server = Server::open(&dir, None, Carrier::Udp).unwrap();
    assert_eq!(server.around.evidence.part(0), (1, said));
}
