//! The profiles of faulty servers by their names (§10).

use quorate_quorum::settings::Protocol;

/// A profile of a faulty server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Counts as faulty, and is not.
    FailureFree,
    /// Stops, for good.
    Crash,
    /// Is down and up in turn, and keeps what it had.
    CrashRecover,
    /// A made-up value in place of the stored one, and honest otherwise (the paper's).
    FakeValue,
    /// A fabricated value at the same version number.
    FakeSame,
    /// A fabricated value at a much larger version.
    FakeInflated,
    /// A fabricated value at a random version.
    FakeRandom,
    /// Acknowledges stores and forgets them: answers what is old, but genuine.
    AckNoStore,
    /// Always answers readers with its first answer.
    Stale,
    /// Tells every client that it has no right to what it asks for.
    Refuse,
    /// Leaves messages out at random.
    Omit,
    /// Never answers readers, but acknowledges writers.
    SilentToReaders,
    /// Late but correct.
    Slow,
    /// Fakes to some, old versions to others.
    Equivocate,
    /// All liars give the same fake.
    Collude,
    /// Its first VAL comes only after others have forwarded.
    LateEntrance,
    /// Endless fresh fakes to listeners, and word that the listener is gone.
    ForwardFlood,
    /// Signatures, certificates and evidence that are not valid.
    BadCrypto,
    /// A timestamp far ahead, without its signature.
    InflateTimestamp,
    /// Asks the other servers to store, as if it were a client.
    Impostor,
    /// BFT-BC: signs optimistically, but another version.
    Mispredict,
    /// BFT-BC: answers readers with what a rogue client prepared.
    Accomplice,
    /// BFT-BC: the same, but without the value.
    Withhold,
}

impl Profile {
    /// Returns its name in reports.
    pub fn name(self) -> String {
        format!("{self:?}").chars().fold(String::new(), |mut name, letter| {
            if letter.is_ascii_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.push(letter.to_ascii_lowercase());
            name
        })
    }

    /// Every profile, with what it does.
    pub const ALL: &[(Self, &str)] = &[
        (Self::FailureFree, "works correctly"),
        (Self::Crash, "stops"),
        (Self::CrashRecover, "is down and up in turn, and keeps its data"),
        (Self::FakeValue, "answers readers with made-up values under true versions, as in the paper"),
        (Self::FakeSame, "answers readers with made-up values that have the current counter"),
        (Self::FakeInflated, "answers readers with made-up values that have a much larger counter"),
        (Self::FakeRandom, "answers readers with made-up values that have a random counter"),
        (Self::AckNoStore, "acknowledges values without storing them"),
        (Self::Stale, "answers readers with the value that it had first"),
        (
            Self::Refuse,
            "tells every client that it has no right, and answers half of the requests nevertheless",
        ),
        (Self::Omit, "omits half of its messages"),
        (Self::SilentToReaders, "answers writers only"),
        (Self::Slow, "answers late, but correctly"),
        (Self::Equivocate, "answers half of the clients with made-up values, and ignores some writes"),
        (Self::Collude, "sends the same made-up values as the other faulty servers"),
        (
            Self::LateEntrance,
            "sends its first answer to a read only after other servers have forwarded values",
        ),
        (Self::ForwardFlood, "floods readers with made-up values and messages that end their reads"),
        (Self::BadCrypto, "sends invalid signatures and certificates"),
        (Self::InflateTimestamp, "sends a version far ahead, without its writer's signature"),
        (Self::Impostor, "sends values to other servers as if it were a client"),
        (Self::Mispredict, "approves a version that no client asked for"),
        (Self::Accomplice, "answers readers with what a faulty client prepared"),
        (Self::Withhold, "does the same, and withholds the value"),
    ];

    /// Returns the profile with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().map(|(profile, _)| *profile).find(|profile| profile.name() == name)
    }

    /// Says whether it is tolerated by a protocol, and does something there.
    pub fn fits(self, protocol: Protocol) -> bool {
        matches!(self, Self::FailureFree | Self::CrashRecover | Self::Stale | Self::Refuse)
            || Self::of(protocol).contains(&self)
    }

    /// Profiles that the swarm draws now and then in place of one of [`Self::of`].
    pub const NEWER: &[Self] = &[Self::Stale, Self::CrashRecover, Self::Refuse];

    /// Returns the profiles that the swarm draws from.
    pub fn of(protocol: Protocol) -> Vec<Self> {
        use Profile::{
            Accomplice, AckNoStore, BadCrypto, Collude, Crash, Equivocate, FakeInflated, FakeRandom,
            FakeSame, ForwardFlood, Impostor, InflateTimestamp, LateEntrance, Mispredict, Omit,
            SilentToReaders, Slow, Withhold,
        };
        let mut list = vec![
            Profile::FakeValue,
            Crash,
            FakeSame,
            FakeInflated,
            FakeRandom,
            AckNoStore,
            Omit,
            SilentToReaders,
            Slow,
            Equivocate,
            Collude,
            BadCrypto,
            Impostor,
        ];
        match protocol {
            Protocol::Phalanx => list.push(InflateTimestamp),
            Protocol::MinimalC => list.extend([LateEntrance, ForwardFlood]),
            Protocol::MinimalF => list.extend([LateEntrance, ForwardFlood, InflateTimestamp]),
            Protocol::BftBc(variant) => {
                list.extend([Accomplice, Withhold, InflateTimestamp]);
                if variant.is_optimized() {
                    list.push(Mispredict);
                }
            }
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_of_a_protocol_has_a_name() {
        for (protocol, _) in Protocol::ALL {
            for profile in Profile::of(*protocol) {
                assert_eq!(Profile::from_name(&profile.name()), Some(profile));
                assert!(profile.fits(*protocol));
            }
        }
        assert_eq!(Profile::from_name("fake-valu"), None);
        assert!(!Profile::Mispredict.fits(Protocol::Phalanx) && Profile::Stale.fits(Protocol::Phalanx));
    }
}
