//! What other users of the machine can do to a cluster that `quorate up` runs, and what a web page can that one of its
//! users looks at.
//!
//! Root tests with the user nobody. Without root there is no other user.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
use quorate_fs::nfs3::{SetAttr, Stat};

use crate::peer::Peer;
use crate::support::{Dir, Ended, PATIENCE, own_address};
use crate::up::Up;
use crate::users::{NOBODY, as_nobody};

/// A cluster with a file system, whose directory other users reach as far as its own modes let them.
fn file_system(name: &str) -> Up {
    let dir = Dir::new(name);
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(dir.path(), open).unwrap();
    let door = SocketAddr::new(own_address(), 20_490);
    let up = Up::start_service(dir, ("fs", "--nfs"), door, &[]);
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(door).is_err() {
        assert!(Instant::now() < until, "no gateway: {}", up.said());
        std::thread::sleep(Duration::from_millis(20));
    }
    up
}

/// Every file and directory under a directory, as root finds them.
fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { [vec![path.clone()], below(&path)].concat() } else { vec![path] })
        .collect()
}

/// H5: nobody but its user reads a file of a cluster that runs, or holds a lock that a node needs.
#[test]
fn h5_no_file_of_a_cluster_is_open_to_others() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let up = file_system("closed");
    let data = PathBuf::from(up.dir().join("data"));
    let (dirs, files): (Vec<PathBuf>, Vec<PathBuf>) =
        below(&data).into_iter().partition(|path| path.is_dir());
    let named = |name: &str| files.iter().filter(|path| path.ends_with(name)).count();
    assert!(named("lock") >= 5 && named("replica.key") == 4 && named("replica.log") == 4, "{files:?}");
    let reached = || -> Vec<PathBuf> {
        let opens =
            |path: &Path| File::open(path).is_ok() || OpenOptions::new().append(true).open(path).is_ok();
        as_nobody(|| files.iter().filter(|path| opens(path)).cloned().collect())
    };
    assert_eq!(reached(), Vec::<PathBuf>::new());
    // Each directory is closed, and so is each file by itself.
    for dir in dirs.iter().chain([&data]) {
        let mode = fs::metadata(dir).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{}", dir.display());
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert_eq!(reached(), Vec::<PathBuf>::new());
}

/// H2: through the gateway of `up`, a user of the machine has the rights of that user, and not of the user that a call
/// names. Root, as the client of a kernel does, acts for everybody.
#[test]
fn h2_a_user_of_the_machine_is_nobody_else() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let up = file_system("claims");
    let mut root = Peer::connect(up.door(), 0, 1);
    let top = root.mount("/").unwrap();
    let secret = root.create(&top, "secret").unwrap().unwrap();
    let only_owner = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    root.set(&secret, only_owner.clone()).unwrap();
    assert_eq!(root.write(&secret, 0, b"root's").unwrap(), Ok(6));
    let mut of_user = Peer::connect(up.door(), 1000, 1_000);
    let users = of_user.create(&top, "users").unwrap().unwrap();
    of_user.set(&users, only_owner).unwrap();
    assert_eq!(of_user.owner(&users), Ok((1000, 0o600)));
    // The connection is nobody's, and says that it is root's, or the other user's.
    for (claimed, first) in [(0, 2_000), (1000, 3_000)] {
        let mut other = as_nobody(|| Peer::connect(up.door(), claimed, first));
        for file in [&secret, &users] {
            assert_eq!(other.read(file, 0, 100), Err(Stat::Access), "as {claimed}");
            assert_eq!(other.write(file, 0, b"x").unwrap(), Err(Stat::Access), "as {claimed}");
            let open = SetAttr { mode: Some(0o666), ..SetAttr::default() };
            assert_eq!(other.set(file, open), Err(Stat::Perm), "as {claimed}");
        }
        assert_eq!(other.device(&top, &format!("device{claimed}")), Err(Stat::Perm), "as {claimed}");
        let own = other.create(&top, &format!("own{claimed}")).unwrap().unwrap();
        let roots = SetAttr { mode: Some(0o4755), uid: Some(0), ..SetAttr::default() };
        assert_eq!(other.set(&own, roots), Err(Stat::Perm), "as {claimed}");
        assert_eq!(other.owner(&own), Ok((NOBODY, 0o644)), "as {claimed}");
    }
    assert!(root.device(&top, "device").is_ok());
    assert!(up.said().contains("nosuid,nodev"), "{}", up.said());
}

