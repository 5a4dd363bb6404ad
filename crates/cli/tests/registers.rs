//! A register of real processes, as a new user runs one: it survives a killed, a lying and a wiped server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]
#![allow(dead_code, reason = "each test uses a part of the support")]

mod support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use support::{Dir, PATIENCE, own_address, quorate};

/// Runs a subcommand of `quorum`, and returns its status and what it printed.
fn quorum(arguments: &[&str]) -> (i32, String) {
    let all: Vec<&str> = ["quorum"].iter().chain(arguments).copied().collect();
    let output = quorate(&all);
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(said).unwrap())
}

/// `quorate quorum up`, ended with SIGTERM.
struct Up(Child);

impl Up {
    fn start(dir: &str, host: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.args(["quorum", "up", "--dir", dir]);
        if !Path::new(dir).is_dir() {
            command.args(["--host", host]);
        }
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn end(mut self) -> bool {
        self.stop()
    }

    fn stop(&mut self) -> bool {
        let _ = kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), Signal::SIGTERM);
        self.0.wait().unwrap().success()
    }
}

/// A test that fails leaves no server behind.
impl Drop for Up {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.stop();
        }
    }
}

fn await_status(dir: &str, wanted: i32) {
    let end = Instant::now() + PATIENCE;
    loop {
        let (status, said) =
            if Path::new(dir).is_dir() { quorum(&["status", "--dir", dir]) } else { (-1, String::new()) };
        if status == wanted {
            return;
        }
        assert!(Instant::now() < end, "{status}: {said}");
    }
}

#[test]
fn a_new_users_register_survives_killed_lying_and_wiped_servers() {
    let place = Dir::new("quorum-up");
    let (dir, client) = (place.join("r"), place.join("r/client-0"));
    let host = own_address().to_string();
    let up = Up::start(&dir, &host);
    await_status(&dir, 0);
    let read = |key: &str| quorum(&["client", "--dir", &client, "read", key]);
    let write = |value: &str| quorum(&["client", "--dir", &client, "write", "greeting", value]);
    assert_eq!(read("greeting"), (0, "nil\n".to_owned()));
    assert_eq!(write("hello"), (0, "ok, version 1\n".to_owned()));
    let fault = |what: &str, server: &str| quorum(&["fault", "--dir", &dir, what, server]);

    assert_eq!(fault("kill", "0").0, 0);
    await_status(&dir, 1);
    assert_eq!(read("greeting"), (0, "hello\n".to_owned()));
    let (status, said) = fault("lie", "1");
    assert!(status == 2 && said.contains("Q044"), "{status}: {said}");
    assert_eq!(fault("heal", "0").0, 0);
    await_status(&dir, 0);

    assert_eq!(fault("lie", "1").0, 0);
    await_status(&dir, 0);
    for round in 2..6 {
        assert_eq!(write(&format!("hello {round}")), (0, format!("ok, version {round}\n")));
        assert_eq!(read("greeting"), (0, format!("hello {round}\n")));
    }
    assert_eq!(fault("heal", "1").0, 0);
    await_status(&dir, 0);
    assert_eq!(fault("wipe", "2").0, 0);
    await_status(&dir, 0);
    assert!(quorum(&["status", "--dir", &dir, "--json"]).1.contains("\"repaired\":true"));
    let watched = quorum(&["client", "--dir", &client, "watch", "greeting", "--for", "2s"]);
    assert_eq!(watched, (0, "hello 5\n".to_owned()));
    let delete = || quorum(&["client", "--dir", &client, "delete", "greeting"]);
    assert_eq!(delete(), (0, "ok, version 6\n".to_owned()));
    assert_eq!(read("greeting"), (0, "nil\n".to_owned()));
    assert_eq!(write("hello 5"), (0, "ok, version 7\n".to_owned()));
    assert!(up.end());

    // Everything is there at the next start, and nobody answers without servers.
    let silent = quorum(&["client", "--dir", &client, "--deadline", "300ms", "read", "greeting"]);
    assert!(silent.0 == 3 && silent.1.contains("too few servers"), "{silent:?}");
    assert_eq!(quorum(&["status", "--dir", &dir]).0, 3);
    let up = Up::start(&dir, &host);
    await_status(&dir, 0);
    assert_eq!(read("greeting"), (0, "hello 5\n".to_owned()));
    assert!(up.end());
}

