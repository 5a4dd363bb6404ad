//! Chromium without a window.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Lets a browser with a window of this size do something with the page at this address. `profile` is its directory.
pub(crate) fn browse(
    address: SocketAddr,
    profile: &str,
    (width, height): (u32, u32),
    what: &[&str],
) -> String {
    let ended = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--virtual-time-budget=2500",
        ])
        .args([format!("--user-data-dir={profile}"), format!("--window-size={width},{height}")])
        .args(what)
        .arg(format!("http://{address}/"))
        .stdin(Stdio::null())
        .output();
    let ended =
        ended.unwrap_or_else(|error| panic!("this test needs Chromium ({error}): apt-get install chromium"));
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}

/// What stands between the tags of the element with this id.
pub(crate) fn element<'a>(dom: &'a str, id: &str) -> &'a str {
    let start = dom.find(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no {id} in {dom}"));
    let rest = &dom[start..];
    let rest = &rest[rest.find('>').unwrap() + 1..];
    let end = ["</table>", "</ul>"].into_iter().filter_map(|tag| rest.find(tag)).min();
    &rest[..end.unwrap_or(rest.len())]
}
