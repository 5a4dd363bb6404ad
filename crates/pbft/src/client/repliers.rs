//! Chooses the replica that a request names to send the result (RP-1, RP-6).
//!
//! The replier sends the result, and in a large batch the replies of all. If it is silent or late, the client has to
//! ask again, or waits longer than it has to. So a client avoids such a replica for a while (DV-53).

use quorate_wire::{Cluster, ReplicaId, Timestamp};

use super::step::Members;
use crate::io::config::Replier;
use crate::io::rng::Rng;
use crate::io::step::Now;

/// How long a replica is avoided at first, in nanoseconds.
const AVOID_MIN_NS: u64 = 10_000_000_000;
/// And at most.
const AVOID_MAX_NS: u64 = 320_000_000_000;
/// A result is late if it takes this many times as long as most.
const LATE_FACTOR: u64 = 8;
/// And at least this long, in nanoseconds.
const LATE_MIN_NS: u64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Repliers {
    cluster: Cluster,
    /// None: every replica sends the full result.
    policy: Option<Replier>,
    /// The replier of the request that was sent last.
    named: Option<ReplicaId>,
    avoided: Members,
    until_ns: u64,
    span_ns: u64,
    /// How long most requests take: half of them take longer.
    usual_ns: u64,
    /// Whose last result was late, and whose last two were.
    late: [Members; 2],
}

impl Repliers {
    pub(super) fn new(cluster: Cluster, policy: Option<Replier>) -> Self {
        let (avoided, late) = (Members::default(), [Members::default(); 2]);
        Self { cluster, policy, named: None, avoided, until_ns: 0, span_ns: 0, usual_ns: 0, late }
    }

    /// Names nobody: every replica sends the full result.
    pub(super) fn name_nobody(&mut self) -> Option<u16> {
        self.named = None;
        None
    }

    /// "A client request designates a replica to send the result" [OSDI99 §5.1], RP-1: one of `among`.
    pub(super) fn choose(
        &mut self,
        now: Now,
        timestamp: Timestamp,
        among: Members,
        rng: &mut Rng,
    ) -> Option<u16> {
        if now.mono_ns >= self.until_ns {
            self.avoided = Members::default();
        }
        let rest = among.without(self.avoided);
        let among = if rest.count() > 0 { rest } else { among };
        let count = u64::try_from(among.count()).unwrap_or(1);
        let which = match self.policy? {
            Replier::Random => rng.below(count),
            Replier::RoundRobin => timestamp.0 % count,
            Replier::Fixed(replica) if among.contains(ReplicaId(replica)) => {
                self.named = Some(ReplicaId(replica));
                return Some(replica);
            }
            Replier::Fixed(_) => 0,
        };
        self.named = among.of(self.cluster).nth(usize::try_from(which).unwrap_or(0));
        self.named.map(|replica| replica.0)
    }

    /// The time-out of an ordered request has run out.
    pub(super) fn on_silence(&mut self, now: Now) {
        if let Some(replica) = self.named.take() {
            self.avoid(now, replica);
        }
    }

    /// An ordered request was answered without being sent again. Three late results of a replica, with none in time
    /// between them, are no accident.
    pub(super) fn on_result(&mut self, now: Now, took_ns: u64) {
        let Some(replica) = self.named.take() else { return };
        let one = Members::one(replica);
        let is_late =
            self.usual_ns > 0 && took_ns > self.usual_ns.saturating_mul(LATE_FACTOR).max(LATE_MIN_NS);
        let step = self.usual_ns / 16 + 1;
        self.usual_ns = match self.usual_ns {
            0 => took_ns,
            usual if took_ns > usual => usual.saturating_add(step),
            usual => usual.saturating_sub(step),
        };
        let [late_once, late_twice] = self.late;
        if !is_late {
            self.late = [late_once.without(one), late_twice.without(one)];
        } else if late_twice.contains(replica) {
            self.avoid(now, replica);
        } else if late_once.contains(replica) {
            self.late[1].insert(replica);
        } else {
            self.late[0].insert(replica);
        }
    }

