//! The NFS gateway: NFS calls in, replicated operations out.
//!
//! The protocol of a connection is in [`quorate_fs::nfs3::relay`], the loop around it in [`crate::front`]. A gateway has no
//! durable state: file handles, replies to repeated calls, and the mount list are in the replicated state. So gateways can
//! be restarted, and there can be many of them. The replicas trust a gateway for the addresses and users that it forwards;
//! run one on each machine that mounts.
//!
//! A read without a quorum in time is answered with JUKEBOX, and so is a call without a free lane: the client repeats it
//! later. MNT fails then; executing it twice has no effect. A call in progress that changes the file system is waited for
//! without a limit: after JUKEBOX the client would send it again with another number, and it might be executed twice. If its
//! outcome stays unknown, the connection is closed: the client sends it again with the same number.

use std::ffi::CString;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use nix::unistd::{Gid, Uid, User, getgrouplist};
use quorate_fs::Fs;
use quorate_fs::nfs3::acts_as::{ActsAs, NOBODY};
use quorate_fs::nfs3::relay::{Connection, Limits as ConnectionLimits, Ticket};
use quorate_pbft::config::Durability;
use quorate_service::{Alone, Options};

use crate::front::{
    self, Cluster, Conversation, Counts, Ends, Failure, FrontDoor, Goes, INPUT_BYTES, Limits, Progress,
    Question, Refused, Unreplicated,
};
use quorate_node::Meter;
use quorate_node::client::ClientProcess;
use quorate_node::other_end::user_of;
use quorate_node::services::ServiceName;
use quorate_node::socket::Socket;
use quorate_node::{ClientNode, NodeError};

use crate::row::{GatewayRow, Given, OptionRow, Usage, failed};

/// An NFS gateway.
pub type NfsDoor<M = ()> = FrontDoor<NfsConversation, Cluster<M>>;

/// The gateway on the command line.
pub(crate) const ROW: GatewayRow = GatewayRow {
    name: "nfs",
    protocol: "NFS",
    users: "NFS clients (NFS and MOUNT protocols)",
    port: 20490,
    deadline: Duration::from_secs(10),
    service: ServiceName::FS,
    help: HELP,
    options: &[
        OptionRow {
            name: UNREPLICATED,
            value: None,
            values: &[],
            default: "",
            requires: "",
            help: "Use no cluster, and serve a file system from the memory of this process, for measurements. Its files are \
                   lost when the process stops. --dir is still needed: the settings are read from there, and the log of \
                   --durability is written there",
        },
        OptionRow {
            name: "durability",
            value: Some("DURABILITY"),
            values: &["sync", "async", "memory"],
            default: "memory",
            requires: UNREPLICATED,
            help: "With --unreplicated: what the gateway writes to the file unreplicated.log before each answer. memory: \
                   nothing. async: the change. sync: the change, with fsync. The gateway never reads this log, and \
                   deletes it when it stops",
        },
    ],
    usage: |address| Usage {
        command: mount_command(address),
        first: "quorate fs --dir CLIENT ls q:/".to_owned(),
    },
    exposed: "there, any user can act as any other user, except as root from a port above 1023",
    notes: &[
        "no root?     quorate mount --dir CLIENT DIR",
        "file locks work within this machine only (nolock)",
    ],
    serve,
};

/// The option that serves without replicas.
const UNREPLICATED: &str = "unreplicated";

const HELP: &str = "Run an NFS gateway

The gateway is a client of the cluster. It executes each call of an NFS version 3 client as one operation. It has no
state: you can kill it and restart it, and you can run several gateways.

If the cluster does not answer within the time of --deadline, a mount fails, and a read gets the answer \"try
again later\". A change gets the same answer if the gateway could not send it to the cluster in this time. A
change that was sent has no time limit: the gateway answers it when the cluster is available again.

The replicas trust the gateway to name the user of each call. On its own machine, the gateway asks the kernel which user
has made a connection. Only root and the user of the gateway can act for other users. On another machine, any user can
act as any other user, but only programs with a port below 1024 can act as root. Therefore run a separate gateway on
each machine that mounts the file system, and let it listen on 127.0.0.1.

An export (an entry of `fs_exports` in cluster.toml) does not isolate files. A malicious NFS client can reach files
outside the directory that it mounted, if it guesses their file handles. To isolate files, use a separate cluster.

Example:

  quorate nfs --dir cluster/client-0 --listen 127.0.0.1:20490

Then, as root:

  mount -t nfs -o vers=3,tcp,nolock,nosuid,nodev,port=20490,mountport=20490 localhost:/ /mnt";

/// Returns the command that mounts the file system of a gateway.
fn mount_command(relay: SocketAddr) -> String {
    let (ip, port) = (relay.ip(), relay.port());
    format!("sudo mount -t nfs -o vers=3,tcp,nolock,nosuid,nodev,port={port},mountport={port} {ip}:/ /mnt")
}

