//! Seeded bugs (§17): a simulation plants one in its [`Settings`](crate::Settings) and shows that it
//! finds it. Without the feature `mutants` no bug can be planted and the compiler removes each one.

macro_rules! mutants {
    ($($id:ident = $name:literal, $what:literal;)*) => {
        /// A seeded bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant { $(#[doc = $what] $id),* }

        impl Mutant {
            /// Every mutant.
            pub const ALL: &[Self] = &[$(Self::$id),*];

            /// Returns its name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$id => $name),* }
            }

            /// Returns what it does wrong.
            pub fn what(self) -> &'static str {
                match self { $(Self::$id => $what),* }
            }
        }
    };
}

mutants! {
    ForwardAll = "minimal-forward-all", "Every STORE is forwarded to every listener (§4).";
    ForwardNewer = "minimal-forward-newer", "Only a STORE that is newer than the current version is forwarded (§4).";
    DecideWeak = "minimal-decide-weak", "A read decides on f + 1 equal answers (§4).";
    TooFewCandidates = "minimal-t-of-f", "There are f candidates instead of f + 1 (§4).";
    NoRebuild = "minimal-no-rebuild", "At an entrance, servers are not added to the sets of their noted versions (§4).";
    AllCandidates = "minimal-t-all", "Every noted version is a candidate (§4).";
    RepeatRead = "minimal-repeat-read", "READ is repeated under its rid (§2.3).";
    NoReaderWriteBack = "minimal-c-no-write-back", "Readers of MINIMAL-C write nothing back (§4).";
    StoreDropped = "minimal-c-store-dropped", "STORE is not repeated once q servers acknowledged it, and readers write nothing back (§4).";
    StoreToQuorum = "minimal-c-store-to-quorum", "STORE goes to q servers only, and readers write nothing back (§18, 2).";
    RelayOnce = "minimal-f-relay-once", "FSTORE is not repeated (§2.3).";
    NoRelayAfterRestart = "minimal-f-no-relay-after-restart", "A restarted server does not relay its version (§5).";
    OldRead = "minimal-old-read", "A READ with an old rid is accepted (§4).";
    NoRelay = "minimal-f-no-relay", "Servers do not relay stores (§5).";
    UnsignedTimestamp = "minimal-f-unsigned-ts", "Writers take a version without its signature (§5).";
    EvidenceMaximum = "minimal-f-evidence-maximum", "Evidence is the maximum of q signed versions (§5).";
    AccessOnRelays = "access-on-relays", "What a client may write now decides about write-backs and relays, too (§15).";
    RightsOfSender = "rights-of-sender", "The rules decide about a client's own messages only (§15).";
    RightsIgnored = "bc-rights-ignored", "A server approves versions of clients that may not write (§15).";
    StaleList = "access-stale-list", "An access list replaces a newer one (§15).";
    UnsignedList = "access-unsigned-list", "The signature of an access list is not checked (§15).";
    RefusedByFew = "refused-by-few", "A client gives up when f servers say that it has no right (§15).";
    RefusedAskedOnce = "refused-asked-once", "After a refusal, servers that have answered are not asked again (§15).";
    ListKept = "access-list-kept", "Servers do not pass access lists on (§15).";
    NoWriteBack = "phalanx-no-write-back", "A reader writes nothing back (§3).";
    WriteBackUnawaited = "phalanx-write-back-unawaited", "A reader returns before its write-back is acknowledged (§3).";
    VerifyNothing = "phalanx-verify-nothing", "No signature of a value is checked (§3).";
    NewerOnly = "answer-newer-only", "A write that is not newer gets no answer (§3, §6.8).";
    NoDigest = "bc-no-digest", "Versions are compared without their digest (H1).";
    NoPlist = "bc-no-plist", "PREPARE is signed without a look at the prepare list (§6.1 c).";
    ClearOnPrepare = "bc-clear-on-prepare", "Prepare certificates clear the prepare list (§6.8).";
    SignOld = "bc-sign-old", "A version at or below `write_ver` is signed without using up a slot (§6.1 d, H2).";
    WipedSigns = "bc-wiped-signs", "A server that lost its lists signs PREPARE-REPLY (§15).";
    Untagged = "bc-untagged", "A certificate may mix NORMAL and OPT signatures (H3).";
    NoLock = "bc-no-lock", "OPT certificates need no key (§6.4).";
    NoH2 = "bc-no-h2", "A request needs not cover what was evicted (H2).";
    SameCounter = "bc-same-counter", "A second version of a client with one counter is signed once the first one was evicted (§6.1 d).";
    LateOnce = "bc-late-once", "A signature that is late is not asked for again (§6.4).";
    SkipAhead = "bc-skip-ahead", "PREPARE may skip counters (§6.1 a).";
    DuplicateSigners = "bc-duplicate-signers", "A certificate may name a signer twice (§6).";
    OtherObject = "bc-other-object", "A certificate for another object is accepted (§2.2).";
    PreparedPredecessor = "strong-prepared-predecessor", "The strong variant builds on what is only prepared (§6.7).";
    OptUnpreceded = "strong-opt-unpreceded", "OPT is granted without a predecessor (H7).";
    NamedPredecessor = "strong-named-predecessor", "OPT is granted to a predecessor that is named, not certified (H7).";
    ValueWithheld = "strong-value-withheld", "Phase 1 accepts a certificate without its value (§6.7).";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_apart() {
        for (index, one) in Mutant::ALL.iter().enumerate() {
            assert!(Mutant::ALL[..index].iter().all(|other| other.name() != one.name()), "{}", one.name());
        }
    }
}
