//! What clients and servers have seen of a server that is wrong: the evidence log of a register.
//!
//! A client compares what each server says with what the same server said before, and with what other servers say. It tells
//! all servers what it found. A server keeps that, and what it saw of its peers itself, and shows it in its state. Nothing
//! here decides anything: it is for people.

use std::collections::{BTreeMap, BTreeSet};

use quorate_quorum::{Body, ObjectId, ServerId, Version};
use quorate_wire::Principal;
use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};

/// How long an entry is shown after the last event.
const SHOWN_NS: u64 = 600_000_000_000;
/// The most entries of a server.
pub(crate) const ENTRIES_MAX: u16 = 256;
/// The most entries that others may fill: the rest is for what a server sees itself.
const TOLD_MAX: usize = 192;
/// The most objects that a client compares the answers for.
const OBJECTS_MAX: usize = 1024;
/// What one server names must be found at q servers after this time.
const CONFIRMED_NS: u64 = 2_000_000_000;
/// How often a client tells the servers of news.
const TELL_NS: u64 = 1_000_000_000;
/// How often it repeats what is not news: a note may have been lost, a server may have started again.
const REPEAT_NS: u64 = 60_000_000_000;

/// What a server did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// A signature, a certificate or a digest was invalid.
    Invalid,
    /// An answer had an older version than the same server had named before.
    Older,
    /// An answer had a version that no quorum had two seconds later.
    Alone,
}

impl Wrong {
    /// Every kind, with its number in notes, its name and what to say of it.
    pub const ALL: &[(Self, u8, &str, &str)] = &[
        (Self::Invalid, 1, "invalid", "invalid signatures, certificates or digests"),
        (Self::Older, 2, "older", "answers with an older version than before"),
        (Self::Alone, 3, "alone", "answers with a version that no quorum had"),
    ];

    fn number(self) -> u8 {
        Self::ALL.iter().find(|(wrong, ..)| *wrong == self).map_or(0, |(_, number, ..)| *number)
    }

    /// Returns its name in metrics.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(wrong, ..)| *wrong == self).map_or("", |(.., name, _)| name)
    }

    /// Returns what to say of it.
    pub fn says(self) -> &'static str {
        Self::ALL.iter().find(|(wrong, ..)| *wrong == self).map_or("", |(.., says)| says)
    }
}

/// What a witness has seen of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// The server.
    pub server: ServerId,
    /// What it did.
    pub wrong: Wrong,
    /// Who has seen it: the number of a key holder.
    pub witness: u64,
    /// How often.
    pub count: u64,
}

impl Suspicion {
    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.u16(self.server.0);
        w.u8(self.wrong.number());
        w.u64(self.witness);
        w.u64(self.count);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        let server = ServerId::at(r.u16()?.into());
        let number = r.u8()?;
        let found = Wrong::ALL.iter().find(|(_, other, ..)| *other == number);
        let wrong = found.map(|(wrong, ..)| *wrong).ok_or(DecodeError::NotCanonical)?;
        Ok(Self { server, wrong, witness: r.u64()?, count: r.u64()? })
    }
}

/// A server's table of suspicions.
#[derive(Debug, Default)]
pub(crate) struct SuspicionTable {
    /// The count, and when it rose last.
    entries: BTreeMap<(ServerId, Wrong, u64), (u64, u64)>,
}

impl SuspicionTable {
    /// Sees something itself.
    pub(crate) fn see(&mut self, now_ns: u64, own: Principal, server: ServerId, wrong: Wrong) {
        let key = (server, wrong, own.key_holder());
        let count = self.entries.get(&key).map_or(0, |(count, _)| *count);
        self.enter(now_ns, usize::from(ENTRIES_MAX), key, count.saturating_add(1));
    }

    /// A witness says how often it has seen something.
    pub(crate) fn told(&mut self, now_ns: u64, witness: Principal, said: Suspicion) {
        self.enter(now_ns, TOLD_MAX, (said.server, said.wrong, witness.key_holder()), said.count);
    }

