//! The file system mounted through FUSE: used as any other, while replicas die and lie.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Cluster, Dir, PATIENCE, own_address, quorate};
use crate::up::Up;

/// A mount, until this is dropped.
pub(crate) struct Mount {
    process: Child,
    pub(crate) dir: PathBuf,
    said: PathBuf,
}

impl Mount {
    pub(crate) fn start(cluster: &Cluster, client: u64, flags: &[&str]) -> Self {
        let dir = cluster.dir.path().join(format!("mnt-{client}"));
        let said = cluster.dir.path().join(format!("mount-{client}.log"));
        fs::create_dir_all(&dir).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.args(["mount", "--dir"]).arg(cluster.dir.path().join(format!("c/client-{client}")));
        command.args(flags).arg(&dir);
        Self::run(command, dir, said)
    }

    /// Runs a command that mounts on `dir`, and waits until that is done.
    pub(crate) fn run(mut command: Command, dir: PathBuf, said: PathBuf) -> Self {
        let log = File::create(&said).unwrap();
        let process =
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let mut mount = Self { process, dir, said };
        let until = Instant::now() + PATIENCE;
        while !is_mounted(&mount.dir) {
            let ended = mount.process.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < until, "not mounted: {}", mount.said());
            std::thread::sleep(Duration::from_millis(10));
        }
        mount
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Asks it to end as Ctrl-C does, and waits for that.
    pub(crate) fn stop(&mut self) {
        assert!(Command::new("kill").arg(self.process.id().to_string()).status().unwrap().success());
        let until = Instant::now() + PATIENCE;
        while self.process.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it does not end: {}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(self.process.wait().unwrap().success(), "{}", self.said());
        assert!(!is_mounted(&self.dir) && self.said().contains("unmounted"), "{}", self.said());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if is_mounted(&self.dir) {
            let _ = Command::new("fusermount3").args(["-u", "-z", "-q"]).arg(&self.dir).status();
        }
    }
}

fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf());
    mounts.lines().any(|line| line.split(' ').nth(4) == dir.to_str())
}

fn cluster(name: &str, lines: &str) -> Cluster {
    let exports = format!("fs_exports = \"/(rw,no_root_squash)\"\n{lines}");
    Cluster::make(name, &["--service", "fs"], &exports)
}

pub(crate) fn running(name: &str, lines: &str) -> Cluster {
    let mut cluster = cluster(name, lines);
    (0..4).for_each(|i| cluster.run(i));
    cluster
}

/// `len` bytes, no two parts of which are the same.
fn content_of(len: u32) -> Vec<u8> {
    (0..len / 4).flat_map(u32::to_le_bytes).collect()
}

/// What a file of a number holds.
fn content(number: u64) -> Vec<u8> {
    let len = usize::try_from(number * 7919 % 100_000).unwrap();
    (0..len).map(|i| u8::try_from((i as u64).wrapping_mul(number + 31) >> 3 & 0xff).unwrap()).collect()
}

