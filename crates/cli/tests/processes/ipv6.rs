//! A cluster whose nodes have IPv6 addresses only.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::namespace::in_namespace;
use crate::support::{Cluster, Ended, PATIENCE, quorate};

/// Starts the command, which ends with the test.
fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

fn connect(address: &str) -> TcpStream {
    let begin = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{address}: {error}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn says(arguments: &[&str]) -> String {
    let output = quorate(arguments);
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {text}{errors}");
    text.into_owned()
}

/// Replicas, clients, a gateway, a client that is added, and both status commands, on `::1`.
#[test]
fn every_node_may_have_an_ipv6_address() {
    if !in_namespace("ipv6::every_node_may_have_an_ipv6_address") {
        return;
    }
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let mut cluster = Cluster::make_at("::1", "ipv6", &["--clients", "4"], "");
    (0..4).for_each(|i| cluster.run(i));
    let root = cluster.dir.join("c");
    let gateway = start(&["resp", "--dir", &format!("{root}/client-0"), "--listen", "[::1]:6380"]);
    let _gateway = Ended(gateway);
    let mut redis = BufReader::new(connect("[::1]:6380"));
    // A value that takes the side channel, over TCP.
    let value = "x".repeat(100_000);
    let mut ask = |command: &[&str]| {
        let strings: Vec<String> =
            command.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        write!(redis.get_mut(), "*{}\r\n{}", command.len(), strings.concat()).unwrap();
        let mut line = String::new();
        redis.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(ask(&["SET", "k", &value]), "+OK\r\n");
    assert_eq!(ask(&["STRLEN", "k"]), ":100000\r\n");
    // A replica that was away is reached again, too.
    cluster.kill(0);
    assert_eq!(ask(&["SET", "k", "short"]), "+OK\r\n");
    cluster.run(0);
    let added = says(&["add-client", "--dir", &root, "client-7", "--host", "[::1]:7020"]);
    assert!(added.contains("(listens on [::1]:7020)"), "{added}");
    let begin = Instant::now();
    let healthy = loop {
        let output = quorate(&["status", "--json", "--dir", &root]);
        if output.status.success() {
            break String::from_utf8(output.stdout).unwrap();
        }
        assert!(begin.elapsed() < PATIENCE, "{}", String::from_utf8_lossy(&output.stdout));
    };
    let whole: Value = serde_json::from_str(healthy.lines().next().unwrap()).unwrap();
    assert_eq!((&whole["verdict"], &whole["answered"]), (&"healthy".into(), &4.into()), "{whole}");
    let page = start(&["status", "--serve", "[::1]:9640", "--dir", &root]);
    let _page = Ended(page);
    let mut page = connect("[::1]:9640");
    write!(page, "GET / HTTP/1.1\r\nHost: [::1]:9640\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    page.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
}
