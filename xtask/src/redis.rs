//! `cargo xtask redis`: the usual calls of Redis clients, or the tests of Redis itself, on the gateway and on a Redis
//! server.

mod suite;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::ci::{built, target};
use crate::servers::{Servers, free_port, listens, up};
use xtask::{root, run};

/// A language with client libraries, and what makes their calls on a gateway and on a Redis server. Each takes the paths
/// of the directory for what it installs, of `tests/redis`, and the two ports.
type Language = (&'static str, fn(&Path, &Path, &[String; 2]) -> Result<()>);

const LANGUAGES: [Language; 3] = [("python", python), ("node", node), ("go", go)];

/// The releases that are installed. Those of Go are in `tests/redis/go/go.mod`.
const OF_PYTHON: &str = "redis==8.1.0";
const OF_NODE: [&str; 2] = ["redis@6.3.1", "ioredis@6.0.0"];

/// Installs client libraries below the target directory, and lets each do its usual calls on a gateway and on a Redis
/// server. Fails if replies differ. Without the name of a language, all six libraries do. Needs redis-server, the
/// languages, and a network for the first run. With `suite`, runs the tests of Redis instead.
pub(crate) fn redis(args: &[String]) -> Result<()> {
    if args == ["suite"] {
        let home = target()?.join("redis-suite");
        let source = suite::source(&home)?;
        let (_servers, ports) = start(&home)?;
        return suite::run(&home, &source, ports);
    }
    if let Some(word) = args.iter().find(|word| !LANGUAGES.iter().any(|(name, _)| name == word)) {
        bail!("redis takes `suite`, or some of `python`, `node` and `go`, not `{word}`");
    }
    let (home, scripts) = (target()?.join("redis-clients"), root().join("tests/redis"));
    fs::create_dir_all(&home)?;
    let (_servers, ports) = start(&home)?;
    let ports = ports.map(|port| port.to_string());
    let asked = |name: &str| args.is_empty() || args.iter().any(|word| word == name);
    LANGUAGES.iter().filter(|(name, _)| asked(name)).try_for_each(|(_, calls)| calls(&home, &scripts, &ports))
}

/// redis-py, in an environment of its own.
fn python(home: &Path, scripts: &Path, ports: &[String; 2]) -> Result<()> {
    let own = home.join("python");
    if !own.join("bin/pip").exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&own))?;
    }
    run(Command::new(own.join("bin/pip")).args(["install", "--quiet", OF_PYTHON]))?;
    run(Command::new(own.join("bin/python"))
        .args(["-W", "ignore"])
        .args([scripts.join("calls.py"), scripts.join("calls.txt")])
        .args(ports))
}

/// node-redis and ioredis. Node looks for packages beside the script.
fn node(home: &Path, scripts: &Path, ports: &[String; 2]) -> Result<()> {
    run(Command::new("npm").args(["install", "--silent", "--prefix"]).arg(home).args(OF_NODE))?;
    let script = home.join("calls.mjs");
    fs::copy(scripts.join("calls.mjs"), &script)?;
    run(Command::new("node").args([script, scripts.join("calls.txt")]).args(ports))
}

/// How long the outage takes in which go-redis increments a counter: longer than go-redis waits and tries again.
const OUTAGE: Duration = Duration::from_secs(13);

/// go-redis, redigo and rueidis. Then go-redis in an outage: two replicas of four are paused.
fn go(home: &Path, scripts: &Path, ports: &[String; 2]) -> Result<()> {
    let program = home.join("calls-go");
    run(Command::new("go").args(["build", "-o"]).arg(&program).current_dir(scripts.join("go")))?;
    run(Command::new(&program).arg(scripts.join("calls.txt")).args(ports))?;
    let mut counts = Command::new(program);
    let mut counts = counts.args(["outage", &ports[0]]).stdin(Stdio::piped()).spawn()?;
    let quorate = built("--bin", "quorate")?;
    let faults: [&[&str]; 3] = [&["pause", "1"], &["pause", "2", "--yes-break-it"], &["heal", "all"]];
    for fault in faults {
        if fault[0] == "heal" {
            std::thread::sleep(OUTAGE);
        }
        run(Command::new(quorate.get_program())
            .arg("fault")
            .args(fault)
            .arg("--dir")
            .arg(home.join("cluster")))?;
    }
    // Some more increments, so that what still waits comes to its end.
    std::thread::sleep(Duration::from_secs(2));
    counts.stdin.take().context("it has no input")?.write_all(b"\n")?;
    if !counts.wait()?.success() {
        bail!("go-redis was not told of every increment");
    }
    Ok(())
}

/// Starts a cluster with a gateway, and a Redis server. Returns their ports.
fn start(home: &Path) -> Result<(Servers, [u16; 2])> {
    let (gateway, server) = (free_port()?, free_port()?);
    let quorate = built("--bin", "quorate")?;
    let mut up = up(quorate.get_program(), &home.join("cluster"), "127.93.71.1", "memory", gateway)?;
    let mut redis_server = Command::new("redis-server");
    redis_server
        .args(["--port", &server.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(home);
    let mut servers = Servers::default();
    [&mut up, &mut redis_server].into_iter().try_for_each(|command| servers.start(command))?;
    [gateway, server].into_iter().try_for_each(listens)?;
    Ok((servers, [gateway, server]))
}
