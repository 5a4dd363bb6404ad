//! How soon real processes recover: from liars that are healed, a lost disk in an idle cluster and an outage; and that a
//! busy machine changes no view.
//!
//! A little of each here. With `QUORATE_LIE_SECONDS=15`, every kind of liar lies for so long, on `QUORATE_CLUSTERS`
//! clusters at a time (1 if that is not given). With `QUORATE_BUSY_SECONDS=180`, the machine is busy for so long, and
//! views are counted. With `QUORATE_OPERATIONS=1000`, this many slow operations are executed. All with
//! `cargo test --release -p quorate-cli --test processes hardships -- --nocapture`.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quorate_node::client::End;
use quorate_node::services::timed;
use quorate_node::{ClientNode, Clock, OpenClient};
use quorate_service::kv::{Answer, Operation};
use serde_json::Value;

use crate::status::status;
use crate::support::{Cluster, Dir, PATIENCE, invoke, own_address, quorate, turn};
use crate::up::Up;

/// From when a liar is healed until nothing shows that there was one.
const RECOVERED_MAX: Duration = Duration::from_secs(10);
/// From the loss of a disk until the replica has rejoined, if nobody asks for anything.
const REJOINED_MAX: Duration = Duration::from_secs(5);
/// How much later than a fresh client one is answered that has waited through an outage.
const WAITED_MAX: Duration = Duration::from_secs(1);
/// The number of batches that a replica may be behind.
const BEHIND_MAX: u64 = 50;

fn given(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().unwrap())
}

/// What a client did in that time.
#[derive(Debug)]
struct Work {
    done: u64,
    slowest: Duration,
}

/// Counts, and checks every answer, until it is told to stop.
fn work(mut client: OpenClient, stop: &AtomicBool) -> Work {
    let clock = Clock::new();
    let mut work = Work { done: 0, slowest: Duration::ZERO };
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let answer = invoke(&mut client, &clock, &Operation::Incr { key: b"k", by: 1 });
        work.slowest = work.slowest.max(begin.elapsed());
        work.done += 1;
        assert_eq!(Answer::decode(&answer), Ok(Answer::Value(work.done.to_string().as_bytes())));
        thread::sleep(Duration::from_millis(2));
    }
    work
}

/// Says what is not as it was before a fault; nothing, if all is well again.
fn amiss(data: &str) -> Option<String> {
    let (_, whole, replicas) = status(data);
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap_or(0);
    let Some(first) = replicas.first() else { return Some(whole.to_string()) };
    let view = number(first, "view");
    let most = replicas.iter().map(|of| number(of, "last_executed")).max().unwrap_or(0);
    let good = |of: &Value| {
        of["reachable"] == true
            && of["in_view_change"] == false
            && of["transferring"] == false
            && of["state"] != "rejoining"
            && of["agrees"] == "agrees"
            && number(of, "view") == view
            && number(of, "last_executed") + BEHIND_MAX >= most
    };
    let bad = replicas.iter().find(|of| !good(of))?;
    Some(format!("{whole}\n{bad}"))
}

/// Waits until all is well, and returns how long that took.
pub(crate) fn recovers(data: &str, most: Duration, what: &str) -> Duration {
    let begin = Instant::now();
    while let Some(bad) = amiss(data) {
        assert!(begin.elapsed() < most, "{what}: not recovered after {:?}:\n{bad}", begin.elapsed());
        thread::sleep(Duration::from_millis(50));
    }
    begin.elapsed()
}

fn up(name: &str, f: u64) -> Up {
    let door = SocketAddr::new(own_address(), 6380);
    Up::start_with(Dir::new(name), door, &["--f", &f.to_string()])
}

/// Some replicas lie for a while, one kind of lie after the other, and are healed; a client works all the time.
fn lie_and_heal(up: &Up, kinds: impl Iterator<Item = String>, who: &[&str], lying: Duration) {
    let data = up.dir().join("data");
    let client = ClientNode::open(&Path::new(&data).join("client-3")).unwrap().with_lanes(1);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker = scope.spawn(|| work(client, &stop));
        let stopped = Stopped(&stop);
        recovers(&data, PATIENCE, "at the start");
        for kind in kinds {
            for liar in who {
                let (status, said) = up.fault(&["lie", *liar, "--how", kind.as_str()]);
                assert_eq!(status, Some(0), "{kind}: {said}");
            }
            thread::sleep(lying);
            let (status, said) = up.fault(&["heal", "all"]);
            assert_eq!(status, Some(0), "{kind}: {said}");
            let took = recovers(&data, RECOVERED_MAX, &kind);
            println!("{kind}: recovered after {:.1} s", took.as_secs_f64());
            assert!(!worker.is_finished(), "{kind}: the client has failed");
        }
        drop(stopped);
        let work = worker.join().unwrap();
        println!("{} operations, slowest {:.1} s", work.done, work.slowest.as_secs_f64());
    });
}

