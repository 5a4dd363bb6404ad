//! `quorate fs`: use the file system without a mount.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use quorate_fs::fsck::Report;
use quorate_fs::nfs3::mount3::MountStat;
use quorate_fs::nfs3::{Attr, FileType, Stat};
use quorate_node::caller::CallerOptions;
use quorate_node::files::{FileEntry, Files, FilesError, Machine, User};
use quorate_node::fsck::{self, Checked};
use quorate_node::settings::ServiceName;
use quorate_node::{CallError, Caller};

use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::node::open_client;
use crate::{out, values};

/// Use the file system without a mount
///
/// Paths that begin with `q:` are in the replicated file system, below the directory of --export. All other paths are
/// on this machine. The replicas check permissions, for your user and groups on this machine.
///
/// Example:
///
///   quorate fs --dir cluster/client-1 cp report.pdf q:reports/
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Fs {
    /// Directory of a client that no other program uses; for fsck a replica's directory
    #[arg(long)]
    dir: PathBuf,
    /// Export to use: one of `fs_exports` in cluster.toml. If the export lists networks, the address in the client's
    /// node.toml must be in one of them
    #[arg(long, default_value = "/", value_name = "PATH")]
    export: String,
    /// Time to wait for the answer to an operation, such as 500ms or 10s
    #[arg(long, default_value = "10s", value_parser = values::duration, value_name = "TIME")]
    deadline: Duration,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// List a directory or a file
    ///
    /// Example:
    ///
    ///   quorate fs --dir cluster/client-1 ls -l q:
    #[command(verbatim_doc_comment)]
    Ls {
        /// Also print type, mode, links, owner, group and size in bytes
        #[arg(short)]
        long: bool,
        /// Path to list
        #[arg(default_value = "q:/")]
        path: String,
    },
    /// Write a file to standard output
    ///
    /// Example:
    ///
    ///   quorate fs --dir cluster/client-1 cat q:hello
    #[command(verbatim_doc_comment)]
    Cat {
        /// Path of the file
        path: String,
    },
    /// Copy a file into or out of the file system
    ///
    /// Exactly one of the two paths must begin with `q:`. With durability "sync", a file that was copied in is durable
    /// when the command ends.
    ///
    /// `cp` replaces an existing file atomically: it writes a file `.quorate-cp-*` in the target directory, and then
    /// gives this file the target's name. The new file then has the mode of the replaced file. If it was copied into the
    /// file system, it also has the owner and the group of the replaced file, as far as you may set them.
    ///
    /// If the cluster becomes unreachable while a file is copied in, the incomplete file `.quorate-cp-*` stays in the
    /// target directory. Remove it.
    ///
    /// Example:
    ///
    ///   quorate fs --dir cluster/client-1 cp hello q:
    #[command(verbatim_doc_comment)]
    Cp {
        /// File to copy
        from: String,
        /// Target: a directory, or a file name
        to: String,
    },
    /// Create a directory
    ///
    /// Example:
    ///
    ///   quorate fs --dir cluster/client-1 mkdir q:reports
    #[command(verbatim_doc_comment)]
    Mkdir {
        /// Path of the new directory
        path: String,
    },
    /// Remove a file or an empty directory
    ///
    /// Example:
    ///
    ///   quorate fs --dir cluster/client-1 rm q:hello
    #[command(verbatim_doc_comment)]
    Rm {
        /// Path to remove
        path: String,
    },
    /// Show used and free space, in bytes and files
    ///
    /// Example:
    ///
    ///   quorate fs --dir cluster/client-1 df
    #[command(verbatim_doc_comment)]
    Df,
    /// Check the file system of a stopped replica
    ///
    /// Checks that:
    ///
    ///   - each page in use belongs to exactly one file or table
    ///   - each name leads to an inode, and each inode has the right link count
    ///   - each directory has a path to the root
    ///   - the state matches the newest stable checkpoint in this replica's log. A checkpoint is stable when the
    ///     replicas have agreed on the digest of its state
    ///
    /// Keeps the metadata and the last page of each file in memory, even if they exceed `state_memory_max`. Repairs
    /// nothing. Exit status 1 if a check fails.
    ///
    /// Example:
    ///
    ///   quorate fs --dir cluster/replica-3 fsck
    #[command(verbatim_doc_comment)]
    Fsck {
        /// Print one JSON object: `clean`, `seq` (the last batch in the state), `inodes`, `names`, `pages`, `agreed_at`
        /// (the batch of the newest stable checkpoint), `agrees` (whether the state matches this checkpoint), `findings`,
        /// `findings_count`. Without a stable checkpoint, `agreed_at` and `agrees` are null
        #[arg(long)]
        json: bool,
    },
}

