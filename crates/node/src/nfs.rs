//! The relay: NFS in, replicated operations out.
//!
//! What is said on a connection is [`quorate_fs::relay`]'s, the loop around it the
//! [`front`](crate::front)'s. A relay keeps nothing that matters: file handles, replies to calls that come
//! again, and the mount list are in the replicated state, so that relays may come and go, and there may be
//! many of them. It is trusted for the addresses and users that it forwards; run one on each machine that
//! mounts.
//!
//! A read for which no quorum answers in time is answered by JUKEBOX, and so is a call that found no lane:
//! the client tries again in a while. MNT fails then: done twice it is as if it was done once. A call that changes
//! the file system and is under way is waited for as long as it takes: JUKEBOX would make the client send it anew,
//! under another number, and it might be done twice.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use quorate_fs::Fs;
use quorate_fs::relay::{Connection, Limits as ConnectionLimits, Ticket};
use quorate_pbft::config::Durability;
use quorate_service::{Alone, Options};

use crate::client::ClientDrive;
use crate::front::{
    Cluster, Counts, Failure, FrontDoor, INPUT_BYTES, Limits, Question, Refused, Talk, Turn, Unreplicated,
};
use crate::meter::Meter;
use crate::socket::Socket;

/// A relay.
pub type NfsDoor<M = ()> = FrontDoor<NfsTalk, Cluster<M>>;

/// Opens a relay at `address`. `drive` has the lanes that the limits say; `socket` is its own.
///
/// # Errors
///
/// The address is taken or not ours, or there are too many open files.
pub fn open<M: Meter>(
    address: SocketAddr,
    limits: Limits,
    fs: Fs,
    drive: ClientDrive<M>,
    socket: Socket,
) -> io::Result<NfsDoor<M>> {
    FrontDoor::open(address, limits, fs, Cluster { drive, socket })
}

/// Opens the same door at `address` with one file system behind it, in this process and in memory, without
/// replicas: what replication is compared with. `durability` says whether what changes it is written to `log`.
///
/// # Errors
///
/// The address is taken or not ours, or the log cannot be made.
pub fn open_alone(
    address: SocketAddr,
    limits: Limits,
    fs: Fs,
    durability: Durability,
    log: &Path,
) -> io::Result<FrontDoor<NfsTalk, Unreplicated<Fs>>> {
    let service = Alone::new(fs.clone(), &Options::default()).map_err(io::Error::other)?;
    FrontDoor::open(address, limits, fs, Unreplicated::new(service, durability, log)?)
}

/// One connection of an NFS client.
#[derive(Debug)]
pub struct NfsTalk {
    connection: Connection,
    /// What came and could not be taken yet. At most [`INPUT_BYTES`].
    rest: Vec<u8>,
    /// The stream can be understood no more, or is not served: nothing is owed to it.
    is_broken: bool,
    /// The other side sends no more.
    is_last: bool,
}

impl NfsTalk {
    /// Offers the connection what came.
    fn feed(&mut self, fs: &Fs) {
        if self.is_broken || self.rest.is_empty() {
            return;
        }
        match self.connection.receive(fs, &self.rest) {
            Ok(taken) => drop(self.rest.drain(..taken)),
            Err(_) => self.is_broken = true,
        }
    }
}

impl Talk for NfsTalk {
    type Protocol = Fs;

    fn open(_fs: &Fs, peer: SocketAddr, _id: u64) -> Self {
        let address = match peer.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        Self {
            connection: Connection::new(address, ConnectionLimits::default()),
            rest: Vec::new(),
            is_broken: false,
            is_last: false,
        }
    }

    /// RPC has no words for it: the connection ends, and the client comes again.
    fn refuse(&mut self, _why: Refused) {
        self.is_broken = true;
    }

    fn wants_input(&self) -> bool {
        !self.is_broken && !self.is_last && self.rest.is_empty() && self.connection.is_open()
    }

    fn is_large(&self) -> bool {
        self.connection.held() >= INPUT_BYTES
    }

    fn receive(&mut self, fs: &Fs, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        self.feed(fs);
    }

    fn hang_up(&mut self) {
        self.is_last = true;
    }

    fn work(&mut self, fs: &Fs, _counts: &mut Counts) -> Turn {
        self.feed(fs);
        Turn::Rest
    }

    fn question(&mut self, operation: &mut Vec<u8>) -> Option<Question> {
        let submit = self.connection.submit()?;
        operation.clear();
        operation.extend_from_slice(submit.operation);
        let (ticket, read_only) = (submit.ticket.0, submit.read_only);
        Some(Question { ticket, read_only, may_give_up: submit.may_give_up })
    }

    fn has_question(&self) -> bool {
        self.connection.has_submit()
    }

    fn answer(&mut self, _fs: &Fs, ticket: u64, result: &[u8], _counts: &Counts) {
        self.connection.replied(Ticket(ticket), result);
    }

    fn fail(&mut self, ticket: u64, failure: Failure) {
        match failure {
            Failure::ResultLost => self.connection.ask_again(Ticket(ticket)),
            Failure::NothingDone | Failure::Unknown | Failure::NoLane => {
                self.connection.unanswered(Ticket(ticket))
            }
        }
    }

    fn output(&self) -> &[u8] {
        self.connection.outgoing()
    }

    fn sent(&mut self, count: usize) {
        self.connection.sent(count);
    }

    fn has_ended(&self) -> bool {
        self.is_broken || (self.is_last && self.connection.is_idle())
    }

    fn is_stalled(&self) -> bool {
        !self.output().is_empty() || self.connection.is_amid() || (self.is_last && !self.connection.is_idle())
    }

    fn held(&self) -> usize {
        self.connection.held() + self.rest.capacity()
    }
}
