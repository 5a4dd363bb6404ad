//! `quorate up`, `fault` and `down`, as somebody types them.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Dir, PATIENCE, own_address, quorate};

/// A cluster that runs, and that goes with the test.
pub(crate) struct Up {
    /// None once it is down.
    dir: Option<Dir>,
    door: SocketAddr,
    process: Child,
}

impl Up {
    pub(crate) fn start(dir: Dir, door: SocketAddr) -> Self {
        Self::start_with(dir, door, &[])
    }

    /// Starts one that is made with these flags.
    pub(crate) fn start_with(dir: Dir, door: SocketAddr, flags: &[&str]) -> Self {
        Self::start_service(dir, ("kv", "--resp"), door, flags)
    }

    /// Starts one of a service, whose gateway has its address by a flag.
    pub(crate) fn start_service(
        dir: Dir,
        (service, gateway): (&str, &str),
        door: SocketAddr,
        flags: &[&str],
    ) -> Self {
        let data = dir.join("data");
        let (address, host) = (door.to_string(), door.ip().to_string());
        let page = SocketAddr::new(door.ip(), 9640).to_string();
        let mut arguments = vec!["up", "--dir", &data, gateway, &address, "--status", &page];
        if !std::path::Path::new(&data).exists() {
            arguments.extend(["--service", service, "--host", &host]);
            arguments.extend(flags);
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.args(arguments);
        Self::run(dir, door, command)
    }

    /// Runs a command that starts one.
    pub(crate) fn run(dir: Dir, door: SocketAddr, mut command: Command) -> Self {
        let log = File::create(dir.path().join("up.txt")).unwrap();
        let process =
            command.stdin(Stdio::null()).stderr(log.try_clone().unwrap()).stdout(log).spawn().unwrap();
        let mut up = Self { dir: Some(dir), door, process };
        up.wait_for(" more crash");
        up
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.dir().path().join("up.txt")).unwrap()
    }

