//! Files with secrets: a node's signing key, readable by its owner only.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;

use quorate_wire::exchange::AHEAD_NS;
use quorate_wire::sign::{PublicKey, Signer};

use crate::error::{NodeError, NodeErrorKind};
use crate::home::hex::{hex, unhex};

/// The first line of a key file.
const TITLE: &str = "quorate ed25519 secret 1";

/// The file with the time of the newest session keys.
const TIME: &str = "keys/time";
/// The longest file that is read as a text: the members of the largest cluster take a tenth of it.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// Returns new random bytes.
///
/// # Errors
///
/// The machine has no source of randomness.
pub(crate) fn entropy<const N: usize>() -> Result<[u8; N], NodeError> {
    // It stays open: later there may be no descriptor for it (L101).
    static SOURCE: OnceLock<File> = OnceLock::new();
    let path = Path::new("/dev/urandom");
    let unreadable = |error| NodeError::unreadable(path, &error);
    let mut source = if let Some(source) = SOURCE.get() {
        source
    } else {
        let opened = File::open(path).map_err(unreadable)?;
        SOURCE.get_or_init(|| opened)
    };
    let mut bytes = [0; N];
    source.read_exact(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

/// Returns a random number, as [`entropy`].
///
/// # Errors
///
/// As [`entropy`].
pub(crate) fn number() -> Result<u64, NodeError> {
    entropy().map(u64::from_le_bytes)
}

/// Reads a file that somebody has written: of a size that such a file has, and no pipe or device, which may never end.
pub(crate) fn read_text(path: &Path) -> Result<String, NodeError> {
    let unreadable = |error| NodeError::unreadable(path, &error);
    let found = std::fs::metadata(path).map_err(unreadable)?;
    if !found.is_file() || found.len() > TEXT_BYTES_MAX {
        let what = format!("not a regular file of at most {} KiB", TEXT_BYTES_MAX >> 10);
        return Err(NodeError::new(NodeErrorKind::Unreadable, what)
            .in_file(path)
            .next("put the file back that `quorate init` made, from a copy or another node"));
    }
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(TEXT_BYTES_MAX).read_to_string(&mut text));
    read.map_err(unreadable)?;
    Ok(text)
}

/// Writes a new signing key to a file and returns its public half.
pub(crate) fn create(path: &Path) -> Result<[u8; 32], NodeError> {
    let seed = entropy()?;
    let text = format!("{TITLE}\n{}\n", hex(&seed));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| NodeError::unwritable(path, &error))?;
    let PublicKey::Ed25519(public) = Signer::ed25519(seed).public() else {
        unreachable!("an Ed25519 signer has an Ed25519 key")
    };
    Ok(public)
}

/// Reads the signing key in a file, whose public half is `public`.
pub(crate) fn read(path: &Path, public: &[u8; 32]) -> Result<Signer, NodeError> {
    let unreadable = |error| NodeError::unreadable(path, &error);
    let mut file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let what = format!("key file can be read or written by others (mode {mode:04o})");
        let next = format!("chmod 600 {}", path.display());
        return Err(NodeError::new(NodeErrorKind::Exposed, what).in_file(path).next(next));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(unreadable)?;
    let seed = text.strip_prefix(TITLE).map(str::trim).and_then(unhex);
    let wrong = |what: &str| {
        NodeError::new(NodeErrorKind::WrongKey, what)
            .in_file(path)
            .next("restore the key, or cluster.toml, from a backup of this directory: they belong together")
    };
    let signer = Signer::ed25519(seed.ok_or_else(|| wrong("not a key file, or a damaged one"))?);
    if signer.public() != PublicKey::Ed25519(*public) {
        return Err(wrong("the key is damaged, or another node's: cluster.toml has a different public key"));
    }
    Ok(signer)
}

/// Returns and stores a time for the keys of this start. It is later than those of all earlier starts, even if the
/// clock was set back (KX-1).
pub(crate) fn reserve_time(dir: &Path, wall_ns: u64) -> Result<u64, NodeError> {
    let before = std::fs::read_to_string(dir.join(TIME)).ok();
    let before = before.and_then(|text| text.trim().parse::<u64>().ok());
    let time = before.map_or(wall_ns, |before| before.saturating_add(1).max(wall_ns));
    if time > wall_ns.saturating_add(AHEAD_NS) {
        // Others would not take keys of this time (KX-1), or this node not theirs.
        let path = dir.join(TIME);
        let what = "the time in it is more than 12 days ahead of the clock: one of them is wrong";
        let next = "set the clock. If it is right, write the time of day into the file, in nanoseconds since 1970: \
                    date +%s%N";
        return Err(NodeError::new(NodeErrorKind::Unreadable, what).in_file(&path).next(next));
    }
    // Before its keys are used (D8). A start may wait for the disk.
    keep_time(dir, time)?;
    Ok(time)
}

/// Takes `count` numbers that no earlier start has taken, at `wall_ns` or above, and returns the first and the first
/// that is not among them. They are on disk as taken.
pub(crate) fn reserve_block(dir: &Path, wall_ns: u64, count: u64) -> Result<(u64, u64), NodeError> {
    let path = dir.join(TIME);
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse::<u64>() {
            // A version that noted the start of a run alone has used that number, too.
            Ok(before) => before.saturating_add(1),
            Err(_) => return Err(bad_time(&path, "not a number, or a damaged one")),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(NodeError::unreadable(&path, &error)),
    };
    let first = before.max(wall_ns);
    let below = first.checked_add(count).filter(|below| *below < u64::MAX);
    let below = below.ok_or_else(|| bad_time(&path, "no number is left above it"))?;
    keep_time(dir, below)?;
    Ok((first, below))
}

