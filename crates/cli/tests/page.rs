//! The status page, as a browser shows it and as machines read it.
//!
//! The browser is Chromium without a window; `.ci/run` installs it where it is missing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]
#![allow(dead_code, reason = "the support is shared with other tests")]

#[path = "page/browser.rs"]
mod browser;
#[path = "page/states.rs"]
mod states;
mod support;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use browser::{browse, element};
use support::{Cluster, PATIENCE, own_address};

/// `quorate status --serve`, and the cluster that it looks at.
struct Page {
    cluster: Cluster,
    address: SocketAddr,
    process: Child,
}

impl Page {
    fn start(name: &str) -> Self {
        let cluster = Cluster::start(name, &[], "");
        let address = SocketAddr::new(own_address(), 9640);
        let process = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args(["status", "--serve", &address.to_string(), "--dir", &cluster.dir.join("c")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let page = Self { cluster, address, process };
        page.wait_for("/readyz", |reply| reply.starts_with("HTTP/1.1 200"));
        page
    }

    /// Asks for something, and returns the whole reply.
    fn ask(&self, request: &str) -> Option<String> {
        self.ask_as(request, &self.address.to_string())
    }

    /// The same, as a browser that looks for this name.
    fn ask_as(&self, request: &str, host: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        Some(reply)
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path}")).unwrap()
    }

    fn wait_for(&self, path: &str, is: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let reply = self.ask(&format!("GET {path}")).unwrap_or_default();
            if is(&reply) {
                return reply;
            }
            assert!(begin.elapsed() < PATIENCE, "{path}: {reply}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Lets a browser with a window of this size do something with the page.
    fn browse(&self, width: u32, height: u32, what: &[&str]) -> String {
        browse(self.address, &self.cluster.dir.join("browser"), (width, height), what)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The verdict and four replicas, on a desktop and on a phone.
#[test]
fn a_browser_shows_the_verdict_and_every_replica() {
    let mut page = Page::start("browser");
    for (width, height) in [(1280, 1000), (390, 844)] {
        let dom = page.browse(width, height, &["--dump-dom"]);
        assert!(element(&dom, "verdict").starts_with("HEALTHY<"), "{dom}");
        let table = element(&dom, "table");
        assert_eq!(table.matches("<tr>").count(), 5, "a head and four replicas: {table}");
        assert_eq!(table.matches(">ok<").count(), 4, "{table}");
        assert!(element(&dom, "todo").contains("What to do") && dom.contains("id=\"todo\" hidden"), "{dom}");
        assert!(dom.contains("data-ready=\"yes\"") && dom.contains("data-overflow=\"no\""), "{dom}");
    }
    page.cluster.kill(2);
    page.wait_for("/api/v1/status", |reply| reply.contains("\"verdict\":\"degraded\""));
    let dom = page.browse(390, 844, &["--dump-dom"]);
    assert!(element(&dom, "verdict").starts_with("DEGRADED<"), "{dom}");
    assert!(
        element(&dom, "table").contains("no answer") && element(&dom, "troubles").contains("r2 silent"),
        "{dom}"
    );
    // What it means, and the command that helps.
    assert!(!dom.contains("id=\"todo\" hidden") && dom.contains("data-overflow=\"no\""), "{dom}");
    let todo = element(&dom, "advice");
    assert!(todo.contains("replica-2 is silent: check its process"), "{todo}");
    assert!(todo.contains("quorate replica --dir replica-2</code><button"), "{todo}");
    page.cluster.kill(1);
    page.wait_for("/api/v1/status", |reply| reply.contains("\"verdict\":\"halted\""));
    let dom = page.browse(390, 844, &["--dump-dom"]);
    assert!(element(&dom, "verdict").starts_with("HALTED<"), "{dom}");
    let todo = element(&dom, "advice");
    assert!(todo.contains("nothing acknowledged is lost. Start r1 or r2: one of them is enough"), "{todo}");
}

/// Metrics have all names from the first scrape on, and misbehaving clients do not block others.
#[test]
fn machines_can_read_it_and_nobody_can_hang_it() {
    let mut page = Page::start("metrics");
    let metrics = page.get("/metrics");
    for name in [
        "lag_operations",
        "lag_seconds",
        "margin_stop",
        "margin_lie",
        "view",
        "view_changes_total",
        "evidence_total",
        "request_seconds",
        "rejected_total",
        "transfer_bytes",
        "transferred_bytes",
        "transferred_bytes_total",
        "recovery_age_seconds",
        "key_age_seconds",
        "log_window_ratio",
        "fsync_seconds",
        "build_info",
    ] {
        assert!(metrics.contains(&format!("# HELP quorate_{name} ")), "{name}: {metrics}");
        assert!(metrics.contains(&format!("# TYPE quorate_{name} ")), "{name}: {metrics}");
        let samples = metrics.lines().filter(|line| line.starts_with(&format!("quorate_{name}")));
        assert!(samples.count() > 0, "{name}: {metrics}");
    }
    assert!(metrics.contains("quorate_margin_stop 1\n"), "{metrics}");
    // The alerts and the dashboard ask for metrics that exist.
    for text in
        [include_str!("../../../docs/alerts.yml"), include_str!("../../../docs/deploy/dashboard.json")]
    {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names =
            words.filter(|word| word.starts_with("quorate_") && !word.starts_with("quorate_register"));
        for name in names {
            let name = name.trim_end_matches("_bucket");
            assert!(metrics.contains(&format!("# TYPE {name} ")), "there is no metric {name}");
        }
    }
    assert!(page.get("/healthz").starts_with("HTTP/1.1 200"));
    let html = page.get("/");
    assert!(html.to_lowercase().contains("content-security-policy: default-src 'none'"), "{html}");
    assert!(!html.contains("http://") || !html.contains("src=\"http"), "nothing is fetched from elsewhere");
    // H3: not under a name that somebody else may have.
    assert!(page.ask_as("GET /api/v1/status", "evil.example:9640").unwrap().starts_with("HTTP/1.1 421"));
    assert!(page.ask("POST /").unwrap().starts_with("HTTP/1.1 405"));
    assert!(page.get("/etc/passwd").starts_with("HTTP/1.1 404"));
    let head = page.ask("HEAD /metrics").unwrap();
    assert!(head.starts_with("HTTP/1.1 200") && head.ends_with("\r\n\r\n"), "{head}");
    // Some clients that connect and send nothing, and one that never ends its request.
    let silent: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(page.address).unwrap()).collect();
    let mut endless = TcpStream::connect(page.address).unwrap();
    let _ = endless.write_all(format!("GET / HTTP/1.1\r\nx: {}", "a".repeat(200_000)).as_bytes());
    assert!(page.get("/healthz").starts_with("HTTP/1.1 200"));
    drop(silent);
    // M5: nor do 300 that listen to events, or that connect again and again.
    let events = |_| {
        let mut stream = TcpStream::connect(page.address).unwrap();
        stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream
    };
    let listening: Vec<TcpStream> = (0..300).map(events).collect();
    assert!(page.get("/healthz").starts_with("HTTP/1.1 200"));
    let again: Vec<TcpStream> = (0..600).map(|_| TcpStream::connect(page.address).unwrap()).collect();
    let begin = Instant::now();
    assert!(page.get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(begin.elapsed() < Duration::from_secs(4), "it waited until others were let go");
    drop((listening, again));
    // Events come as they happen.
    let mut stream = TcpStream::connect(page.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    page.cluster.kill(1);
    let (mut told, mut buffer) = (String::new(), [0; 4096]);
    while !told.contains("r1 silent") {
        let len = stream.read(&mut buffer).unwrap();
        assert!(len > 0, "{told}");
        told.push_str(&String::from_utf8_lossy(&buffer[..len]));
    }
    assert!(told.contains("text/event-stream") && told.contains("id: "), "{told}");
    // A counter that fell to 0 would look like a restart.
    let metrics = page.wait_for("/metrics", |reply| reply.contains("quorate_replica_up{replica=\"1\"} 0"));
    for (name, replica, is) in [("requests", 0, true), ("requests", 1, false), ("rejected", 1, false)] {
        let counter = format!("quorate_{name}_total{{replica=\"{replica}\"");
        assert_eq!(metrics.contains(&counter), is, "{counter}: {metrics}");
    }
    // Without a quorum it is not ready, and says so at once.
    page.cluster.kill(2);
    page.wait_for("/readyz", |reply| reply.starts_with("HTTP/1.1 503"));
    assert!(page.get("/healthz").starts_with("HTTP/1.1 200"));
}