    /// Sets a count, if the table has the entry already or fewer than `max`.
    fn enter(&mut self, now_ns: u64, max: usize, key: (ServerId, Wrong, u64), count: u64) {
        if !self.entries.contains_key(&key) && self.entries.len() >= max {
            self.forget(now_ns);
            if self.entries.len() >= max {
                return;
            }
        }
        let entry = self.entries.entry(key).or_insert((0, now_ns));
        if count != entry.0 {
            // A smaller count: the witness has started again.
            *entry = (count, now_ns);
        }
    }

    fn forget(&mut self, now_ns: u64) {
        self.entries.retain(|_, (_, at)| now_ns.saturating_sub(*at) < SHOWN_NS);
    }

    /// Returns what is shown.
    pub(crate) fn list(&mut self, now_ns: u64) -> Vec<Suspicion> {
        self.forget(now_ns);
        let entries = self.entries.iter();
        entries
            .map(|((server, wrong, witness), (count, _))| Suspicion {
                server: *server,
                wrong: *wrong,
                witness: *witness,
                count: *count,
            })
            .collect()
    }
}

/// Returns what servers say together, when `weak` = f + 1 servers contain a correct one: what a server has seen itself,
/// and what f + 1 servers say that a client has seen. A liar cannot put words into the mouth of a client.
pub fn together<'a>(
    states: impl IntoIterator<Item = (ServerId, &'a [Suspicion])>,
    weak: usize,
) -> Vec<Suspicion> {
    let mut said: BTreeMap<(ServerId, Wrong, u64), Vec<u64>> = BTreeMap::new();
    for (from, suspicions) in states {
        let mut once = BTreeSet::new();
        for one in suspicions {
            let key = (one.server, one.wrong, one.witness);
            let own = one.witness == Principal::from(from).key_holder();
            if one.server == from || !once.insert(key) {
                continue;
            }
            if own {
                said.insert(key, vec![one.count; weak]);
            } else if one.witness > u64::from(u16::MAX) {
                said.entry(key).or_default().push(one.count);
            }
        }
    }
    said.into_iter()
        .filter_map(|((server, wrong, witness), mut counts)| {
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let count = *counts.get(weak.saturating_sub(1))?;
            Some(Suspicion { server, wrong, witness, count })
        })
        .collect()
}

/// A request of a client: how often the client has started, the number, and the phase.
type RequestKey = (u32, u64, u8);

/// What one server said of one object.
#[derive(Clone, Copy, Debug, Default)]
struct Answered {
    /// The largest version named before the present request was sent.
    before: Option<Version>,
    /// The largest version named up to now.
    largest: Option<Version>,
    /// The answer to the present request.
    now: Option<Version>,
    /// A version that no operation has confirmed, and when it was named.
    alone: Option<(Version, u64)>,
}

#[derive(Debug)]
struct Compared {
    request: RequestKey,
    sent_ns: u64,
    servers: Vec<Answered>,
}

/// What a client has seen.
#[derive(Debug, Default)]
pub(crate) struct Suspicions {
    servers: usize,
    objects: BTreeMap<ObjectId, Compared>,
    /// The count, and when it rose last.
    counts: BTreeMap<(ServerId, Wrong), (u64, u64)>,
    news: bool,
    told_ns: u64,
}

impl Suspicions {
    pub(crate) fn new(servers: usize) -> Self {
        Self { servers, ..Self::default() }
    }

    /// The client sends something.
    #[inline]
    pub(crate) fn sent(&mut self, now_ns: u64, object: ObjectId, body: &Body) {
        let Some(request) = asks(body) else { return };
        if let Some(compared) = self.objects.get_mut(&object) {
            if compared.request != request {
                (compared.request, compared.sent_ns) = (request, now_ns);
                for server in &mut compared.servers {
                    (server.before, server.now) = (server.largest, None);
                }
            }
            return;
        }
        if self.objects.len() >= OBJECTS_MAX {
            self.objects.pop_first();
        }
        let servers = vec![Answered::default(); self.servers];
        self.objects.insert(object, Compared { request, sent_ns: now_ns, servers });
    }

