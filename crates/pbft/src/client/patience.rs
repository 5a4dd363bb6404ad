//! How long a client waits before it retransmits, and when it signs.

use super::outstanding::Outstanding;
use crate::io::config::{Config, RequestAuth};
use crate::io::rng::Rng;
use crate::io::step::{Deadline, Now};

/// The first time-out, before anything is known, in nanoseconds.
const START_NS: u64 = 50_000_000;
/// After so long at least the others are asked for a read, in nanoseconds.
const REST_MIN_NS: u64 = 500_000;
/// And after so long before anything is known.
const REST_START_NS: u64 = 5_000_000;
/// Observations before the estimate is believed.
const OBSERVATIONS_MIN: u32 = 16;
/// A client signs from the retransmission after this one on (AU-5).
const UNSIGNED_RETRANSMISSIONS: u32 = 1;
/// A client signs at least this long once it had to, in nanoseconds (AU-5).
const SIGN_MIN_NS: u64 = 2_000_000_000;
/// And never longer than this at a time.
const SIGN_MAX_NS: u64 = 300_000_000_000;

/// `T_CLIENT`: twice the latency that one request in a hundred exceeds, within limits; doubled with each
/// retransmission (spec §1.3). Retransmitting too early costs a few messages. Retransmitting too late delays the
/// replacement of a faulty primary: only the clients notice that it sends nothing.
#[derive(Debug)]
pub(super) struct Patience {
    min_ns: u64,
    max_ns: u64,
    /// A smoothed 99th percentile: pulled up by an eighth of what exceeds it, down by a
    /// 99 times smaller share of what it exceeds.
    slow_ns: u64,
    /// What nearly all exceed: pulled down by an eighth of what stays below it, and up very slowly. Nobody can answer much
    /// faster, and no primary can raise it soon.
    fast_ns: u64,
    observations: u32,
    /// The request before had to be sent again.
    was_resent: bool,
}

impl Patience {
    pub(super) fn new(config: &Config) -> Self {
        let (min_ns, max_ns) = (config.client_timeout_min_ns, config.client_timeout_max_ns);
        Self { min_ns, max_ns, slow_ns: 0, fast_ns: 0, observations: 0, was_resent: false }
    }

    /// Records the time from sending a request to its result, from the first time and from the last one, and how often it
    /// was sent again.
    ///
    /// If it was sent again once, and the result came sooner after that than any answer to it could have, then the result
    /// was on its way: the request took so long, and was not lost (CL-2).
    ///
    /// The first few are averaged: they have keys to exchange, and must not be remembered for long. Then no
    /// single one counts as more than twice the estimate. A primary that is lost holds one request of every lane up
    /// for as long as it takes to replace it, and that says nothing about the next one: taken at its word, it would
    /// make the next loss be noticed so much later. So one that was sent again does not count, unless the one before
    /// was, too: if all take longer, the estimate doubles with every half a dozen. And if two in a row are answered at once
    /// when they are sent again, then waiting is in vain, as for a primary that ignores a client until the others know of
    /// its request: the estimate halves (L33).
    pub(super) fn observe(&mut self, all_ns: u64, last_ns: u64, again: u32) {
        let young = self.observations < OBSERVATIONS_MIN;
        let needless = again == 1 && last_ns < mutant!(M164, self.fast_ns, self.slow_ns) / 2;
        let (latency_ns, resent) = if needless { (all_ns, false) } else { (last_ns, again > 0) };
        let again = core::mem::replace(&mut self.was_resent, resent);
        if resent && !again && !young {
            return;
        }
        if resent && again && last_ns < self.slow_ns / 8 && !young {
            self.slow_ns = (self.slow_ns / 2).max(last_ns);
            return;
        }
        if !resent {
            let (above, below) =
                (latency_ns.saturating_sub(self.fast_ns), self.fast_ns.saturating_sub(latency_ns));
            let first = self.observations == 0 || self.fast_ns == 0;
            self.fast_ns += if first { above } else { (above / 800).min(self.fast_ns / 256) };
            self.fast_ns -= below / 8;
        }
        let most = self.slow_ns.max(self.min_ns / 2).saturating_mul(2);
        let latency_ns = if young { latency_ns } else { latency_ns.min(most) };
        let above = latency_ns.saturating_sub(self.slow_ns);
        let below = self.slow_ns.saturating_sub(latency_ns);
        let up = if self.observations == 0 { above } else { above / 8 };
        let down = if young { below / 8 } else { below / (8 * 99) };
        self.slow_ns = self.slow_ns.saturating_add(up).saturating_sub(down);
        self.observations = self.observations.saturating_add(1);
    }

