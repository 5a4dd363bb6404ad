//! Addresses as users write them: `IP:PORT`, or `NAME:PORT`.

use std::net::{SocketAddr, ToSocketAddrs as _};

/// Returns the address that `IP:PORT` stands for, or `NAME:PORT` at this time. If a name has several, the first.
pub fn resolve(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| {
        let (name, _) = text.rsplit_once(':')?;
        if is_name(name) { text.to_socket_addrs().ok()?.next() } else { None }
    })
}

/// Returns whether this can be the name of a machine. A resolver also takes numbers: `10.0.1` for 10.0.0.1, and `7000`
/// for 0.0.27.88. In a setting, such a number is a mistake: a part of it is missing.
fn is_name(text: &str) -> bool {
    let last = text.trim_end_matches('.').rsplit('.').next().unwrap_or("").to_ascii_lowercase();
    let is_number = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
    !is_number && !text.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_no_name() {
        for text in
            ["7000:0", "10.0.1:7000", "10.0.0.1.:7000", "0X7f000001:7000", "10.0.0.1:99999", ":7000", "7000"]
        {
            assert_eq!(resolve(text), None, "{text}");
        }
        assert_eq!(resolve("[::1]:7000").unwrap().to_string(), "[::1]:7000");
        let local = resolve("localhost:7000").unwrap();
        assert!(local.ip().is_loopback() && local.port() == 7000);
        assert!(is_name("4b7d9c2e1f00") && is_name("node1.example."));
    }
}
