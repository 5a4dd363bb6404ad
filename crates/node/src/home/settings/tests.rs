//! What a mistake in `node.toml` is answered with.

use super::*;
use quorate_pbft::config::Durability;
use quorate_wire::{ClientId, ReplicaId};

const ADDRESSES: &str = "listen = \"127.0.0.1:7001\"\n[replicas]\nr0 = \"127.0.0.1:7000\"\nr1 = \"127.0.0.1:7001\"\n\
                         r2 = \"127.0.0.1:7002\"\nr3 = \"127.0.0.1:7003\"\n[clients]\nclient-0 = \"127.0.0.1:7010\"\n";

fn cluster() -> Cluster {
    Cluster::tolerating(1).unwrap()
}

fn parse_as(own: Principal, text: &str) -> Result<Settings, NodeError> {
    parse_both(own, text, "")
}

/// Reads a `node.toml`, and a `cluster.toml` with this section.
fn parse_both(own: Principal, text: &str, shared: &str) -> Result<Settings, NodeError> {
    let file = |path, text| File { path: Path::new(path), text };
    let files = (file("node.toml", text), file("cluster.toml", shared));
    Settings::parse(files, own, cluster(), ClusterId([1; 32]))
}

fn parse(lines: &str) -> Result<Settings, NodeError> {
    parse_as(Principal::Replica(ReplicaId(1)), &format!("{lines}\n{ADDRESSES}"))
}

#[test]
fn keys_are_taken_and_others_keep_their_defaults() {
    let settings =
        parse("durability = \"async\"\ncheckpoint_interval = 64\nrequest_timeout_min = \"80ms\"").unwrap();
    assert_eq!(settings.config.durability, Durability::Async);
    assert_eq!((settings.config.checkpoint_interval, settings.config.window), (64, 2048));
    assert_eq!(settings.config.request_timeout_min_ns, 80_000_000);
    assert_eq!(settings.replicas[2], "127.0.0.1:7002".parse().unwrap());
    assert_eq!(settings.clients[&0], "127.0.0.1:7010".parse().unwrap());
    assert_eq!(settings.config.durability, Durability::Async);
}

#[test]
fn an_unknown_key_is_shown_with_the_one_that_was_meant() {
    let trouble = parse("\ncheckpoint_intervall = 128").unwrap_err();
    assert_eq!(
        trouble.to_string(),
        "unknown key `checkpoint_intervall`\n  --> node.toml:2\n    2 | checkpoint_intervall = 128\n      \
         | ^^^^^^^^^^^^^^^^^^^^ did you mean `checkpoint_interval`? (batches, 1 to window / 2, default 128)"
    );
    assert_eq!(trouble.kind, NodeErrorKind::Setting);
    assert!(parse("colour = 3").unwrap_err().to_string().contains("no key has a similar name"));
}

#[test]
fn a_wrong_value_is_shown_with_what_was_expected() {
    for (line, part) in [
        ("durability = \"sink\"", "expected \"sync\", \"async\" or \"memory\" (default \"sync\")"),
        ("durability = true", "invalid value for `durability`"),
        ("request_timeout_min = 100", "expected a duration, at least 1ms (default \"100ms\")"),
        ("pipeline = -1", "expected batches, 1 to 64 (default 8)"),
        ("batch_requests_max = 70000", "expected requests, 1 to 1024"),
        ("workers = 0", "expected 1 to 128 (default 1)"),
        ("workers = 129", "expected 1 to 128 (default 1)"),
        ("parallel = \"no\"", "expected \"keys\", \"matrix\", \"sequential\" or \"free\""),
    ] {
        let trouble = parse(line).unwrap_err();
        assert_eq!(trouble.kind, NodeErrorKind::Value, "{line}");
        assert!(trouble.to_string().contains(part), "{trouble}");
        assert!(trouble.to_string().contains("--> node.toml:1\n"), "{trouble}");
    }
}

#[test]
fn a_broken_rule_and_a_broken_file_are_told_with_their_line() {
    let trouble = parse("\n\nwindow = 100").unwrap_err();
    assert_eq!(trouble.kind, NodeErrorKind::Rule);
    assert_eq!(trouble.to_string(), "window = 100: at least twice checkpoint_interval\n  --> node.toml:3");
    let trouble = parse("workers = 8").unwrap_err();
    let says = "workers = 8: tentative must be false, because workers execute committed batches only (PX-7)";
    assert_eq!(
        (trouble.kind, trouble.to_string()),
        (NodeErrorKind::Rule, format!("{says}\n  --> node.toml:1"))
    );
    assert_eq!(parse("workers = 8\ntentative = false").unwrap().config.workers, 8);
    let trouble = parse("window = ").unwrap_err();
    assert_eq!(trouble.kind, NodeErrorKind::Unreadable);
    assert!(trouble.to_string().contains("node.toml:1"), "{trouble}");
    assert!(parse("window = 256\nwindow = 256").unwrap_err().to_string().contains("duplicate key"));
}

