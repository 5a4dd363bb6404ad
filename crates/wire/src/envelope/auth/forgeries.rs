//! What signatures may cost (A5): a check takes 30 us, anyone can send bytes in anyone's name, and what is right
//! costs as much as what is wrong.
//!
//! So every check is paid for, by whom depends on what is known before it. A frame whose MAC is right comes from
//! the replica in whose name it is, which pays from an allowance of its own: nobody else can use that up. Any other
//! frame is paid for by where it came from, by the host that is at, and by all of them together. A flood
//! from a few places uses up the allowance of these. A signature that was right is remembered: it costs
//! nothing when it comes again.

use alloc::vec::Vec;

use crate::envelope::cluster::Cluster;
use crate::envelope::digest::Digest;
use crate::envelope::id::ReplicaId;

/// Where a frame came from, as far as a node can tell: a host and a port of it, or whatever tells senders apart.
/// It proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The host: an address.
    pub host: u128,
    /// Which of its senders.
    pub port: u16,
}

impl Source {
    /// Where nothing is known about it.
    pub const UNKNOWN: Self = Self { host: 0, port: 0 };
}

/// An allowance of checks: a number at once, and after that a number a second.
#[derive(Clone, Copy, Debug)]
struct Rate {
    burst: u64,
    per_s: u64,
}

/// One replica, with right MACs: 0.6 % of a core.
const SENDER: Rate = Rate { burst: 256, per_s: 200 };
/// One place.
const PLACE: Rate = Rate { burst: 256, per_s: 200 };
/// All places of a host.
const HOST: Rate = Rate { burst: 1024, per_s: 1000 };
/// All clients with right MACs, each of which has a rate of its own as well: 3 % of a core.
const CLIENTS: Rate = Rate { burst: 1024, per_s: 1000 };
/// All frames without a right MAC: 6 % of a core. At once as many as clients that start together.
const STRANGERS: Rate = Rate { burst: 2048, per_s: 2000 };

/// How long places are told apart after a stranger's wrong signature, or after many, in nanoseconds.
const TOLD_APART_NS: u64 = 10_000_000_000;

/// Places that have an allowance of their own. More of them share.
const PLACES: usize = 256;
/// The same for hosts.
const HOSTS: usize = 64;
/// Right signatures that are remembered.
const KNOWN: usize = 1024;

/// What is left of an allowance.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    used: u64,
    /// Up to when it has been refilled.
    at_ns: u64,
}

impl Account {
    fn has_room(&mut self, rate: Rate, now_ns: u64) -> bool {
        let each_ns = 1_000_000_000 / rate.per_s;
        let refilled = now_ns.saturating_sub(self.at_ns) / each_ns;
        self.used = self.used.saturating_sub(refilled);
        self.at_ns = if self.used == 0 { now_ns } else { self.at_ns + refilled * each_ns };
        self.used < rate.burst
    }

    fn take(&mut self, rate: Rate, now_ns: u64) -> bool {
        let may = self.has_room(rate, now_ns);
        self.used += u64::from(may);
        may
    }
}

/// Which accounts a source has: of its place, and of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Accounts {
    place: usize,
    host: usize,
}

impl Accounts {
    fn of(secret: &[u8; 32], source: Source) -> Self {
        let mut bytes = [0; 18];
        bytes[..16].copy_from_slice(&source.host.to_le_bytes());
        let host = blake3::keyed_hash(secret, &bytes[..16]).as_bytes()[0];
        bytes[16..].copy_from_slice(&source.port.to_le_bytes());
        let place = blake3::keyed_hash(secret, &bytes).as_bytes()[0];
        Self { place: usize::from(place) % PLACES, host: usize::from(host) % HOSTS }
    }
}

/// Who pays for a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payer {
    /// The replica whose MAC was right.
    Sender(ReplicaId),
    /// A client whose MAC was right, and which may have it now.
    Client,
    /// Where it came from.
    Stranger(Source),
}

/// A signature that was right, and the digest that it is over, which names its signer and its kind.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Known {
    covered: Digest,
    signature: [u8; 64],
}

/// The allowances of one node, and the signatures that were right.
pub(super) struct Checks {
    /// Which places share an account is nobody else's to know.
    secret: [u8; 32],
    senders: Vec<Account>,
    places: Vec<Account>,
    hosts: Vec<Account>,
    clients: Account,
    strangers: Account,
    /// Until when places are told apart. None: they are not.
    apart_until: Option<u64>,
    /// By the first bytes of the digest; empty until one was right.
    known: Vec<Option<Known>>,
    /// The accounts of the last source: a datagram can have many frames, and a flood has few sources.
    last: (Source, Accounts),
    made: u64,
}

