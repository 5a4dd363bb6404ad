//! Orders that change the client registry, as people write and read them.

use std::net::{Ipv4Addr, SocketAddr};

use quorate_service::registry::{Client, RegistryOp, RegistryResult, Rights, Setting, Table};
use quorate_wire::{ClientId, ReplicaId};

/// The address with this number. A node listens at that of its place in the world, until it moves.
pub(crate) fn address(number: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)), 1))
}

/// A client with these rights. Its key is whatever this world's client of that number has, so it does not stand here.
pub(crate) fn person(rights: Rights) -> Client {
    Client { rights, key: [0; 32], address: None }
}

/// Reads an order as people write it: `add c1`, `add c1 read`, `remove c1`, `move r1 17`, `move r1 back`,
/// `set client_lanes_max 3`; and what reads the table: `table`.
pub(crate) fn parse(text: &str) -> Option<Vec<u8>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let replica = |name: &str| Some(ReplicaId(name.strip_prefix('r')?.parse().ok()?));
    let principal = |name: &str| Some(name.strip_prefix('c')?.parse::<u64>().ok()? + 1);
    let order = match *words.as_slice() {
        ["add", name] => RegistryOp::Add(principal(name)?, person(Rights::Write)),
        ["add", name, "read"] => RegistryOp::Add(principal(name)?, person(Rights::Read)),
        ["add", name, "admin"] => RegistryOp::Add(principal(name)?, person(Rights::Admin)),
        ["remove", name] => RegistryOp::Remove(principal(name)?),
        ["move", name, "back"] => RegistryOp::Move(replica(name)?, None),
        ["move", name, number] => RegistryOp::Move(replica(name)?, Some(address(number.parse().ok()?))),
        ["set", name, value] => {
            let setting = Setting::ALL.iter().find(|setting| setting.name() == name)?;
            RegistryOp::Set(*setting, value.parse().ok()?)
        }
        ["table"] => return Some(Table::read().to_vec()),
        _ => return None,
    };
    let mut bytes = Vec::new();
    order.encode(&mut bytes);
    Some(bytes)
}

/// Shows an order.
pub(crate) fn order_text(operation: &[u8]) -> Option<String> {
    let name = |principal: u64| ClientId::new(principal, 0);
    if operation == Table::read() {
        return Some("table".to_owned());
    }
    Some(match RegistryOp::decode(operation)? {
        Ok(RegistryOp::Add(principal, person)) => {
            format!("add {} {}", name(principal), format!("{:?}", person.rights).to_lowercase())
        }
        Ok(RegistryOp::Remove(principal)) => format!("remove {}", name(principal)),
        Ok(RegistryOp::Move(replica, Some(at))) => format!("move {replica} {at}"),
        Ok(RegistryOp::Move(replica, None)) => format!("move {replica} back"),
        Ok(RegistryOp::Set(setting, value)) => format!("set {} {value}", setting.name()),
        Err(_) => "(malformed order)".to_owned(),
    })
}

/// Shows the answer to an order, or that there was no right.
pub(crate) fn answer_text(result: &[u8]) -> Option<String> {
    if let Some(Table { replicas, settings }) = Table::decode(result) {
        let replicas = replicas.iter().map(|(replica, at)| format!("{replica} {at}"));
        let settings = settings.iter().map(|(setting, value)| format!("{} {value}", setting.name()));
        return Some(replicas.chain(settings).collect::<Vec<_>>().join(", "));
    }
    Some(match RegistryResult::decode(result)? {
        RegistryResult::Done => "ok".to_owned(),
        RegistryResult::AlreadySo => "ok, already".to_owned(),
        RegistryResult::NoRight => "refused: no right".to_owned(),
        RegistryResult::NoClient => "refused: no client".to_owned(),
        RegistryResult::NoLane => "refused: table full".to_owned(),
        other @ (RegistryResult::OtherKey
        | RegistryResult::LastAdministrator
        | RegistryResult::Full
        | RegistryResult::Malformed) => {
            format!("refused: {other:?}")
        }
    })
}