fn serve(node: ClientNode, given: Given<'_>) -> Result<(), NodeError> {
    let fs = node.settings().file_system(&given.dir.join("node.toml"))?;
    let (listen, not_open) = (given.listen, |error| front::not_open("NFS", given.listen, &error));
    if (given.option)(UNREPLICATED).is_some() {
        let durability = match (given.option)("durability").as_deref() {
            Some("sync") => Durability::Sync,
            Some("async") => Durability::Async,
            _ => Durability::Memory,
        };
        let client = node.with_lanes(0);
        let log = given.dir.join("unreplicated.log");
        let mut door = open_alone(listen, given.limits, fs, durability, &log).map_err(not_open)?;
        (given.ready)(format!("NFS  {listen}     not replicated, for measurements"));
        door.run(client.waiting, given.stop).map_err(|error| failed(&error))?;
        drop(client.lock);
        let _ = std::fs::remove_file(log);
        return Ok(());
    }
    let client = node.with_lanes(given.limits.lanes);
    let waiting = client.waiting;
    let mut door = open(listen, given.limits, fs, client.drive, client.socket).map_err(not_open)?;
    (given.ready)(format!("NFS  {listen}     {}", mount_command(listen)));
    door.run(waiting, given.stop).map_err(|error| failed(&error))?;
    drop(client.lock);
    Ok(())
}

/// Opens a gateway on `address`. `drive` has the number of lanes in the limits; `socket` is the client's.
///
/// # Errors
///
/// The address is taken or not on this machine, or there are too many open files.
pub fn open<M: Meter>(
    address: SocketAddr,
    limits: Limits,
    fs: Fs,
    drive: ClientProcess<M>,
    socket: Socket,
) -> io::Result<NfsDoor<M>> {
    FrontDoor::open(address, limits, fs, Cluster::new(drive, socket))
}

/// Opens the same gateway on `address` with a file system in this process and in memory, without replicas, for
/// comparison. `durability` determines whether changes are written to `log`.
///
/// # Errors
///
/// The address is taken or not on this machine, or the log cannot be created.
pub fn open_alone(
    address: SocketAddr,
    limits: Limits,
    fs: Fs,
    durability: Durability,
    log: &Path,
) -> io::Result<FrontDoor<NfsConversation, Unreplicated<Fs>>> {
    let service = Alone::new(fs.clone(), &Options::default()).map_err(io::Error::other)?;
    FrontDoor::open(address, limits, fs, Unreplicated::new(service, durability, log)?)
}

/// How long a connection has to be unused before another one may take its place, in nanoseconds. The client of a kernel
/// connects again when it needs to.
const IDLE_NS: u64 = 10_000_000_000;
/// Ports below this one are root's, on the machine that they are on.
const FIRST_FREE_PORT: u16 = 1024;

/// Returns whose rights the calls of a connection have. Within this machine the kernel knows whose process is at the
/// other end. Root may act for anyone, as the NFS client of a kernel does, and so may the user who runs the gateway:
/// everybody else acts for himself. Of another machine, only root's ports act for root.
fn acts_as(ends: Ends) -> ActsAs {
    let Ends { peer, own } = ends;
    match user_of(peer, own).map(Uid::from_raw) {
        Some(user) if user.is_root() || user == Uid::effective() => ActsAs::Anyone,
        Some(user) => as_one(user),
        // A process of another network namespace, or one that has closed its end.
        None if own.ip().to_canonical().is_loopback() || is_here(peer) => ActsAs::NOBODY,
        None if peer.port() < FIRST_FREE_PORT => ActsAs::Anyone,
        None => ActsAs::AnyoneButRoot,
    }
}

