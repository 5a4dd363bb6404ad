//! Evidence (§15): accusations that a server or client has found, on its disk, and as a file that anybody can check with the public
//! keys in `cluster.toml`.
//!
//! ```text
//! title [32]   cluster [32]   epoch u32   count u16   count times: length u32, accusation
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quorate_node::members::{Members, client_identity, client_name, principal};
use quorate_quorum::access::SignedList;
use quorate_quorum::accusation::{Accusation, Offence};
use quorate_quorum::crypto::{Crypto, Signature, Statement, statement_digest};
use quorate_quorum::{ObjectId, Protocol, Settings, Thresholds};
use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::sign::{PublicKey, Verifier};
use quorate_wire::{ClusterId, Principal};
use tracing::warn;

/// The file in the directory of a server or client. It outlives the server's disk.
pub const FILE: &str = "evidence";
/// The most accusations in a file: one of each kind against a process.
pub const ACCUSATIONS_MAX: u16 = 256;
/// The most accusations that a server sends at once.
pub const PART_MAX: u16 = 16;
/// The longest accusation, in bytes.
pub const BYTES_MAX: usize = 32 << 10;

const TITLE: &[u8; 32] = b"quorate register evidence 1\n\0\0\0\0";

/// Whose register it is: the cluster and its epoch.
pub type Of = (ClusterId, u32);

/// Accusations, one of each kind against a process. Never more than [`ACCUSATIONS_MAX`]: further ones are dropped.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    list: Vec<Accusation>,
    against: BTreeSet<(u64, u8)>,
}

impl Evidence {
    /// Adds an accusation. Returns whether it is the first of its kind against this process.
    pub fn add(&mut self, accusation: Accusation) -> bool {
        let about = (accusation.accused.key_holder(), accusation.offence.kind());
        let new = self.list.len() < usize::from(ACCUSATIONS_MAX) && self.against.insert(about);
        if new {
            self.list.push(accusation);
        }
        new
    }

    /// Returns the accusations, oldest first.
    pub fn list(&self) -> &[Accusation] {
        &self.list
    }

    /// Returns the bytes of a file.
    pub fn bytes(&self, (cluster, epoch): Of) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        w.bytes(TITLE);
        w.bytes(&cluster.0);
        w.u32(epoch);
        w.count16(self.list.len());
        for accusation in &self.list {
            let mut one = Vec::new();
            accusation.encode(&mut one);
            w.blob(&one);
        }
        bytes
    }

    /// Reads a file. Nothing is verified.
    ///
    /// # Errors
    ///
    /// The bytes are no evidence.
    pub fn parse(bytes: &[u8]) -> Decoded<(Of, Self)> {
        let mut r = Reader::new(bytes);
        if r.array::<32>()? != *TITLE {
            return Err(DecodeError::NotCanonical);
        }
        let of = (ClusterId(r.array()?), r.u32()?);
        let mut evidence = Self::default();
        for _ in 0..r.count16(ACCUSATIONS_MAX)? {
            if !evidence.add(Accusation::decode(r.blob(BYTES_MAX)?)?) {
                return Err(DecodeError::NotCanonical);
            }
        }
        r.end()?;
        Ok((of, evidence))
    }
}

/// The public keys of a register, which check and sign nothing.
#[derive(Debug)]
pub struct Public {
    settings: Settings,
    of: Of,
    verifier: Verifier,
}

impl Public {
    /// Returns the keys of the members. None: they cannot be those of a register.
    pub fn new(members: &Members, epoch: u32) -> Option<Self> {
        let (n, f) = (u16::try_from(members.cluster.n()).ok()?, u16::try_from(members.cluster.f()).ok()?);
        let mut verifier = members.verifier();
        for (number, key) in &members.clients {
            verifier.insert(client_identity(*number), &PublicKey::Ed25519(*key));
        }
        // What an accusation needs of the settings is the sizes of quorums.
        let mut settings = Settings::new(Thresholds::new(n, f).ok()?, Protocol::Phalanx);
        settings.administrators = members.administrators.iter().map(|number| principal(*number)).collect();
        Some(Self { settings, of: (members.cluster_id(), epoch), verifier })
    }

    /// Says whether an accusation holds.
    pub fn holds(&self, accusation: &Accusation) -> bool {
        accusation.holds(&self.settings, &mut Checker(self))
    }

    /// Says whether an administrator signed an access list.
    pub fn is_signed(&self, signed: &SignedList) -> bool {
        signed.is_valid(&self.settings.administrators, &mut Checker(self))
    }
}

struct Checker<'a>(&'a Public);

impl Crypto for Checker<'_> {
    fn sign(&mut self, _object: &ObjectId, _statement: &Statement) -> Signature {
        unreachable!("an accusation is only verified")
    }

    fn verify(
        &mut self,
        signer: Principal,
        object: &ObjectId,
        statement: &Statement,
        signature: &Signature,
    ) -> bool {
        let digest = statement_digest(self.0.of.0, self.0.of.1, object, statement);
        self.0.verifier.verify(signer, &digest, signature)
    }

    fn random(&mut self) -> u128 {
        unreachable!("an accusation is only verified")
    }
}

