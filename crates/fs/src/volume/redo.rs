//! Settles what a run on cells has left: changes of pages, and answers that it has assumed.

use quorate_service::Stop;

use crate::error::{Done, OpError};
use crate::types::FileKind;
use crate::volume::Volume;
use crate::volume::data::to_usize;
use crate::volume::inode::Inode;
use crate::volume::later::{Later, LaterKind};

/// Makes a change that a run on cells has left to settling, or gives an answer again. Returns whether the outcome is
/// the one that the run has assumed.
pub(crate) fn redo(volume: &mut Volume<'_, '_>, later: &Later<'_>) -> Result<bool, Stop> {
    let [number, b, c, d, e, _] = later.numbers;
    let narrow = |number| u32::try_from(number).map_err(|_| Stop::Corrupt);
    let file = |uid, pages| -> Result<Inode, Stop> {
        Ok(Inode { uid: narrow(uid)?, pages: narrow(pages)?, ..Inode::empty(FileKind::Reg) })
    };
    let len = || usize::try_from(c).map_err(|_| Stop::Corrupt);
    match later.kind {
        LaterKind::Begin | LaterKind::Keep => Err(Stop::Corrupt),
        LaterKind::Tick => volume.tick().map(|_| true),
        LaterKind::Charge => {
            let [pages, inodes, links] = [b, c, d].map(u64::cast_signed);
            outcome(volume.charge(narrow(number)?, pages, inodes, links).map(|()| true))
        }
        LaterKind::Write => {
            let mut inode = file(b, c)?;
            let done = volume.write_pages(number, &mut inode, e, later.bytes);
            outcome(done.map(|()| u64::from(inode.pages) == d))
        }
        LaterKind::Free => {
            let mut inode = file(b, c)?;
            let done = volume.free_from(number, &mut inode, e);
            outcome(done.map(|()| u64::from(inode.pages) == d))
        }
        LaterKind::Clear => volume.clear_behind(number, b).map(|()| true),
        LaterKind::Space => Ok(u64::from(volume.available_pages()? > 0) == d),
        LaterKind::Inodes => Ok(u64::from(volume.inodes_used()? < volume.settings().inodes_max) == d),
        LaterKind::Quota => Ok(u64::from(volume.is_within_quota(narrow(number)?, b, c)?) == d),
        LaterKind::Room => {
            let inode = volume.known_inode(number)?;
            Ok(volume.room_now(number, &inode, b, len()?)? == to_usize(d))
        }
        LaterKind::QuotaRoom => {
            let inode = volume.known_inode(number)?;
            Ok(volume.quota_room_now(number, &inode, b, len()?)? == to_usize(d))
        }
    }
}

/// A change for which there is not enough space is not what the run has assumed.
fn outcome(done: Done<bool>) -> Result<bool, Stop> {
    match done {
        Ok(is_same) => Ok(is_same),
        Err(OpError::Stop(stop)) => Err(stop),
        Err(OpError::Refused(_)) => Ok(false),
    }
}