impl core::fmt::Debug for Checks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Checks").field("made", &self.made).finish_non_exhaustive()
    }
}

impl Checks {
    /// `entropy` is secret.
    pub(super) fn new(cluster: Cluster, entropy: &[u8; 32]) -> Self {
        let secret = blake3::derive_key("quorate/1/places", entropy);
        Self {
            last: (Source::UNKNOWN, Accounts::of(&secret, Source::UNKNOWN)),
            secret,
            senders: alloc::vec![Account::default(); cluster.n()],
            places: alloc::vec![Account::default(); PLACES],
            hosts: alloc::vec![Account::default(); HOSTS],
            clients: Account::default(),
            strangers: Account::default(),
            apart_until: None,
            known: Vec::new(),
            made: 0,
        }
    }

    /// Returns how many checks were made.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// Says whether a check may be made, and counts it if so.
    pub(super) fn may(&mut self, payer: Payer, now_ns: u64) -> bool {
        let may = match payer {
            Payer::Sender(replica) => {
                self.senders.get_mut(replica.index()).is_some_and(|account| account.take(SENDER, now_ns))
            }
            Payer::Client => self.clients.take(CLIENTS, now_ns),
            Payer::Stranger(source) => self.stranger_may(source, now_ns),
        };
        self.made += u64::from(may);
        may
    }

    /// Returns whether places have to be told apart. As long as strangers' signatures are few and right, all strangers may
    /// share an allowance.
    #[inline]
    pub(super) fn asks_sources(&self) -> bool {
        self.apart_until.is_some()
    }

    /// A signature was wrong.
    pub(super) fn note_wrong(&mut self, payer: Payer, now_ns: u64) {
        if matches!(payer, Payer::Stranger(_)) {
            self.tell_apart(now_ns);
        }
    }

    fn tell_apart(&mut self, now_ns: u64) {
        self.apart_until = Some(now_ns.saturating_add(TOLD_APART_NS));
    }

    /// Takes note of the time.
    #[inline]
    pub(super) fn tick(&mut self, now_ns: u64) {
        self.apart_until.take_if(|until| *until <= now_ns);
    }

    fn stranger_may(&mut self, source: Source, now_ns: u64) -> bool {
        if self.last.0 != source {
            self.last = (source, Accounts::of(&self.secret, source));
        }
        let Accounts { place, host } = self.last.1;
        let (Some(place), Some(host)) = (self.places.get_mut(place), self.hosts.get_mut(host)) else {
            return false;
        };
        // Frames of which a node does not know where they come from are all of one place: no reason to stop there.
        let of_place =
            source == Source::UNKNOWN || (place.has_room(PLACE, now_ns) && host.has_room(HOST, now_ns));
        let may = of_place && self.strangers.has_room(STRANGERS, now_ns);
        for account in [place, host, &mut self.strangers] {
            account.used += u64::from(may);
        }
        if self.strangers.used >= PLACE.burst {
            self.tell_apart(now_ns);
        }
        may
    }

    /// Says whether a signature over `covered`, which names signer and kind, was right before.
    pub(super) fn knows(&self, covered: &Digest, signature: &[u8; 64]) -> bool {
        let known = self.known.get(slot(covered)).and_then(Option::as_ref);
        known.is_some_and(|known| known.covered == *covered && known.signature == *signature)
    }

    /// Remembers a signature that was right.
    pub(super) fn remember(&mut self, covered: &Digest, signature: &[u8; 64]) {
        if self.known.is_empty() {
            self.known = alloc::vec![None; KNOWN];
        }
        if let Some(known) = self.known.get_mut(slot(covered)) {
            *known = Some(Known { covered: *covered, signature: *signature });
        }
    }

    /// Forgets what was right: someone's key is another one now.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }
}