/// Stops the client, also if the test fails.
struct Stopped<'a>(&'a AtomicBool);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One of four lies, as the primary at first, in each way that there is, and is healed: ten seconds later all is well.
#[test]
fn hardships_a_healed_liar_recovers() {
    let lying = given("QUORATE_LIE_SECONDS");
    let listed = String::from_utf8(quorate(&["replica", "--liar", "list"]).stdout).unwrap();
    let (described, others) = listed.split_once("\n\n").unwrap();
    let names = described.lines().map(|line| line.split_whitespace().next().unwrap());
    // Behind the line that introduces them.
    let names = names.chain(others.lines().skip(1).flat_map(str::split_whitespace));
    let mut kinds: Vec<String> = names.map(|name| name.replace("TIME", "200ms")).collect();
    assert!(kinds.len() > 50, "{listed}");
    if lying.is_none() {
        kinds.retain(|kind| ["equivocate", "view-storm"].contains(&kind.as_str()));
    }
    let (all, lying) = (kinds.len(), Duration::from_secs(lying.unwrap_or(1)));
    let kinds = Mutex::new(kinds);
    thread::scope(|scope| {
        for number in 0..given("QUORATE_CLUSTERS").unwrap_or(1) {
            let kinds = &kinds;
            scope.spawn(move || {
                let up = up(&format!("hardships-{number}"), 1);
                lie_and_heal(&up, std::iter::from_fn(|| kinds.lock().unwrap().pop()), &["primary"], lying);
            });
        }
    });
    println!("{all} kinds of liars");
}

/// Two of seven lie in the same way, and are healed.
#[test]
fn hardships_two_healed_liars_recover() {
    let lying = given("QUORATE_LIE_SECONDS");
    let kinds: &[&str] = match lying {
        Some(_) => &["wrong-reply", "equivocate", "view-storm", "mute", "state"],
        None => &["equivocate"],
    };
    let kinds = kinds.iter().map(ToString::to_string);
    lie_and_heal(&up("hardships-f2", 2), kinds, &["0", "1"], Duration::from_secs(lying.unwrap_or(1)));
}

/// A replica of an idle cluster loses its disk. Null batches let it rejoin soon (RC-10).
#[test]
fn hardships_a_lost_disk_in_an_idle_cluster() {
    let up = up("hardships-idle", 1);
    let data = up.dir().join("data");
    assert_eq!(up.redis("SET k one"), "+OK");
    recovers(&data, PATIENCE, "at the start");
    for replica in ["1", "2", "primary"] {
        let (status, said) = up.fault(&["wipe", replica]);
        assert_eq!(status, Some(0), "{said}");
        let took = recovers(&data, REJOINED_MAX, replica);
        println!("{replica}: rejoined {:.1} s after the command had ended", took.as_secs_f64());
    }
}

/// Two of four are away for a while. A client that has waited all that time is answered as soon as one that asks now.
#[test]
fn hardships_who_waited_through_an_outage_is_answered() {
    let away = given("QUORATE_AWAY_SECONDS").unwrap_or(3);
    let mut cluster = Cluster::start("outage", &[], "");
    let (clock, mut fresh) = (Clock::new(), cluster.client(1, 1));
    let get = Operation::Incr { key: b"fresh", by: 1 };
    invoke(&mut fresh, &clock, &get);
    cluster.kill(1);
    cluster.kill(2);
    let mut waiting = cluster.client(0, 1);
    let waiter = thread::spawn(move || {
        invoke(&mut waiting, &Clock::new(), &Operation::Incr { key: b"took", by: 1 });
        Instant::now()
    });
    thread::sleep(Duration::from_secs(away));
    cluster.run(1);
    cluster.run(2);
    let end = Instant::now();
    invoke(&mut fresh, &clock, &get);
    let fresh = Instant::now();
    let took = waiter.join().unwrap();
    let after = |at: Instant| at.saturating_duration_since(end).as_secs_f64();
    println!(
        "{away} s away; fresh answered {:.2} s after the end, waiting {:.2} s",
        after(fresh),
        after(took)
    );
    assert!(took < fresh + WAITED_MAX);
}

/// Programs that take the machine. They end when this is dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn start(scripts: &[String]) -> Self {
        let start = |script: &String| {
            use std::os::unix::process::CommandExt as _;
            let mut command = Command::new("sh");
            command.args(["-c", script]).process_group(0);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        Self(scripts.iter().map(start).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        use nix::sys::signal::{Signal, killpg};
        for child in &mut self.0 {
            let _ = killpg(nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL);
            let _ = child.wait();
        }
    }
}

/// Returns how many views the replicas have left, at most.
fn views_left(cluster: &Cluster) -> usize {
    (0..4).map(|i| cluster.log(i).matches("started a view change").count()).max().unwrap()
}

