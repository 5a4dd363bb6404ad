//! `cargo xtask redis`: the usual calls of Redis clients, or the tests of Redis itself, on the gateway and on a Redis
//! server.

mod suite;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::ci::{built, target};
use xtask::{root, run};

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Servers that run, and end with this.
struct Servers(Vec<Child>);

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // `up` stops its processes when it is asked to.
            let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

/// Installs redis-py, node-redis and ioredis below the target directory, and lets each do its usual calls on a gateway and
/// on a Redis server. Fails if replies differ. Needs python3, node, npm, redis-server, and a network for the first run.
/// With `suite`, runs the tests of Redis instead.
pub(crate) fn redis(args: &[String]) -> Result<()> {
    match args {
        [] => clients(),
        [word] if word == "suite" => {
            let home = target()?.join("redis-suite");
            let source = suite::source(&home)?;
            let (_servers, ports) = start(&home)?;
            suite::run(&home, &source, ports)
        }
        _ => bail!("redis takes no arguments but `suite`"),
    }
}

fn clients() -> Result<()> {
    let (home, scripts) = (target()?.join("redis-clients"), root().join("tests/redis"));
    install(&home, &scripts)?;
    let (_servers, ports) = start(&home)?;
    let ports = ports.map(|port| port.to_string());
    run(Command::new(home.join("python/bin/python"))
        .args(["-W", "ignore"])
        .arg(scripts.join("calls.py"))
        .args(&ports))?;
    run(Command::new("node").arg(home.join("calls.mjs")).args(&ports))
}

/// Starts a cluster with a gateway, and a Redis server. Returns their ports.
fn start(home: &Path) -> Result<(Servers, [u16; 2])> {
    let (gateway, server) = (free_port()?, free_port()?);
    let data = home.join("cluster");
    let _ = fs::remove_dir_all(&data);
    let (resp, page) = (format!("127.0.0.1:{gateway}"), format!("127.0.0.1:{}", free_port()?));
    let mut up = built("--bin", "quorate")?;
    // Ports of replicas and clients on an address that nobody else is likely to use.
    up.args(["up", "--service", "kv", "--durability", "memory", "--host", "127.93.71.1", "--dir"]).arg(&data);
    up.args(["--resp", &resp, "--status", &page]);
    let mut redis_server = Command::new("redis-server");
    redis_server.args(["--port", &server.to_string(), "--bind", "127.0.0.1", "--save", ""]).current_dir(home);
    let mut servers = Servers(Vec::new());
    for command in [&mut up, &mut redis_server] {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        servers.0.push(child.with_context(|| format!("cannot start {}", command.get_program().display()))?);
    }
    [gateway, server].into_iter().try_for_each(listens)?;
    Ok((servers, [gateway, server]))
}

fn install(home: &Path, scripts: &Path) -> Result<()> {
    fs::create_dir_all(home)?;
    let python = home.join("python");
    if !python.join("bin/python").exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&python))?;
    }
    run(Command::new(python.join("bin/pip")).args(["install", "--quiet", "--upgrade", "redis"]))?;
    run(Command::new("npm").args(["install", "--silent", "--prefix"]).arg(home).args(["redis", "ioredis"]))?;
    // Node looks for packages beside the script.
    fs::copy(scripts.join("calls.mjs"), home.join("calls.mjs"))?;
    Ok(())
}

/// Returns a port of loopback that is free now.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn listens(port: u16) -> Result<()> {
    let begin = Instant::now();
    while TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_err() {
        if begin.elapsed() > PATIENCE {
            bail!("nothing listens on port {port} after {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