fn slot(covered: &Digest) -> usize {
    usize::from(u16::from_le_bytes([covered.0[0], covered.0[1]])) % KNOWN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Checks {
        Checks::new(Cluster::tolerating(1).unwrap(), &[7; 32])
    }

    fn place(host: u128, port: u16) -> Payer {
        Payer::Stranger(Source { host, port })
    }

    /// How many of `tries` checks a payer gets at once.
    fn granted(checks: &mut Checks, payer: Payer, tries: u64, now_ns: u64) -> u64 {
        (0..tries).filter(|_| checks.may(payer, now_ns)).count().try_into().unwrap()
    }

    #[test]
    fn an_allowance_is_used_up_and_comes_back() {
        let (mut checks, payer) = (checks(), Payer::Sender(ReplicaId(2)));
        assert_eq!(granted(&mut checks, payer, 10_000, 0), SENDER.burst);
        // A second in small steps brings no more than a second in one.
        let later: u64 = (1..=1000).map(|ms| granted(&mut checks, payer, 10, ms * 1_000_000)).sum();
        assert!(later.abs_diff(SENDER.per_s) <= 1, "{later}");
        assert_eq!(granted(&mut checks, payer, 10_000, 10_000_000_000), SENDER.burst);
        assert_eq!(granted(&mut checks, payer, 1, 0), 0, "a clock that goes back brings none");
        assert_eq!(granted(&mut checks, Payer::Sender(ReplicaId(9)), 1, 0), 0, "nobody's");
    }

    /// Nobody uses up what is another's, and all strangers together do not use up a replica's.
    #[test]
    fn l12_a_flood_costs_those_who_share_its_place() {
        let mut checks = checks();
        assert_eq!(granted(&mut checks, place(1, 1), 10_000, 0), PLACE.burst);
        assert_eq!(granted(&mut checks, place(2, 1), 1, 0), 1);
        // All ports of a host, and then all hosts.
        let host: u64 = (2..2000).map(|port| granted(&mut checks, place(1, port), 100, 0)).sum();
        assert_eq!(host + PLACE.burst, HOST.burst);
        let all: u64 = (3..3000).map(|host| granted(&mut checks, place(host, 1), 100, 0)).sum();
        assert_eq!(host + PLACE.burst + 1 + all, STRANGERS.burst);
        assert_eq!(granted(&mut checks, Payer::Stranger(Source::UNKNOWN), 1, 0), 0);
        assert_eq!(granted(&mut checks, Payer::Sender(ReplicaId(0)), 10, 0), 10);
        assert_eq!(checks.made(), STRANGERS.burst + 10);
    }

    /// Who does not say where frames come from until it matters grants one place hardly more.
    #[test]
    fn a_flood_is_told_apart_from_its_first_wrong_signature_on() {
        let mut checks = checks();
        assert!(!checks.asks_sources());
        let (mut granted, at) = (0, |ms: u64| ms * 1_000_000);
        for ms in 0..30_000 {
            checks.tick(at(ms));
            for _ in 0..10 {
                let source =
                    if checks.asks_sources() { Source { host: 1, port: 1 } } else { Source::UNKNOWN };
                if checks.may(Payer::Stranger(source), at(ms)) {
                    granted += 1;
                    checks.note_wrong(Payer::Stranger(source), at(ms));
                }
            }
        }
        assert!(granted < PLACE.burst + 30 * PLACE.per_s + 10, "{granted}");
        checks.tick(at(30_000) + TOLD_APART_NS);
        assert!(!checks.asks_sources());
        checks.note_wrong(Payer::Sender(ReplicaId(1)), at(50_000));
        assert!(!checks.asks_sources(), "the sender is known");
    }

    /// Many right signatures of strangers have to be told apart, too.
    #[test]
    fn many_strangers_are_told_apart() {
        let mut checks = checks();
        let unknown = Payer::Stranger(Source::UNKNOWN);
        assert_eq!(granted(&mut checks, unknown, PLACE.burst - 1, 0), PLACE.burst - 1);
        assert!(!checks.asks_sources());
        assert_eq!(granted(&mut checks, unknown, 1, 0), 1);
        assert!(checks.asks_sources());
    }

    /// What is remembered has a bound, and is never taken for anything else.
    #[test]
    fn right_signatures_are_remembered_in_bounded_numbers() {
        let mut checks = checks();
        let digests: Vec<Digest> =
            (0..10_000_u32).map(|i| Digest(*blake3::hash(&i.to_le_bytes()).as_bytes())).collect();
        let signature = [1; 64];
        assert!(!checks.knows(&digests[0], &signature));
        for covered in &digests {
            checks.remember(covered, &signature);
            assert!(checks.knows(covered, &signature));
            assert!(!checks.knows(covered, &[2; 64]), "another signature");
        }
        let known = digests.iter().filter(|covered| checks.knows(covered, &signature)).count();
        assert!((KNOWN / 2..=KNOWN).contains(&known), "{known}");
        checks.forget();
        assert!(!digests.iter().any(|covered| checks.knows(covered, &signature)));
    }
}
