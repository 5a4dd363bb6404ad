//! Replicas that lie, as processes: outvoted, and open about it.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use quorate_node::Clock;
use quorate_service::kv::{Answer, Operation};

use crate::support::{Cluster, PATIENCE, invoke, quorate};

/// What a liar has told when it ends, as its log says.
fn told(log: &str) -> u64 {
    let (_, rest) = log.rsplit_once("told=").unwrap_or(("", "0"));
    rest.trim().parse().unwrap_or(0)
}

/// Nobody who asks a cluster with one liar is ever told anything wrong, whatever it lies about; it counts its
/// lies, and afterwards it is as good as any other on the same directory.
#[test]
fn a_liar_among_four_is_outvoted_and_says_that_it_lies() {
    let mut cluster = Cluster::start("liars", &[], "");
    let (clock, mut client) = (Clock::new(), cluster.client(0, 1));
    let mut count = 0_u64;
    for (round, liar) in
        ["wrong-reply", "replies", "wrong-digest", "partial", "replay", "mute"].iter().enumerate()
    {
        // Not before it minds being asked to.
        let begin = Instant::now();
        while cluster.log(2).matches(" runs ").count() <= round {
            assert!(begin.elapsed() < PATIENCE, "{}", cluster.log(2));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(cluster.stop(2).success(), "{}", cluster.log(2));
        let log = cluster.dir.path().join(format!("{liar}.log"));
        let mut process = Command::new(env!("CARGO_BIN_EXE_quorate"))
            .args(["replica", "--liar", liar, "--dir"])
            .arg(cluster.replica_dir(2))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let said = || std::fs::read_to_string(&log).unwrap();
        while !said().contains("has told lies") || !count.is_multiple_of(20) {
            assert!(begin.elapsed() < PATIENCE, "{liar} does not lie: {}", said());
            count += 1;
            let answer = invoke(&mut client, &clock, &Operation::Incr { key: b"k", by: 1 });
            let expected = count.to_string();
            assert_eq!(Answer::decode(&answer), Ok(Answer::Value(expected.as_bytes())), "{liar}");
            let answer = invoke(&mut client, &clock, &Operation::Get { key: b"k" });
            assert_eq!(Answer::decode(&answer), Ok(Answer::Value(expected.as_bytes())), "{liar}");
        }
        assert!(said().contains("lies on purpose: "), "{}", said());
        assert!(Command::new("kill").arg(process.id().to_string()).status().unwrap().success());
        assert!(process.wait().unwrap().success(), "{}", said());
        assert!(said().contains("lies no more") && told(&said()) > 0, "{}", said());
        cluster.run(2);
    }
    // The one that lied is needed now.
    cluster.kill(1);
    let answer = invoke(&mut client, &clock, &Operation::Get { key: b"k" });
    assert_eq!(Answer::decode(&answer), Ok(Answer::Value(count.to_string().as_bytes())));
}

/// The names are listed, and one that does not exist is told with the nearest.
#[test]
fn liars_have_names() {
    let listed = quorate(&["replica", "--liar", "list"]);
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.status.success() && text.lines().count() > 12, "{text}");
    for line in text.lines().take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().unwrap().replace("TIME", "200ms");
        // It is known: what is missing is the directory.
        let tried = quorate(&["replica", "--dir", "/nowhere/replica-0", "--liar", &name]);
        assert!(String::from_utf8_lossy(&tried.stderr).starts_with("error Q017"), "{name}: {tried:?}");
    }
    let tried = quorate(&["replica", "--dir", "/nowhere/replica-0", "--liar", "wrong-repyl"]);
    assert_eq!(tried.status.code(), Some(2));
    let text = String::from_utf8(tried.stderr).unwrap();
    assert!(text.starts_with("error Q002: no liar `wrong-repyl`. Nearest: wrong-reply\n"), "{text}");
}