    fn wait_for(&mut self, what: &str) {
        let begin = Instant::now();
        while !self.said().contains(what) {
            assert!(self.process.try_wait().unwrap().is_none(), "it has ended: {}", self.said());
            assert!(begin.elapsed() < PATIENCE, "no `{what}` in {}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn door(&self) -> SocketAddr {
        self.door
    }

    /// Types a command of `redis-cli`, and returns the line that it shows.
    pub(crate) fn redis(&self, line: &str) -> String {
        let begin = Instant::now();
        loop {
            // The gateway listens just after the service has answered.
            let Ok(mut stream) = TcpStream::connect(self.door) else {
                assert!(begin.elapsed() < PATIENCE, "no gateway");
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(format!("{line}\r\nQUIT\r\n").as_bytes()).unwrap();
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            // Without the answer to QUIT.
            return reply.strip_suffix("+OK\r\n").unwrap_or(&reply).trim_end().to_owned();
        }
    }

    /// Runs `quorate fault` and returns its status and what it said.
    pub(crate) fn fault(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let data = self.dir().join("data");
        let ended = quorate(&[&["fault"], arguments, &["--dir", &data]].concat());
        let said = [ended.stdout, ended.stderr].concat();
        (ended.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    pub(crate) fn down(mut self) -> Dir {
        let data = self.dir().join("data");
        let ended = quorate(&["down", "--dir", &data]);
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        assert!(self.process.wait().unwrap().success(), "{}", self.said());
        self.dir.take().unwrap()
    }

    /// Kills `up` alone.
    fn kill(mut self) -> Dir {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.dir.take().unwrap()
    }

    pub(crate) fn dir(&self) -> &Dir {
        self.dir.as_ref().unwrap()
    }
}

impl Drop for Up {
    /// A test that fails leaves no processes behind.
    fn drop(&mut self) {
        if let Some(dir) = &self.dir {
            quorate(&["down", "--dir", &dir.join("data")]);
            let _ = self.process.wait();
        }
    }
}

/// One command makes it, one fault does not matter, a second one is refused, and everything is there the
/// next time.
#[test]
fn up_survives_a_fault_and_comes_back_with_all_data() {
    let door = SocketAddr::new(own_address(), 6380);
    let up = Up::start(Dir::new("up"), door);
    assert_eq!(up.redis("SET k one"), "+OK");
    let (status, said) = up.fault(&["kill", "primary"]);
    assert_eq!(status, Some(0), "{said}");
    // On a busy machine it need not be the first any more.
    let killed = said[1..2].to_owned();
    assert!(said.contains(&format!("r{killed} killed")), "{said}");
    let other = if killed == "2" { "0" } else { "2" };
    assert!(up.redis("SET k two").starts_with("+OK"));
    // f = 1, and one is gone.
    let (status, said) = up.fault(&["pause", other]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("Q044") && said.contains(&format!("quorate fault heal {killed}")), "{said}");
    let (status, said) = up.fault(&["heal", &killed]);
    assert_eq!(status, Some(0), "{said}");
    let (status, said) = up.fault(&["wipe", "3"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(up.redis("APPEND k !").starts_with(":4"));
    let (status, said) = up.fault(&["kill", "9"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("0 to 3, or primary"), "{said}");
    // Somebody else starts it as well.
    let data = up.dir().join("data");
    let second =
        quorate(&["up", "--dir", &data, "--resp", &SocketAddr::new(own_address(), 6380).to_string()]);
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("Q022"));

    let up = Up::start(up.down(), door);
    assert_eq!(up.redis("GET k"), "$4\r\ntwo!");
    // Killed, it leaves its replicas and its gateway running; the next one takes over from them.
    let up = Up::start(up.kill(), door);
    assert_eq!(up.redis("GET k"), "$4\r\ntwo!");
    let dir = up.down();
    let (gone, data) = (quorate(&["fault", "kill", "1", "--dir", &dir.join("data")]), dir.join("data"));
    assert_eq!(gone.status.code(), Some(3), "a cluster that does not run has no faults");
    let again = quorate(&["down", "--dir", &data]);
    assert!(again.status.success() && String::from_utf8_lossy(&again.stdout).contains("is not running"));
}

/// `fault corrupt` damages the log where that is noticed, and says where.
#[test]
fn a_corrupted_log_is_noticed_at_the_next_start() {
    let up = Up::start(Dir::new("corrupt"), SocketAddr::new(own_address(), 6380));
    for _ in 0..5 {
        assert_eq!(up.redis("SET k one"), "+OK");
    }
    let (status, said) = up.fault(&["corrupt", "3"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("one sector damaged in log/") && said.contains(".seg at byte"), "{said}");
    // It has read its log when the command ends.
    let log = fs::read_to_string(up.dir().path().join("data/replica-3/replica.log")).unwrap();
    assert!(log.contains("had been durable: damaged or missing"), "{log}");
    assert_eq!(up.redis("GET k"), "$3\r\none");
    up.down();
}

/// A port that is taken is named, with the flag that chooses another one, and nothing is made.
#[test]
fn a_busy_door_is_told_before_anything_is_made() {
    let dir = Dir::new("busy");
    let taken = std::net::TcpListener::bind((own_address(), 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = quorate(&["up", "--service", "kv", "--dir", &dir.join("data"), "--resp", &address]);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("Q003") && said.contains("--resp"), "{said}");
    assert!(!dir.path().join("data").exists());
}

/// Nor is anything made if a port of a replica, a server or a client is taken.
#[test]
fn a_busy_port_is_told_before_anything_is_made() {
    let dir = Dir::new("busy-replica");
    let (host, data) = (own_address(), dir.join("data"));
    let _taken = [7002, 7412].map(|port| UdpSocket::bind((host, port)).unwrap());
    let (address, at) = (host.to_string(), |port| SocketAddr::new(host, port).to_string());
    let up = ["up", "--dir", &data, "--host", &address, "--nfs", &at(2049), "--status", &at(9640)];
    let quorum = ["quorum", "up", "--dir", &data, "--host", &address];
    for (arguments, other) in [(&up[..], 7100), (&quorum[..], 7500)] {
        let ended = quorate(arguments);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(said.contains("Q003") && said.contains(&format!("--host {}", at(other))), "{said}");
        assert!(!dir.path().join("data").exists());
    }
}

/// Replicas that keep nothing are not said to have kept it, and not started again to wait for each other.
#[test]
fn a_cluster_that_keeps_nothing_says_so() {
    let door = SocketAddr::new(own_address(), 6380);
    let up = Up::start_with(Dir::new("forgets"), door, &["--durability", "memory"]);
    assert_eq!(up.redis("SET k one"), "+OK");
    let dir = up.down();
    let said = fs::read_to_string(dir.path().join("up.txt")).unwrap();
    assert!(said.trim_end().ends_with("stopped. its data is gone: durability is memory"), "{said}");
    let refused = |dir: &Dir, what: &str, next: &str, never: &str| {
        let again = quorate(&["up", "--dir", &dir.join("data"), "--resp", &door.to_string()]);
        let said = String::from_utf8_lossy(&again.stderr).into_owned();
        assert_eq!(again.status.code(), Some(2), "{said}");
        assert!(said.contains("Q004") && said.contains(what) && said.contains(next), "{said}");
        assert!(!said.contains(never), "{said}");
    };
    refused(&dir, "kept nothing", "rm -r", "quorate down");
    // Killed, it leaves replicas that have everything while they run: nobody is told to remove their files.
    let dir = Up::start_with(Dir::new("forgets-killed"), door, &["--durability", "memory"]).kill();
    refused(&dir, "an `up` that was killed", "quorate down", "rm -r");
    let down = quorate(&["down", "--dir", &dir.join("data")]);
    let said = String::from_utf8_lossy(&down.stdout).into_owned();
    assert!(
        down.status.success() && said.contains("had left") && said.contains("its data is gone"),
        "{said}"
    );
}
