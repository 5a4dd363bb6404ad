//! A read of MINIMAL (§4): each server enters once; the f + 1 largest versions at the last entrance
//! are the candidates; the read decides on q equal answers.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::cert::Evidence;
use crate::crypto::Signature;
use crate::message::Rid;
use crate::mutants::Mutant;
use crate::settings::Settings;
use crate::thresholds::{ServerId, ServerSet};
use crate::version::{Value, Version};

/// What a server said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) version: Version,
    pub(crate) value: Value,
    pub(crate) forwarded: bool,
    pub(crate) signature: Option<Signature>,
}

/// A version of T with those that answered it.
#[derive(Debug)]
struct Candidate {
    version: Version,
    value: Value,
    servers: ServerSet,
    forwarded: ServerSet,
    signatures: Vec<(ServerId, Signature)>,
}

/// A read in progress, under one rid.
#[derive(Debug)]
pub(crate) struct Collect {
    rid: Rid,
    entered: ServerSet,
    /// The largest version that each server said, by server.
    largest: Vec<Option<Said>>,
    candidates: Vec<Candidate>,
    most: usize,
}

/// What q servers agree on.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) version: Version,
    pub(crate) value: Value,
    /// A forwarded store is among the q answers.
    pub(crate) forwarded: bool,
    pub(crate) evidence: Evidence,
    /// The most candidates held.
    pub(crate) most: u8,
}

impl Candidate {
    fn add(&mut self, server: ServerId, said: &Said) {
        if self.servers.insert(server) {
            if said.forwarded {
                self.forwarded.insert(server);
            }
            if let Some(signature) = said.signature {
                self.signatures.push((server, signature));
            }
        }
    }
}

impl Collect {
    pub(crate) fn new(rid: Rid, settings: &Settings) -> Self {
        let largest = settings.thresholds.servers().map(|_| None).collect();
        Self { rid, entered: ServerSet::default(), largest, candidates: Vec::new(), most: 0 }
    }

    /// Returns the rid that it runs under.
    pub(crate) fn rid(&self) -> Rid {
        self.rid
    }

    /// Takes a VAL whose value hashes to its version. Returns what q servers agree on.
    pub(crate) fn take(&mut self, from: ServerId, said: &Said, settings: &Settings) -> Option<Decided> {
        let version = said.version;
        let slot = self.largest.get_mut(from.index())?;
        if slot.as_ref().is_none_or(|before| version > before.version) {
            *slot = Some(said.clone());
        }
        if self.entered.insert(from) {
            self.enter(settings);
        }
        let candidate = self.candidates.iter_mut().find(|candidate| candidate.version == version);
        if let Some(candidate) = candidate {
            candidate.add(from, said);
        }
        self.decide(settings)
    }

    /// An entrance: T becomes the f + 1 largest distinct versions, and its answers are rebuilt from
    /// the largest version that each server said: otherwise, a new candidate would lack answers that came
    /// before it was one (§4). After the last entrance T is frozen.
    fn enter(&mut self, settings: &Settings) {
        let mut versions: Vec<Version> = self.largest.iter().flatten().map(|said| said.version).collect();
        versions.sort_unstable_by(|a, b| b.cmp(a));
        versions.dedup();
        if !settings.wrong(Mutant::AllCandidates) {
            let few = usize::from(settings.wrong(Mutant::TooFewCandidates));
            versions.truncate(settings.thresholds.weak() - few);
            self.candidates.retain(|candidate| versions.contains(&candidate.version));
        }
        for version in versions {
            let place = self.candidates.iter().position(|candidate| candidate.version == version);
            let place = place.unwrap_or_else(|| {
                let said = self.largest.iter().flatten().find(|said| said.version == version);
                let value = said.map_or_else(|| Arc::from([]), |said| Arc::clone(&said.value));
                self.candidates.push(Candidate {
                    version,
                    value,
                    servers: ServerSet::default(),
                    forwarded: ServerSet::default(),
                    signatures: Vec::new(),
                });
                self.candidates.len() - 1
            });
            if settings.wrong(Mutant::NoRebuild) {
                continue;
            }
            for server in settings.thresholds.servers() {
                if let Some(Some(said)) = self.largest.get(server.index())
                    && said.version == version
                {
                    self.candidates[place].add(server, said);
                }
            }
        }
        self.most = self.most.max(self.candidates.len());
    }

    fn decide(&self, settings: &Settings) -> Option<Decided> {
        let weak = settings.wrong(Mutant::DecideWeak);
        let enough = if weak { settings.thresholds.weak() } else { settings.thresholds.q() };
        let found = self.candidates.iter().find(|candidate| candidate.servers.len() >= enough)?;
        let mut answers: Vec<(ServerId, Version, Signature)> =
            found.signatures.iter().map(|(server, signature)| (*server, found.version, *signature)).collect();
        answers.sort_unstable_by_key(|(server, ..)| *server);
        Some(Decided {
            version: found.version,
            value: Arc::clone(&found.value),
            forwarded: !found.forwarded.is_empty(),
            evidence: Evidence { answers: answers.into() },
            most: u8::try_from(self.most).unwrap_or(u8::MAX),
        })
    }

    /// Returns the largest version that f + 1 servers answered: one of them is correct, so in
    /// MINIMAL-C it was written (§4, the timer's write-back).
    pub(crate) fn vouched(&self, settings: &Settings) -> Option<(Version, Value)> {
        let vouched = self.candidates.iter().filter(|one| one.servers.len() >= settings.thresholds.weak());
        let largest = vouched.max_by_key(|candidate| candidate.version)?;
        Some((largest.version, Arc::clone(&largest.value)))
    }
}

impl Collect {
    /// For a mutant: what q servers said last, with their signatures, whatever it is.
    pub(crate) fn any_answers(&self, q: usize) -> Option<Evidence> {
        let said = self.largest.iter().enumerate();
        let said = said.filter_map(|(index, said)| {
            let said = said.as_ref()?;
            Some((ServerId::at(index), said.version, said.signature.unwrap_or([0; 64])))
        });
        let answers: Vec<(ServerId, Version, Signature)> = said.take(q).collect();
        (answers.len() >= q).then(|| Evidence { answers: answers.into() })
    }
}
