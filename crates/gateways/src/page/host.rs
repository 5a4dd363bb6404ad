//! Under which names the page is read. A name that somebody else has in the DNS may lead here, too, and a page from
//! there would be of the same origin as this one (DNS rebinding): only what nobody else can have counts.

use std::net::{IpAddr, Ipv6Addr};

/// Says whether a request is for this machine: by an address, by `localhost`, or by `own`, its name. A request that does
/// not say comes from no browser.
pub(super) fn is_ours(host: Option<&[u8]>, own: &str) -> bool {
    let Some(host) = host else { return true };
    let Ok(host) = std::str::from_utf8(host) else { return false };
    if let Some(rest) = host.strip_prefix('[') {
        return rest
            .split_once(']')
            .is_some_and(|(ip, port)| ip.parse::<Ipv6Addr>().is_ok() && is_port(port));
    }
    let (name, port) = host.find(':').map_or((host, ""), |at| host.split_at(at));
    let named = name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || (!own.is_empty() && name.eq_ignore_ascii_case(own));
    named && is_port(port)
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
}

/// Returns this machine's name, as far as it is known.
pub(super) fn own() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| String::new(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H3: a name that somebody has in the DNS is not answered, wherever it leads.
    #[test]
    fn h3_a_name_of_somebody_elses_is_not_answered() {
        let ours =
            ["127.0.0.1:9640", "localhost", "LocalHost:9640", "[::1]:9640", "[::1]", "10.1.2.3", "Box:80"];
        for host in ours {
            assert!(is_ours(Some(host.as_bytes()), "box"), "{host}");
        }
        assert!(is_ours(None, "box"));
        let others = [
            "evil.example",
            "evil.example:9640",
            "box.evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:x",
            "127.0.0.1:9640.evil.example",
            "[::1]evil",
            "[::1",
            "",
            ":9640",
            "\u{e9}",
        ];
        for host in others {
            assert!(!is_ours(Some(host.as_bytes()), "box"), "{host}");
        }
        assert!(!is_ours(Some(b":80"), "") && !is_ours(Some(b"\xff"), "box"));
    }
}
