//! Exports, in the syntax of `/etc/exports`.

use std::net::IpAddr;

use quorate_fs::OpKinds;
use quorate_fs::nfs3::Procedure;
use quorate_fs::settings::{Export, Network, Squash};

/// Reads directories with their options: `/(rw,no_root_squash) /pub(ro,10.0.0.0/8)`.
pub(super) fn parse(text: &str) -> Option<Vec<Export>> {
    text.split_whitespace().map(export).collect()
}

fn export(text: &str) -> Option<Export> {
    let (path, options) = match text.split_once('(') {
        Some((path, rest)) => (path, rest.strip_suffix(')')?),
        None => (text, ""),
    };
    let mut export = Export::of(path);
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "rw" => export.read_only = false,
            "ro" => export.read_only = true,
            "root_squash" => export.squash = Squash::Root,
            "no_root_squash" => export.squash = Squash::Nobody,
            "all_squash" => export.squash = Squash::Everyone,
            network => export.networks.push(self::network(network)?),
        }
    }
    Some(export)
}

/// Reads an address or a network: `10.0.0.1`, `10.0.0.0/8`, `fd00::/8`.
fn network(text: &str) -> Option<Network> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let (address, before, most) = match address.parse().ok()? {
        IpAddr::V4(v4) => (v4.to_ipv6_mapped().octets(), 96, 32),
        IpAddr::V6(v6) => (v6.octets(), 0, 128),
    };
    let bits = bits.unwrap_or(most);
    (bits <= most).then_some(Network { address, bits: before + bits })
}

/// Reads a set of procedures that only read: `all`, `none`, or their names.
pub(super) fn procedures(text: &str) -> Option<OpKinds> {
    match text {
        "all" => return Some(OpKinds::ALL),
        "none" => return Some(OpKinds::NONE),
        _ => {}
    }
    let find = |name: &str| {
        let same = |p: &Procedure| format!("{p:?}").eq_ignore_ascii_case(name);
        Procedure::ALL.iter().copied().find(|p| same(p) && p.kind().reads())
    };
    let names = text.split([' ', ',']).filter(|name| !name.is_empty());
    let found = names.map(find).collect::<Option<Vec<_>>>()?;
    Some(OpKinds::of(found.into_iter().map(Procedure::kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_read_with_their_options() {
        let exports = parse("/(rw,no_root_squash) /pub(ro,all_squash,10.0.0.0/8,fd00::1)").unwrap();
        assert_eq!(exports.len(), 2);
        assert_eq!((exports[0].path.as_str(), exports[0].squash), ("/", Squash::Nobody));
        assert!(exports[1].read_only && exports[1].squash == Squash::Everyone);
        let v4 = |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap().to_ipv6_mapped().octets();
        assert!(exports[1].admits(&v4("10.2.3.4")) && !exports[1].admits(&v4("11.2.3.4")));
        for wrong in ["/(rw", "/(rwx)", "/(10.0.0.0/33)", "/a(ro)b"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn procedures_are_read_by_name() {
        let set = procedures("getattr, lookup").unwrap();
        let has = [Procedure::GetAttr, Procedure::Lookup, Procedure::Read].map(|p| set.has(p.kind()));
        assert_eq!(has, [true, true, false]);
        assert_eq!(procedures("write"), None);
        assert_eq!(procedures("all"), Some(OpKinds::ALL));
    }
}
