//! The users of a mount: whose rights count, who is let in, and who may mount.
//!
//! Root tests with the user nobody as the other user. Without root there is no other user, so only own files are tested.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::unistd::{Gid, Uid, geteuid, setfsgid, setfsuid};

use super::mount::{Mount, running};
use crate::support::quorate;

pub(crate) const NOBODY: u32 = 65_534;
/// The kernel keeps names and attributes for a second.
const KEPT: Duration = Duration::from_millis(1100);

/// Does something with the rights of nobody, as far as files go.
pub(crate) fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        setfsgid(Gid::from_raw(NOBODY));
        setfsuid(Uid::from_raw(NOBODY));
        work()
    };
    std::thread::scope(|threads| threads.spawn(work).join().unwrap())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn denied<T>(result: std::io::Result<T>) {
    let kind = result.err().map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::PermissionDenied));
}

/// An open file is used with the rights of the user who opened it: by a process that has changed its user since, and by
/// one that got the descriptor from another process.
#[test]
fn an_open_file_is_used_with_the_rights_of_the_user_who_opened_it() {
    let cluster = running("rights", "");
    let flags: &[&str] = if geteuid().is_root() { &["--allow-other"] } else { &[] };
    let mut mount = Mount::start(&cluster, 0, flags);
    let at = |name: &str| mount.dir.join(name);
    what_is_made_read_only_is_written_by_its_maker(&at("own"));
    if geteuid().is_root() {
        as_nobody(|| what_is_made_read_only_is_written_by_its_maker(&at("nobodys")));
        assert_eq!(fs::metadata(at("nobodys")).unwrap().uid(), NOBODY);
        a_child_that_became_nobody_has_what_root_opened(&at("secret"));
        what_nobody_writes_is_not_run_as_root(&at("program"));
        a_directory_is_read_by_whom_it_was_opened_for(&at("d"));
    }
    mount.stop();
}

fn what_is_made_read_only_is_written_by_its_maker(path: &Path) {
    let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o444).open(path);
    let file = made.unwrap();
    file.write_all_at(b"hello world", 0).unwrap();
    file.set_len(5).unwrap();
    file.sync_all().unwrap();
    if !geteuid().is_root() || fs::metadata(path).unwrap().uid() == NOBODY {
        denied(OpenOptions::new().write(true).open(path));
    }
    set_mode(path, 0);
    file.write_all_at(b"j", 0).unwrap();
    let mut text = [0; 5];
    file.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"jello");
}

fn a_child_that_became_nobody_has_what_root_opened(path: &Path) {
    fs::write(path, b"before").unwrap();
    set_mode(path, 0o600);
    let child = |program: &str| {
        let mut command = Command::new(program);
        command.uid(NOBODY).gid(NOBODY);
        command
    };
    let refused = child("cat").arg(path).stdin(Stdio::null()).output().unwrap();
    assert!(!refused.status.success(), "{}", String::from_utf8_lossy(&refused.stdout));
    let read = child("cat").stdin(File::open(path).unwrap()).output().unwrap();
    assert_eq!((read.status.success(), read.stdout), (true, b"before".to_vec()));
    let out = OpenOptions::new().append(true).open(path).unwrap();
    assert!(child("echo").arg(" and after").stdin(Stdio::null()).stdout(out).status().unwrap().success());
    assert_eq!(fs::read(path).unwrap(), b"before and after\n");
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    as_nobody(|| {
        denied(File::open(path));
        file.set_len(6).unwrap();
        file.write_all_at(b"B", 0).unwrap();
        file.sync_all().unwrap();
        // What the descriptor gives is its own: the file stays root's, who alone may say who else uses it.
        let error = file.set_permissions(fs::Permissions::from_mode(0o666)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    });
    assert_eq!(fs::read(path).unwrap(), b"Before");
}

fn what_nobody_writes_is_not_run_as_root(path: &Path) {
    let file = File::create(path).unwrap();
    set_mode(path, 0o6755);
    (&file).write_all(b"root's").unwrap();
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o6755);
    as_nobody(|| (&file).write_all(b"not root's").unwrap());
    std::thread::sleep(KEPT);
    assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o755);
}

fn a_directory_is_read_by_whom_it_was_opened_for(path: &Path) {
    fs::create_dir(path).unwrap();
    fs::write(path.join("inside"), b"").unwrap();
    set_mode(path, 0o700);
    let open = fs::read_dir(path).unwrap();
    as_nobody(|| {
        denied(fs::read_dir(path));
        let names: Vec<_> = open.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["inside"]);
    });
}

