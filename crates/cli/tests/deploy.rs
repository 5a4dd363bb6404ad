//! What `docs/deploy` has for systemd, containers and monitoring: built, loaded, or at least read.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

#[allow(dead_code, reason = "shared with the tests that need more of it")]
mod support;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;
use support::{Dir, Ended, PATIENCE, own_address, quorate};

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/deploy").join(name)
}

/// Runs a line of the shell, with these variables.
fn shell(line: &str, variables: &[(&str, &str)]) -> String {
    let output = Command::new("sh").args(["-ec", line]).envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{line}: {text}");
    text
}

/// The system calls that container engines allow by default: of the package `golang-github-containers-common`.
const PROFILE: &str = "/usr/share/containers/seccomp.json";

/// The image has the program and its libraries, and all digests are right. A replica runs in it as an unprivileged user,
/// with a root file system that cannot be written, and with the default seccomp profile.
#[test]
fn the_image_is_whole_and_runs() {
    let dir = Dir::new("image");
    let (image, layout, root) = (dir.join("image.tar"), dir.join("layout"), dir.join("root"));
    let script = deploy("image.sh").display().to_string();
    let paths = [
        ("SCRIPT", script.as_str()),
        ("Q", env!("CARGO_BIN_EXE_quorate")),
        ("IMAGE", &image),
        ("LAYOUT", &layout),
        ("ROOT", &root),
    ];
    shell("$SCRIPT $Q $IMAGE; mkdir $LAYOUT $ROOT; tar xf $IMAGE -C $LAYOUT", &paths);

    let read = |path: &str| -> Value {
        serde_json::from_slice(&fs::read(Path::new(&layout).join(path)).unwrap()).unwrap()
    };
    let blob = |of: &Value| -> String {
        let hash = of["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let path = format!("blobs/sha256/{hash}");
        let file = Path::new(&layout).join(&path);
        assert_eq!(of["size"].as_u64(), Some(fs::metadata(&file).unwrap().len()), "{of}");
        let said = shell("sha256sum $FILE", &[("FILE", &file.display().to_string())]);
        assert!(said.starts_with(hash), "{of}: {said}");
        path
    };
    assert_eq!(read("oci-layout")["imageLayoutVersion"], "1.0.0");
    let manifest = read(&blob(&read("index.json")["manifests"][0]));
    let config = read(&blob(&manifest["config"]));
    assert_eq!(config["config"]["User"], "10001:10001");
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/usr/bin/quorate"]));
    assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
    let layer = Path::new(&layout).join(blob(&manifest["layers"][0])).display().to_string();
    let list = shell("tar tf $LAYER", &[("LAYER", &layer)]);
    assert!(list.contains("./usr/bin/quorate\n") && list.contains("libc.so"), "{list}");
    assert!(!list.contains("/sh\n"), "there is no shell in it: {list}");

    if !geteuid().is_root() {
        eprintln!("not root: the image is not run");
        return;
    }
    shell("tar xpf $LAYER -C $ROOT", &[("LAYER", &layer), ("ROOT", &root)]);
    let made = quorate(&["init", "--dir", &dir.join("c"), "--host", &own_address().to_string()]);
    assert!(made.status.success(), "{made:?}");
    let node = dir.join("c/replica-0");
    let log = dir.path().join("log");
    let line = "chown -R 10001:10001 $NODE; mkdir $ROOT/data/replica-0; mount --bind $ROOT $ROOT; \
                mount --bind $NODE $ROOT/data/replica-0; mount --bind /dev $ROOT/dev; mount -o remount,bind,ro $ROOT; \
                export QUORATE_LOG_FORMAT=json; \
                exec python3 $CONFINED $PROFILE $ROOT 10001 /usr/bin/quorate replica --dir /data/replica-0";
    let confined = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/deploy/confined.py");
    assert!(Path::new(PROFILE).exists(), "no {PROFILE}: apt-get install golang-github-containers-common");
    let child = Command::new("unshare")
        .args(["-m", "sh", "-ec", line])
        .env("NODE", &node)
        .env("CONFINED", confined)
        .env("PROFILE", PROFILE)
        .env("ROOT", &root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).unwrap())
        .spawn();
    // Ended also if a check fails.
    let mut child = Ended(child.unwrap());
    let begin = Instant::now();
    loop {
        let text = fs::read_to_string(&log).unwrap();
        // The log is JSON, an object a line.
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = lines.into_iter().find(|line| line["message"] == "runs");
        if let Some(line) = found {
            assert!(line["time"].is_string() && line["level"] == "info" && line["replica"] == "r0", "{line}");
            break;
        }
        assert!(child.0.try_wait().unwrap().is_none() && begin.elapsed() < PATIENCE, "{text}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let owner = shell(
        "stat -c %u /proc/$P; grep '^Seccomp:' /proc/$P/status; R=/proc/$P/root; ! touch $R/etc/new",
        &[("P", &child.0.id().to_string())],
    );
    assert!(owner.starts_with("10001\nSeccomp:\t2\n"), "{owner}");
    kill(Pid::from_raw(i32::try_from(child.0.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert!(child.0.wait().unwrap().success(), "{}", fs::read_to_string(&log).unwrap());
}

/// systemd accepts the unit, where it is installed; and every command in it is one.
#[test]
fn the_unit_is_valid() {
    let text = fs::read_to_string(deploy("quorate-replica@.service")).unwrap();
    let sections: Vec<&str> = text.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(sections, ["[Unit]", "[Service]", "[Install]"]);
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '['])) {
        assert!(
            line.split_once('=').is_some_and(|(key, _)| key.chars().all(char::is_alphanumeric)),
            "{line}"
        );
    }
    assert!(text.contains("\nExecStart=/usr/local/bin/quorate replica --dir "), "{text}");
    let dir = Dir::new("unit");
    let unit = dir.join("quorate-replica@0.service");
    fs::write(&unit, text.replace("/usr/local/bin/quorate", env!("CARGO_BIN_EXE_quorate"))).unwrap();
    let Ok(verified) = Command::new("systemd-analyze").args(["verify", "--man=no", &unit]).output() else {
        eprintln!("systemd is not installed: the unit is only read");
        return;
    };
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("quorate-replica")).collect();
    assert!(ours.is_empty(), "{ours:?}");
}

