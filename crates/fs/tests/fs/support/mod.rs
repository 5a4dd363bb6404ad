//! One replica's executor with a client in front of it: calls as bytes in, replies as bytes out.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::result_large_err,
    clippy::wildcard_imports,
    reason = "tests use parts of it and may panic"
)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::RwLock;

use quorate_fs::fsck::{self, Report};
use quorate_fs::nfs3::operation::{Operation, mapped};
use quorate_fs::nfs3::*;
use quorate_fs::rpc::xdr::{self, Opaque, Reader, Xdr};
use quorate_fs::rpc::{AuthSys, CallHead, OpaqueAuth, ReplyHead, Status};
use quorate_fs::settings::{Export, Squash};
use quorate_fs::{Fs, Settings};
use quorate_service::options::Options;
use quorate_service::page::{Memory, OldPage, PageStore};
use quorate_service::{Context, Executor, PageFault, Service, Stop, View};
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Replies, SeqNum, Timestamp};

/// Begins an operation of the test's own, which overwrites bytes of the state.
const VANDAL: &[u8] = b"vandal";

/// The file system, and a way to break its state. Its settings may be changed.
pub(crate) struct Breakable(pub(crate) RwLock<Fs>);

impl Service for Breakable {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        self.0.read().unwrap().is_read_only(operation)
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let Some(rest) = operation.strip_prefix(VANDAL) else {
            return self.0.read().unwrap().execute(cx, operation, state, out);
        };
        let page = u32::from_le_bytes(rest[..4].try_into().unwrap());
        let at = usize::try_from(u32::from_le_bytes(rest[4..8].try_into().unwrap())).unwrap();
        state.write(page, at, &rest[8..])
    }
}

/// What has been touched of a state since somebody last asked. What is written and read again within a call
/// counts once.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Pages that were read, each once; none: they are not counted.
    pub(crate) read: RefCell<Option<BTreeSet<u32>>>,
    /// Pages that became others, each as often as it did.
    pub(crate) written: Cell<u64>,
    /// The page that is asked for after this number of others is away, once; 0: none.
    pub(crate) away_in: Cell<u64>,
}

/// Pages in memory, and who asks for them.
#[derive(Debug, Default)]
pub(crate) struct Store {
    memory: Memory,
    pub(crate) touched: Rc<Touched>,
}

impl PageStore for Store {
    fn get(&self, page: u32) -> Result<Option<&[u8]>, PageFault> {
        if let Some(read) = self.touched.read.borrow_mut().as_mut() {
            read.insert(page);
        }
        let left = self.touched.away_in.get();
        self.touched.away_in.set(left.saturating_sub(1));
        if left == 1 { Err(PageFault { page }) } else { self.memory.get(page) }
    }

    fn replace(&mut self, page: u32, content: Option<Box<[u8]>>) -> OldPage {
        self.touched.written.set(self.touched.written.get() + 1);
        self.memory.replace(page, content)
    }

    fn next(&self, from: u32) -> Option<u32> {
        self.memory.next(from)
    }
}

/// A small generator of numbers that look random. Marsaglia's xorshift, 64 bits.
pub(crate) struct Xorshift(u64);

impl Xorshift {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }
}

/// Entries of a directory: cookie, inode, name; and whether they reach its end.
pub(crate) type Listed = (Vec<(u64, u64, String)>, bool);
/// A handle.
pub(crate) type H = Vec<u8>;

/// A client of a file system of one replica.
pub(crate) struct Bench {
    pub(crate) executor: Executor<Breakable, Store>,
    /// The pages that are touched.
    pub(crate) touched: Rc<Touched>,
    domains: Domains,
    batch: Batch,
    replies: Replies,
    seq: u64,
    /// Of the next batch.
    pub(crate) time_ns: u64,
    pub(crate) xid: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) gids: Vec<u32>,
    pub(crate) address: [u8; 16],
    /// How many calls have been ordered.
    pub(crate) ordered: u64,
    /// The root's handle.
    pub(crate) root: H,
}

pub(crate) fn fh(handle: &[u8]) -> Fh<'_> {
    Opaque(handle)
}

pub(crate) fn place<'a>(dir: &'a [u8], name: &'a str) -> DirOp<'a> {
    DirOp { dir: Opaque(dir), name: Opaque(name.as_bytes()) }
}

pub(crate) fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

pub(crate) fn size(size: u64) -> SetAttr {
    SetAttr { size: Some(size), ..SetAttr::default() }
}

