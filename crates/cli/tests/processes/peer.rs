//! An NFS client of our own, for what others do not show: which word a call is answered with, and one call that is made
//! by two.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use quorate_fs::nfs3::calls::{Calls, mount_reply, nfs_reply};
use quorate_fs::nfs3::mount3::MountStat;
use quorate_fs::nfs3::{
    Call, CreateArgs, CreateHow, DirOp, FileType, MkNodArgs, MkNodData, Procedure, ReadArgs, Reply, SetAttr,
    SetAttrArgs, SpecData, StableHow, Stat, WriteArgs,
};
use quorate_fs::rpc::record::put_record;
use quorate_fs::rpc::xdr::Opaque;

use crate::support::PATIENCE;

/// A connection to a relay, of one user. What it returns is what came, or that the connection ended.
pub(crate) struct Peer {
    stream: TcpStream,
    calls: Calls,
}

impl Peer {
    /// Connects as a user. `first` is the number of the first call: others of this machine begin elsewhere.
    pub(crate) fn connect(relay: SocketAddr, uid: u32, first: u32) -> Self {
        let stream = TcpStream::connect(relay).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, calls: Calls::new("peer", uid, uid, &[], first) }
    }

    fn send(&mut self, call: &[u8]) -> io::Result<()> {
        let mut record = Vec::new();
        put_record(&mut record, call);
        self.stream.write_all(&record)
    }

    /// Returns the next reply, of one fragment.
    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let mut reply = vec![0; usize::try_from(u32::from_be_bytes(head) & 0x7fff_ffff).unwrap()];
        self.stream.read_exact(&mut reply)?;
        Ok(reply)
    }

    fn ask(&mut self, call: &Call<'_>) -> io::Result<Vec<u8>> {
        let bytes = self.calls.nfs(call);
        self.send(&bytes)?;
        self.receive()
    }

    pub(crate) fn mount(&mut self, path: &str) -> Result<Vec<u8>, MountStat> {
        let bytes = self.calls.mount(path);
        self.send(&bytes).unwrap();
        mount_reply(&self.receive().unwrap()).unwrap().map(<[u8]>::to_vec)
    }

    /// Makes a file that must not be there, and returns its handle.
    pub(crate) fn create(&mut self, dir: &[u8], name: &str) -> io::Result<Result<Vec<u8>, Stat>> {
        let place = DirOp { dir: Opaque(dir), name: Opaque(name.as_bytes()) };
        let how = CreateHow::Guarded(SetAttr { mode: Some(0o644), ..SetAttr::default() });
        let reply = self.ask(&Call::Create(CreateArgs { place, how }))?;
        let Reply::Create(made) = nfs_reply(Procedure::Create, &reply).unwrap() else { unreachable!() };
        Ok(made.map(|made| made.object.unwrap().0.to_vec()).map_err(|(stat, _)| stat))
    }

    pub(crate) fn write(&mut self, file: &[u8], offset: u64, data: &[u8]) -> io::Result<Result<u32, Stat>> {
        let (count, stable) = (u32::try_from(data.len()).unwrap(), StableHow::Unstable);
        let args = WriteArgs { file: Opaque(file), offset, count, stable, data: Opaque(data) };
        let reply = self.ask(&Call::Write(args))?;
        let Reply::Write(done) = nfs_reply(Procedure::Write, &reply).unwrap() else { unreachable!() };
        Ok(done.map(|done| done.count).map_err(|(stat, _)| stat))
    }

    pub(crate) fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<Vec<u8>, Stat> {
        let reply = self.ask(&Call::Read(ReadArgs { file: Opaque(file), offset, count })).unwrap();
        let Reply::Read(done) = nfs_reply(Procedure::Read, &reply).unwrap() else { unreachable!() };
        done.map(|done| done.data.0.to_vec()).map_err(|(stat, _)| stat)
    }

    /// Makes a character device, and returns its handle.
    pub(crate) fn device(&mut self, dir: &[u8], name: &str) -> Result<(), Stat> {
        let place = DirOp { dir: Opaque(dir), name: Opaque(name.as_bytes()) };
        let device = SpecData { major: 1, minor: 1 };
        let what = MkNodData::Device(FileType::Chr, SetAttr::default(), device);
        let reply = self.ask(&Call::MkNod(MkNodArgs { place, what })).unwrap();
        let Reply::MkNod(made) = nfs_reply(Procedure::MkNod, &reply).unwrap() else { unreachable!() };
        made.map(drop).map_err(|(stat, _)| stat)
    }

    pub(crate) fn set(&mut self, object: &[u8], attributes: SetAttr) -> Result<(), Stat> {
        let args = SetAttrArgs { object: Opaque(object), attributes, guard: None };
        let reply = self.ask(&Call::SetAttr(args)).unwrap();
        let Reply::SetAttr(done) = nfs_reply(Procedure::SetAttr, &reply).unwrap() else { unreachable!() };
        done.map(drop).map_err(|(stat, _)| stat)
    }

    /// Returns a file's owner and mode.
    pub(crate) fn owner(&mut self, file: &[u8]) -> Result<(u32, u32), Stat> {
        let reply = self.ask(&Call::GetAttr(Opaque(file))).unwrap();
        let Reply::GetAttr(done) = nfs_reply(Procedure::GetAttr, &reply).unwrap() else { unreachable!() };
        done.map(|attributes| (attributes.uid, attributes.mode)).map_err(|(stat, ())| stat)
    }

    pub(crate) fn size(&mut self, file: &[u8]) -> Result<u64, Stat> {
        let reply = self.ask(&Call::GetAttr(Opaque(file))).unwrap();
        let Reply::GetAttr(done) = nfs_reply(Procedure::GetAttr, &reply).unwrap() else { unreachable!() };
        done.map(|attributes| attributes.size).map_err(|(stat, ())| stat)
    }
}