/// Returns the name of a process.
pub fn name_of(principal: Principal) -> String {
    match principal {
        Principal::Replica(server) => format!("server {}", server.0),
        Principal::Client(client) => client_name(client.principal().saturating_sub(1)),
    }
}

/// Returns a line about an accusation.
pub fn line(accusation: &Accusation) -> String {
    let Accusation { accused, offence, .. } = accusation;
    let about = match offence {
        Offence::TwoVersions(one, _) | Offence::TwoApprovals(one, _) | Offence::Wrote(one) => Some(one.0),
        Offence::BadRequest(..) | Offence::TwoRequests(_) => None,
    };
    let counter = match about {
        Some(Statement::Written(version) | Statement::Prepared(version, _)) => {
            format!(" (counter {})", version.val)
        }
        _ => String::new(),
    };
    format!("{} {}{counter}", name_of(*accused), offence.says())
}

/// Returns what a server or client has found, from the file in its directory. Nothing is verified. A file that is damaged, or
/// of another register, has nothing.
pub fn of_directory(dir: &Path, of: Of) -> Evidence {
    let read = fs::read(dir.join(FILE)).ok().and_then(|bytes| Evidence::parse(&bytes).ok());
    read.filter(|(whose, _)| *whose == of).map(|(_, evidence)| evidence).unwrap_or_default()
}

/// The evidence of a server or client, on its disk.
#[derive(Debug)]
pub(crate) struct Kept {
    path: PathBuf,
    of: Of,
    evidence: Evidence,
}

impl Kept {
    /// Opens what is in a directory. A file that is damaged, or of another register, is left and overwritten later.
    pub(crate) fn open(dir: &Path, of: Of) -> Self {
        Self { path: dir.join(FILE), of, evidence: of_directory(dir, of) }
    }

    /// Returns the accusations from a number on, as many as a note has, and how many there are.
    pub(crate) fn part(&self, from: u16) -> (u16, Arc<[Accusation]>) {
        let list = &self.evidence.list;
        let part = list.iter().skip(from.into()).take(PART_MAX.into()).cloned().collect();
        (u16::try_from(list.len()).unwrap_or(u16::MAX), part)
    }

    /// Adds what was found.
    pub(crate) fn take(&mut self, found: Vec<Accusation>) {
        for accusation in found {
            let said = line(&accusation);
            match self.add(accusation) {
                Ok(true) => warn!(said, "evidence: see `quorate quorum evidence`"),
                Ok(false) => {}
                // It decides nothing: the server goes on.
                Err(error) => warn!(%error, said, "evidence cannot be written"),
            }
        }
    }