impl Fs {
    pub(crate) fn run(&self) -> CommandResult {
        if let What::Fsck { json } = self.what {
            return check(&self.dir, json);
        }
        let node = open_client(&self.dir, ServiceName::FS)?;
        let machine = Machine::of(&node);
        let options = CallerOptions { lanes: 32, deadline: self.deadline };
        let caller = Caller::start(node.with_lanes(options.lanes), options)?;
        let first = std::process::id() ^ since_1970();
        let open = Files::open(caller, machine, &own_user(), &self.export, first);
        let files = open.map_err(|error| failed(&error, &self.export))?;
        match &self.what {
            What::Ls { long, path } => list(&files, path, *long)?,
            What::Cat { path } => {
                let path = inside(path)?;
                let file = files.find(path, true).map_err(|error| failed(&error, path))?;
                let mut output = std::io::stdout().lock();
                files.read_to(&file, &mut output).map_err(|error| failed(&error, path))?;
                let _ = output.flush();
            }
            What::Cp { from, to } => copy(&files, from, to)?,
            What::Mkdir { path } => {
                let (dir, name) = place(&files, inside(path)?)?;
                files.make_directory(&dir, name, 0o755).map_err(|error| failed(&error, path))?;
            }
            What::Rm { path } => {
                let (dir, name) = place(&files, inside(path)?)?;
                files.remove(&dir, name).map_err(|error| failed(&error, path))?;
            }
            What::Df => {
                let space = files.space().map_err(|error| failed(&error, "/"))?;
                let used = space.tbytes - space.fbytes;
                out::line(format!("bytes  {} used of {}, {} free", used, space.tbytes, space.abytes));
                let used = space.tfiles - space.ffiles;
                out::line(format!("files  {} used of {}, {} free", used, space.tfiles, space.afiles));
            }
            What::Fsck { .. } => unreachable!("it needs no cluster"),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Checks the file system of a stopped replica.
fn check(dir: &Path, json: bool) -> CommandResult {
    let checked = fsck::check(dir)?;
    let Checked { seq, agreed, differs, report } = &checked;
    if json {
        out::line(
            serde_json::json!({
                "clean": checked.is_clean(), "seq": seq.0, "inodes": report.inodes, "names": report.names,
                "pages": report.pages, "agreed_at": agreed.map(|(seq, _)| seq.0),
                "agrees": agreed.map(|_| differs.is_none()), "findings": report.findings,
                "findings_count": report.findings_count,
            })
            .to_string(),
        );
    } else {
        let Report { inodes, names, pages, .. } = report;
        out::line(format!("checked {inodes} inodes, {names} names and {pages} pages, as of batch {}", seq.0));
        match agreed {
            Some((seq, _)) if differs.is_none() => {
                out::line(format!("the state at batch {} is the one that the replicas agreed on", seq.0));
            }
            Some((seq, _)) => {
                out::line(format!("the state at batch {} is NOT the one that the replicas agreed on", seq.0));
            }
            None => out::line("no stable checkpoint yet: nothing to compare with"),
        }
        report.findings.iter().for_each(out::line);
    }
    if checked.is_clean() {
        if !json {
            out::line("clean");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let count = report.findings_count + u64::from(differs.is_some());
    let findings = if count == 1 { "finding" } else { "findings" };
    Err(Failure::new(Code::Damaged, format!("the file system is damaged: {count} {findings}"))
        .at(dir.display().to_string())
        .next("check another replica too; see quorate explain Q051"))
}

fn list(files: &Files, path: &str, long: bool) -> Result<(), Failure> {
    let path = inside(path)?;
    let file = files.find(path, true).map_err(|error| failed(&error, path))?;
    let attributes = files.attributes(&file).map_err(|error| failed(&error, path))?;
    let mut entries = Vec::new();
    if attributes.kind == FileType::Dir {
        files.list(&file, |entry| entries.push(entry)).map_err(|error| failed(&error, path))?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
    } else {
        entries.push(FileEntry { name: path.as_bytes().to_vec(), attributes: Some(attributes) });
    }
    for entry in &entries {
        // A name may hold control characters, which must not reach the terminal.
        let name = entry.name.escape_ascii();
        match &entry.attributes {
            Some(attributes) if long => out::line(format!("{} {name}", details(attributes))),
            _ => out::line(name.to_string()),
        }
    }
    Ok(())
}

/// A line of `ls -l`, up to the name.
fn details(attributes: &Attr) -> String {
    let kind = match attributes.kind {
        FileType::Reg => '-',
        FileType::Dir => 'd',
        FileType::Blk => 'b',
        FileType::Chr => 'c',
        FileType::Lnk => 'l',
        FileType::Sock => 's',
        FileType::Fifo => 'p',
    };
    let bit = |at: u32, letter| if attributes.mode >> at & 1 == 1 { letter } else { '-' };
    let mode: String = (0..9).rev().zip("rwxrwxrwx".chars()).map(|(at, letter)| bit(at, letter)).collect();
    let Attr { nlink, uid, gid, size, .. } = attributes;
    format!("{kind}{mode} {nlink:>3} {uid:>5} {gid:>5} {size:>12}")
}

fn copy(files: &Files, from: &str, to: &str) -> Result<(), Failure> {
    match (from.strip_prefix("q:"), to.strip_prefix("q:")) {
        (None, Some(path)) => {
            let mut input = File::open(from).map_err(|error| here(&error, from))?;
            let name = Path::new(from).file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_dir = |path: &str| -> Result<bool, FilesError> {
                Ok(files.attributes(&files.find(path, true)?)?.kind == FileType::Dir)
            };
            let path = if is_dir(path).unwrap_or(false) { format!("{path}/{name}") } else { path.to_owned() };
            let (dir, name) = place(files, &path)?;
            files.put(&dir, name, 0o644, &mut input).map(drop).map_err(|error| {
                if let FilesError::Local(error) = &error { here(error, from) } else { failed(&error, &path) }
            })
        }
        (Some(path), None) => {
            let file = files.find(path, true).map_err(|error| failed(&error, path))?;
            let mut target = PathBuf::from(to);
            if target.is_dir() {
                target.push(path.rsplit('/').next().unwrap_or(path));
            }
            take_out(files, &file, &target).map_err(|error| match error {
                FilesError::Local(error) => Failure::new(Code::Unwritable, error.to_string()).at(to),
                error @ (FilesError::Call(_)
                | FilesError::Nfs(_)
                | FilesError::Mount(_)
                | FilesError::Unanswered(_)
                | _) => failed(&error, path),
            })
        }
        _ => Err(Failure::new(Code::Value, "exactly one of the two paths must begin with q:")
            .at(format!("{from} {to}"))
            .next("quorate fs cp FILE q:/FILE      or: quorate fs cp q:/FILE FILE")),
    }
}

/// Copies a file to a local path. An existing regular file is replaced only when the copy is complete.
fn take_out(files: &Files, file: &[u8], target: &Path) -> Result<(), FilesError> {
    let old = std::fs::metadata(target).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        let mut output = File::create(target).map_err(FilesError::Local)?;
        return files.read_to(file, &mut output).map(drop);
    }
    // A symbolic link stays: its target is replaced.
    let target =
        if old.is_some() { target.canonicalize().map_err(FilesError::Local)? } else { target.into() };
    let draft = target.with_file_name(format!(".quorate-cp-{}", std::process::id()));
    let mut output = File::create_new(&draft).map_err(FilesError::Local)?;
    let done = files.read_to(file, &mut output).and_then(|_| {
        let mode = old.map_or(Ok(()), |old| output.set_permissions(old.permissions()));
        mode.and_then(|()| output.sync_all())
            .and_then(|()| std::fs::rename(&draft, &target))
            .map_err(FilesError::Local)
    });
    if done.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    done
}

/// Returns the path without its `q:`.
fn inside(path: &str) -> Result<&str, Failure> {
    path.strip_prefix("q:").ok_or_else(|| {
        Failure::new(Code::Value, format!("`{path}`: a path in the file system must begin with q:"))
            .next(format!("q:/{}", path.trim_start_matches('/')))
    })
}

/// Returns the parent directory of a path, and the last component.
fn place<'a>(files: &Files, path: &'a str) -> Result<(Vec<u8>, &'a str), Failure> {
    let trimmed = path.trim_end_matches('/');
    let (dir, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
    let dir = files.find(dir, true).map_err(|error| failed(&error, path))?;
    Ok((dir, name))
}

/// Turns an error of the file system into a failure with its code and what to do.
pub(crate) fn failed(error: &FilesError, path: &str) -> Failure {
    let (code, next) = match error {
        FilesError::Call(CallError::Unknown { .. } | CallError::Busy) => {
            (Code::Unreachable, "quorate status shows which replicas are missing")
        }
        FilesError::Call(CallError::NotAllowed { .. }) => (
            Code::NoRight,
            "use the directory of a client with the right to do this; quorate add-client adds one",
        ),
        FilesError::Nfs(Stat::NoSpc) => (
            Code::NoRoom,
            "remove files (quorate fs df shows the usage), or copy everything to a cluster with a larger fs_capacity",
        ),
        FilesError::Nfs(Stat::DQuot) => (
            Code::NoRoom,
            "remove files that you own: fs_quota_bytes and fs_quota_inodes in cluster.toml are the limits",
        ),
        FilesError::Nfs(Stat::Access | Stat::Perm) | FilesError::Mount(MountStat::Access) => (
            Code::Denied,
            "check the permissions with quorate fs ls -l, and root_squash and the networks in fs_exports in cluster.toml",
        ),
        FilesError::Nfs(Stat::RoFs) => {
            (Code::Denied, "use an --export that is rw in fs_exports in cluster.toml")
        }
        FilesError::Mount(_) => (Code::NoFile, "use an --export that fs_exports in cluster.toml lists"),
        FilesError::Nfs(Stat::NoEnt | Stat::NotDir) => {
            (Code::NoFile, "list the directory with quorate fs ls")
        }
        FilesError::Local(_) => (Code::Unwritable, ""),
        FilesError::Nfs(_) | FilesError::Call(_) | FilesError::Unanswered(_) | _ => (Code::NoFile, ""),
    };
    let failure = Failure::new(code, error.to_string()).at(format!("q:{}", path.trim_start_matches("q:")));
    if next.is_empty() { failure } else { failure.next(next) }
}

fn here(error: &std::io::Error, path: &str) -> Failure {
    Failure::new(Code::Unreadable, error.to_string()).at(path)
}

/// Returns the user of this process, from the kernel.
pub(crate) fn own_user() -> User {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let numbers = |key: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok()).collect()
    };
    // The second number is the effective one. The user is nobody if the kernel does not say.
    let effective = |key| numbers(key).get(1).copied().unwrap_or(65_534);
    User { uid: effective("Uid:"), gid: effective("Gid:"), gids: numbers("Groups:") }
}

/// A number that differs between processes.
pub(crate) fn since_1970() -> u32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.subsec_nanos()
}