/// Operations of 60 ms, from 40 lanes at once: each batch takes as long as a time-out in a fast cluster. `QUORATE_OPERATIONS`
/// says how many; 1,000 take a minute.
#[test]
fn hardships_slow_operations_change_hardly_any_view() {
    const LANES: u16 = 40;
    let operations = given("QUORATE_OPERATIONS").unwrap_or(30);
    let cluster = Cluster::start("slow", &["--service", "null"], "durability = \"memory\"");
    let (clock, mut client) = (Clock::new(), cluster.client(0, LANES));
    let operation = |wait_us| {
        let mut bytes = Vec::new();
        timed::operation(0, 4, wait_us, 0, &mut bytes);
        bytes
    };
    client.drive.invoke(clock.now(), 0, &operation(0), false);
    while client.drive.done().is_empty() {
        turn(&mut client, &clock);
    }
    let before = views_left(&cluster);
    let (slow, mut free) = (operation(60_000), (0..LANES).collect::<Vec<_>>());
    client.drive.clear_done();
    let (mut begun, mut done) = (0, 0);
    let until = Instant::now() + PATIENCE + Duration::from_millis(120) * u32::try_from(operations).unwrap();
    while done < operations {
        let more = free.len().min(usize::try_from(operations - begun).unwrap());
        for lane in free.drain(..more) {
            client.drive.invoke(clock.now(), lane, &slow, false);
            begun += 1;
        }
        turn(&mut client, &clock);
        assert!(Instant::now() < until, "{done} of {operations} operations are done");
        assert!(client.drive.done().iter().all(|done| done.end == End::Result), "an outcome is unknown");
        free.extend(client.drive.done().iter().map(|done| done.lane));
        done += client.drive.done().len() as u64;
        client.drive.clear_done();
    }
    let left = views_left(&cluster) - before;
    println!("{operations} operations of 60 ms: {left} view changes");
    assert!(left <= 2, "{left} view changes");
}

/// An idle cluster beside more endless loops than there are cores.
#[test]
fn hardships_an_idle_cluster_beside_busy_loops() {
    let seconds = given("QUORATE_BUSY_SECONDS");
    let cluster = Cluster::start("loops", &[], "");
    let (clock, mut client) = (Clock::new(), cluster.client(0, 1));
    invoke(&mut client, &clock, &Operation::Incr { key: b"k", by: 1 });
    let before = views_left(&cluster);
    let loops: Vec<String> = (0..12).map(|_| "while :; do :; done".to_owned()).collect();
    let busy = Busy::start(&loops);
    thread::sleep(Duration::from_secs(seconds.unwrap_or(2)));
    drop(busy);
    let left = views_left(&cluster) - before;
    println!("12 loops for {} s: {left} view changes", seconds.unwrap_or(2));
    invoke(&mut client, &clock, &Operation::Incr { key: b"k", by: 1 });
    assert!(seconds.is_none() || left <= 1, "{left} view changes");
}

/// A cluster that syncs and works beside a compiler and a program that writes to the same disk.
#[test]
fn hardships_work_beside_a_compiler_and_a_disk_writer() {
    let seconds = given("QUORATE_BUSY_SECONDS");
    let cluster = Cluster::start("beside", &[], "");
    let (clock, mut client) = (Clock::new(), cluster.client(0, 1));
    invoke(&mut client, &clock, &Operation::Incr { key: b"begin", by: 1 });
    let before = views_left(&cluster);
    let dir = cluster.dir.path().to_owned();
    let function = |i: u32| {
        let each = format!("x.iter().map(|s| format!(\"{{s:?}}{i}\"))");
        format!("pub fn f{i}(x: &[String]) -> String {{ {each}.collect::<Vec<_>>().join(\",\") }}")
    };
    let source: Vec<String> = (0..400).map(function).collect();
    fs::write(dir.join("much.rs"), source.join("\n")).unwrap();
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let dir = dir.display();
    let busy = Busy::start(&[
        format!("while :; do {compiler} --crate-type lib -O --out-dir {dir} {dir}/much.rs || sleep 1; done"),
        format!("while :; do dd if=/dev/zero of={dir}/written bs=1M count=256 conv=fsync; done"),
    ]);
    let stop = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        let worker = scope.spawn(|| work(client, &stop));
        let stopped = Stopped(&stop);
        thread::sleep(Duration::from_secs(seconds.unwrap_or(2)));
        drop(stopped);
        worker.join().unwrap()
    });
    drop(busy);
    let left = views_left(&cluster) - before;
    println!(
        "a compiler and a disk writer for {} s: {left} view changes, {} operations, slowest {:.1} s",
        seconds.unwrap_or(2),
        done.done,
        done.slowest.as_secs_f64()
    );
    assert!(done.done > 0 && (seconds.is_none() || left == 0), "{left} view changes");
}