    /// A server says something.
    #[inline]
    pub(crate) fn heard(&mut self, now_ns: u64, from: ServerId, object: ObjectId, body: &Body) {
        let Some((request, version)) = says(body) else { return };
        let Some(compared) = self.objects.get_mut(&object) else { return };
        let Some(server) = compared.servers.get_mut(from.index()) else { return };
        server.largest = server.largest.max(Some(version));
        if request != Some(compared.request) {
            return;
        }
        server.now = server.now.max(Some(version));
        if Some(version) < server.before {
            self.note(now_ns, from, Wrong::Older);
        }
    }

    /// An operation ended with this version.
    #[inline]
    pub(crate) fn ended(&mut self, now_ns: u64, object: ObjectId, version: Version) {
        let Some(compared) = self.objects.get_mut(&object) else { return };
        let sent_ns = compared.sent_ns;
        let mut wrong = Vec::new();
        for (index, server) in compared.servers.iter_mut().enumerate() {
            let Some(now) = server.now else { continue };
            if server.alone.is_some_and(|(named, _)| named <= version) || now <= version {
                server.alone = None;
            }
            if now <= version {
                continue;
            }
            match server.alone {
                None => server.alone = Some((now, now_ns)),
                Some((_, since)) if sent_ns >= since.saturating_add(CONFIRMED_NS) => {
                    server.alone = Some((now, now_ns));
                    wrong.push(ServerId::at(index));
                }
                Some(_) => {}
            }
        }
        for server in wrong {
            self.note(now_ns, server, Wrong::Alone);
        }
    }

    /// Notes something wrong.
    pub(crate) fn note(&mut self, now_ns: u64, server: ServerId, wrong: Wrong) {
        let entry = self.counts.entry((server, wrong)).or_default();
        *entry = (entry.0.saturating_add(1), now_ns);
        self.news = true;
    }

    /// Returns what all servers are to be told now.
    pub(crate) fn tell(&mut self, now_ns: u64, own: Principal) -> Vec<Suspicion> {
        if self.due() > now_ns {
            return Vec::new();
        }
        self.counts.retain(|_, (_, at)| now_ns.saturating_sub(*at) < SHOWN_NS);
        (self.news, self.told_ns) = (false, now_ns);
        self.list(own)
    }

    /// Returns what it has seen.
    pub(crate) fn list(&self, own: Principal) -> Vec<Suspicion> {
        let witness = own.key_holder();
        let counts = self.counts.iter();
        counts
            .map(|((server, wrong), (count, _))| Suspicion {
                server: *server,
                wrong: *wrong,
                witness,
                count: *count,
            })
            .collect()
    }

    /// Returns when servers are to be told.
    #[inline]
    pub(crate) fn due(&self) -> u64 {
        if self.counts.is_empty() {
            return u64::MAX;
        }
        let wait = if self.news { TELL_NS } else { REPEAT_NS };
        if self.told_ns == 0 { 0 } else { self.told_ns.saturating_add(wait) }
    }
}

/// Returns the request that asks for what a server holds.
#[allow(clippy::wildcard_enum_match_arm, reason = "no other message asks for a version")]
fn asks(body: &Body) -> Option<RequestKey> {
    match body {
        Body::Read { rid, .. } => Some((rid.incarnation, rid.counter, 0)),
        Body::Qts { op }
        | Body::Rd { op }
        | Body::BcRead { op, .. }
        | Body::ReadTs { op, .. }
        | Body::ReadTsPrep { op, .. } => Some((op.incarnation, op.number, op.phase)),
        _ => None,
    }
}

