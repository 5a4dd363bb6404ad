//! Files with secrets: a node's signing key, readable by its owner only.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use quorate_wire::sign::{PublicKey, Signer};

use crate::members::{hex, unhex};
use crate::trouble::{Kind, Trouble};

/// The first line of a key file.
const TITLE: &str = "quorate ed25519 secret 1";

/// The file with the time of the newest session keys.
const TIME: &str = "keys/time";

/// Returns new random bytes.
///
/// # Errors
///
/// The machine has no source of randomness.
pub(crate) fn entropy() -> Result<[u8; 32], Trouble> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 32];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| Trouble::unreadable(path, &error))?;
    Ok(bytes)
}

/// Writes a new signing key to a file and returns its public half.
pub(crate) fn create(path: &Path) -> Result<[u8; 32], Trouble> {
    let seed = entropy()?;
    let text = format!("{TITLE}\n{}\n", hex(&seed));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| Trouble::unwritable(path, &error))?;
    let PublicKey::Ed25519(public) = Signer::ed25519(seed).public() else {
        unreachable!("an Ed25519 signer has an Ed25519 key")
    };
    Ok(public)
}

/// Reads the signing key in a file, whose public half is `public`.
pub(crate) fn read(path: &Path, public: &[u8; 32]) -> Result<Signer, Trouble> {
    let unreadable = |error| Trouble::unreadable(path, &error);
    let mut file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let what = format!("key file can be read or written by others (mode {mode:04o})");
        let next = format!("chmod 600 {}", path.display());
        return Err(Trouble::new(Kind::Exposed, what).in_file(path).next(next));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(unreadable)?;
    let seed = text.strip_prefix(TITLE).map(str::trim).and_then(unhex);
    let wrong = |what: &str| {
        Trouble::new(Kind::WrongKey, what)
            .in_file(path)
            .next("restore the file from a backup; without the key this node cannot take part")
    };
    let signer = Signer::ed25519(seed.ok_or_else(|| wrong("not a key file, or a damaged one"))?);
    if signer.public() != PublicKey::Ed25519(*public) {
        return Err(wrong("the key is damaged, or another node's: cluster.toml has a different public key"));
    }
    Ok(signer)
}

/// Returns and stores a time for the keys of this start. It is later than those of all earlier starts, even if the
/// clock was set back (KX-1).
pub(crate) fn reserve_time(dir: &Path, wall_ns: u64) -> Result<u64, Trouble> {
    let before = std::fs::read_to_string(dir.join(TIME)).ok();
    let before = before.and_then(|text| text.trim().parse::<u64>().ok());
    let time = before.map_or(wall_ns, |before| before.saturating_add(1).max(wall_ns));
    note_time(dir, time)?;
    Ok(time)
}

/// Stores the time of the newest session keys.
pub(crate) fn note_time(dir: &Path, time: u64) -> Result<(), Trouble> {
    let (path, draft) = (dir.join(TIME), dir.join("keys/time.new"));
    let written = std::fs::write(&draft, format!("{time}\n")).and_then(|()| std::fs::rename(&draft, &path));
    written.map_err(|error| Trouble::unwritable(&path, &error))
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
        assert_eq!(create(&path).unwrap_err().kind, Kind::Unwritable, "a key is never overwritten");
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() - 1 {
            let mut bad = good.clone();
            bad[at] ^= 2;
            std::fs::write(&path, &bad).unwrap();
            assert!(
                matches!(read(&path, &public).unwrap_err().kind, Kind::WrongKey | Kind::Unreadable),
                "at {at}"
            );
        }
    }

    /// A clock that was set back does not make new keys look old.
    #[test]
    fn the_time_of_keys_only_rises() {
        let dir = TempDir::new("time");
        std::fs::create_dir(dir.path().join("keys")).unwrap();
        assert_eq!(reserve_time(dir.path(), 500).unwrap(), 500);
        assert_eq!(reserve_time(dir.path(), 100).unwrap(), 501);
        note_time(dir.path(), 900).unwrap();
        assert_eq!(reserve_time(dir.path(), 100).unwrap(), 901);
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let dir = TempDir::new("exposed");
        let path = dir.path().join("replica.key");
        let public = create(&path).unwrap();
        for mode in [0o644, 0o640, 0o602] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let trouble = read(&path, &public).unwrap_err();
            assert_eq!(trouble.kind, Kind::Exposed);
            assert!(trouble.next.unwrap().starts_with("chmod 600 "));
        }
    }
}
