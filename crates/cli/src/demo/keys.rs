//! The workload of a key-value store: keys through the Redis protocol, and a counter.

use std::io;
use std::net::SocketAddr;

use super::load::{Account, Done, Load};
use super::redis::{Redis, Reply};
use super::usage::{PATIENCE, Usage, grouped};

/// Number of commands in a pipeline.
const PIPELINE: u32 = 100;
/// The counter.
const COUNTER: &[u8] = b"demo:counter";

/// A workload that writes keys.
#[derive(Debug)]
pub(super) struct Keys {
    redis: Redis,
    door: SocketAddr,
    count: u32,
}

impl Keys {
    pub(super) fn open(door: SocketAddr, count: u32) -> Result<Self, String> {
        let redis = Redis::connect(door, PATIENCE).map_err(|error| format!("the gateway: {error}"))?;
        Ok(Self { redis, door, count })
    }

    fn some(&self, first: u32) -> std::ops::Range<u32> {
        first..first.saturating_add(PIPELINE).min(self.count)
    }
}

impl Usage for Keys {
    fn writes(&self) -> String {
        format!("wrote {} keys through the Redis protocol", grouped(self.count))
    }

    fn write(&mut self) -> Result<(), String> {
        for first in (0..self.count).step_by(usize::try_from(PIPELINE).unwrap_or(1)) {
            let pairs: Vec<(String, String)> = self.some(first).map(|i| (key(i), value(i))).collect();
            let sets =
                pairs.iter().map(|(key, value)| vec![b"SET".as_slice(), key.as_bytes(), value.as_bytes()]);
            let replies = self.redis.all(&sets.collect::<Vec<_>>()).map_err(|error| error.to_string())?;
            if let Some(other) = replies.iter().find(|reply| **reply != Reply::Value(b"OK".to_vec())) {
                return Err(format!("the reply to a SET is {other:?}"));
            }
        }
        Ok(())
    }

    fn sample(&self) -> u32 {
        2000
    }

    fn read(&mut self, most: u32) -> Result<(), String> {
        let count = self.count.min(most);
        let (mut missing, mut other) = (Vec::new(), Vec::new());
        for first in (0..count).step_by(usize::try_from(PIPELINE).unwrap_or(1)) {
            let keys: Vec<(u32, String)> =
                self.some(first).filter(|i| *i < count).map(|i| (i, key(i))).collect();
            let gets: Vec<_> = keys.iter().map(|(_, key)| vec![b"GET".as_slice(), key.as_bytes()]).collect();
            let replies = self.redis.all(&gets).map_err(|error| error.to_string())?;
            for ((i, key), reply) in keys.iter().zip(replies) {
                match reply {
                    Reply::Value(found) if found == value(*i).as_bytes() => {}
                    Reply::Nil => missing.push(key.clone()),
                    Reply::Value(_) | Reply::TryAgain | Reply::Unknown => other.push(key.clone()),
                }
            }
        }
        match (missing.first(), other.first()) {
            (None, None) => Ok(()),
            (Some(key), _) => Err(format!("{} of {count} keys are missing, {key} the first", missing.len())),
            (None, Some(key)) => Err(format!("{} of {count} values are wrong, {key} the first", other.len())),
        }
    }

    fn load(&self) -> Result<Load, String> {
        let mut redis =
            Redis::connect(self.door, PATIENCE).map_err(|error| format!("the gateway: {error}"))?;
        let mut highest = 0;
        Ok(Load::start(move || match redis.one(&[b"INCR", COUNTER])? {
            Reply::Value(value) => {
                let number: u64 = String::from_utf8_lossy(&value).parse().unwrap_or(0);
                if number <= highest {
                    return Err(io::Error::other(format!("{number} came after {highest}")));
                }
                highest = number;
                Ok(Done::Acknowledged)
            }
            Reply::Unknown => Ok(Done::Unknown),
            Reply::TryAgain => Ok(Done::Nothing),
            Reply::Nil => Err(io::Error::other("a counter has no value")),
        }))
    }

    fn account(&mut self, account: Account) -> Result<String, String> {
        let counter = self.redis.one(&[b"GET", COUNTER]).map_err(|error| error.to_string())?;
        let counter = match &counter {
            Reply::Value(value) => String::from_utf8_lossy(value).parse::<u64>().ok(),
            Reply::Nil | Reply::TryAgain | Reply::Unknown => None,
        };
        let most = account.acknowledged + account.unknown;
        let counter =
            counter.filter(|counter| (account.acknowledged..=most).contains(counter)).ok_or(format!(
                "the counter is {counter:?} after {} acknowledged increments and {} unknown ones",
                account.acknowledged, account.unknown
            ))?;
        let keys = grouped(self.count);
        Ok(format!("{keys} of {keys} keys, {counter} increments once each"))
    }
}

fn key(i: u32) -> String {
    format!("demo:{i:06}")
}

/// The value of a key: different for each.
fn value(i: u32) -> String {
    format!("{:016x}", u64::from(i).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_differ() {
        assert!(value(0) != value(1) && value(0).len() == 16);
    }
}