/// Other users are let in where that was asked for, each with his own rights; and otherwise not.
#[test]
fn other_users_are_let_in_where_that_was_asked_for() {
    let cluster = running("others", "");
    if !geteuid().is_root() {
        return who_is_not_root_lets_others_in_as_the_machine_says(
            &cluster.dir.join("c/client-0"),
            |flags| {
                Mount::start(&cluster, 0, flags).stop();
            },
        );
    }
    let mut mount = Mount::start(&cluster, 0, &[]);
    fs::write(mount.dir.join("public"), b"public").unwrap();
    as_nobody(|| denied(fs::read(mount.dir.join("public"))));
    as_nobody(|| denied(fs::read_dir(&mount.dir)));
    mount.stop();

    let mut mount = Mount::start(&cluster, 0, &["--allow-other"]);
    let at = |name: &str| mount.dir.join(name);
    fs::create_dir(at("closed")).unwrap();
    fs::write(at("closed/public"), b"in a closed room").unwrap();
    set_mode(&at("closed"), 0o700);
    as_nobody(|| {
        assert_eq!(fs::read(at("public")).unwrap(), b"public");
        denied(fs::write(at("public"), b"mine"));
        denied(fs::remove_file(at("public")));
        fs::write(at("mine"), b"mine").unwrap();
        assert_eq!(fs::metadata(at("mine")).unwrap().uid(), NOBODY);
    });
    // For a second the kernel goes by the previous mode.
    std::thread::sleep(KEPT);
    for _ in 0..3 {
        // Right behind root, for whom the kernel has looked the names up: they are nobody's for all that.
        assert_eq!(fs::read(at("closed/public")).unwrap(), b"in a closed room");
        as_nobody(|| denied(fs::read(at("closed/public"))));
        as_nobody(|| denied(fs::metadata(at("closed/public"))));
    }
    assert_eq!(fs::read(at("mine")).unwrap(), b"mine");
    mount.stop();
}

/// Says that `/etc/fuse.conf` lets those who are not root let others in.
fn may_let_others_in() -> bool {
    let text = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    text.lines().any(|line| line.trim() == "user_allow_other")
}

fn who_is_not_root_lets_others_in_as_the_machine_says(client: &str, mount: impl FnOnce(&[&str])) {
    if may_let_others_in() {
        return mount(&["--allow-other"]);
    }
    let on = Path::new(client).join("on");
    fs::create_dir(&on).unwrap();
    let output = quorate(&["mount", "--allow-other", "--dir", client, &on.display().to_string()]);
    let says = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && says.contains("user_allow_other"), "{says}");
}

/// Who is not root mounts with a client of his own, and has it for himself: even root is not let in.
#[test]
fn who_is_not_root_mounts() {
    let cluster = running("not-root", "");
    let client = cluster.dir.path().join("c/client-0");
    if !geteuid().is_root() {
        return Mount::start(&cluster, 0, &[]).stop();
    }
    // The command and the client's directory where nobody gets at them.
    let home = cluster.dir.path().join("nobody");
    let (own, on, program) = (home.join("client-0"), home.join("mnt"), home.join("quorate"));
    fs::create_dir_all(&on).unwrap();
    fs::rename(&client, &own).unwrap();
    fs::hard_link(env!("CARGO_BIN_EXE_quorate"), &program)
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_quorate"), &program).map(drop))
        .unwrap();
    give_to_nobody(&own);
    give_to_nobody(&on);
    let start = |flags: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["mount", "--dir"]).arg(&own).args(flags).arg(&on).uid(NOBODY).gid(NOBODY);
        command
    };
    if fs::metadata("/dev/fuse").unwrap().mode() & 0o006 != 0o006 {
        // The machine lets only root mount: that is said, and what to do.
        let output = start(&[]).stdin(Stdio::null()).output().unwrap();
        let says = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && says.contains("chmod 666 /dev/fuse"), "{says}");
        return;
    }
    let mut mount = Mount::run(start(&[]), on.clone(), cluster.dir.path().join("nobody.log"));
    // A process that is nobody's in every respect: the kernel lets no other one in.
    let mut shell = Command::new("sh");
    shell.args(["-ec", "echo hello > a && cat a && stat -c %u a"]).current_dir(&on).uid(NOBODY).gid(NOBODY);
    let output = shell.stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n65534\n", "{output:?}");
    denied(fs::read(on.join("a")));
    mount.stop();
    if !may_let_others_in() {
        let output = start(&["--allow-other"]).stdin(Stdio::null()).output().unwrap();
        let says = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && says.contains("user_allow_other"), "{says}");
    }
}

fn give_to_nobody(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give_to_nobody(&entry.unwrap().path());
        }
    }
}