/// An administrator changes who may write while servers run, and nothing can be proved against correct processes.
#[test]
fn access_and_evidence_from_the_command_line() {
    let place = Dir::new("quorum-access");
    let dir = place.join("r");
    let up = Up::start(&dir, &own_address().to_string());
    await_status(&dir, 0);
    let access = |arguments: &[&str]| quorum(&[&["access", "--dir", &dir], arguments].concat());
    let write = |client: &str, deadline: &str| {
        let own = place.join(&format!("r/{client}"));
        quorum(&["client", "--dir", &own, "--deadline", deadline, "write", "k", client]).0
    };
    let (status, said) = access(&["show"]);
    assert!(status == 0 && said.contains("no access list") && said.contains("server 3  list none"), "{said}");
    let (status, said) = access(&["set", "no/such/prefix"]);
    assert!(status == 2 && said.contains("is no prefix in register.toml"), "{status}: {said}");
    let (status, said) = access(&["set", "", "--writers", "client-1"]);
    assert!(status == 0 && said.contains("access list 1:"), "{status}: {said}");
    assert_eq!((write("client-0", "60s"), write("client-1", "60s")), (2, 0));
    let end = Instant::now() + PATIENCE;
    let (_, said) = loop {
        let shown = access(&["show"]);
        if shown.0 == 0 {
            break shown;
        }
        assert!(Instant::now() < end, "{shown:?}");
    };
    assert!(
        said.contains("access list 1, signed by client-3") && said.contains("writers client-1"),
        "{said}"
    );
    assert_eq!(access(&["set", ""]).0, 0);
    assert_eq!(write("client-0", "60s"), 0);
    let file = place.join("evidence.bin");
    let (status, said) = quorum(&["evidence", "export", &file, "--dir", &dir]);
    assert!(status == 0 && said.contains("no evidence; 4 of 4"), "{status}: {said}");
    // What only a client sees: a server that signs versions as a writer.
    assert_eq!(quorum(&["fault", "lie", "3", "--how", "impostor", "--dir", &dir]).0, 0);
    let end = Instant::now() + PATIENCE;
    let said = loop {
        assert_eq!(write("client-0", "60s"), 0);
        let (status, said) = quorum(&["evidence", "export", &file, "--dir", &dir]);
        if status == 1 {
            break said;
        }
        assert!(Instant::now() < end, "{status}: {said}");
    };
    assert!(said.contains("PROVED server 3 signed a version as a writer"), "{said}");
    let members = place.join("r/client-0/cluster.toml");
    assert_eq!(quorum(&["evidence", "check", &file, "--members", &members]).0, 0);
    fs::write(&file, "no evidence").unwrap();
    let (status, said) = quorum(&["evidence", "check", &file, "--members", &members]);
    assert!(status == 2 && said.contains("is no evidence"), "{status}: {said}");
    assert!(up.end());
}