    /// Returns when to ask the others for a read that a quorum has been asked for now (DV-43). It costs two
    /// messages for each of them if it was too early, so there is no need to be as careful as with what all are asked.
    pub(super) fn rest_deadline(&self, now: Now) -> Deadline {
        let known = self.observations >= OBSERVATIONS_MIN;
        let wait = if known { self.slow_ns.saturating_mul(2).max(REST_MIN_NS) } else { REST_START_NS };
        Deadline(now.mono_ns.saturating_add(wait.min(self.max_ns)))
    }

    /// Returns when to send again a request that has waited for long, now that others are answered.
    pub(super) fn soon(now: Now, rng: &mut Rng) -> Deadline {
        Deadline(now.mono_ns.saturating_add(rng.below(START_NS)))
    }

    /// Returns when to send again a request that is sent now, for the `times`-th time after the first.
    pub(super) fn deadline(&self, now: Now, times: u32, rng: &mut Rng) -> Deadline {
        let known = self.observations >= OBSERVATIONS_MIN;
        let once = if known { self.slow_ns.saturating_mul(2) } else { START_NS };
        let doubled = once.max(self.min_ns).saturating_mul(1 << times.min(32)).min(self.max_ns);
        // Jitter, so that clients that were stopped together do not come back together.
        let jitter = if times == 0 { 0 } else { rng.below(doubled / 4 + 1) };
        Deadline(now.mono_ns.saturating_add(doubled - jitter))
    }
}

/// Whether requests carry signatures (AU-5).
///
/// A replica that could not authenticate a request expects signatures of its client for a time. A
/// client that had to sign twice in a row keeps doing so for a while: otherwise it would pay two time-outs a request.
/// Once may be for another reason, as when many clients start at the same time, and signatures would make that worse:
/// they cost far more than what they replace. If it had to again soon after the while, the next one is twice as long, as
/// is the probation.
#[derive(Debug, Default)]
pub(super) struct Signing {
    /// The request before had to be signed.
    had_to: bool,
    until_ns: u64,
    span_ns: u64,
}

impl Signing {
    /// Returns whether requests carry a signature from the start.
    fn is_on(&self, now: Now) -> bool {
        now.mono_ns < self.until_ns
    }

    /// Decides whether a request that is about to leave carries a signature.
    pub(super) fn decide(&self, auth: RequestAuth, now: Now, request: &mut Outstanding) {
        request.signed = match auth {
            RequestAuth::Mac => false,
            RequestAuth::SigMac => true,
            // "a correct client signs from its second retransmission on anyway" (AU-5).
            RequestAuth::Adaptive if request.signed || self.is_on(now) => true,
            RequestAuth::Adaptive => {
                request.had_to_sign = request.resent > UNSIGNED_RETRANSMISSIONS;
                request.had_to_sign
            }
        };
    }

    /// A request was answered, and only after it had been signed if it `had_to` be. Returns whether the next ones carry
    /// signatures from now on.
    pub(super) fn note_answered(&mut self, now: Now, had_to: bool) -> bool {
        let again = now.mono_ns < self.until_ns.saturating_add(self.span_ns);
        let before = core::mem::replace(&mut self.had_to, had_to);
        if !(had_to && (before || again)) {
            return false;
        }
        self.span_ns = if again { self.span_ns.saturating_mul(2) } else { 0 }.clamp(SIGN_MIN_NS, SIGN_MAX_NS);
        self.until_ns = now.mono_ns.saturating_add(self.span_ns);
        true
    }
}

#[cfg(test)]
mod tests {
    use quorate_wire::{Cluster, ClusterId};

    use super::*;

    const MS: u64 = 1_000_000;

    fn patience() -> Patience {
        Patience::new(&Config::new(Cluster::tolerating(1).unwrap(), ClusterId([0; 32])))
    }

    fn wait(patience: &Patience, times: u32) -> u64 {
        let now = Now { mono_ns: 7, wall_ns: 0 };
        patience.deadline(now, times, &mut Rng::new(3)).0 - 7
    }

    #[test]
    fn it_starts_at_fifty_milliseconds_and_never_falls_below_five() {
        let mut p = patience();
        assert_eq!(wait(&p, 0), 50 * MS);
        for _ in 0..16 {
            p.observe(MS / 10, MS / 10, 0);
        }
        assert_eq!(wait(&p, 0), 5 * MS);
    }

    /// Ninety-nine in a hundred take 2 ms, one takes 20 ms: the percentile lies between.
    #[test]
    fn it_follows_the_slowest_one_in_a_hundred() {
        let mut p = patience();
        for i in 0..20_000 {
            let took = if i % 100 == 0 { 20 * MS } else { 2 * MS };
            p.observe(took, took, 0);
        }
        assert!((2 * 5 * MS..2 * 15 * MS).contains(&wait(&p, 0)), "{}", wait(&p, 0));
        for _ in 0..20_000 {
            p.observe(2 * MS, 2 * MS, 0);
        }
        assert!(wait(&p, 0) < 2 * 3 * MS, "{}", wait(&p, 0));
    }