fn bad_time(path: &Path, what: &str) -> NodeError {
    let next = "write the time of day in nanoseconds since 1970 into it, later than any that this client can have used";
    NodeError::new(NodeErrorKind::Timestamps, format!("the client's timestamps: {what}"))
        .in_file(path)
        .next(next)
}

/// Notes a number, so that it stands there after a loss of power. On a full disk it takes the place of the one before,
/// in whose block there is room for it.
pub(crate) fn keep_time(dir: &Path, time: u64) -> Result<(), NodeError> {
    let (path, draft) = (dir.join(TIME), dir.join("keys/time.new"));
    let text = format!("{time}\n");
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, &path)?;
        File::open(dir.join("keys"))?.sync_all()
    };
    let write_over = || {
        let file = OpenOptions::new().write(true).open(&path)?;
        if file.metadata()?.len() != text.len() as u64 {
            return Err(ErrorKind::StorageFull.into());
        }
        file.write_all_at(text.as_bytes(), 0)?;
        file.sync_data()
    };
    let is_full =
        |error: &std::io::Error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    let written = write().or_else(|error| if is_full(&error) { write_over() } else { Err(error) });
    written.map_err(|error| NodeError::unwritable(&path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn a_key_comes_back_and_every_damage_to_it_is_noticed() {
        let dir = TempDir::new("secret");
        let path = dir.path().join("replica.key");
        let public = create(&path).unwrap();
        assert_eq!(read(&path, &public).unwrap().public(), PublicKey::Ed25519(public));
        assert_eq!(create(&path).unwrap_err().kind, NodeErrorKind::Unwritable, "a key is never overwritten");
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() - 1 {
            let mut bad = good.clone();
            bad[at] ^= 2;
            std::fs::write(&path, &bad).unwrap();
            assert!(
                matches!(
                    read(&path, &public).unwrap_err().kind,
                    NodeErrorKind::WrongKey | NodeErrorKind::Unreadable
                ),
                "at {at}"
            );
        }
    }

    /// A pipe or a device never ends: nobody waits for it.
    #[test]
    fn only_a_file_is_read_as_one() {
        let dir = TempDir::new("text");
        let (pipe, text) = (dir.path().join("pipe"), dir.path().join("text"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::write(&text, "a").unwrap();
        assert_eq!(read_text(&text).unwrap(), "a");
        for path in [&pipe, Path::new("/dev/zero"), dir.path(), &dir.path().join("none")] {
            assert_eq!(read_text(path).unwrap_err().kind, NodeErrorKind::Unreadable, "{}", path.display());
        }
        File::create(&text).unwrap().set_len(TEXT_BYTES_MAX + 1).unwrap();
        assert!(read_text(&text).unwrap_err().next.is_some());
    }

    /// Nothing is added up beyond what a time can be.
    #[test]
    fn a_time_of_keys_that_is_far_ahead_is_refused() {
        let dir = TempDir::new("ahead");
        std::fs::create_dir(dir.path().join("keys")).unwrap();
        for (time, is_taken) in [(AHEAD_NS + 4, true), (AHEAD_NS + 5, false), (u64::MAX, false)] {
            std::fs::write(dir.path().join(TIME), time.to_string()).unwrap();
            assert_eq!(reserve_time(dir.path(), 5).is_ok(), is_taken, "{time}");
        }
    }

    /// A clock that was set back does not make new keys look old.
    #[test]
    fn the_time_of_keys_only_rises() {
        let dir = TempDir::new("time");
        std::fs::create_dir(dir.path().join("keys")).unwrap();
        assert_eq!(reserve_time(dir.path(), 500).unwrap(), 500);
        assert_eq!(reserve_time(dir.path(), 100).unwrap(), 501);
        keep_time(dir.path(), 900).unwrap();
        assert_eq!(reserve_time(dir.path(), 100).unwrap(), 901);
    }

    /// L94: a node starts again although the disk is full.
    #[test]
    fn l94_the_time_of_keys_rises_on_a_full_disk() {
        let dir = TempDir::new("full");
        std::fs::create_dir(dir.path().join("keys")).unwrap();
        assert_eq!(reserve_time(dir.path(), 500).unwrap(), 500);
        std::os::unix::fs::symlink("/dev/full", dir.path().join("keys/time.new")).unwrap();
        assert_eq!(reserve_time(dir.path(), 100).unwrap(), 501);
        assert_eq!(reserve_time(dir.path(), 700).unwrap(), 700);
        assert_eq!(reserve_time(dir.path(), 2000).unwrap_err().kind, NodeErrorKind::Disk, "it has no place");
        assert_eq!(std::fs::read_to_string(dir.path().join(TIME)).unwrap(), "700\n");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let dir = TempDir::new("exposed");
        let path = dir.path().join("replica.key");
        let public = create(&path).unwrap();
        for mode in [0o644, 0o640, 0o602] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let trouble = read(&path, &public).unwrap_err();
            assert_eq!(trouble.kind, NodeErrorKind::Exposed);
            assert!(trouble.next.unwrap().starts_with("chmod 600 "));
        }
    }
}
