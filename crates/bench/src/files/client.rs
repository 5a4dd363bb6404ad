//! An NFS version 3 client in this process: one connection, one call at a time, no cache. It needs no root, and is the same
//! for every server.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use quorate_fs::nfs3::calls::{Calls, mount_reply, nfs_reply};
use quorate_fs::nfs3::{
    AccessArgs, Call, CommitArgs, CreateArgs, CreateHow, DirOp, MkDirArgs, NfsResult, Procedure, ReadArgs,
    RenameArgs, Reply, SetAttr, StableHow, Stat, WriteArgs,
};
use quorate_fs::rpc::record::put_record;
use quorate_fs::rpc::xdr::Opaque;

/// The address of a server.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) nfs: SocketAddr,
    pub(crate) mount: SocketAddr,
    /// The mounted export.
    pub(crate) export: String,
}

/// Maximum length of a reply.
const REPLY_BYTES_MAX: usize = 4 << 20;
/// How long a call may take, and how long to wait after JUKEBOX.
const PATIENCE: Duration = Duration::from_secs(60);
const JUKEBOX: Duration = Duration::from_millis(10);
/// The distance between the first call numbers of two connections. There are thousands of connections in an experiment: a
/// server answers a call from its cache if it has seen its number and its content.
const CALLS_EACH: u32 = 1 << 20;

/// A file handle.
pub(crate) type Handle = Vec<u8>;

/// A connection.
#[derive(Debug)]
pub(crate) struct Nfs {
    stream: BufReader<TcpStream>,
    calls: Calls,
    /// The handle of the mounted directory.
    root: Handle,
    /// Calls that were repeated because the server answered JUKEBOX.
    delayed: u64,
    record: Vec<u8>,
}

/// Returns the number of the first call of a connection.
fn first_call(connection: u32) -> u32 {
    connection.wrapping_mul(CALLS_EACH) ^ std::process::id()
}

