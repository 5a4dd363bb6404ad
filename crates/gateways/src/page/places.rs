//! The places for connections to the status page. A new connection always gets one: what asks for a cluster's health has
//! to be answered while others hold as many connections as they can.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::net::IpAddr;

use tokio::task::AbortHandle;

use crate::network::network;

/// Maximum number of connections.
pub(super) const CONNECTIONS_MAX: usize = 256;

/// The connections with their networks, the oldest first. At most [`CONNECTIONS_MAX`].
#[derive(Debug, Default)]
pub(super) struct Places(VecDeque<(IpAddr, AbortHandle)>);

impl Places {
    /// Gives a connection a place. If there is none left, ends the oldest connection of the network that has most.
    pub(super) fn take(&mut self, of: IpAddr, task: AbortHandle) {
        self.0.retain(|(_, task)| !task.is_finished());
        self.0.push_back((network(of), task));
        if self.0.len() <= CONNECTIONS_MAX {
            return;
        }
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        self.0.iter().for_each(|(of, _)| *counts.entry(*of).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(of, _)| of);
        let oldest = self.0.iter().position(|(of, _)| Some(*of) == most);
        if let Some((_, task)) = oldest.and_then(|at| self.0.remove(at)) {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// M5: one address takes the places of others only as far as there are free ones.
    #[test]
    fn m5_the_greediest_address_loses_its_oldest_connection() {
        let (few, many) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
        check(few.into(), |_| many.into());
    }

    /// M5: nor does a host of version 6 with a new address for each connection.
    #[test]
    fn m5_the_addresses_of_a_network_count_together() {
        let few = Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 1);
        check(few.into(), |number| Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, number).into());
    }

    /// `few` has the first connection and the last one, and keeps both.
    fn check(few: IpAddr, many: impl Fn(u16) -> IpAddr) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut places = Places::default();
            let mut take = |of: IpAddr| {
                let task = tokio::task::spawn(pending::<()>());
                places.take(of, task.abort_handle());
                task
            };
            let kept = take(few);
            let most = u16::try_from(CONNECTIONS_MAX).unwrap();
            let tasks: Vec<_> = (0..most + 2).map(|number| take(many(number))).collect();
            let late = take(few);
            tokio::task::yield_now().await;
            assert!(!kept.is_finished() && !late.is_finished());
            let ended: Vec<usize> = (0..tasks.len()).filter(|at| tasks[*at].is_finished()).collect();
            assert_eq!(ended, [0, 1, 2, 3]);
        });
    }
}
