//! REMOVE, RMDIR.

use quorate_service::Stop;

use super::{Node, Run, check_name, settle};
use crate::nfs3::{DirOp, Outcome, Stat, Wcc};
use crate::trouble::Done;

impl Run<'_, '_, '_> {
    pub(crate) fn remove(&mut self, args: &DirOp<'_>) -> Result<Outcome<Wcc, Wcc>, Stop> {
        self.removing(args, |run| {
            let dir = run.writable_dir(&args.dir)?;
            check_name(args.name.0, Stat::IsDir)?;
            let (found, inode) = run.entry(&dir, args.name.0)?.ok_or(Stat::NoEnt)?;
            dir.check_removal(&inode)?;
            if inode.is_dir() {
                return Err(Stat::IsDir.into());
            }
            run.remove_name(dir, args.name.0, found.cookie, 0)?;
            run.unlink(found.inode, inode)
        })
    }

    pub(crate) fn rmdir(&mut self, args: &DirOp<'_>) -> Result<Outcome<Wcc, Wcc>, Stop> {
        self.removing(args, |run| {
            let dir = run.writable_dir(&args.dir)?;
            check_name(args.name.0, if args.name.0 == b"." { Stat::Inval } else { Stat::Exist })?;
            let (found, inode) = run.entry(&dir, args.name.0)?.ok_or(Stat::NoEnt)?;
            dir.check_removal(&inode)?;
            if !inode.is_dir() {
                return Err(Stat::NotDir.into());
            }
            if inode.entries > 0 {
                return Err(Stat::NotEmpty.into());
            }
            run.remove_name(dir, args.name.0, found.cookie, 1)?;
            run.volume.drop_inode(found.inode, &inode)
        })
    }

    fn removing(
        &mut self,
        args: &DirOp<'_>,
        remove: impl FnOnce(&mut Self) -> Done<()>,
    ) -> Result<Outcome<Wcc, Wcc>, Stop> {
        let before = self.before(&args.dir)?;
        let done = remove(self);
        let wcc = self.wcc(&args.dir, before)?;
        settle(done.map(|()| wcc.clone()), || Ok(wcc))
    }

    /// Removes a name from a directory, which has `links` links less afterwards.
    fn remove_name(&mut self, dir: Node<'_>, name: &[u8], cookie: u64, links: u32) -> Done<()> {
        let Node { number, mut inode, .. } = dir;
        self.volume.remove_entry(number, &mut inode, name, cookie)?;
        inode.nlink = inode.nlink.checked_sub(links).ok_or(Stop::Corrupt)?;
        let now = self.volume.tick()?;
        (inode.mtime, inode.ctime) = (now, now);
        self.volume.put_inode(number, &inode)
    }
}