/// Returns the version that a server says it holds, with the request that this answers. Without a request: it holds this
/// version or a larger one.
#[allow(clippy::wildcard_enum_match_arm, reason = "no other message says what a server holds")]
fn says(body: &Body) -> Option<(Option<RequestKey>, Version)> {
    match body {
        Body::Val { rid, version, forwarded, .. } => {
            Some(((!forwarded).then_some((rid.incarnation, rid.counter, 0)), *version))
        }
        Body::Tsr { op, version, .. } | Body::RdVal { op, version, .. } => {
            Some((Some((op.incarnation, op.number, op.phase)), *version))
        }
        Body::BcReadReply { op, pcert, .. }
        | Body::ReadTsReply { op, pcert, .. }
        | Body::ReadTsPrepReply { op, pcert, .. } => {
            Some((Some((op.incarnation, op.number, op.phase)), pcert.version))
        }
        Body::Ack { version, .. } | Body::WriteReply { version, .. } => Some((None, *version)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use quorate_quorum::message::{Op, Rid};
    use quorate_wire::{ClientId, Digest, ReplicaId};
    use std::sync::Arc;

    const OBJECT: ObjectId = ObjectId([3; 32]);
    const S: u64 = 1_000_000_000;

    fn version(val: u64, digest: u8) -> Version {
        Version { val, client: ClientId::new(1, 0), digest: Digest([digest; 32]) }
    }

    fn rid(counter: u64) -> Rid {
        Rid { incarnation: 1, counter }
    }

    fn val(counter: u64, version: Version, forwarded: bool) -> Body {
        Body::Val { rid: rid(counter), version, value: Arc::from([]), forwarded, signature: None }
    }

    /// Four servers answer a read; the first three alike.
    fn read(seen: &mut Suspicions, now: u64, counter: u64, all: Version, last: Version) {
        seen.sent(now, OBJECT, &Body::Read { rid: rid(counter), attempt: 0 });
        for server in 0..3 {
            seen.heard(now, ReplicaId(server), OBJECT, &val(counter, all, false));
        }
        seen.heard(now, ReplicaId(3), OBJECT, &val(counter, last, false));
        seen.ended(now, OBJECT, all);
    }

    fn found(seen: &Suspicions) -> Vec<(u16, Wrong, u64)> {
        seen.counts.iter().map(|((server, wrong), (count, _))| (server.0, *wrong, *count)).collect()
    }

    #[test]
    fn a_server_that_goes_back_is_noted() {
        let mut seen = Suspicions::new(4);
        read(&mut seen, S, 1, version(5, 1), version(5, 9));
        read(&mut seen, 2 * S, 2, version(5, 1), version(5, 4));
        assert_eq!(found(&seen), [(3, Wrong::Older, 1)]);
        // What it acknowledged counts as well.
        let op = Op { incarnation: 1, number: 9, phase: 2 };
        seen.heard(2 * S, ReplicaId(0), OBJECT, &Body::Ack { op, version: version(6, 1) });
        read(&mut seen, 2 * S, 3, version(5, 1), version(5, 9));
        assert_eq!(found(&seen), [(0, Wrong::Older, 1), (3, Wrong::Older, 1)]);
    }

    #[test]
    fn an_answer_that_is_late_says_nothing() {
        let mut seen = Suspicions::new(4);
        read(&mut seen, S, 1, version(5, 1), version(5, 1));
        read(&mut seen, S, 2, version(7, 1), version(7, 1));
        seen.heard(S, ReplicaId(2), OBJECT, &val(1, version(5, 1), false));
        // It was named after this request was sent.
        seen.sent(S, OBJECT, &Body::Read { rid: rid(3), attempt: 0 });
        seen.heard(S, ReplicaId(1), OBJECT, &val(3, version(9, 1), true));
        seen.heard(S, ReplicaId(1), OBJECT, &val(3, version(8, 1), false));
        assert_eq!(found(&seen), []);
    }

    #[test]
    fn a_version_that_nobody_else_has_is_noted_after_two_seconds() {
        let (mut seen, huge) = (Suspicions::new(4), version(u64::MAX, 1));
        for (number, now) in [S, 2 * S, 3 * S - 1].into_iter().enumerate() {
            read(&mut seen, now, number as u64, version(5, 1), huge);
        }
        assert_eq!(found(&seen), []);
        read(&mut seen, 3 * S, 9, version(5, 1), huge);
        assert_eq!(found(&seen), [(3, Wrong::Alone, 1)]);
    }

    /// A server that is ahead of the others, again and again, is right if they follow.
    #[test]
    fn a_server_that_is_ahead_is_right_if_the_others_follow() {
        let mut seen = Suspicions::new(4);
        for number in 1..100 {
            read(&mut seen, number * S, number, version(number, 1), version(number + 1, 1));
        }
        assert_eq!(found(&seen), []);
    }

    #[test]
    fn news_are_told_once_a_second_and_repeated() {
        let mut seen = Suspicions::new(4);
        let own = Principal::from(ClientId::new(2, 5));
        assert_eq!(seen.due(), u64::MAX);
        seen.note(S, ReplicaId(3), Wrong::Invalid);
        let told = seen.tell(S, own);
        let one = Suspicion { server: ReplicaId(3), wrong: Wrong::Invalid, witness: 2 << 16, count: 1 };
        assert_eq!(told, [one]);
        assert_eq!((seen.tell(S, own).len(), seen.due()), (0, 61 * S));
        seen.note(S, ReplicaId(3), Wrong::Invalid);
        assert_eq!((seen.due(), seen.tell(2 * S, own)[0].count), (2 * S, 2));
        assert_eq!(seen.tell(62 * S, own).len(), 1, "repeated");
        assert_eq!(seen.tell(700 * S, own).len(), 0, "over");
    }

    #[test]
    fn a_table_is_bounded_and_forgets() {
        let mut table = SuspicionTable::default();
        let said = |count| Suspicion { server: ReplicaId(3), wrong: Wrong::Older, witness: 0, count };
        for client in 1..1000 {
            table.told(S, ClientId::new(client, 0).into(), said(1));
        }
        assert_eq!(table.list(S).len(), TOLD_MAX);
        table.see(S, ReplicaId(0).into(), ReplicaId(1), Wrong::Alone);
        assert_eq!(table.list(S).len(), TOLD_MAX + 1, "clients leave room for what the server sees itself");
        table.told(601 * S, ClientId::new(1, 0).into(), said(1));
        table.told(601 * S, ClientId::new(2000, 0).into(), said(1));
        assert_eq!(table.list(601 * S).len(), 1, "what is not news for ten minutes makes room");
        table.see(601 * S, ReplicaId(0).into(), ReplicaId(2), Wrong::Invalid);
        table.see(601 * S, ReplicaId(0).into(), ReplicaId(2), Wrong::Invalid);
        let own = Suspicion { server: ReplicaId(2), wrong: Wrong::Invalid, witness: 0, count: 2 };
        assert_eq!(table.list(601 * S)[0], own);
    }

    #[test]
    fn a_liar_speaks_for_itself_only() {
        let one = |server: u16, witness: u64, count| Suspicion {
            server: ReplicaId(server),
            wrong: Wrong::Older,
            witness,
            count,
        };
        let client = 1 << 16;
        // The liar, server 3: a client accuses server 0, and so does server 1. And the client accuses the liar.
        let states: [(ReplicaId, &[Suspicion]); 4] = [
            (ReplicaId(0), &[one(3, client, 4)]),
            (ReplicaId(1), &[one(3, client, 5), one(2, 1, 7)]),
            (ReplicaId(2), &[one(3, client, 5)]),
            (ReplicaId(3), &[one(0, client, 9), one(0, client, 9), one(0, 1, 9), one(3, 3, 1)]),
        ];
        assert_eq!(together(states, 2), [one(2, 1, 7), one(3, client, 5)]);
    }
}
