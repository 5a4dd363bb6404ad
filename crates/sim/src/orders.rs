//! Orders that change the client registry, as people write and read them.

use quorate_service::registry::{Client, RegistryOp, RegistryResult, Rights};
use quorate_wire::ClientId;

/// A client with these rights. Its key is whatever this world's client of that number has, so it does not stand here.
pub(crate) fn person(rights: Rights) -> Client {
    Client { rights, key: [0; 32], address: None }
}

/// Reads an order as people write it: `add c1`, `add c1 read`, `remove c1`.
pub(crate) fn parse(text: &str) -> Option<Vec<u8>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let principal = |name: &str| Some(name.strip_prefix('c')?.parse::<u64>().ok()? + 1);
    let order = match *words.as_slice() {
        ["add", name] => RegistryOp::Add(principal(name)?, person(Rights::Write)),
        ["add", name, "read"] => RegistryOp::Add(principal(name)?, person(Rights::Read)),
        ["add", name, "admin"] => RegistryOp::Add(principal(name)?, person(Rights::Admin)),
        ["remove", name] => RegistryOp::Remove(principal(name)?),
        _ => return None,
    };
    let mut bytes = Vec::new();
    order.encode(&mut bytes);
    Some(bytes)
}

/// Shows an order.
pub(crate) fn order_text(operation: &[u8]) -> Option<String> {
    let name = |principal: u64| ClientId::new(principal, 0);
    Some(match RegistryOp::decode(operation)? {
        Ok(RegistryOp::Add(principal, person)) => {
            format!("add {} {}", name(principal), format!("{:?}", person.rights).to_lowercase())
        }
        Ok(RegistryOp::Remove(principal)) => format!("remove {}", name(principal)),
        Err(_) => "(malformed order)".to_owned(),
    })
}

/// Shows the answer to an order, or that there was no right.
pub(crate) fn answer_text(result: &[u8]) -> Option<String> {
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