#[test]
fn addresses_are_complete_and_known() {
    let own = Principal::Replica(ReplicaId(1));
    let without = |line: &str| ADDRESSES.replace(line, "");
    let says = |text: &str| parse_as(own, text).unwrap_err().to_string();
    assert!(says(&without("listen = \"127.0.0.1:7001\"\n")).contains("`listen` is missing"));
    assert!(says(&without("r2 = \"127.0.0.1:7002\"\n")).contains("`replicas.r2` is missing"));
    assert!(says(&ADDRESSES.replace("r3 ", "r4 ")).contains("no replica `r4` in this cluster"));
    assert!(says(&ADDRESSES.replace("127.0.0.1:7003", "localhost")).contains("invalid value for `r3`"));
    assert!(says(&ADDRESSES.replace("client-0", "bob")).contains("`bob` is not a client name"));
}

/// Every default in the text is the one in the code, and every line of the example is understood.
#[test]
fn the_example_has_every_key_with_its_default() {
    let settings = parse("").unwrap();
    for own in [Principal::Replica(ReplicaId(1)), Principal::Client(ClientId::new(1, 0))] {
        let text = settings.example(own, "An example", &[]);
        let shared = shared_section(&[("service", "\"null\"".to_owned())]);
        let keys = text.lines().filter(|line| {
            line.strip_prefix("# ")
                .is_some_and(|rest| KEYS.iter().any(|key| rest.starts_with(&format!("{} = ", key.name))))
        });
        assert!(keys.count() >= 10, "{text}");
        let active = text.lines().map(|line| {
            let key = |rest: &str| KEYS.iter().any(|key| rest == format!("{} = {}", key.name, key.default));
            line.strip_prefix("# ").filter(|rest| key(rest)).unwrap_or(line).to_owned() + "\n"
        });
        let mut parsed = parse_both(own, &active.collect::<String>(), &shared).unwrap();
        // A default that is written down is the default.
        assert!(!core::mem::take(&mut parsed.written).is_empty());
        let expected = Settings { service: ServiceName::NULL, ..settings.clone() };
        let expected = if matches!(own, Principal::Client(_)) {
            Settings { clients: BTreeMap::new(), ..expected }
        } else {
            expected
        };
        assert_eq!(format!("{parsed:?}"), format!("{expected:?}"));
    }
}

/// Less than that is no memory to work with.
#[test]
fn a_part_of_the_state_is_in_memory() {
    assert_eq!(parse("state_memory_max = \"384MiB\"").unwrap().state_memory_max, 384 << 20);
    assert_eq!(parse("state_memory_max = \"1023KiB\"").unwrap_err().kind, NodeErrorKind::Value);
}

/// A client has no durability: a key that would do nothing is refused.
#[test]
fn a_client_has_no_keys_of_replicas() {
    let own = Principal::Client(ClientId::new(1, 0));
    let text = ADDRESSES.split("[clients]").next().unwrap();
    assert!(parse_as(own, text).is_ok());
    assert_eq!(
        parse_as(own, &format!("durability = \"sync\"\n{text}")).unwrap_err().kind,
        NodeErrorKind::Setting
    );
    assert_eq!(parse_as(own, ADDRESSES).unwrap_err().kind, NodeErrorKind::Setting);
}

/// What a user and all of them may have: sizes and numbers within their bounds, or no limit.
#[test]
fn a_file_system_has_limits() {
    let fs = |lines: &str| parse(lines).unwrap().fs;
    let limited = fs("fs_capacity = \"2MiB\"\nfs_quota_bytes = \"8KiB\"\nfs_quota_inodes = 7");
    assert_eq!(
        (limited.capacity_bytes, limited.quota.bytes_max, limited.quota.inodes_max),
        (2 << 20, 8192, 7)
    );
    assert_eq!(limited.check(), Ok(()));
    assert_eq!(fs("fs_quota_bytes = \"none\"\nfs_quota_inodes = \"none\"").quota, fs("").quota);
    for line in [
        "fs_capacity = \"1023KiB\"",
        "fs_capacity = \"65GiB\"",
        "fs_capacity = \"none\"",
        "fs_quota_bytes = \"4095B\"",
        "fs_quota_bytes = 4096",
        "fs_quota_inodes = 0",
        "fs_quota_inodes = \"7\"",
    ] {
        let trouble = parse(line).unwrap_err();
        assert_eq!(trouble.kind, NodeErrorKind::Value, "{line}");
        assert!(trouble.to_string().contains("invalid value for "), "{trouble}");
    }
}

