//! A node's socket in an experiment. To measure the cost of signatures, it can sign every datagram.
//!
//! The protocol has no mode that signs everything. So each datagram carries its sender's signature in addition to its MACs,
//! and the signature is verified first. The cost of the MACs is small compared with it. A datagram for several replicas is
//! signed once.

use anyhow::Result;
use quorate_node::Transport;
use quorate_node::{Idle, Place, Socket};
use quorate_wire::digest::{ClusterId, Domains};
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{Principal, ReplicaId, Source};

/// Bytes after a signed datagram: its sender's number and the signature.
const TRAILER_BYTES: usize = 8 + 64;
/// A replica's number is its id; a client's number has this bit set.
const CLIENT: u64 = 1 << 63;

/// A socket. See the module.
pub(crate) struct Link {
    socket: Socket,
    signing: Option<Signing>,
    buffer: Vec<u8>,
}

/// The keys to sign and verify with.
pub(crate) struct Signing {
    own: u64,
    signer: Signer,
    verifier: Verifier,
    domains: Domains,
    /// The datagram that was signed last, with its trailer.
    last: Vec<u8>,
}

fn number(of: Principal) -> u64 {
    match of {
        Principal::Replica(id) => u64::from(id.0),
        Principal::Client(id) => id.principal() | CLIENT,
    }
}

fn principal(number: u64) -> Option<Principal> {
    if number & CLIENT != 0 {
        return Some(Principal::Client(quorate_wire::ClientId::new(number & !CLIENT, 0)));
    }
    u16::try_from(number).ok().map(|id| Principal::Replica(ReplicaId(id)))
}

impl Signing {
    pub(crate) fn new(
        own: Principal,
        everyone: impl Iterator<Item = Principal>,
        signer: impl Fn(Principal) -> Signer,
    ) -> Self {
        let mut verifier = Verifier::default();
        for who in everyone {
            verifier.insert(who, &signer(who).public());
        }
        let domains = Domains::new(ClusterId([7; 32]));
        Self { own: number(own), signer: signer(own), verifier, domains, last: Vec::new() }
    }

    fn sign(&mut self, datagram: &[u8]) -> &[u8] {
        let known = self.last.len().checked_sub(TRAILER_BYTES).and_then(|len| self.last.get(..len));
        if known != Some(datagram) {
            self.last.clear();
            self.last.extend_from_slice(datagram);
            self.last.extend_from_slice(&self.own.to_le_bytes());
            let signature = self.signer.sign(&self.domains.signature(&self.last));
            self.last.extend_from_slice(&signature);
        }
        &self.last
    }

    /// Returns the length of a datagram without its signature; none if the signature is wrong.
    fn verify(&self, datagram: &[u8]) -> Option<usize> {
        let (covered, signature) = datagram.split_last_chunk::<64>()?;
        let (body, sender) = covered.split_last_chunk::<8>()?;
        let sender = principal(u64::from_le_bytes(*sender))?;
        let digest = self.domains.signature(covered);
        self.verifier.verify(sender, &digest, signature).then_some(body.len())
    }
}

impl Link {
    pub(crate) fn new(socket: Socket, signing: Option<Signing>) -> Self {
        Self { socket, signing, buffer: Vec::new() }
    }

    /// Returns the socket if nothing is signed.
    pub(crate) fn plain(&mut self) -> Option<&mut Socket> {
        self.signing.is_none().then_some(&mut self.socket)
    }

    /// Takes the next datagram that is authentic, and where it came from.
    #[inline]
    pub(crate) fn receive(&mut self) -> Result<Option<(Source, &[u8])>> {
        let Some(signing) = &self.signing else { return Ok(self.socket.receive()?) };
        while let Some((source, datagram)) = self.socket.receive()? {
            if let Some(len) = signing.verify(datagram) {
                self.buffer.clear();
                self.buffer.extend_from_slice(datagram.get(..len).unwrap_or(&[]));
                return Ok(Some((source, &self.buffer)));
            }
        }
        Ok(None)
    }

    /// Tells who has made what was received last, if it was authentic.
    #[inline]
    pub(crate) fn judge(&mut self, by: Option<Principal>) {
        self.socket.judge(by);
    }

    /// There was nothing to do at `now_ns`, and nothing is due before `due_ns`.
    #[inline]
    pub(crate) fn rest(&self, idle: &mut Idle, now_ns: u64, due_ns: u64) -> Result<()> {
        Ok(idle.rest(now_ns, due_ns, &self.socket, None, || false)?)
    }

    pub(crate) fn wait(&self, ms: u16) -> Result<()> {
        Ok(self.socket.wait(ms, None)?)
    }
}

impl Transport for Link {
    #[inline]
    fn ask_sources(&mut self, asks: bool) {
        self.socket.ask_sources(asks);
    }

    #[inline]
    fn send(&mut self, to: Place, datagram: &[u8]) {
        match &mut self.signing {
            None => self.socket.send(to, datagram),
            Some(signing) => self.socket.send(to, signing.sign(datagram)),
        }
    }

    fn send_long(&mut self, to: Place, frame: Vec<u8>) {
        self.socket.send_long(to, frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_node::TestKeys;
    use quorate_wire::{ClientId, Cluster};

    #[test]
    fn a_datagram_is_verified_and_a_changed_one_is_not() {
        let cluster = Cluster::tolerating(1).unwrap_or_else(|_| unreachable!("1 is a number of faults"));
        let keys = TestKeys::new(1, cluster, 1);
        let everyone = [Principal::Replica(ReplicaId(0)), Principal::Client(ClientId::new(1, 0))];
        for own in everyone {
            let mut signing = Signing::new(own, everyone.into_iter(), |who| keys.signer(who));
            let mut signed = signing.sign(b"what it says").to_vec();
            assert_eq!(signing.verify(&signed), Some(12));
            signed[3] ^= 1;
            assert_eq!(signing.verify(&signed), None);
            assert_eq!(signing.verify(b"short"), None);
        }
    }
}