/// What a scraper sees: a killed server counts, and is named.
#[test]
fn the_metrics_of_servers_are_served() {
    let place = Dir::new("quorum-metrics");
    let dir = place.join("r");
    let up = Up::start(&dir, &own_address().to_string());
    await_status(&dir, 0);
    let write = quorum(&["client", "--dir", &place.join("r/client-0"), "write", "k", "v"]);
    assert_eq!(write.0, 0);
    let address = format!("{}:9641", own_address());
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    // `up` looks with client 2, and `status` with client 3.
    command.args(["quorum", "status", "--dir", &dir, "--serve", &address]);
    let serving = Up(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let get = |path: &str| {
        let mut stream = std::net::TcpStream::connect(&address).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    };
    let await_line = |line: &str| {
        let end = Instant::now() + PATIENCE;
        loop {
            let text = get("/metrics").unwrap_or_default();
            if text.lines().any(|one| one == line) {
                return text;
            }
            assert!(Instant::now() < end, "{line}: {text}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    };
    let text = await_line("quorate_register_margin 1");
    for line in [
        "HTTP/1.1 200 OK",
        "quorate_register_verdict{kind=\"healthy\"} 1",
        "quorate_register_server_up{server=\"3\"} 1",
        "quorate_register_keys{server=\"0\"} 1",
        "# TYPE quorate_register_accepted_total counter",
    ] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
    assert!(get("/").unwrap().starts_with("HTTP/1.1 404"));
    assert_eq!(quorum(&["fault", "--dir", &dir, "kill", "2"]).0, 0);
    await_line("quorate_register_margin 0");
    await_line("quorate_register_server_up{server=\"2\"} 0");
    assert!(serving.end());
    assert!(up.end());
}

/// §15: each protocol repairs a server whose disk is gone, and the command shows it by reads that need this server.
#[test]
fn the_time_of_a_repair_is_measured() {
    let place = Dir::new("quorum-repair");
    fs::create_dir_all(place.join("")).unwrap();
    for protocol in ["phalanx", "minimal-c", "minimal-f", "bft-bc"] {
        let arguments = [
            "repair-time",
            "--protocol",
            protocol,
            "--keys",
            "150",
            "--value",
            "600",
            "--dir",
            &place.join(""),
        ];
        let (status, said) = quorum(&arguments);
        assert!(status == 0 && said.contains("150 keys of 600 bytes"), "{protocol}: {status}: {said}");
        assert!(said.contains("150 keys read"), "{said}");
    }
    assert_eq!(fs::read_dir(place.join("")).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn profiles_and_delays_are_named_on_the_command_line() {
    let place = Dir::new("quorum-profiles");
    fs::create_dir_all(place.join("")).unwrap();
    let run = |arguments: &[&str]| {
        let all = [&["run", "--operations", "20", "--protocol", "minimal-c"], arguments].concat();
        quorum(&all)
    };
    let (status, said) = quorum(&["run", "--profile", "list"]);
    assert!(status == 0 && said.contains("late-entrance") && said.contains("cert-forge"), "{said}");
    assert_eq!(run(&["--faulty", "1", "--profile", "late-entrance", "--writer"]).0, 0);
    assert_eq!(run(&["--client-profile", "listener-leak"]).0, 0);
    let (status, said) = run(&["--client-profile", "partial-write"]);
    assert!(status != 0 && said.contains("never ended"), "{status}: {said}");
    let (status, said) = run(&["--profile", "late-entranc"]);
    assert!(status == 2 && said.contains("Nearest: late-entrance") && said.contains("equivocate"), "{said}");
    assert!(run(&["--client-profile", "x"]).1.contains("choose one of: crash-mid-write"));
    assert!(run(&["--profile", "mispredict"]).1.contains("of other protocols"));

    let file = place.join("delays");
    let network = format!("geo:{file}");
    fs::write(&file, "0,1,1,1,2\n1,0,1,1,2\n1,1,0,1,2\n1,1,1,0,2\n2,2,2,2,0\n").unwrap();
    let (status, said) = run(&["--network", &network]);
    assert!(status == 0 && said.contains("latency       4."), "{said}");
    fs::write(&file, "0,1,1,1,2\n1,0,one,1,2\n").unwrap();
    let (status, said) = run(&["--network", &network]);
    assert!(status == 2 && said.contains("line 2: `one`"), "{said}");
    assert!(run(&["--network", "geo:nowhere"]).1.contains("nowhere"));
}

#[test]
fn mistakes_are_told() {
    let place = Dir::new("quorum-mistakes");
    let dir = place.join("r");
    let says = |arguments: &[&str]| quorum(arguments).1;
    assert!(says(&["status", "--dir", &dir]).contains("quorate quorum up"));
    assert!(says(&["client", "--dir", &dir, "read", "k"]).contains("quorate quorum init"));
    assert!(says(&["server", "--lie", "fake-valu"]).contains("Nearest: fake-value"));
    assert!(says(&["server", "--lie", "list"]).contains("forget"));
    assert_eq!(quorum(&["init", "--dir", &dir, "--protocol", "bft-bc", "--variant", "strong"]).0, 0);
    assert!(says(&["init", "--dir", &dir]).contains("not empty"));
    let file = Path::new(&dir).join("client-0/register.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("bft-bc-strong"));
    fs::write(&file, text.replace("bft-bc-strong", "bft")).unwrap();
    assert!(says(&["client", "--dir", &format!("{dir}/client-0"), "read", "k"]).contains("register.toml"));
}
