//! `quorate mount`: the file system through FUSE.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use nix::errno::Errno;
use quorate_mount::{MountError, MountOptions};
use quorate_node::files::{FilesError, Machine};
use quorate_node::settings::ServiceName;
use quorate_node::{Caller, caller, signals};

use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::fs::{own_user, since_1970};
use crate::node::open_client;
use crate::{log, out, values};

/// Maximum number of calls in progress.
const LANES: u16 = 64;

/// Mount the file system through FUSE
///
/// Needs neither root nor a gateway: this process is a client of the cluster. The process stays in the foreground.
/// Ctrl-C, SIGTERM or closing the terminal unmounts the file system.
///
///   - With durability "sync", data is durable when `write` returns.
///   - Changes by other clients become visible within a second.
///   - File locks work only among the processes of this mount.
///   - Permissions are checked when a file is opened, for the user who opens it.
///   - A file that is removed while it is open is kept as `.quorate-open-*` until it is closed. A killed mount leaves
///     such files behind. Remove them when no mount has them open.
///
/// A call without an answer fails after the time of --wait, with ETIMEDOUT ("Connection timed out"). A failed write may
/// still take effect later, and can then overwrite a newer write. To prevent this, set --wait longer than the longest
/// outage. After ETIMEDOUT, close the file, wait until `quorate status` prints HEALTHY, and read the file before you
/// write to it.
///
/// Example:
///
///   quorate mount /mnt/q
///
/// For a cluster that `quorate init` made, name the directory of a client that no other program uses:
///
///   quorate mount --dir cluster/client-0 /mnt/q
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Mount {
    /// The client's directory; the default is made by `quorate up`
    #[arg(long, default_value = "quorate-data/client-4", value_name = "CLIENT")]
    dir: PathBuf,
    /// Existing directory to mount on
    #[arg(value_name = "DIR")]
    on: PathBuf,
    /// Export to mount: one of `fs_exports` in cluster.toml. If the export lists networks, the address in the client's
    /// node.toml must be in one of them
    #[arg(long, default_value = "/", value_name = "PATH")]
    export: String,
    /// Time to wait for an answer before a call fails, such as 500ms or 10s
    #[arg(long, default_value = "30s", value_parser = values::duration, value_name = "TIME")]
    wait: Duration,
    /// Maximum number of file system calls that this process handles in parallel, 1 to 256
    #[arg(long, default_value_t = 16, value_parser = values::within::<u16, 1, 256>)]
    threads: u16,
    /// Also admit other users of this machine. If you are not root, /etc/fuse.conf must contain `user_allow_other`
    #[arg(long)]
    allow_other: bool,
}

impl Mount {
    pub(crate) fn run(&self) -> CommandResult {
        let stop = signals::stop_flag()?;
        out::stop_without_reader(&stop);
        log::to_stderr();
        quorate_mount::check(&self.on).map_err(|error| self.failed(&error))?;
        let options = caller::CallerOptions { lanes: LANES, deadline: self.wait };
        let node = open_client(&self.dir, ServiceName::FS)?;
        let machine = Machine::of(&node);
        let caller = Caller::start(node.with_lanes(LANES), options)?;
        let first = std::process::id() ^ since_1970();
        let how = MountOptions { allow_other: self.allow_other, threads: usize::from(self.threads) };
        let mounted = quorate_mount::mount(caller, machine, &own_user(), &self.export, &self.on, how, first);
        let mounted = mounted.map_err(|error| self.failed(&error))?;
        out::line(format!("mounted on {}      Ctrl-C unmounts", self.on.display()));
        let in_use = mounted.run(&stop).map_err(|error| self.failed(&error))?;
        let so = if in_use { "; programs that still use it get errors from now on" } else { "" };
        out::line(format!("unmounted {}{so}", self.on.display()));
        Ok(ExitCode::SUCCESS)
    }

    fn failed(&self, error: &MountError) -> Failure {
        match error {
            MountError::Files(error @ FilesError::Call(_)) => {
                Failure { place: Some(self.dir.display().to_string()), ..crate::fs::failed(error, "/") }
            }
            MountError::Files(error) => {
                Failure { place: Some(format!("--export {}", self.export)), ..crate::fs::failed(error, "/") }
            }
            MountError::NoDirectory(_)
            | MountError::NoDevice
            | MountError::Closed(_)
            | MountError::NoHelper
            | MountError::Kernel(_)
            | _ => failed(error, &self.on, "DIR"),
        }
    }
}

/// Returns the device that a directory is on. None: it does not answer.
pub(crate) fn device(dir: &Path) -> Option<u64> {
    fs::metadata(dir).ok().map(|found| found.dev())
}

/// Waits until the process `mount` has mounted on a directory that was on the device `before`, or until `stop`. Returns
/// false if it does not do so.
pub(crate) fn wait(
    on: &Path,
    before: Option<u64>,
    mount: &mut Child,
    stop: &AtomicBool,
    patience: Duration,
) -> bool {
    let end = Instant::now() + patience;
    while device(on).is_none_or(|now| Some(now) == before) && !stop.load(Ordering::Relaxed) {
        if matches!(mount.try_wait(), Ok(Some(_))) || Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Describes why this machine cannot mount on the directory that `flag` names.
pub(crate) fn failed(error: &MountError, on: &Path, flag: &str) -> Failure {
    let on = on.display();
    let (code, place, next) = match error {
        MountError::NoDirectory(error) if error.raw_os_error() == Some(Errno::ENOTCONN as i32) => {
            let what = "the process of an earlier mount has ended, but its mount is still there";
            return Failure::new(Code::NoFuse, what)
                .at(format!("{flag} {on}"))
                .next(format!("fusermount3 -u {on}"));
        }
        MountError::NoDirectory(_) => (Code::Unreadable, format!("{flag} {on}"), format!("mkdir -p {on}")),
        MountError::NoDevice => {
            let next = "modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN. Without FUSE: quorate fs";
            (Code::NoFuse, "/dev/fuse".to_owned(), next.to_owned())
        }
        MountError::Closed(_) => {
            let next =
                "as root: modprobe fuse && chmod 666 /dev/fuse. Without FUSE: quorate fs, or quorate nfs";
            (Code::NoFuse, "/dev/fuse".to_owned(), next.to_owned())
        }
        MountError::NoHelper => {
            let next = "apt-get install fuse3, or run as root. Without FUSE: quorate fs, or quorate nfs";
            (Code::NoFuse, "PATH".to_owned(), next.to_owned())
        }
        MountError::Files(_) | MountError::Kernel(_) | _ => {
            let next = format!("check that you own {on}, and remove an old mount there: fusermount3 -u {on}");
            (Code::NoFuse, format!("{flag} {on}"), next)
        }
    };
    Failure::new(code, error.to_string()).at(place).next(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_without_its_process_is_to_be_removed() {
        let dead = MountError::NoDirectory(std::io::Error::from(Errno::ENOTCONN));
        let said = failed(&dead, Path::new("/mnt/q"), "DIR").to_string();
        assert!(said.contains("fusermount3 -u /mnt/q") && !said.contains("mkdir"), "{said}");
        let missing = MountError::NoDirectory(std::io::Error::from(Errno::ENOENT));
        assert!(failed(&missing, Path::new("/mnt/q"), "DIR").to_string().contains("mkdir -p /mnt/q"));
    }
}
