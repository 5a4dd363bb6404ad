//! The options of `cluster`.
//!
//! | Option | Default | Means |
//! |---|---|---|
//! | `f`, `n` | 1, 3f + 1 | faults tolerated, replicas |
//! | `clients`, `lanes` | 1, 1 | client principals, and lanes of each: `c0`, `c0.1` |
//! | `K`, `L`, `W` | 128, 2K, 8 or K | checkpoint interval, window, batches in parallel |
//! | `faulty=r0,r3` | | may lie; what happens inside of them is not shown |
//! | `durability` | `memory` | or `async`, `sync` |
//! | `auth` | `adaptive` | or `mac`, `sigmac` |
//! | `status` | `off` | the time between two STATUSes of a replica; all others get lost as well where this is off |
//! | `replier` | `random` | the replica that every client names for the full result: `r2` |
//! | `tentative`, `read-only`, `piggyback`, `digest-replies` | `off` | the optimisations of §5.1 |
//! | `batching`, `separate` | `on` | several requests a batch; large ones travel apart |
//! | `clients-max` | 65536 | lanes with an entry in the client table |
//! | `founders` | all | clients that may come in from the start, the first of them to add and remove others |
//! | `page` | 1024 | bytes of a page of the state |

use quorate_pbft::config::{Durability, Replier, RequestAuth};
use quorate_wire::{Cluster, ReplicaId};

use super::command::duration;
use crate::disk::Pace;
use crate::network::Profile;
use crate::setup::Setup;

/// How long a message takes, in nanoseconds.
const HOP_NS: u64 = 1_000_000;
/// Stands for "never" where a setting needs a time.
const NEVER_NS: u64 = quorate_pbft::config::HOUR_NS;

/// Returns the world that the options describe, and who may lie in it.
pub(super) fn setup(options: &[(String, String)]) -> Result<(Setup, Vec<ReplicaId>), String> {
    let get = |key: &str| options.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str());
    let f = get("f").map_or(Ok(1), number)?;
    let n = get("n").map_or(Ok(3 * f + 1), number)?;
    let cluster = Cluster::new(n, f).map_err(|error| format!("n={n} f={f}: {error:?}"))?;
    let mut setup = Setup { network: Profile::fixed(HOP_NS), ..Setup::new(1, cluster) };
    setup.disk = Pace { low_ns: 0, high_ns: 0 };
    let config = &mut setup.config;
    (config.tentative, config.read_only, config.piggyback, config.digest_replies) =
        (false, false, false, false);
    config.collect_from = 0;
    (config.durability, config.status_ns, config.status_min_ns) = (Durability::Memory, NEVER_NS, NEVER_NS);
    let mut faulty = Vec::new();
    for (key, value) in options {
        let config = &mut setup.config;
        match key.as_str() {
            "f" | "n" => {}
            "clients" => setup.clients = number(value)?,
            "lanes" => setup.lanes = number(value)?,
            "founders" => setup.founders = Some(number(value)?),
            "page" => setup.page_bytes = number(value)?,
            "K" => {
                config.checkpoint_interval = number(value)?;
                config.window = 2 * config.checkpoint_interval;
                config.pipeline = config.pipeline.min(config.checkpoint_interval);
            }
            "L" => config.window = number(value)?,
            "W" => config.pipeline = number(value)?,
            "faulty" => faulty = value.split(',').map(replica).collect::<Result<_, _>>()?,
            "durability" => {
                config.durability = match value.as_str() {
                    "memory" => Durability::Memory,
                    "async" => Durability::Async,
                    "sync" => Durability::Sync,
                    _ => return Err(format!("durability={value}: memory, async or sync")),
                }
            }
            "auth" => {
                config.request_auth = match value.as_str() {
                    "mac" => RequestAuth::Mac,
                    "adaptive" => RequestAuth::Adaptive,
                    "sigmac" => RequestAuth::SigMac,
                    _ => return Err(format!("auth={value}: mac, adaptive or sigmac")),
                }
            }
            "status" if value == "off" => {}
            "status" => {
                config.status_ns = duration(value)?;
                config.status_min_ns = config.status_ns.min(100 * quorate_pbft::config::MS);
            }
            "replier" => config.replier = Replier::Fixed(replica(value)?.0),
            "tentative" => config.tentative = switch(key, value)?,
            "read-only" => config.read_only = switch(key, value)?,
            "piggyback" => config.piggyback = switch(key, value)?,
            "digest-replies" => config.digest_replies = switch(key, value)?,
            "collect-from" => config.collect_from = number(value)?,
            "batching" => config.batching = switch(key, value)?,
            "separate" => config.separate = switch(key, value)?,
            "clients-max" => config.clients_max = number(value)?,
            "lanes-max" => config.lanes_max = number(value)?,
            _ => return Err(format!("`{key}` is no option of cluster")),
        }
    }
    setup.config.check().map_err(|error| error.to_string())?;
    if let Some(stranger) = faulty.iter().find(|id| !cluster.contains(**id)) {
        return Err(format!("{stranger} is no replica of this cluster"));
    }
    Ok((setup, faulty))
}

/// Returns whether replicas say now and then what they have. If not, what they say of it at other times gets
/// lost, too.
pub(super) fn has_statuses(setup: &Setup) -> bool {
    setup.config.status_ns < NEVER_NS
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}`: a number was expected"))
}

fn switch(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{key}={value}: on or off")),
    }
}

fn replica(name: &str) -> Result<ReplicaId, String> {
    let number = name.strip_prefix('r').and_then(|number| number.parse().ok());
    number.map(ReplicaId).ok_or_else(|| format!("`{name}` is no replica"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Vec<(String, String)> {
        let pairs = text.split_whitespace().filter_map(|word| word.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn a_small_interval_takes_the_rest_along() {
        let (setup, faulty) = setup(&options("f=2 K=4 faulty=r0,r3 tentative=on")).unwrap();
        let config = &setup.config;
        assert_eq!((config.cluster.n(), config.window, config.pipeline), (7, 8, 4));
        assert!(config.tentative && !config.piggyback);
        assert_eq!(faulty, [ReplicaId(0), ReplicaId(3)]);
    }

    #[test]
    fn wrong_options_are_refused() {
        for text in ["f=x", "f=1 n=3", "K=4 L=5", "tentative=maybe", "tea=on", "faulty=r9", "durability=some"]
        {
            assert!(setup(&options(text)).is_err(), "{text}");
        }
    }
}
