//! The guest: a Linux kernel as a process, from Debian's archive.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use super::host::{GUEST, Host, PORT, SERVER};
use xtask::{read, run};

/// The suite that has a kernel which runs on today's processors; older ones fail on the size of their registers.
const SUITE: &str = "sid";
const MIRROR: &str = "http://deb.debian.org/debian";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const PACKAGES: &[&str] = &["user-mode-linux", "libc6", "libgcc-s1"];
const LIBRARIES: &str = "lib/x86_64-linux-gnu";
/// How long a guest may run, in seconds.
const LIMIT_S: &str = "7200";

/// Binds what the guest needs into the jail and becomes the guest. Its arguments: the jail, then the guest's.
const ENTER: &str = "jail=$1; shift; mount --make-rprivate / && mount --rbind /dev \"$jail/dev\" && \
    mount --rbind /proc \"$jail/proc\" && mount --rbind / \"$jail/host\" && cd / && exec chroot \"$jail\" /linux \"$@\"";

/// What a guest mounts.
#[derive(Clone, Debug)]
pub(crate) struct Export {
    pub(crate) server: Ipv4Addr,
    pub(crate) port: u16,
    pub(crate) mount_port: u16,
    pub(crate) path: String,
    /// Further options of the mount, each after a comma.
    pub(crate) options: String,
}

impl Export {
    /// Returns what the relay of a host's cluster exports.
    pub(crate) fn of_relay() -> Self {
        Self { server: SERVER, port: PORT, mount_port: PORT, path: "/".to_owned(), options: String::new() }
    }
}

/// A kernel, ready to run.
#[derive(Debug)]
pub(crate) struct Machine {
    cache: PathBuf,
}

impl Machine {
    /// Returns the kernel in `cache`; it is fetched if it is not there.
    pub(crate) fn get(cache: &Path) -> Result<Self> {
        for (command, package) in [("ip", "iproute2"), ("modprobe", "kmod"), ("unshare", "util-linux")] {
            need(command, package)?;
        }
        let machine = Self { cache: cache.to_path_buf() };
        if !machine.jail().join("linux").is_file() {
            machine.fetch()?;
        }
        let modules =
            fs::read_dir(machine.modules().join("lib/modules"))?.flatten().map(|entry| entry.file_name());
        println!("guest: Linux {:?} of Debian {SUITE}", modules.collect::<Vec<_>>());
        Ok(machine)
    }

    fn jail(&self) -> PathBuf {
        self.cache.join("jail")
    }

    fn modules(&self) -> PathBuf {
        self.cache.join("modules")
    }

    /// Fetches the packages with lists and places of their own: the host's are left alone.
    fn fetch(&self) -> Result<()> {
        let apt = self.cache.join("apt");
        let (lists, archives) = (apt.join("lists/partial"), apt.join("cache/archives/partial"));
        let unpacked = self.cache.join("unpacked");
        for dir in [&lists, &archives, &unpacked] {
            fs::create_dir_all(dir)?;
        }
        let place = apt.display();
        let mirror = mirror().unwrap_or_else(|| MIRROR.to_owned());
        fs::write(apt.join("sources.list"), format!("deb [signed-by={KEYS}] {mirror} {SUITE} main\n"))?;
        fs::write(
            apt.join("apt.conf"),
            format!(
                "Dir::Etc::sourcelist \"{place}/sources.list\";\nDir::Etc::sourceparts \"-\";\n\
                 Dir::State::lists \"{place}/lists\";\nDir::Cache \"{place}/cache\";\nAcquire::Languages \"none\";\n"
            ),
        )?;
        let apt_get = |args: &[&str]| {
            let mut command = Command::new("apt-get");
            command.args(args).env("APT_CONFIG", apt.join("apt.conf")).current_dir(&apt);
            run(&mut command)
        };
        apt_get(&["-qq", "update"]).context("Debian's archive cannot be reached")?;
        let packages: Vec<String> = PACKAGES.iter().map(|package| format!("{package}/{SUITE}")).collect();
        let mut download = vec!["-qq", "download"];
        download.extend(packages.iter().map(String::as_str));
        apt_get(&download)?;
        for entry in fs::read_dir(&apt)?.flatten() {
            if entry.path().extension().is_some_and(|end| end == "deb") {
                run(Command::new("dpkg").arg("-x").arg(entry.path()).arg(&unpacked))?;
            }
        }
        self.build_jail(&unpacked)
    }