/// Settings that trust everyone, because a test's clients choose their users.
pub(crate) fn open_settings() -> Settings {
    let export = Export { squash: Squash::Nobody, ..Export::of("/") };
    Settings { exports: vec![export], reply_pages: 16, ..Settings::default() }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(open_settings(), 1 << 20)
    }

    /// Returns a client of a file system with these settings and `pages` pages, root to begin with.
    pub(crate) fn with(settings: Settings, pages: u32) -> Self {
        let options = Options {
            pages_max: pages,
            clients_max: 16,
            result_bytes_max: 0,
            checkpoints_max: 2,
            ..Options::default()
        };
        let domains = Domains::new(ClusterId([7; 32]));
        let service = Breakable(RwLock::new(Fs::new(settings).unwrap()));
        let touched = Rc::<Touched>::default();
        let store = Store { memory: Memory::new(), touched: Rc::clone(&touched) };
        let mut bench = Self {
            executor: Executor::with_store(service, domains.clone(), options, store),
            touched,
            domains,
            batch: Batch::default(),
            replies: Replies::default(),
            seq: 0,
            time_ns: 1_700_000_000_000_000_000,
            xid: 0,
            uid: 0,
            gid: 0,
            gids: Vec::new(),
            address: mapped([10, 0, 0, 1]),
            ordered: 0,
            root: Vec::new(),
        };
        bench.root = bench.mount("/").unwrap();
        bench
    }

    pub(crate) fn become_user(&mut self, uid: u32, gid: u32) -> &mut Self {
        (self.uid, self.gid) = (uid, gid);
        self.gids.clear();
        self
    }

    /// Returns the number of the last batch.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    /// Orders an operation and returns its result.
    pub(crate) fn order(&mut self, operation: &[u8]) -> Vec<u8> {
        self.order_together(&[operation]).remove(0)
    }

    /// Orders operations as one batch and returns their results.
    pub(crate) fn order_together(&mut self, operations: &[&[u8]]) -> Vec<Vec<u8>> {
        let client = ClientId::new(1, 0);
        self.batch = Batch::default();
        for operation in operations {
            self.ordered += 1;
            self.batch.push_operation(&self.domains, client, Timestamp(self.ordered), operation);
        }
        self.time_ns += 1000;
        self.batch.seal(&self.domains, &self.time_ns.to_le_bytes());
        self.seq += 1;
        self.executor.execute(SeqNum(self.seq), &self.batch, false, &mut self.replies).unwrap();
        if self.seq.is_multiple_of(128) {
            self.executor.checkpoint(SeqNum(self.seq));
        }
        self.replies.iter().map(|reply| reply.result.unwrap_or_default().to_vec()).collect()
    }

    /// Has an operation executed on the read-only path if it may go there, else has it ordered.
    pub(crate) fn operate(&mut self, operation: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let client = ClientId::new(1, 0);
        match self.executor.read((client, Timestamp(1), &quorate_wire::Digest::ZERO), operation, &mut out) {
            Some(_) => out,
            None => self.order(operation),
        }
    }

    /// Checks the state.
    pub(crate) fn fsck(&self) -> Report {
        fsck::check(self.executor.service().0.read().unwrap().settings(), self.executor.view()).unwrap()
    }

    /// Goes on with other settings, as a node that was started again.
    pub(crate) fn set(&mut self, settings: Settings) {
        *self.executor.service().0.write().unwrap() = Fs::new(settings).unwrap();
    }

    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.fsck().findings, Vec::<String>::new());
    }

    /// Overwrites bytes of the service's state.
    pub(crate) fn vandalize(&mut self, page: u32, at: u32, bytes: &[u8]) {
        let mut operation = VANDAL.to_vec();
        operation.extend_from_slice(&page.to_le_bytes());
        operation.extend_from_slice(&at.to_le_bytes());
        operation.extend_from_slice(bytes);
        self.order(&operation);
    }

    /// Returns the operation of a call of a program.
    pub(crate) fn operation(&mut self, program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let auth = AuthSys {
            stamp: 0,
            machine: Opaque(b"bench"),
            uid: self.uid,
            gid: self.gid,
            gids: self.gids.clone(),
        };
        let body = xdr::encode(&auth);
        let head =
            CallHead { credential: OpaqueAuth::sys(&body), ..CallHead::new(self.xid, program, 3, procedure) };
        self.wrap(&head, args)
    }

    /// Returns the operation of a call with this head.
    pub(crate) fn wrap(&self, head: &CallHead<'_>, args: &[u8]) -> Vec<u8> {
        let mut call = xdr::encode(head);
        call.extend_from_slice(args);
        let mut bytes = Vec::new();
        Operation { address: self.address, call: &call }.encode(&mut bytes);
        bytes
    }

    pub(crate) fn nfs_operation(&mut self, call: &Call<'_>) -> Vec<u8> {
        let mut args = Vec::new();
        call.encode(&mut args);
        self.operation(PROGRAM, call.procedure() as u32, &args)
    }

    /// Makes a call and returns the body of its reply.
    pub(crate) fn call(&mut self, call: &Call<'_>) -> Vec<u8> {
        let operation = self.nfs_operation(call);
        let reply = self.operate(&operation);
        let (head, body) = split(&reply);
        assert_eq!(head, ReplyHead { xid: self.xid, status: Status::Success }, "{call:?}");
        // What is answered decodes, to the last byte.
        Reply::decode(call.procedure(), body).unwrap();
        body.to_vec()
    }

    fn outcome<'a, T: Xdr<'a>, F: Xdr<'a>>(body: &'a [u8]) -> Result<T, Stat> {
        xdr::decode::<NfsResult<T, F>>(body).unwrap().map_err(|(stat, _)| stat)
    }

    pub(crate) fn mount(&mut self, path: &str) -> Result<H, mount3::MountStat> {
        let args = xdr::encode(&Opaque::<1024>(path.as_bytes()));
        let operation = self.operation(mount3::PROGRAM, mount3::Procedure::Mnt as u32, &args);
        let reply = self.operate(&operation);
        match xdr::decode(split(&reply).1).unwrap() {
            mount3::MountReply::Done { handle, flavors } => {
                assert_eq!(flavors, [1]);
                Ok(handle.0.to_vec())
            }
            mount3::MountReply::Failed(stat) => Err(stat),
        }
    }

    pub(crate) fn getattr(&mut self, file: &[u8]) -> Result<Attr, Stat> {
        Self::outcome::<Attr, ()>(&self.call(&Call::GetAttr(fh(file))))
    }

    pub(crate) fn setattr(&mut self, file: &[u8], set: SetAttr) -> Result<Wcc, Stat> {
        self.setattr_guarded(file, set, None)
    }

    pub(crate) fn setattr_guarded(
        &mut self,
        file: &[u8],
        set: SetAttr,
        guard: Option<NfsTime>,
    ) -> Result<Wcc, Stat> {
        let args = SetAttrArgs { object: fh(file), attributes: set, guard };
        Self::outcome::<Wcc, Wcc>(&self.call(&Call::SetAttr(args)))
    }

    pub(crate) fn lookup(&mut self, dir: &[u8], name: &str) -> Result<H, Stat> {
        let body = self.call(&Call::Lookup(place(dir, name)));
        Self::outcome::<LookupOk<'_>, Option<Attr>>(&body).map(|ok| ok.object.0.to_vec())
    }

    pub(crate) fn access(&mut self, file: &[u8]) -> u32 {
        let body = self.call(&Call::Access(AccessArgs { object: fh(file), access: 0x3f }));
        Self::outcome::<AccessOk, Option<Attr>>(&body).unwrap().access
    }

    pub(crate) fn readlink(&mut self, file: &[u8]) -> Result<Vec<u8>, Stat> {
        let body = self.call(&Call::ReadLink(fh(file)));
        Self::outcome::<ReadLinkOk<'_>, Option<Attr>>(&body).map(|ok| ok.target.0.to_vec())
    }

    pub(crate) fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<(Vec<u8>, bool), Stat> {
        let body = self.call(&Call::Read(ReadArgs { file: fh(file), offset, count }));
        let ok = Self::outcome::<ReadOk<'_>, Option<Attr>>(&body)?;
        assert_eq!(ok.count as usize, ok.data.0.len());
        Ok((ok.data.0.to_vec(), ok.eof))
    }

    pub(crate) fn write(&mut self, file: &[u8], offset: u64, data: &[u8]) -> Result<WriteOk, Stat> {
        let count = u32::try_from(data.len()).unwrap();
        let stable = StableHow::Unstable;
        let args = WriteArgs { file: fh(file), offset, count, stable, data: Opaque(data) };
        Self::outcome::<WriteOk, Wcc>(&self.call(&Call::Write(args)))
    }

    fn made(call: &Call<'_>, body: &[u8]) -> Result<H, Stat> {
        let made = Self::outcome::<CreateOk<'_>, Wcc>(body).map_err(|stat| (stat, call)).map_err(|e| e.0)?;
        Ok(made.object.unwrap().0.to_vec())
    }

    pub(crate) fn make(&mut self, call: &Call<'_>) -> Result<H, Stat> {
        let body = self.call(call);
        Self::made(call, &body)
    }

    pub(crate) fn create(&mut self, dir: &[u8], name: &str, how: CreateHow) -> Result<H, Stat> {
        self.make(&Call::Create(CreateArgs { place: place(dir, name), how }))
    }

    /// Creates a file that is not there, mode 0644.
    pub(crate) fn file(&mut self, dir: &[u8], name: &str) -> H {
        self.create(dir, name, CreateHow::Guarded(mode(0o644))).unwrap()
    }

    pub(crate) fn mkdir(&mut self, dir: &[u8], name: &str, permissions: u32) -> Result<H, Stat> {
        self.make(&Call::MkDir(MkDirArgs { place: place(dir, name), attributes: mode(permissions) }))
    }

    pub(crate) fn symlink(&mut self, dir: &[u8], name: &str, target: &[u8]) -> Result<H, Stat> {
        let target = Opaque(target);
        let attributes = SetAttr::default();
        self.make(&Call::SymLink(SymLinkArgs { place: place(dir, name), attributes, target }))
    }

    pub(crate) fn mknod(&mut self, dir: &[u8], name: &str, what: MkNodData) -> Result<H, Stat> {
        self.make(&Call::MkNod(MkNodArgs { place: place(dir, name), what }))
    }

    pub(crate) fn remove(&mut self, dir: &[u8], name: &str) -> Result<Wcc, Stat> {
        Self::outcome::<Wcc, Wcc>(&self.call(&Call::Remove(place(dir, name))))
    }

    pub(crate) fn rmdir(&mut self, dir: &[u8], name: &str) -> Result<Wcc, Stat> {
        Self::outcome::<Wcc, Wcc>(&self.call(&Call::RmDir(place(dir, name))))
    }

    pub(crate) fn rename(&mut self, from: (&[u8], &str), to: (&[u8], &str)) -> Result<RenameWcc, Stat> {
        let args = RenameArgs { from: place(from.0, from.1), to: place(to.0, to.1) };
        Self::outcome::<RenameWcc, RenameWcc>(&self.call(&Call::Rename(args)))
    }

    pub(crate) fn link(&mut self, file: &[u8], dir: &[u8], name: &str) -> Result<LinkWcc, Stat> {
        let args = LinkArgs { file: fh(file), link: place(dir, name) };
        Self::outcome::<LinkWcc, LinkWcc>(&self.call(&Call::Link(args)))
    }

    /// Returns a part of a directory: (cookie, inode, name), and whether it reaches the end.
    pub(crate) fn readdir(&mut self, dir: &[u8], cookie: u64, count: u32) -> Result<Listed, Stat> {
        let args = ReadDirArgs { dir: fh(dir), cookie, verf: [0; 8], count };
        let body = self.call(&Call::ReadDir(args));
        assert!(body.len() <= count as usize || count < 128, "maxcount is kept");
        let ok = Self::outcome::<ReadDirOk<'_>, Option<Attr>>(&body)?;
        let name = |name: &Name<'_>| String::from_utf8(name.0.to_vec()).unwrap();
        Ok((ok.entries.iter().map(|e| (e.cookie, e.fileid, name(&e.name))).collect(), ok.eof))
    }

    /// Returns all names of a directory but "." and "..", in order, listed `count` bytes at a time.
    pub(crate) fn names(&mut self, dir: &[u8], count: u32) -> Vec<String> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let (entries, eof) = self.readdir(dir, cookie, count).unwrap();
            for (at, _, name) in entries {
                assert!(at > cookie, "cookies rise");
                cookie = at;
                names.push(name);
            }
            if eof {
                names.retain(|name| name != "." && name != "..");
                names.sort();
                return names;
            }
        }
    }

    pub(crate) fn fsstat(&mut self) -> FsStatOk {
        let root = self.root.clone();
        Self::outcome::<FsStatOk, Option<Attr>>(&self.call(&Call::FsStat(fh(&root)))).unwrap()
    }
}

/// Returns the head and the body of a reply.
pub(crate) fn split(reply: &[u8]) -> (ReplyHead, &[u8]) {
    let mut r = Reader::new(reply);
    let head = ReplyHead::decode(&mut r).unwrap();
    (head, r.rest())
}