    /// Every lane sees every loss of a primary. It must not wait longer for the next one because of that.
    #[test]
    fn an_outage_is_not_what_requests_take() {
        let mut p = patience();
        (0..1_000).for_each(|_| p.observe(2 * MS, 2 * MS, 0));
        let before = wait(&p, 0);
        for _ in 0..50 {
            p.observe(800 * MS, 400 * MS, 2);
            (0..75).for_each(|_| p.observe(2 * MS, 2 * MS, 0));
        }
        assert!(wait(&p, 0) <= before, "{} after {before}", wait(&p, 0));
        // But if that is what they take from now on, it is believed.
        (0..300).for_each(|_| p.observe(800 * MS, 400 * MS, 2));
        assert!(wait(&p, 0) > 500 * MS, "{}", wait(&p, 0));
    }

    /// A machine that is crowded delays some answers by more than was usual. They are learned, or each of these requests
    /// would be sent twice.
    #[test]
    fn an_answer_that_was_on_its_way_is_what_requests_take() {
        let mut p = patience();
        (0..1_000).for_each(|_| p.observe(3 * MS, 3 * MS, 0));
        assert_eq!(wait(&p, 0), 6 * MS);
        for _ in 0..30 {
            p.observe(7 * MS, MS, 1);
        }
        assert!(wait(&p, 0) > 7 * MS, "{}", wait(&p, 0));
        // One that was lost: the answer took as long after the repetition as answers take.
        let mut p = patience();
        (0..1_000).for_each(|_| p.observe(3 * MS, 3 * MS, 0));
        for _ in 0..30 {
            p.observe(9 * MS, 3 * MS, 1);
            p.observe(3 * MS, 3 * MS, 0);
        }
        assert_eq!(wait(&p, 0), 6 * MS);
    }

    /// The first requests wait for keys.
    #[test]
    fn a_slow_start_is_soon_forgotten() {
        let mut p = patience();
        p.observe(400 * MS, 400 * MS, 0);
        (0..30).for_each(|_| p.observe(2 * MS, 2 * MS, 0));
        assert!(wait(&p, 0) < 300 * MS, "{}", wait(&p, 0));
    }

    #[test]
    fn it_doubles_with_jitter_up_to_the_cap() {
        let p = patience();
        for times in 1..40 {
            let doubled = (50 * MS).saturating_mul(1 << times.min(20)).min(10_000 * MS);
            assert!((doubled * 3 / 4..=doubled).contains(&wait(&p, times)), "{times}");
        }
        let now = Now::default();
        let (mut one, mut two) = (Rng::new(1), Rng::new(2));
        assert_ne!(p.deadline(now, 3, &mut one), p.deadline(now, 3, &mut two));
    }

    #[test]
    fn no_latency_overflows() {
        let mut p = patience();
        for _ in 0..20 {
            p.observe(u64::MAX, u64::MAX, 0);
        }
        assert_eq!(wait(&p, 0), 10_000 * MS);
    }

    /// L33: a primary makes requests slow, and then ignores the client until it has sent each of them to all.
    #[test]
    fn l33_a_time_out_that_is_in_vain_becomes_shorter() {
        let mut p = patience();
        for ms in (0..40).map(|_| 2).chain((0..60).map(|_| 600)) {
            p.observe(ms * MS, ms * MS, 0);
        }
        let long = wait(&p, 0);
        assert!(long > 1_000 * MS, "{} ms", long / MS);
        for _ in 0..12 {
            let once = wait(&p, 0);
            p.observe(once + 2 * MS, 2 * MS, 1);
        }
        assert!(wait(&p, 0) < 20 * MS, "{} ms", wait(&p, 0) / MS);
    }

    /// AU-5: it keeps signing for a while, longer each time that it has to again.
    #[test]
    fn a_client_that_had_to_sign_goes_on_for_a_while() {
        let at = |seconds: u64| Now { mono_ns: seconds * 1000 * MS, wall_ns: 0 };
        let mut s = Signing::default();
        assert!(!s.is_on(at(0)));
        assert!(!s.note_answered(at(9), true) && !s.is_on(at(9)), "once may be for another reason");
        assert!(s.note_answered(at(10), true));
        assert!(s.is_on(at(11)) && !s.is_on(at(12)));
        assert!(!s.note_answered(at(11), false), "signed from the start");
        assert!(s.note_answered(at(13), true), "soon after the while, once is enough");
        assert!(s.is_on(at(16)) && !s.is_on(at(17)));
        for second in [98, 100] {
            assert!(!s.note_answered(at(second), false) && !s.note_answered(at(second), true), "no row");
        }
        assert!(s.note_answered(at(100), true));
        assert!(s.is_on(at(101)) && !s.is_on(at(102)));
        for second in 103..400 {
            s.note_answered(at(second), true);
        }
        assert!(!s.is_on(at(399 + 301)), "never longer than five minutes");
    }
}