    /// Adds an accusation, and writes the file if it is new. Returns whether it is.
    fn add(&mut self, accusation: Accusation) -> io::Result<bool> {
        if !self.evidence.add(accusation) {
            return Ok(false);
        }
        let draft = self.path.with_extension("new");
        let mut file = File::create(&draft)?;
        file.write_all(&self.evidence.bytes(self.of))?;
        file.sync_all()?;
        fs::rename(&draft, &self.path)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::Secrets;
    use quorate_quorum::Version;
    use quorate_quorum::accusation::offence_of;
    use quorate_wire::sign::Signer;
    use quorate_wire::{ClientId, Cluster, Digest, ReplicaId};
    use std::collections::BTreeMap;

    const OBJECT: ObjectId = ObjectId([3; 32]);

    fn signer(number: u8) -> Signer {
        Signer::ed25519([number; 32])
    }

    fn key(number: u8) -> [u8; 32] {
        let PublicKey::Ed25519(key) = signer(number).public() else { unreachable!("it is Ed25519") };
        key
    }

    fn members() -> Members {
        Members {
            cluster: Cluster::tolerating(1).unwrap(),
            drawn: Some([5; 32]),
            replicas: (0..4).map(key).collect(),
            clients: BTreeMap::from([(0, key(10)), (1, key(11))]),
            administrators: BTreeSet::new(),
            added: BTreeMap::new(),
            settings: String::new(),
        }
    }

    fn sign(who: Principal, number: u8, statement: Statement) -> (Statement, Signature) {
        let of = (members().cluster_id(), 1);
        let mut secrets = Secrets::new(of, who, signer(number), Verifier::default(), [1; 32]);
        (statement, secrets.sign(&OBJECT, &statement))
    }

    fn version(client: u64, val: u64, digest: u8) -> Version {
        Version { val, client: ClientId::new(client, 0), digest: Digest([digest; 32]) }
    }

    /// Client 0 signed two versions, server 3 approved two, and server 2 signed as a writer.
    fn guilty() -> Evidence {
        let (client, server) = (Principal::Client(ClientId::new(1, 0)), Principal::from(ReplicaId(3)));
        let wrote = |digest| sign(client, 10, Statement::Written(version(1, 7, digest)));
        let approved = |digest| sign(server, 3, Statement::Prepared(version(2, 4, digest), None));
        let second = Principal::from(ReplicaId(2));
        let as_writer = Offence::Wrote(sign(second, 2, Statement::Written(version(1, 1, 1))));
        let mut evidence = Evidence::default();
        assert!(evidence.add(offence_of(client, OBJECT, wrote(1), wrote(2)).unwrap()));
        assert!(evidence.add(offence_of(server, OBJECT, approved(1), approved(2)).unwrap()));
        assert!(evidence.add(Accusation { accused: second, object: OBJECT, offence: as_writer }));
        evidence
    }

    #[test]
    fn anybody_can_check_evidence_with_the_public_keys() {
        let of = (members().cluster_id(), 1);
        let (whose, evidence) = Evidence::parse(&guilty().bytes(of)).unwrap();
        assert_eq!((whose, evidence.list()), (of, guilty().list()));
        let public = Public::new(&members(), 1).unwrap();
        assert!(evidence.list().iter().all(|accusation| public.holds(accusation)));
        let other = Public::new(&members(), 2).unwrap();
        assert!(!evidence.list().iter().any(|accusation| other.holds(accusation)), "another epoch");
        assert_eq!(
            line(&evidence.list()[1]),
            "server 3 approved two versions of one client with one counter: it is Byzantine (counter 4)"
        );
    }

    /// Evidence with another byte proves nothing: not against the accused, and not against another process.
    #[test]
    fn evidence_cannot_be_forged() {
        let public = Public::new(&members(), 1).unwrap();
        for accusation in guilty().list() {
            let mut bytes = Vec::new();
            accusation.encode(&mut bytes);
            for place in 0..bytes.len() {
                for bit in 0..8 {
                    let mut other = bytes.clone();
                    other[place] ^= 1 << bit;
                    let forged = Accusation::decode(&other);
                    assert!(!forged.is_ok_and(|forged| public.holds(&forged)), "byte {place}, bit {bit}");
                }
            }
        }
    }

    /// What correct processes sign makes no evidence, in whatever way it is put together.
    #[test]
    fn what_correct_processes_sign_is_no_evidence() {
        let public = Public::new(&members(), 1).unwrap();
        let (client, server) = (Principal::Client(ClientId::new(1, 0)), Principal::from(ReplicaId(3)));
        let lock = Digest([9; 32]);
        let mut all = Vec::new();
        for val in 1..4 {
            let digest = u8::try_from(val).unwrap();
            all.push((client, sign(client, 10, Statement::Written(version(1, val, digest)))));
            for statement in [
                Statement::Prepared(version(1, val, digest), None),
                Statement::Prepared(version(1, val, digest + 50), Some(lock)),
                Statement::Prepared(version(2, val, digest + 60), None),
                Statement::Stored(version(1, val, digest)),
                Statement::Stored(version(1, val, digest + 50)),
                Statement::Answered(version(1, val, digest)),
                Statement::Answered(version(1, val, digest + 50)),
            ] {
                all.push((server, sign(server, 3, statement)));
            }
        }
        for (_, a) in &all {
            for (_, b) in &all {
                for accused in [client, server, ReplicaId(2).into()] {
                    let one = [*a, *b].map(Offence::Wrote);
                    for offence in
                        [Offence::TwoVersions(*a, *b), Offence::TwoApprovals(*a, *b)].into_iter().chain(one)
                    {
                        assert!(
                            !public.holds(&Accusation { accused, object: OBJECT, offence }),
                            "{a:?} {b:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_server_keeps_one_accusation_of_each_kind() {
        let dir = std::env::temp_dir().join(format!("quorate-evidence-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let of = (members().cluster_id(), 1);
        let mut kept = Kept::open(&dir, of);
        for accusation in guilty().list() {
            assert!(kept.add(accusation.clone()).unwrap());
            assert!(!kept.add(accusation.clone()).unwrap());
        }
        assert_eq!(Kept::open(&dir, of).evidence.list(), guilty().list());
        assert!(Kept::open(&dir, (of.0, 2)).evidence.list().is_empty(), "another epoch");
        fs::remove_dir_all(&dir).unwrap();
        let mut evidence = Evidence::default();
        let wrote = Offence::Wrote((Statement::Written(version(1, 1, 1)), [0; 64]));
        let added = (1..=400_u64).filter(|client| {
            let accused = Principal::Client(ClientId::new(*client, 0));
            evidence.add(Accusation { accused, object: OBJECT, offence: wrote.clone() })
        });
        assert_eq!(added.count(), usize::from(ACCUSATIONS_MAX));
    }
}
