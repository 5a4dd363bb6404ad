//! The operations of the file system, in no protocol's format. A caller names files by handles.
//!
//! Each operation first checks whether it can succeed, and only then changes something: a failure leaves the state
//! unchanged.

use crate::error::{Done, OpError, Why};
use crate::op::caller::{Caller, EXECUTE, WRITE};
use crate::settings::{Atime, Export};
use crate::types::{Attributes, FileKind, User};
use crate::volume::Volume;
use crate::volume::directory::{DirEntry, NAME_BYTES_MAX};
use crate::volume::handle::{HANDLE_BYTES, Handle};
use crate::volume::inode::Inode;
use quorate_service::Stop;

mod attributes;
pub(crate) mod caller;
mod create;
pub(crate) mod list;
mod mounts;
pub(crate) mod read;
mod remove;
pub(crate) mod rename;
mod statistics;
mod write;

/// A file with its handle.
pub(crate) type Made = ([u8; HANDLE_BYTES], Attributes);

/// With `relatime`, an access time that is older than this is updated, in nanoseconds.
const RELATIME_NS: u64 = 24 * 3600 * 1_000_000_000;

/// An operation that is being executed.
pub(crate) struct Op<'r, 's, 'v> {
    volume: &'r mut Volume<'s, 'v>,
    /// The address of the client.
    address: [u8; 16],
    /// The calling user; none for an anonymous one.
    user: Option<User<'r>>,
}

/// The inode and export of a handle.
#[derive(Clone, Debug)]
struct Node<'s> {
    number: u64,
    inode: Inode,
    export: &'s Export,
    export_index: u32,
    caller: Caller,
}

impl Node<'_> {
    fn check_dir(&self) -> Done<()> {
        if self.inode.is_dir() { Ok(()) } else { Err(Why::NotDir.into()) }
    }

    fn check_writable(&self) -> Done<()> {
        if self.export.read_only { Err(Why::RoFs.into()) } else { Ok(()) }
    }

    fn check(&self, rights: u16) -> Done<()> {
        if self.caller.may(&self.inode, rights) { Ok(()) } else { Err(Why::Access.into()) }
    }

    /// The owner of a file may use it as long as it is open, whatever its mode is by now. A server cannot see who has
    /// it open.
    fn check_or_owner(&self, rights: u16) -> Done<()> {
        if self.caller.owns(&self.inode) { Ok(()) } else { self.check(rights) }
    }

    /// Checks that the caller may remove an entry from this directory: it may write the directory, and if that is
    /// sticky, it owns the directory or the entry's inode.
    fn check_removal(&self, inode: &Inode) -> Done<()> {
        self.check(WRITE | EXECUTE)?;
        let is_sticky = self.inode.mode & crate::op::caller::STICKY != 0;
        if is_sticky && !self.caller.owns(&self.inode) && !self.caller.owns(inode) {
            return Err(Why::Perm.into());
        }
        Ok(())
    }
}

impl<'r, 's, 'v> Op<'r, 's, 'v> {
    /// Returns an operation of a user, none for an anonymous one, at a client with this address.
    pub(crate) fn new(volume: &'r mut Volume<'s, 'v>, address: [u8; 16], user: Option<User<'r>>) -> Self {
        Self { volume, address, user }
    }
}