#[test]
fn shared_settings_are_compared_by_value() {
    let at = |lines: &str, key: &str| {
        let shared = parse(lines).unwrap().shared(Principal::Replica(ReplicaId(1)));
        shared.into_iter().find(|shared| shared.key == key).unwrap()
    };
    let (given, default) = (at("fs_capacity = \"65536MiB\"", "fs_capacity"), at("", "fs_capacity"));
    assert_eq!((given.text.as_str(), default.text.as_str()), ("\"65536MiB\"", "\"64GiB\""));
    assert!(given.agrees_with(&default), "{given:?} {default:?}");
    for (line, key) in [
        ("window = 1024", "window"),
        ("read_only = false", "read_only"),
        ("client_lanes_max = 16", "client_lanes_max"),
        ("fs_exports = \"/(ro)\"", "fs_exports"),
        ("fs_quota_inodes = 7", "fs_quota_inodes"),
    ] {
        assert!(!at(line, key).agrees_with(&at("", key)), "{line}");
        assert!(at(line, "request_auth").agrees_with(&at("", "request_auth")), "{line}");
    }
    let client = parse_as(
        Principal::Client(ClientId::new(1, 0)),
        &ADDRESSES.replace("[clients]\nclient-0 = \"127.0.0.1:7010\"\n", ""),
    );
    let keys: Vec<_> =
        client.unwrap().shared(Principal::Client(ClientId::new(1, 0))).into_iter().map(|s| s.key).collect();
    assert!(keys.contains(&"window") && !keys.contains(&"clients_max"), "{keys:?}");
}

/// How many lanes a client may have decides what the table of the lanes is, which is state.
#[test]
fn the_lanes_of_a_client_are_in_the_digest_of_the_settings() {
    let digest = |lines| parse(lines).unwrap().service_digest();
    assert_eq!(digest(""), digest("client_lanes_max = 256"));
    assert_ne!(digest(""), digest("client_lanes_max = 16"));
}

/// The settings that all nodes have alike come from `cluster.toml`, for clients too. Another value beside it is refused.
#[test]
fn shared_settings_are_the_cluster_s() {
    let own = Principal::Replica(ReplicaId(1));
    let shared = "[settings]\nservice = \"fs\"\nwindow = 1024\nclients_max = 4096\nfs_capacity = \"1GiB\"\n";
    let read = |lines: &str| parse_both(own, &format!("{lines}\n{ADDRESSES}"), shared);
    let settings = read("fs_capacity = \"1024MiB\"").unwrap();
    assert_eq!((settings.service, settings.config.window), (ServiceName::FS, 1024));
    let client = ADDRESSES.split("[clients]").next().unwrap();
    let client = parse_both(Principal::Client(ClientId::new(1, 0)), client, shared).unwrap();
    assert_eq!((client.config.window, client.fs.capacity_bytes), (1024, 1 << 30));
    let trouble = read("\nwindow = 2048").unwrap_err();
    assert_eq!(trouble.kind, NodeErrorKind::Rule);
    assert!(trouble.to_string().contains("cluster.toml says 1024\n  --> node.toml:2\n"), "{trouble}");
    let wrong = |shared: &str| parse_both(own, ADDRESSES, shared).unwrap_err().to_string();
    assert!(
        wrong("[settings]\nwindow = 200")
            .ends_with("at least twice checkpoint_interval\n  --> cluster.toml:2")
    );
    assert!(wrong("[settings]\nwindov = 200").contains("did you mean `window`?"));
    let small = wrong("[settings]\nservice = \"fs\"\nfs_inodes_max = 0");
    assert_eq!(small, "fs_inodes_max: at least the root's\n  --> cluster.toml:3");
    let own_key = wrong("[settings]\npoll = \"20us\"");
    assert!(
        own_key.contains("cluster.toml:2\n") && own_key.contains("a setting of each node, for its node.toml")
    );
    // Another order of the same, and defaults that are written down, make no difference; another value does.
    let digests = |shared: &str| parse_both(own, ADDRESSES, shared).unwrap().shared_digests();
    assert_eq!(digests("[settings]\nread_only = true\nwindow = 2048"), digests(""));
    let (one, other) = (digests(""), digests("[settings]\nrequest_auth = \"mac\""));
    let differs = shared_names().zip(one.iter().zip(&other)).filter(|(_, (one, other))| one != other);
    assert_eq!(differs.map(|(name, _)| name).collect::<Vec<_>>(), ["request_auth"]);
}
