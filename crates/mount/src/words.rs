//! Attributes and errors in the kernel's format.

use std::time::{Duration, SystemTime};

use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use quorate_fs::nfs3::{self, Attr, NfsTime, SetTime, SpecData, Stat};
use quorate_node::CallError;
use quorate_service::registry::RegistryResult;

/// The recommended size of reads and writes, in bytes.
const BLOCK_BYTES: u32 = 64 << 10;

/// Returns the error number for a refusal of the file system.
pub(crate) fn of_stat(stat: Stat) -> Errno {
    match stat {
        Stat::Perm => Errno::EPERM,
        Stat::NoEnt => Errno::ENOENT,
        Stat::NxIo => Errno::ENXIO,
        Stat::Access => Errno::EACCES,
        Stat::Exist => Errno::EEXIST,
        Stat::XDev => Errno::EXDEV,
        Stat::NoDev => Errno::ENODEV,
        Stat::NotDir => Errno::ENOTDIR,
        Stat::IsDir => Errno::EISDIR,
        Stat::Inval | Stat::BadType | Stat::BadCookie | Stat::TooSmall => Errno::EINVAL,
        Stat::FBig => Errno::EFBIG,
        Stat::NoSpc => Errno::ENOSPC,
        Stat::RoFs => Errno::EROFS,
        Stat::MLink => Errno::EMLINK,
        Stat::NameTooLong => Errno::ENAMETOOLONG,
        Stat::NotEmpty => Errno::ENOTEMPTY,
        Stat::DQuot => Errno::EDQUOT,
        Stat::Stale | Stat::BadHandle => Errno::ESTALE,
        Stat::Remote => Errno::EREMOTE,
        Stat::NotSync => Errno::EAGAIN,
        Stat::NotSupp => Errno::EOPNOTSUPP,
        Stat::Jukebox => Errno::ETIMEDOUT,
        Stat::Io | Stat::ServerFault => Errno::EIO,
    }
}

/// Returns the error number for a call without an answer.
pub(crate) fn of_call(error: &CallError) -> Errno {
    match error {
        // It may have been done, or not: the cluster is away, or too slow.
        CallError::Unknown { .. } | CallError::Overtaken { .. } | CallError::Busy | CallError::NoLane => {
            Errno::ETIMEDOUT
        }
        CallError::NotAllowed { why: RegistryResult::NoRight } => Errno::EROFS,
        CallError::NotAllowed { .. } => Errno::EACCES,
        CallError::TooLong { .. } | CallError::Closed | CallError::ResultLost | CallError::Forgotten | _ => {
            Errno::EIO
        }
    }
}

/// Returns attributes in the kernel's format, with an inode number.
pub(crate) fn of_attributes(attributes: &Attr, number: u64) -> FileAttr {
    let mtime = of_time(attributes.mtime);
    FileAttr {
        ino: INodeNo(number),
        size: attributes.size,
        blocks: attributes.used.div_ceil(512),
        atime: of_time(attributes.atime),
        mtime,
        ctime: of_time(attributes.ctime),
        crtime: mtime,
        kind: of_kind(attributes.kind),
        perm: u16::try_from(attributes.mode & 0o7777).unwrap_or(0),
        nlink: attributes.nlink,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: of_device(attributes.rdev),
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// Returns the type of an inode.
pub(crate) fn of_kind(kind: nfs3::FileType) -> FileType {
    match kind {
        nfs3::FileType::Reg => FileType::RegularFile,
        nfs3::FileType::Dir => FileType::Directory,
        nfs3::FileType::Blk => FileType::BlockDevice,
        nfs3::FileType::Chr => FileType::CharDevice,
        nfs3::FileType::Lnk => FileType::Symlink,
        nfs3::FileType::Sock => FileType::Socket,
        nfs3::FileType::Fifo => FileType::NamedPipe,
    }
}

fn of_time(time: NfsTime) -> SystemTime {
    let since = Duration::from_secs(time.seconds.into()) + Duration::from_nanos(time.nseconds.into());
    SystemTime::UNIX_EPOCH + since
}

/// Returns a time to set. The calls have 32 bits of seconds since 1970; other times become the nearest one.
pub(crate) fn to_time(time: Option<TimeOrNow>) -> SetTime {
    match time {
        None => SetTime::Keep,
        Some(TimeOrNow::Now) => SetTime::Server,
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let seconds = u32::try_from(since.as_secs()).unwrap_or(u32::MAX);
            SetTime::Client(NfsTime { seconds, nseconds: since.subsec_nanos() })
        }
    }
}

/// Returns a device number in the kernel's format: 12 bits of the major number between 8 and 12 bits of the minor one.
fn of_device(device: SpecData) -> u32 {
    let SpecData { major, minor } = device;
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// Returns the two numbers of a device.
pub(crate) fn to_device(device: u32) -> SpecData {
    SpecData { major: device >> 8 & 0xfff, minor: (device & 0xff) | (device >> 12 & 0xf_ff00) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_devices_numbers_come_back() {
        for (major, minor) in [(0, 0), (8, 1), (4095, 255), (1, 0xf_ffff), (259, 70_000)] {
            let device = SpecData { major, minor };
            assert_eq!(to_device(of_device(device)), device);
        }
        // As `mknod x c 1 3` passes it.
        assert_eq!(of_device(SpecData { major: 1, minor: 3 }), 0x103);
    }

    #[test]
    fn times_outside_of_what_a_call_can_say_become_the_nearest() {
        let set = |time| to_time(Some(TimeOrNow::SpecificTime(time)));
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(5);
        assert_eq!(set(before), SetTime::Client(NfsTime::default()));
        let late = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert_eq!(set(late), SetTime::Client(NfsTime { seconds: u32::MAX, nseconds: 0 }));
    }

    /// A refusal has its own error number; an unreachable cluster has one that says nothing about the file.
    #[test]
    fn errors_are_told_as_what_they_are() {
        for (stat, errno) in [
            (Stat::NoSpc, Errno::ENOSPC),
            (Stat::DQuot, Errno::EDQUOT),
            (Stat::Stale, Errno::ESTALE),
            (Stat::RoFs, Errno::EROFS),
            (Stat::FBig, Errno::EFBIG),
        ] {
            assert_eq!(of_stat(stat).code(), errno.code());
        }
        assert_eq!(of_call(&CallError::Busy).code(), Errno::ETIMEDOUT.code());
    }
}