/// Sends bytes, and returns what comes until the end of the connection.
fn exchange(to: SocketAddr, bytes: &str) -> String {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut reply = Vec::new();
    // A connection that is ended with input unread is reset.
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

/// H3: what a browser sends for a web page of somebody else's writes nothing through the gateway.
#[test]
fn h3_a_web_page_of_somebody_elses_does_nothing() {
    let door = SocketAddr::new(own_address(), 6380);
    let up = Up::start(Dir::new("page"), door);
    assert_eq!(up.redis("SET k before"), "+OK");
    let body = "\r\nSET k after\r\nFLUSHALL\r\n";
    for head in ["POST / HTTP/1.1\r\nHost: evil.example\r\n", "GET / HTTP/1.1\r\nHost: evil.example\r\n"] {
        let said = exchange(door, &format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
        assert!(!said.contains("OK"), "{said}");
    }
    assert_eq!(up.redis("GET k"), "$6\r\nbefore");
}

/// Connects from an address of loopback.
fn connect_from(own: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let SocketAddr::V4(to) = to else { unreachable!() };
    let end = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    let [a, b, c, d] = own.octets();
    bind(end.as_raw_fd(), &SockaddrIn::new(a, b, c, d, 0)).unwrap();
    connect(end.as_raw_fd(), &SockaddrIn::from(to)).unwrap();
    let stream = TcpStream::from(end);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// M4: a gateway opens as many connections as its hard limit of descriptors lets it, and then says that it takes no more.
/// Those that are connected are served on.
#[test]
fn m4_a_gateway_says_that_it_has_no_descriptors_left() {
    const HARD: usize = 400;
    let up = Up::start(Dir::new("descriptors"), SocketAddr::new(own_address(), 6380));
    let door = SocketAddr::new(up.door().ip(), 6390);
    let limited = format!("ulimit -Sn 150 && ulimit -Hn {HARD} && exec \"$0\" \"$@\"");
    let gateway = Command::new("sh")
        .args([
            "-c",
            &limited,
            env!("CARGO_BIN_EXE_quorate"),
            "resp",
            "--dir",
            &up.dir().join("data/client-3"),
        ])
        .args(["--listen", &door.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut gateway = Ended(gateway.unwrap());
    let until = Instant::now() + PATIENCE;
    while TcpStream::connect(door).is_err() {
        assert!(Instant::now() < until && gateway.0.try_wait().unwrap().is_none(), "no gateway");
        std::thread::sleep(Duration::from_millis(20));
    }
    let ping = |stream: &mut TcpStream| {
        let mut reply = [0; 7];
        let _ = stream.write_all(b"PING\r\n");
        stream
            .read_exact(&mut reply)
            .map(|()| String::from_utf8_lossy(&reply).into_owned())
            .unwrap_or_default()
    };
    let mut served = Vec::new();
    let refusal = loop {
        let from = Ipv4Addr::new(127, 200, 0, u8::try_from(1 + served.len() % 4).unwrap());
        let mut stream = connect_from(from, door);
        match ping(&mut stream).as_str() {
            "+PONG\r\n" => served.push(stream),
            other => break other.to_owned(),
        }
        assert!(served.len() < HARD, "more than there are descriptors");
        // Those that are open stay in use.
        let at = served.len() / 2;
        let _ = ping(&mut served[at]);
    };
    assert_eq!(refusal, "-ERR ma", "after {}", served.len());
    assert!(served.len() > 200, "the soft limit counted: {}", served.len());
    for stream in &mut served {
        assert_eq!(ping(stream), "+PONG\r\n");
    }
}