fn dial(address: SocketAddr) -> Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address).with_context(|| format!("{address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::with_capacity(64 << 10, stream))
}

/// Sends a call and returns its reply.
fn exchange(stream: &mut BufReader<TcpStream>, record: &mut Vec<u8>, call: &[u8]) -> Result<Vec<u8>> {
    record.clear();
    put_record(record, call);
    stream.get_mut().write_all(record)?;
    let mut reply = Vec::new();
    loop {
        let mut head = [0; 4];
        stream.read_exact(&mut head).context("the server has exited, or does not answer")?;
        let head = u32::from_be_bytes(head);
        let (start, len) = (reply.len(), usize::try_from(head & 0x7fff_ffff)?);
        ensure!(start + len <= REPLY_BYTES_MAX, "a reply of {} bytes", start + len);
        reply.resize(start + len, 0);
        stream.read_exact(&mut reply[start..])?;
        if head >> 31 == 1 {
            break;
        }
    }
    ensure!(reply.get(..4) == call.get(..4), "a reply to another call");
    Ok(reply)
}

/// Describes the error of a call.
fn done<T, F>(what: &str, outcome: NfsResult<T, F>) -> Result<T> {
    outcome.map_err(|(stat, _)| anyhow::anyhow!("{what}: {stat:?}"))
}

/// Sends a call and extracts its result.
macro_rules! ask {
    ($self:ident, $name:ident, $args:expr, |$ok:ident| $take:expr) => {{
        let reply = $self.ask(&Call::$name($args))?;
        let Reply::$name(said) = nfs_reply(Procedure::$name, &reply)? else { bail!("another reply") };
        let $ok = done(stringify!($name), said)?;
        $take
    }};
}

impl Nfs {
    /// Mounts.
    pub(crate) fn mount(place: &Place) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let first = first_call(NEXT.fetch_add(1, Ordering::Relaxed));
        let mut calls = Calls::new("quorate-bench", 0, 0, &[], first);
        let mut record = Vec::new();
        let reply = exchange(&mut dial(place.mount)?, &mut record, &calls.mount(&place.export))?;
        let root = mount_reply(&reply)?;
        let root = root.map_err(|stat| anyhow::anyhow!("{} cannot be mounted: {stat:?}", place.export))?;
        Ok(Self { stream: dial(place.nfs)?, calls, root: root.to_vec(), delayed: 0, record })
    }

    /// Mounts as soon as the server answers, as long as its process runs.
    pub(crate) fn wait_for(place: &Place, mut runs: impl FnMut() -> bool) -> Result<Self> {
        let end = Instant::now() + PATIENCE;
        loop {
            match Self::mount(place) {
                Ok(client) => return Ok(client),
                Err(error) if Instant::now() > end || !runs() => {
                    return Err(error.context("the server does not start to answer"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn ask(&mut self, call: &Call<'_>) -> Result<Vec<u8>> {
        let end = Instant::now() + PATIENCE;
        loop {
            let bytes = self.calls.nfs(call);
            let reply = exchange(&mut self.stream, &mut self.record, &bytes)?;
            if stat(&reply) != Some(Stat::Jukebox as u32) {
                return Ok(reply);
            }
            self.delayed += 1;
            ensure!(Instant::now() < end, "the server has answered JUKEBOX for {PATIENCE:?}");
            std::thread::sleep(JUKEBOX);
        }
    }

    /// Returns the length of a file.
    /// Returns the handle of the mounted directory.
    pub(crate) fn root(&self) -> &Handle {
        &self.root
    }

    /// Returns how many calls were repeated because the server answered JUKEBOX.
    pub(crate) fn delayed(&self) -> u64 {
        self.delayed
    }

    /// The same, and counts from zero again.
    pub(crate) fn take_delayed(&mut self) -> u64 {
        std::mem::take(&mut self.delayed)
    }

    pub(crate) fn getattr(&mut self, file: &[u8]) -> Result<u64> {
        ask!(self, GetAttr, Opaque(file), |ok| Ok(ok.size))
    }

    pub(crate) fn access(&mut self, file: &[u8]) -> Result<u32> {
        let args = AccessArgs { object: Opaque(file), access: 0x1f };
        ask!(self, Access, args, |ok| Ok(ok.access))
    }

    pub(crate) fn lookup(&mut self, dir: &[u8], name: &str) -> Result<Handle> {
        ask!(self, Lookup, at(dir, name), |ok| Ok(ok.object.0.to_vec()))
    }

    /// Looks up a name that does not exist, as a client does before it creates a file.
    pub(crate) fn miss(&mut self, dir: &[u8], name: &str) -> Result<()> {
        let reply = self.ask(&Call::Lookup(at(dir, name)))?;
        let Reply::Lookup(said) = nfs_reply(Procedure::Lookup, &reply)? else { bail!("another reply") };
        ensure!(matches!(said, Err((Stat::NoEnt, _))), "{name} is there, or {:?}", said.err());
        Ok(())
    }

    pub(crate) fn create(&mut self, dir: &[u8], name: &str) -> Result<Handle> {
        let how = CreateHow::Guarded(SetAttr { mode: Some(0o644), ..SetAttr::default() });
        let args = CreateArgs { place: at(dir, name), how };
        ask!(self, Create, args, |ok| Ok(ok.object.context("CREATE gave no handle")?.0.to_vec()))
    }

    pub(crate) fn mkdir(&mut self, dir: &[u8], name: &str) -> Result<Handle> {
        let attributes = SetAttr { mode: Some(0o755), ..SetAttr::default() };
        let args = MkDirArgs { place: at(dir, name), attributes };
        ask!(self, MkDir, args, |ok| Ok(ok.object.context("MKDIR gave no handle")?.0.to_vec()))
    }

    /// Reads at most `count` bytes, and returns their number.
    pub(crate) fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<usize> {
        let args = ReadArgs { file: Opaque(file), offset, count };
        ask!(self, Read, args, |ok| Ok(ok.data.0.len()))
    }

    /// Writes all of `data`, and returns when it is stable. Like Linux, it uses one synchronous call if the data fits `wsize`,
    /// otherwise several calls, followed by a COMMIT if the server requires one.
    pub(crate) fn write(&mut self, file: &[u8], offset: u64, data: &[u8], wsize: usize) -> Result<()> {
        let asked = if data.len() <= wsize { StableHow::FileSync } else { StableHow::Unstable };
        let mut committed = true;
        let mut offset = offset;
        for part in data.chunks(wsize) {
            let mut rest = part;
            while !rest.is_empty() {
                let count = u32::try_from(rest.len())?;
                let data = Opaque(rest);
                let args = WriteArgs { file: Opaque(file), offset, count, stable: asked, data };
                let (taken, how) = ask!(self, Write, args, |ok| (ok.count, ok.committed));
                ensure!((1..=count).contains(&taken), "WRITE took {taken} of {count} bytes");
                committed &= how == StableHow::FileSync;
                offset += u64::from(taken);
                rest = rest.get(usize::try_from(taken)?..).unwrap_or_default();
            }
        }
        if !committed {
            let args = CommitArgs { file: Opaque(file), offset: 0, count: 0 };
            ask!(self, Commit, args, |_ok| ());
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, dir: &[u8], name: &str) -> Result<()> {
        ask!(self, Remove, at(dir, name), |_ok| Ok(()))
    }

    pub(crate) fn rmdir(&mut self, dir: &[u8], name: &str) -> Result<()> {
        ask!(self, RmDir, at(dir, name), |_ok| Ok(()))
    }

    pub(crate) fn rename(&mut self, dir: &[u8], from: &str, to: &str) -> Result<()> {
        let args = RenameArgs { from: at(dir, from), to: at(dir, to) };
        ask!(self, Rename, args, |_ok| Ok(()))
    }
}

fn at<'a>(dir: &'a [u8], name: &'a str) -> DirOp<'a> {
    DirOp { dir: Opaque(dir), name: Opaque(name.as_bytes()) }
}

/// Returns the status in an accepted reply: after six words, because our servers and Ganesha send no verifier.
fn stat(reply: &[u8]) -> Option<u32> {
    reply.get(24..28)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The 257th connection began with the numbers of the first. Its CREATE got the old reply, with a stale handle.
    #[test]
    fn a_later_connection_repeats_no_numbers_of_an_earlier_one() {
        let firsts: BTreeSet<u32> = (0..4096).map(first_call).collect();
        assert_eq!(firsts.len(), 4096);
    }
}
