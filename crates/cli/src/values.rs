//! Parsers for values on the command line.

use std::net::SocketAddr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use quorate_node::names;
use quorate_node::services::{SERVICES, ServiceName};
use quorate_wire::{ClientId, Cluster, ReplicaId, Timestamp};

use crate::code::Code;
use crate::fail::Failure;

/// Reads a seed: decimal, or hexadecimal after `0x`.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    number.map_err(|_| "expected a whole number, such as 7 or 0x2f81".to_owned())
}

/// Reads the name of a built-in service. The help lists them.
pub(crate) fn service() -> impl TypedValueParser<Value = ServiceName> {
    let each = SERVICES.iter().map(|row| PossibleValue::new(row.name.name()).help(row.about));
    PossibleValuesParser::new(each).try_map(|name| ServiceName::from_name(&name).ok_or("no such service"))
}

/// Reads a count: a whole number above 0.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a whole number above 0".to_owned()),
        Ok(number) => Ok(number),
    }
}

/// Reads a whole number from `MIN` to `MAX`.
pub(crate) fn within<T: TryFrom<u32>, const MIN: u32, const MAX: u32>(text: &str) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| format!("must be {MIN} to {MAX}"))
}

/// Reads the address and the port of a socket. A name stands for its first address.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    names::resolve(text)
        .ok_or_else(|| "expected IP:PORT or NAME:PORT, such as 127.0.0.1:6380 or [::1]:6380".to_owned())
}

/// Reads a duration: a whole number and its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let expected = || "expected a duration with its unit, such as 500ms or 10s".to_owned();
    let (digits, unit): (_, fn(u64) -> Duration) = match text.strip_suffix("ms") {
        Some(digits) => (digits, Duration::from_millis),
        None => (text.strip_suffix('s').ok_or_else(expected)?, Duration::from_secs),
    };
    match digits.parse::<u32>() {
        Ok(0) | Err(_) => Err(expected()),
        Ok(number) => Ok(unit(number.into())),
    }
}

/// Reads a replica's name: `r0`.
pub(crate) fn replica(text: &str) -> Result<ReplicaId, String> {
    let number = text.strip_prefix('r').and_then(|number| number.parse().ok());
    number.map(ReplicaId).ok_or_else(|| "expected a replica, such as r0".to_owned())
}

/// A client's request, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestName {
    pub(crate) client: ClientId,
    pub(crate) timestamp: Timestamp,
}

/// Reads a request's name: `c0:1`, or with a lane `c0.2:1`.
pub(crate) fn request(text: &str) -> Result<RequestName, String> {
    let read = || {
        let (client, timestamp) = text.strip_prefix('c')?.split_once(':')?;
        let (principal, lane) = client.split_once('.').unwrap_or((client, "0"));
        let principal = principal.parse::<u64>().ok()?.checked_add(1).filter(|number| *number < 1 << 48)?;
        let client = ClientId::new(principal, lane.parse().ok()?);
        Some(RequestName { client, timestamp: Timestamp(timestamp.parse().ok()?) })
    };
    read().ok_or_else(|| "expected a client and a request number, such as c0:1 or c0.2:1".to_owned())
}

/// Returns the cluster of `n` replicas that tolerates `f` Byzantine ones, by default as many as possible.
pub(crate) fn cluster(n: u16, f: Option<u16>) -> Result<Cluster, Failure> {
    let rule = |what: String, key: &str| Failure::new(Code::Rule, what).at(key.to_owned());
    let f = match f {
        Some(0) => {
            return Err(rule("f = 0: must be at least 1".to_owned(), "--f 0"));
        }
        Some(f) => f,
        None => (n.saturating_sub(1) / 3).max(1),
    };
    Cluster::new(n, f).map_err(|error| {
        let least = 3 * u32::from(f) + 1;
        rule(error.to_string(), &format!("--n {n}")).next(format!("--n {least}"))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_decimal_or_hexadecimal() {
        assert_eq!(seed("12"), Ok(12));
        assert_eq!(seed("0x2f81"), Ok(0x2f81));
        assert_eq!(seed("0xffff_ffff_ffff_ffff"), Ok(u64::MAX));
        for wrong in ["", "0x", "-1", "1.5", "0x1_0000_0000_0000_0000", "seven"] {
            assert!(seed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_number_is_within_its_range() {
        assert_eq!(within::<u16, 1, 4>("4"), Ok(4));
        for wrong in ["0", "5", "-1", "", "x", "4294967297"] {
            assert_eq!(within::<u16, 1, 4>(wrong), Err("must be 1 to 4".to_owned()), "{wrong}");
        }
    }

    #[test]
    fn a_duration_has_its_unit() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        for wrong in ["", "10", "0s", "-1s", "1.5s", "ms", "10m", "99999999999s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn requests_and_replicas_are_named_as_in_traces() {
        let name = request("c0.2:17").unwrap();
        assert_eq!((name.client.to_string(), name.timestamp), ("c0.2".to_owned(), Timestamp(17)));
        assert_eq!(request("c3:1").unwrap().client.to_string(), "c3");
        assert_eq!(replica("r12"), Ok(ReplicaId(12)));
        for wrong in ["c0", "0:1", "c:1", "c0:", "c0.x:1", "r1:1"] {
            assert!(request(wrong).is_err(), "{wrong}");
        }
        assert!(replica("1").is_err() && replica("r").is_err() && replica("r-1").is_err());
    }

    #[test]
    fn a_cluster_tolerates_as_many_as_it_can() {
        for (n, f) in [(4, 1), (5, 1), (7, 2), (10, 3), (13, 4)] {
            assert_eq!(cluster(n, None).unwrap().f(), f);
        }
        assert_eq!(cluster(10, Some(1)).unwrap().f(), 1);
    }

    #[test]
    fn too_small_a_cluster_is_refused_with_key_value_and_rule() {
        let says = cluster(3, None).unwrap_err().to_string();
        assert!(
            says.contains("n = 3") && says.contains("n >= 3f + 1 = 4") && says.contains("--> --n 3"),
            "{says}"
        );
        let says = cluster(6, Some(2)).unwrap_err().to_string();
        assert!(says.contains("n = 6") && says.contains("n >= 3f + 1 = 7"), "{says}");
        assert!(cluster(4, Some(0)).is_err());
        assert!(cluster(65, None).unwrap_err().to_string().contains("at most 64"));
    }
}