impl<'s> Op<'_, 's, '_> {
    /// Resolves a handle.
    fn node(&self, handle: &[u8]) -> Done<Node<'s>> {
        let settings = self.volume.settings();
        let handle = Handle::decode(settings, handle).ok_or(Why::BadHandle)?;
        let index = usize::try_from(handle.export).unwrap_or(usize::MAX);
        let export = settings.exports.get(index).ok_or(Why::Stale)?;
        if !export.admits(&self.address) {
            return Err(Why::Access.into());
        }
        let inode = self.volume.inode(handle.inode)?.ok_or(Why::Stale)?;
        if inode.generation != handle.generation {
            return Err(Why::Stale.into());
        }
        let caller = Caller::new(self.user, export);
        Ok(Node { number: handle.inode, inode, export, export_index: handle.export, caller })
    }

    /// Returns a directory that is to be changed.
    fn writable_dir(&self, handle: &[u8]) -> Done<Node<'s>> {
        let dir = self.node(handle)?;
        dir.check_dir()?;
        dir.check_writable()?;
        Ok(dir)
    }

    /// Returns the handle of an inode that was reached through `via`.
    fn handle(&self, via: &Node<'_>, number: u64, inode: &Inode) -> [u8; HANDLE_BYTES] {
        let handle = Handle { inode: number, generation: inode.generation, export: via.export_index };
        handle.encode(self.volume.settings())
    }

    /// Returns the attributes of an inode.
    fn attributes(&self, number: u64, inode: &Inode) -> Attributes {
        inode.attributes(number, self.volume.settings().service_id, self.volume.page_bytes())
    }

    /// Returns the present attributes of a handle; none if it is stale.
    pub(crate) fn current(&self, handle: &[u8]) -> Result<Option<Attributes>, Stop> {
        match self.get_attributes(handle) {
            Ok(attributes) => Ok(Some(attributes)),
            Err(OpError::Refused(_)) => Ok(None),
            Err(OpError::Stop(stop)) => Err(stop),
        }
    }

    /// Looks up a name in a directory that the caller may search. The caller has checked the name.
    fn entry(&self, dir: &Node<'_>, name: &[u8]) -> Done<Option<(DirEntry, Inode)>> {
        dir.check(EXECUTE)?;
        match self.volume.find(dir.number, name)? {
            Some(found) => Ok(Some((found, self.volume.known_inode(found.inode)?))),
            None => Ok(None),
        }
    }

    /// Records that an inode has been read, if that is due.
    fn accessed(&mut self, node: &Node<'_>) -> Result<(), Stop> {
        let (inode, now) = (&node.inode, self.volume.now());
        let is_due = match self.volume.settings().atime {
            Atime::Strict => true,
            Atime::Relatime => {
                inode.atime <= inode.mtime
                    || inode.atime <= inode.ctime
                    || now.saturating_sub(inode.atime) >= RELATIME_NS
            }
            Atime::None => false,
        };
        if !is_due || node.export.read_only {
            return Ok(());
        }
        // On the read-only path the first write stops it: the client has the call ordered.
        let mut inode = inode.clone();
        inode.atime = self.volume.tick()?;
        match self.volume.put_inode(node.number, &inode) {
            Ok(()) => Ok(()),
            Err(OpError::Stop(stop)) => Err(stop),
            Err(OpError::Refused(_)) => Err(Stop::Refused),
        }
    }

    /// Takes a link off an inode; the last one takes the inode with it.
    fn unlink(&mut self, number: u64, mut inode: Inode) -> Done<()> {
        inode.nlink = inode.nlink.checked_sub(1).ok_or(Stop::Corrupt)?;
        if inode.nlink > 0 {
            inode.ctime = self.volume.tick()?;
            self.volume.charge(inode.uid, 0, 0, -1)?;
            return self.volume.put_inode(number, &inode);
        }
        if inode.kind == FileKind::Reg || inode.kind == FileKind::Lnk {
            self.volume.truncate(number, &mut inode, 0)?;
        }
        self.volume.drop_inode(number, &inode)
    }
}

/// Checks a name. `reserved` is what "." and ".." give, which every directory has and nobody makes or
/// removes.
fn check_name(name: &[u8], reserved: Why) -> Done<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Why::NameTooLong.into());
    }
    if name == b"." || name == b".." {
        return Err(reserved.into());
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Why::Inval.into());
    }
    Ok(())
}

/// Checks a name that is not there yet.
fn check_new_name(name: &[u8]) -> Done<()> {
    check_name(name, Why::Exist)
}