    /// The jail holds the kernel and the C library that it was linked with; the host's root comes to `host`.
    fn build_jail(&self, unpacked: &Path) -> Result<()> {
        let jail = self.jail();
        let libraries = jail.join(LIBRARIES);
        for dir in ["lib64", LIBRARIES, "dev", "proc", "host", "tmp", "root"] {
            fs::create_dir_all(jail.join(dir))?;
        }
        let copy = |name: &str, to: &Path| {
            let found = find(unpacked, name).with_context(|| format!("no {name} in the packages"))?;
            fs::copy(&found, to.join(name)).with_context(|| found.display().to_string())
        };
        copy("ld-linux-x86-64.so.2", &jail.join("lib64"))?;
        copy("libc.so.6", &libraries)?;
        copy("libgcc_s.so.1", &libraries)?;
        fs::create_dir_all(self.modules().join("lib"))?;
        let link = self.modules().join("lib/modules");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(unpacked.join("usr/lib/uml/modules"), link)?;
        // Last: it says that all is there.
        fs::copy(unpacked.join("usr/bin/linux.uml"), jail.join("linux"))?;
        Ok(())
    }

    /// Boots: the guest mounts the host's export and runs the script in it. `dir` is a directory of the host that it
    /// may write to, as `/mnt/host`.
    pub(crate) fn boot(&self, host: &Host, dir: &Path, script: &str) -> Result<Guest> {
        self.boot_with(host, &Export::of_relay(), dir, script)
    }

    /// The same with another export, of a server that runs in the host's namespace.
    pub(crate) fn boot_with(&self, host: &Host, export: &Export, dir: &Path, script: &str) -> Result<Guest> {
        let (init, suite) = (dir.join("init.sh"), dir.join("suite.sh"));
        fs::write(&init, include_str!("../guest/init.sh"))?;
        fs::write(&suite, script)?;
        read(Command::new("chmod").arg("+x").arg(&init))?;
        let mut command = host.command("setpriv");
        command.args(["--pdeathsig", "TERM", "timeout", "-k", "5", LIMIT_S]);
        command.args(["unshare", "-m", "sh", "-c", ENTER, "sh"]).arg(self.jail());
        command.args([
            "mem=1024M",
            "uml_dir=/tmp/",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/host",
        ]);
        command.args([
            "ro",
            "quiet",
            "vec0:transport=tap,ifname=tap0,depth=64,gro=1",
            "con=null",
            "con0=null,fd:1",
        ]);
        command.arg(format!("init={}", init.display()));
        command
            .arg(format!("q_guest={GUEST}"))
            .arg(format!("q_server={}", export.server))
            .arg(format!("q_port={}", export.port))
            .arg(format!("q_mountport={}", export.mount_port))
            .arg(format!("q_path={}", export.path))
            .arg(format!("q_options={}", export.options));
        command.arg(format!("q_modules={}", self.modules().display()));
        command.arg(format!("q_run={}", suite.display())).arg(format!("q_host=/host{}", dir.display()));
        Ok(Guest(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?))
    }
}

/// A guest that runs.
#[derive(Debug)]
pub(crate) struct Guest(Child);

impl Guest {
    /// Returns what it said until its end; `hear` hears each line at once.
    pub(crate) fn listen(mut self, mut hear: impl FnMut(&str) -> Result<()>) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        if let Some(stdout) = self.0.stdout.take() {
            for line in BufReader::new(stdout).split(b'\n') {
                let line = String::from_utf8_lossy(&line?).trim_end().to_owned();
                hear(&line)?;
                lines.push(line);
            }
        }
        let _ = self.0.wait()?;
        Ok(lines)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // `timeout` passes it on to the kernel, which is one process.
            let _ = Command::new("kill").arg(self.0.id().to_string()).status();
            let _ = self.0.wait();
        }
    }
}

/// Finds a file of a name.
fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path()).collect();
    let own =
        entries.iter().find(|path| path.file_name().is_some_and(|found| found == name) && path.is_file());
    let below = || {
        entries.iter().filter(|path| path.is_dir() && !path.is_symlink()).find_map(|path| find(path, name))
    };
    own.cloned().or_else(below)
}

/// Returns the mirror that the host uses.
fn mirror() -> Option<String> {
    let uris = read(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)"])).ok()?;
    uris.lines().find(|line| line.ends_with("/debian/")).map(str::to_owned)
}

/// Installs a package of Debian's if the command that it has is not there.
pub(crate) fn need(command: &str, package: &str) -> Result<()> {
    if has(command) {
        return Ok(());
    }
    let mut install = Command::new("apt-get");
    install.args(["install", "-y", "-qq", "--no-install-recommends", package]);
    run(&mut install).with_context(|| format!("there is no {command}: apt-get install {package}"))
}

/// Says whether the host, and so the guest, has a command.
pub(crate) fn has(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(command).is_file())
        || Path::new("/usr/sbin").join(command).is_file()
}
