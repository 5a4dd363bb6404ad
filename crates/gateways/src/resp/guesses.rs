//! Wrong passwords: each user of this machine and each address of another one may try a few at a time. A program that
//! tries all words of a list takes years.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use quorate_node::other_end::user_of;

use crate::front::Ends;
use crate::network::network;

/// Wrong passwords of one in [`WINDOW_S`] seconds.
const GUESSES_MAX: u32 = 10;
const WINDOW_S: u64 = 10;
/// How many are remembered. Beyond it, all are forgotten.
const GUESSERS_MAX: usize = 4096;

/// One who guesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Guesser {
    /// A user of this machine: an address of loopback says nothing, for each user has many.
    User(u32),
    /// An address; of version 6, the network that a machine chooses its addresses from.
    Address(IpAddr),
}

impl Guesser {
    fn of(ends: Ends) -> Self {
        if let Some(user) = user_of(ends.peer, ends.own) {
            return Self::User(user);
        }
        match network(ends.peer.ip()) {
            IpAddr::V4(ip) if ip.is_loopback() => Self::Address(Ipv4Addr::LOCALHOST.into()),
            ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => Self::Address(ip),
        }
    }
}

/// The wrong passwords of late. At most [`GUESSERS_MAX`] entries.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    /// The beginning of the window, in seconds, and the wrong passwords in it.
    of: BTreeMap<Guesser, (u64, u32)>,
}

impl Guesses {
    /// Returns whether a password that comes from this end is checked now.
    pub(super) fn may_try(&self, ends: Ends, now_s: u64) -> bool {
        // Where nobody has guessed, the kernel is not asked.
        let count = if self.of.is_empty() { None } else { self.of.get(&Guesser::of(ends)) };
        count.is_none_or(|(begin, count)| now_s >= begin + WINDOW_S || *count < GUESSES_MAX)
    }

    /// Notes a wrong password.
    pub(super) fn note(&mut self, ends: Ends, now_s: u64) {
        let guesser = Guesser::of(ends);
        if self.of.len() >= GUESSERS_MAX && !self.of.contains_key(&guesser) {
            self.of.clear();
        }
        let entry = self.of.entry(guesser).or_insert((now_s, 0));
        if now_s >= entry.0 + WINDOW_S {
            *entry = (now_s, 0);
        }
        entry.1 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten wrong ones, and then none for a while. Another address is not held up.
    #[test]
    fn passwords_are_guessed_slowly() {
        let own = "192.0.2.1:6380".parse().unwrap();
        let ends = |peer: &str| Ends { peer: peer.parse().unwrap(), own };
        let (first, other) = (ends("192.0.2.7:5000"), ends("192.0.2.8:5000"));
        let mut guesses = Guesses::default();
        for _ in 0..GUESSES_MAX {
            assert!(guesses.may_try(first, 5));
            guesses.note(first, 5);
        }
        let again = ends("192.0.2.7:5001");
        assert!(!guesses.may_try(again, 5) && !guesses.may_try(again, 14) && guesses.may_try(other, 5));
        assert!(guesses.may_try(again, 15));
        guesses.note(again, 15);
        assert!(guesses.may_try(again, 15));
    }
}
