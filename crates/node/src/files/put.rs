//! Replaces a file atomically.

use std::io::Read;
use std::sync::PoisonError;

use quorate_fs::nfs3::calls::nfs_reply;
use quorate_fs::nfs3::{
    AccessArgs, Attr, Call, CreateHow, DirOp, FileType, Procedure, RenameArgs, Reply, SetAttr, SetAttrArgs,
    Stat,
};
use quorate_fs::rpc::xdr::Opaque;

use super::{Files, FilesError, Handle, odd};

/// The right to change a file, as in ACCESS.
const MODIFY: u32 = 4;

impl Files {
    /// Writes all of `input` to a directory under a name, and returns its length. It becomes a new file with this
    /// mode, or replaces the existing regular file, and then gets that file's mode, and its owner as far as the user
    /// may set it. The existing file stays unchanged until all is written to a draft in the same directory,
    /// `.quorate-cp-...`, which is left behind if the cluster stops answering. The data is durable when this returns.
    ///
    /// # Errors
    ///
    /// `input` cannot be read; or the file system refuses it, also if the user may not write to the existing file.
    /// Then the existing file is unchanged, or was replaced if only the last answer was lost.
    pub fn put(&self, dir: &[u8], name: &str, mode: u32, input: &mut impl Read) -> Result<u64, FilesError> {
        let old = match self.child(dir, name) {
            Ok(old) => Some((self.attributes(&old)?, old)),
            Err(FilesError::Nfs(Stat::NoEnt)) => None,
            Err(error) => return Err(error),
        };
        let mut set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        if let Some((attributes, old)) = &old {
            if attributes.kind != FileType::Reg {
                return Err(FilesError::Nfs(Stat::Exist));
            }
            self.check_writable(old)?;
            set.mode = Some(attributes.mode & 0o777);
        }
        let xid = self.calls.lock().unwrap_or_else(PoisonError::into_inner).xid();
        let draft = format!(".quorate-cp-{:x}-{xid:x}", std::process::id());
        let file = self.create_as(dir, &draft, CreateHow::Guarded(set))?;
        let done = self.write_from(&file, input).and_then(|count| {
            if let Some((Attr { uid, gid, .. }, _)) = old {
                self.give(&file, uid, gid)?;
            }
            self.rename(dir, &draft, name)?;
            Ok(count)
        });
        // Without an answer the draft cannot be removed.
        if done.as_ref().is_err_and(|error| !matches!(error, FilesError::Call(_))) {
            let _ = self.remove(dir, &draft);
        }
        done
    }

    fn child(&self, dir: &[u8], name: &str) -> Result<Handle, FilesError> {
        let reply = self.ask(&Call::Lookup(DirOp { dir: Opaque(dir), name: Opaque(name.as_bytes()) }))?;
        let Reply::Lookup(found) = nfs_reply(Procedure::Lookup, &reply)? else { return Err(odd()) };
        found.map(|found| found.object.0.to_vec()).map_err(|(stat, _)| FilesError::Nfs(stat))
    }

    fn check_writable(&self, file: &[u8]) -> Result<(), FilesError> {
        let reply = self.ask(&Call::Access(AccessArgs { object: Opaque(file), access: MODIFY }))?;
        let Reply::Access(said) = nfs_reply(Procedure::Access, &reply)? else { return Err(odd()) };
        let granted = said.map_err(|(stat, _)| FilesError::Nfs(stat))?.access;
        if granted & MODIFY == 0 { Err(FilesError::Nfs(Stat::Access)) } else { Ok(()) }
    }

    /// Sets a file's owner, if this user may do that.
    fn give(&self, file: &[u8], uid: u32, gid: u32) -> Result<(), FilesError> {
        let now = self.attributes(file)?;
        if (now.uid, now.gid) == (uid, gid) {
            return Ok(());
        }
        let attributes = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        let reply =
            self.ask(&Call::SetAttr(SetAttrArgs { object: Opaque(file), attributes, guard: None }))?;
        let Reply::SetAttr(said) = nfs_reply(Procedure::SetAttr, &reply)? else { return Err(odd()) };
        match said {
            Ok(_) | Err((Stat::Perm | Stat::Access, _)) => Ok(()),
            Err((stat, _)) => Err(FilesError::Nfs(stat)),
        }
    }

    fn rename(&self, dir: &[u8], from: &str, to: &str) -> Result<(), FilesError> {
        let place = |name| DirOp { dir: Opaque(dir), name: Opaque(name) };
        let (from, to) = (place(from.as_bytes()), place(to.as_bytes()));
        let reply = self.ask(&Call::Rename(RenameArgs { from, to }))?;
        let Reply::Rename(said) = nfs_reply(Procedure::Rename, &reply)? else { return Err(odd()) };
        said.map(drop).map_err(|(stat, _)| FilesError::Nfs(stat))
    }
}