/// Four replicas with a directory, an address and no rights each; the init command above them is one that parses.
#[test]
fn the_compose_file_has_four_replicas() {
    let text = fs::read_to_string(deploy("compose.yml")).unwrap();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        assert!(indent % 2 == 0 && !line.contains('\t'), "{line:?}");
    }
    let services: BTreeSet<&str> = text.lines().filter_map(|line| line.strip_prefix("  replica-")).collect();
    assert_eq!(services.into_iter().collect::<Vec<_>>(), ["0:", "1:", "2:", "3:"]);
    for i in 0..4 {
        for part in [
            format!("command: [replica, --dir, /data/replica-{i}]"),
            format!("volumes: [\"./cluster/replica-{i}:/data/replica-{i}\"]"),
            format!("ipv4_address: 172.30.7.1{i}}}"),
        ] {
            assert_eq!(text.matches(&part).count(), 1, "{part}");
        }
    }
    for part in ["user: \"10001:10001\"", "read_only: true", "cap_drop: [ALL]", "no-new-privileges:true"] {
        assert!(text.contains(part), "{part}");
    }
    // The cluster that it says how to make has these addresses.
    let dir = Dir::new("compose");
    let command = text.lines().find_map(|line| line.strip_prefix("#   quorate init --dir cluster ")).unwrap();
    let cluster = dir.join("c");
    let words = ["init", "--dir", &cluster].into_iter().chain(command.split(' ')).collect::<Vec<_>>();
    let made = quorate(&words);
    assert!(made.status.success(), "{made:?}");
    let said = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(said.contains("r3 172.30.7.13:7000") && said.contains("c3 172.30.7.1:7013"), "{said}");
}

/// The dashboard is JSON with queries, the scrape example names the alerts, and both speak of metrics that exist: the names
/// are compared with those that a status server has in `page.rs`.
#[test]
fn the_dashboard_and_the_scrape_example_are_read() {
    let dashboard: Value = serde_json::from_slice(&fs::read(deploy("dashboard.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 9, "{} panels", panels.len());
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty() && targets.iter().all(|target| target["expr"].is_string()), "{panel}");
    }
    let scrape = fs::read_to_string(deploy("prometheus.yml")).unwrap();
    assert!(scrape.contains("rule_files: [../alerts.yml]") && scrape.contains("127.0.0.1:9640"), "{scrape}");
    assert!(deploy("../alerts.yml").exists());
}