/// A program that makes, renames, reads and removes files until it is told to stop. No error is an error of its own.
fn work(dir: &Path, stop: &AtomicBool, done: &AtomicU64) -> Vec<u64> {
    let mut kept = Vec::new();
    fs::create_dir_all(dir).unwrap();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (draft, path) = (dir.join("draft"), dir.join(number.to_string()));
        fs::write(&draft, content(number)).unwrap();
        fs::rename(&draft, &path).unwrap();
        if number % 3 == 0 {
            fs::remove_file(&path).unwrap();
        } else {
            kept.push(number);
        }
        if number % 3 != 0 && number % 5 == 1 {
            assert!(fs::read(&path).unwrap() == content(number), "{}", path.display());
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    kept
}

fn wait_for(done: &AtomicU64, more: u64) {
    let (begin, target) = (Instant::now(), done.load(Ordering::Relaxed) + more);
    while done.load(Ordering::Relaxed) < target {
        assert!(begin.elapsed() < PATIENCE, "the work does not go on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Programs work in a mount while a replica lies and while the primary is killed: none sees an error, and another
/// mount has exactly what they wrote.
#[test]
fn programs_work_on_while_a_replica_lies_and_the_primary_dies() {
    let mut cluster = running("fuse", "");
    let mut mount = Mount::start(&cluster, 0, &["--wait", "60s"]);
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let workers: Vec<_> = (0..3)
        .map(|worker| {
            let (dir, stop, done) =
                (mount.dir.join(format!("w{worker}")), Arc::clone(&stop), Arc::clone(&done));
            std::thread::spawn(move || work(&dir, &stop, &done))
        })
        .collect();
    wait_for(&done, 20);
    assert!(cluster.stop(2).success());
    let log = cluster.dir.path().join("liar.log");
    let mut liar = Command::new(env!("CARGO_BIN_EXE_quorate"))
        .args(["replica", "--liar", "wrong-reply", "--dir"])
        .arg(cluster.replica_dir(2))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let until = Instant::now() + PATIENCE;
    while !fs::read_to_string(&log).unwrap().contains("has told lies") {
        assert!(Instant::now() < until, "{}", fs::read_to_string(&log).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_for(&done, 20);
    assert!(Command::new("kill").arg(liar.id().to_string()).status().unwrap().success());
    assert!(liar.wait().unwrap().success());
    cluster.run(2);
    wait_for(&done, 20);
    // The present primary: the first one may have handed over by now.
    for primary in [0, 1] {
        cluster.kill(primary);
        wait_for(&done, 10);
        cluster.run(primary);
        wait_for(&done, 10);
    }
    stop.store(true, Ordering::Relaxed);
    let kept: Vec<Vec<u64>> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    let other = Mount::start(&cluster, 1, &[]);
    for (worker, kept) in kept.iter().enumerate() {
        let dir = other.dir.join(format!("w{worker}"));
        let mut names: Vec<u64> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect();
        names.sort_unstable();
        assert_eq!(&names, kept);
        for number in kept {
            assert!(fs::read(dir.join(number.to_string())).unwrap() == content(*number), "{number}");
        }
    }
    mount.stop();
}

/// The calls of POSIX, one after the other, as on any file system.
#[test]
fn a_mount_does_what_a_file_system_does() {
    let cluster = running("posix", "");
    let mut mount = Mount::start(&cluster, 0, &[]);
    let at = |name: &str| mount.dir.join(name);
    let kind = |result: std::io::Result<()>| result.unwrap_err().kind();
    // Names.
    fs::create_dir(at("d")).unwrap();
    assert_eq!(kind(fs::create_dir(at("d"))), ErrorKind::AlreadyExists);
    fs::write(at("d/a"), b"hello").unwrap();
    assert_eq!(kind(fs::remove_dir(at("d"))), ErrorKind::DirectoryNotEmpty);
    assert_eq!(kind(fs::read(at("nothing")).map(drop)), ErrorKind::NotFound);
    assert_eq!(kind(fs::write(at(&"x".repeat(256)), b"")), ErrorKind::InvalidFilename);
    fs::write(at(&"x".repeat(255)), b"").unwrap();
    let exclusive = || OpenOptions::new().write(true).create_new(true).open(at("once"));
    drop(exclusive().unwrap());
    assert_eq!(kind(exclusive().map(drop)), ErrorKind::AlreadyExists);
    // Links.
    fs::hard_link(at("d/a"), at("b")).unwrap();
    assert_eq!(fs::metadata(at("b")).unwrap().nlink(), 2);
    symlink("d/a", at("s")).unwrap();
    assert_eq!(fs::read_link(at("s")).unwrap(), Path::new("d/a"));
    assert_eq!(fs::read(at("s")).unwrap(), b"hello");
    assert_eq!(fs::metadata(at("b")).unwrap().ino(), fs::metadata(at("d/a")).unwrap().ino());
    // Content: append, holes, truncation, a large file.
    OpenOptions::new().append(true).open(at("b")).unwrap().write_all(b" world").unwrap();
    assert_eq!(fs::read(at("d/a")).unwrap(), b"hello world");
    let file = OpenOptions::new().read(true).write(true).open(at("b")).unwrap();
    file.write_all_at(b"!", 100_000).unwrap();
    let mut hole = [1; 8];
    file.read_exact_at(&mut hole, 50_000).unwrap();
    assert_eq!(hole, [0; 8]);
    file.set_len(5).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::read(at("b")).unwrap(), b"hello");
    let large: Vec<u8> = (0..5_000_000_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    fs::write(at("large"), &large).unwrap();
    assert!(fs::read(at("large")).unwrap() == large);
    // Attributes.
    fs::set_permissions(at("large"), fs::Permissions::from_mode(0o640)).unwrap();
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 7);
    File::options().write(true).open(at("large")).unwrap().set_modified(time).unwrap();
    let found = fs::metadata(at("large")).unwrap();
    assert_eq!((found.mode() & 0o7777, found.len(), found.modified().unwrap()), (0o640, 5_000_000, time));
    // A file that is removed, or replaced, while it is open.
    let mut open = File::open(at("d/a")).unwrap();
    fs::remove_file(at("b")).unwrap();
    fs::remove_file(at("d/a")).unwrap();
    assert!(!at("d/a").exists());
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    drop(open);
    let mut open = OpenOptions::new().read(true).write(true).open(at("once")).unwrap();
    open.write_all(b"old").unwrap();
    fs::write(at("new"), b"new").unwrap();
    fs::rename(at("new"), at("once")).unwrap();
    open.seek(SeekFrom::Start(0)).unwrap();
    text.clear();
    open.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), fs::read(at("once")).unwrap()), ("old", b"new".to_vec()));
    drop(open);
    // Closing is told to nobody who waits: what was hidden goes a moment later.
    let until = Instant::now() + PATIENCE;
    while fs::read_dir(at("d")).unwrap().count()
        + fs::read_dir(at(""))
            .unwrap()
            .filter(|entry| {
                entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".quorate-open")
            })
            .count()
        > 0
    {
        assert!(Instant::now() < until, "what was removed while open is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
    fs::remove_dir(at("d")).unwrap();
    // Many entries, all listed once.
    fs::create_dir(at("many")).unwrap();
    (0..700).for_each(|i| fs::write(at(&format!("many/{i:04}")), b"").unwrap());
    let mut names: Vec<_> =
        fs::read_dir(at("many")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 700);
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
    // A pipe, and how much room there is.
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let df = Command::new("df").arg("--output=itotal,source").arg(at("")).output().unwrap();
    assert!(String::from_utf8(df.stdout).unwrap().contains("quorate"));
    mount.stop();
}

/// A full table of inodes is told as what it is; what is there can be read and removed, and then there is room.
#[test]
fn no_room_is_told_as_no_room() {
    let cluster = running("fuse-full", "fs_inodes_max = 20");
    let mut mount = Mount::start(&cluster, 0, &[]);
    let at = |name: &str| mount.dir.join(name);
    let mut made = 0;
    let error = loop {
        match fs::write(at(&made.to_string()), b"x") {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
        assert!(made < 100);
    };
    assert_eq!((made, error.raw_os_error()), (19, Some(28)));
    fs::remove_file(at("0")).unwrap();
    fs::write(at("large"), vec![2; 1 << 20]).unwrap();
    mount.stop();
}

/// A large write for which there is room in part says how far it came; what it says is there.
#[test]
fn a_write_that_fits_in_part_says_how_far_it_came() {
    let cluster = running("fuse-part", "fs_capacity = \"3MiB\"");
    let mut mount = Mount::start(&cluster, 0, &[]);
    let data = content_of(5 << 20);
    let mut file = File::create(mount.dir.join("large")).unwrap();
    let count = file.write(&data).unwrap();
    assert!((1 << 20..3 << 20).contains(&count), "{count}");
    let mut rest = count;
    let error = loop {
        match file.write(&data[rest..]) {
            Ok(more) => rest += more,
            Err(error) => break error,
        }
        assert!(rest < 3 << 20);
    };
    assert_eq!(error.raw_os_error(), Some(28), "{error}");
    drop(file);
    assert!(fs::read(mount.dir.join("large")).unwrap()[..rest] == data[..rest]);
    fs::remove_file(mount.dir.join("large")).unwrap();
    fs::write(mount.dir.join("small"), &data[..1 << 20]).unwrap();
    mount.stop();
}

/// With the cluster away nothing hangs without an end: calls fail after the time that was asked for, and it can be
/// unmounted. What was there is there when the cluster is back.
#[test]
fn a_cluster_that_is_away_is_an_error_after_a_time() {
    let mut cluster = running("fuse-away", "");
    let mut mount = Mount::start(&cluster, 0, &["--wait", "2s"]);
    fs::write(mount.dir.join("a"), b"a").unwrap();
    (0..4).for_each(|i| cluster.kill(i));
    // Not within the second for which the kernel knows it.
    std::thread::sleep(Duration::from_millis(1100));
    let begin = Instant::now();
    let read = fs::read(mount.dir.join("a")).unwrap_err();
    let written = fs::write(mount.dir.join("b"), b"b").unwrap_err();
    assert_eq!((read.raw_os_error(), written.raw_os_error()), (Some(110), Some(110)), "{read}, {written}");
    assert!(begin.elapsed() < PATIENCE);
    (0..4).for_each(|i| cluster.run(i));
    let until = Instant::now() + PATIENCE;
    while fs::read(mount.dir.join("a")).ok() != Some(b"a".to_vec()) {
        assert!(Instant::now() < until, "it does not come back");
    }
    (0..4).for_each(|i| cluster.kill(i));
    mount.stop();
}

/// What is wrong with the command, the export or the cluster is told before anything is mounted.
#[test]
fn what_cannot_be_mounted_is_told() {
    let cluster = running("fuse-wrong", "");
    let (client, on) = (cluster.dir.join("c/client-0"), cluster.dir.join("on"));
    fs::create_dir(&on).unwrap();
    let away = {
        let away = self::cluster("fuse-nobody", "");
        let client = away.dir.join("c/client-0");
        let output = quorate(&["mount", "--wait", "1s", "--dir", &client, &on]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert!(away.0 == Some(3) && away.1.contains("Q025"), "{away:?}");
    for (arguments, code) in [
        (&["mount", "--dir", &client, "/no/such/directory"][..], "Q017"),
        (&["mount", "--dir", &client, "--export", "/other", &on], "Q050"),
        (&["mount", "--dir", "/no/such/client", &on], "Q017"),
    ] {
        let output = quorate(arguments);
        let says = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && says.contains(code), "{arguments:?}: {says}");
    }
    assert!(!is_mounted(Path::new(&on)));
}

/// `up --mount` says that the file system is mounted when it is.
#[test]
fn up_waits_until_it_has_mounted() {
    let (dir, door) = (Dir::new("up-mounts"), SocketAddr::new(own_address(), 2049));
    let on = dir.path().join("mnt");
    fs::create_dir(&on).unwrap();
    let up = Up::start_service(dir, ("fs", "--nfs"), door, &["--mount", on.to_str().unwrap()]);
    assert!(up.said().contains("mounted") && is_mounted(&on), "{}", up.said());
    fs::write(on.join("a"), "one").unwrap();
    let _dir = up.down();
    assert!(!is_mounted(&on));
}