/// Returns whether a process of this machine can send from an address. If the kernel cannot say, it counts as one.
fn is_here(mut peer: SocketAddr) -> bool {
    peer.set_ip(peer.ip().to_canonical());
    peer.set_port(0);
    !UdpSocket::bind(peer).is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

/// Returns the rights of a user of this machine, with the groups that the machine knows.
fn as_one(user: Uid) -> ActsAs {
    let known = User::from_uid(user).ok().flatten();
    let gid = known.as_ref().map_or(NOBODY, |known| known.gid.as_raw());
    let name = known.and_then(|known| CString::new(known.name).ok());
    let groups = name.and_then(|name| getgrouplist(&name, Gid::from_raw(gid)).ok()).unwrap_or_default();
    let gids = groups.into_iter().map(Gid::as_raw).filter(|other| *other != gid).collect();
    ActsAs::One { uid: user.as_raw(), gid, gids }
}

/// One connection of an NFS client.
#[derive(Debug)]
pub struct NfsConversation {
    connection: Connection,
    /// Input that could not be taken yet. At most [`INPUT_BYTES`].
    rest: Vec<u8>,
    /// The stream cannot be parsed any more, or the connection is refused: nothing is pending.
    is_broken: bool,
    /// The other side sends nothing more.
    is_last: bool,
}

impl NfsConversation {
    /// Offers the input to the connection.
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

impl Conversation for NfsConversation {
    type Protocol = Fs;

    fn open(_fs: &Fs, ends: Ends, _id: u64) -> Self {
        let address = match ends.peer.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        Self {
            connection: Connection::new(address, ConnectionLimits::default()).acting_as(acts_as(ends)),
            rest: Vec::new(),
            is_broken: false,
            is_last: false,
        }
    }

    /// RPC has no error for this: the connection is closed, and the client connects again.
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

    fn work(&mut self, fs: &Fs, _counts: &mut Counts) -> Progress {
        self.feed(fs);
        Progress::Rest
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
            // The client connects again, and sends the call again with the same number: if it was executed, its reply is in
            // the state. After JUKEBOX it would have another number.
            Failure::Unknown if !self.connection.may_give_up(Ticket(ticket)) => self.is_broken = true,
            Failure::NotAllowed => self.connection.refused(Ticket(ticket)),
            Failure::NothingDone | Failure::Unknown | Failure::NoLane => {
                self.connection.unanswered(Ticket(ticket));
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

    fn may_go(&self, idle_ns: u64) -> Option<Goes> {
        let waits = !self.connection.is_idle() || self.is_stalled() || !self.rest.is_empty();
        (idle_ns > IDLE_NS && !waits).then_some(Goes::Idle)
    }

    fn held(&self) -> usize {
        self.connection.held() + self.rest.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use quorate_fs::nfs3::calls::{Calls, nfs_reply};
    use quorate_fs::nfs3::{Call, DirOp, Procedure, Reply, Stat};
    use quorate_fs::rpc::record::put_record;
    use quorate_fs::rpc::xdr::Opaque;

    use super::*;

    /// A conversation with a call of each kind in flight, a change and a read.
    fn asked(fs: &Fs) -> NfsConversation {
        let connection = Connection::new([0; 16], ConnectionLimits::default());
        let mut asked = NfsConversation { connection, rest: Vec::new(), is_broken: false, is_last: false };
        let mut calls = Calls::new("test", 0, 0, &[], 1);
        let root = Opaque(&[0; 16]);
        let (mut stream, place) = (Vec::new(), DirOp { dir: root, name: Opaque(b"name") });
        put_record(&mut stream, &calls.nfs(&Call::Remove(place)));
        put_record(&mut stream, &calls.nfs(&Call::GetAttr(root)));
        asked.receive(fs, &stream);
        asked
    }

    /// L48: a change whose outcome is unknown gets no answer, which would make the client send it again as another call.
    #[test]
    fn l48_a_change_of_unknown_outcome_ends_the_connection() {
        let fs = Fs::new(quorate_fs::Settings::default()).unwrap();
        let mut asked = asked(&fs);
        let [change, read] = [(); 2].map(|()| asked.question(&mut Vec::new()).unwrap());
        assert!(!change.may_give_up && read.may_give_up);
        asked.fail(read.ticket, Failure::Unknown);
        assert!(!asked.output().is_empty() && !asked.has_ended());
        let len = asked.output().len();
        asked.fail(change.ticket, Failure::Unknown);
        assert_eq!((asked.output().len(), asked.has_ended()), (len, true));
    }

    /// L58: the client of a gateway that was removed gets an answer to its call.
    #[test]
    fn l58_a_removed_gateway_answers() {
        let fs = Fs::new(quorate_fs::Settings::default()).unwrap();
        let mut asked = asked(&fs);
        let change = asked.question(&mut Vec::new()).unwrap();
        asked.fail(change.ticket, Failure::NotAllowed);
        let reply = asked.output()[4..].to_vec();
        let reply = nfs_reply(Procedure::Remove, &reply).unwrap();
        assert!(matches!(reply, Reply::Remove(Err((Stat::Access, _)))), "{reply:?}");
    }

    /// H2: who sends calls and closes the end at once is no process that the kernel knows, and yet on this machine.
    #[test]
    fn h2_a_process_here_that_has_closed_its_end_is_nobody() {
        let at = |ip: Ipv4Addr, port| SocketAddr::new(ip.to_ipv6_mapped().into(), port);
        let by = |from: Ipv4Addr, to: Ipv4Addr, port| acts_as(Ends { peer: at(from, port), own: at(to, 1) });
        let [one, two] = [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)];
        assert_eq!(
            by(two, one, 5000),
            ActsAs::NOBODY,
            "as a socket of version 6 names addresses of version 4"
        );
        // No machine has these addresses.
        let [far, other] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
        assert_eq!(by(far, other, 5000), ActsAs::AnyoneButRoot);
        assert_eq!(by(far, other, FIRST_FREE_PORT - 1), ActsAs::Anyone);
        // An address of this machine that is not of loopback, if there is one. Nothing is sent.
        let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        if probe.connect((far, 9)).is_ok()
            && let IpAddr::V4(here) = probe.local_addr().unwrap().ip()
        {
            assert_eq!(by(here, other, 5000), ActsAs::NOBODY, "{here}");
        }
    }
}