    /// At most f replicas are avoided: more are not faulty.
    fn avoid(&mut self, now: Now, replica: ReplicaId) {
        let one = Members::one(replica);
        self.late = self.late.map(|late| late.without(one));
        let is_new = !self.avoided.contains(replica);
        if is_new && self.avoided.count() >= self.cluster.f() {
            self.avoided = Members::default();
        }
        self.avoided.insert(replica);
        let again = now.mono_ns < self.until_ns.saturating_add(self.span_ns);
        self.span_ns =
            if again { self.span_ns.saturating_mul(2) } else { 0 }.clamp(AVOID_MIN_NS, AVOID_MAX_NS);
        self.until_ns = now.mono_ns.saturating_add(self.span_ns);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const MS: u64 = 1_000_000;

    struct Bench {
        repliers: Repliers,
        rng: Rng,
        now: Now,
        at: u64,
    }

    impl Bench {
        fn new(f: u16) -> Self {
            let cluster = Cluster::tolerating(f).unwrap();
            let now = Now { mono_ns: 7, wall_ns: 0 };
            Self { repliers: Repliers::new(cluster, Some(Replier::Random)), rng: Rng::new(3), now, at: 0 }
        }

        fn pass(&mut self, ms: u64) {
            self.now.mono_ns += ms * MS;
        }

        fn choose(&mut self) -> u16 {
            self.at += 1;
            let all = Members::all(self.repliers.cluster);
            self.repliers.choose(self.now, Timestamp(self.at), all, &mut self.rng).unwrap()
        }

        /// Sends requests, whose results take 1 ms, or what `late` says. Returns how many of them named `replica`.
        fn run(&mut self, requests: u64, replica: u16, late: impl Fn(u16) -> Option<u64>) -> u64 {
            let mut named = 0;
            for _ in 0..requests {
                let by = self.choose();
                named += u64::from(by == replica);
                self.pass(late(by).unwrap_or(100));
                if let Some(ms) = late(by) {
                    self.repliers.on_result(self.now, ms * MS);
                } else {
                    self.repliers.on_silence(self.now);
                }
            }
            named
        }
    }

    #[test]
    fn a_silent_replica_costs_one_time_out() {
        let mut bench = Bench::new(1);
        let named = bench.run(1000, 2, |by| (by != 2).then_some(1));
        assert_eq!(named, 1);
        // It is tried again, and then avoided for longer each time: 10, 20, 40, 80, 160, 320 s.
        let named = bench.run(600_000, 2, |by| (by != 2).then_some(1));
        assert!((5..=6).contains(&named), "{named} of 600 s");
    }

    #[test]
    fn a_late_replica_is_avoided_after_three_results() {
        let mut bench = Bench::new(1);
        assert!(bench.run(100, 2, |_| Some(1)) > 10);
        assert_eq!(bench.run(1000, 2, |by| Some(if by == 2 { 90 } else { 1 })), 3);
    }

    /// Single late results happen to everybody, and so does a time in which all are slower.
    #[test]
    fn what_is_late_now_and_then_is_not_avoided() {
        let mut bench = Bench::new(1);
        bench.run(100, 0, |_| Some(1));
        for _ in 0..50 {
            bench.run(1, 0, |_| Some(100));
            bench.run(40, 0, |_| Some(1));
        }
        assert_eq!(bench.repliers.avoided, Members::default());
    }

    /// One more than f are not faulty: the earlier one is tried again.
    #[test]
    fn at_most_f_are_avoided() {
        for f in [1, 2] {
            let mut bench = Bench::new(f);
            for replica in 0..4 {
                bench.repliers.named = Some(ReplicaId(replica));
                bench.repliers.on_silence(bench.now);
                assert!(bench.repliers.avoided.count() <= usize::from(f));
                assert!(bench.repliers.avoided.contains(ReplicaId(replica)));
            }
        }
    }

    fn named(policy: Replier, among: Members) -> Vec<u16> {
        let mut bench = Bench::new(1);
        bench.repliers.policy = Some(policy);
        let choose = |t| bench.repliers.choose(bench.now, Timestamp(t), among, &mut bench.rng).unwrap();
        (0..300).map(choose).collect()
    }

    /// RP-1: the policies of naming a replier.
    #[test]
    fn repliers_are_named_by_policy() {
        let all = Members::all(Cluster::tolerating(1).unwrap());
        assert_eq!(named(Replier::RoundRobin, all)[..6], [0, 1, 2, 3, 0, 1]);
        assert_eq!(named(Replier::Fixed(2), all)[..6], [2; 6]);
        let random = named(Replier::Random, all);
        assert!((0..4).all(|r| random.contains(&r)) && random.iter().all(|r| *r < 4));
    }

    /// RP-1: of those who are asked each sends as many results as the others.
    #[test]
    fn the_replier_of_a_read_is_any_of_those_who_are_asked() {
        let asked = Members::all(Cluster::tolerating(1).unwrap()).without(Members::one(ReplicaId(1)));
        let random = named(Replier::Random, asked);
        for replica in [0, 2, 3] {
            let count = random.iter().filter(|replier| **replier == replica).count();
            assert!((70..=130).contains(&count), "r{replica} {count} times of 300");
        }
        assert_eq!(named(Replier::RoundRobin, asked)[..4], [0, 2, 3, 0]);
        assert_eq!(named(Replier::Fixed(2), asked)[..2], [2, 2]);
        assert_eq!(named(Replier::Fixed(1), asked)[..2], [0, 0], "it is not asked");
    }
}
