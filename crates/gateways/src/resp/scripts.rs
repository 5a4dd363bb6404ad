//! The scripts of locks, which clients send as Lua. The gateway has no Lua: it knows these scripts, and the store has an
//! operation for each.

use std::collections::VecDeque;

use super::sha1::sha1;

/// Maximum number of digests that are kept. The oldest ones are forgotten: their users send the script again.
const DIGESTS_MAX: usize = 64;

/// What a script does to its key, if the key has the value in the first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Removes it.
    Release,
    /// It lives for the milliseconds in the second argument.
    Renew,
    /// The same, if it has a deadline; with a third argument `0`, these milliseconds longer.
    Extend,
}

/// The scripts, without blanks and in small letters.
const SCRIPTS: &[(&str, Does)] = &[
    // The Redis documents, and with them many libraries.
    (
        "ifredis.call(\"get\",keys[1])==argv[1]thenreturnredis.call(\"del\",keys[1])elsereturn0end",
        Does::Release,
    ),
    (
        "ifredis.call(\"get\",keys[1])==argv[1]thenreturnredis.call(\"pexpire\",keys[1],argv[2])elsereturn0end",
        Does::Renew,
    ),
    // redis-py.
    (
        "localtoken=redis.call(\"get\",keys[1])ifnottokenortoken~=argv[1]thenreturn0end\
         redis.call(\"del\",keys[1])return1",
        Does::Release,
    ),
    (
        "localtoken=redis.call(\"get\",keys[1])ifnottokenortoken~=argv[1]thenreturn0end\
         redis.call(\"pexpire\",keys[1],argv[2])return1",
        Does::Renew,
    ),
    (
        "localtoken=redis.call(\"get\",keys[1])ifnottokenortoken~=argv[1]thenreturn0end\
         localexpiration=redis.call(\"pttl\",keys[1])ifnotexpirationthenexpiration=0end\
         ifexpiration<0thenreturn0endlocalnewttl=argv[2]ifargv[3]==\"0\"thennewttl=argv[2]+expirationend\
         redis.call(\"pexpire\",keys[1],newttl)return1",
        Does::Extend,
    ),
];

/// The digests of scripts that clients have sent, in the order in which they were last sent.
#[derive(Debug, Default)]
pub(super) struct Scripts(VecDeque<([u8; 40], Does)>);

impl Scripts {
    /// Takes a script, and returns its digest and what it does; none if it is not known.
    pub(super) fn load(&mut self, text: &[u8]) -> Option<([u8; 40], Does)> {
        let plain: Vec<u8> = text
            .iter()
            .filter(|byte| !byte.is_ascii_whitespace())
            .map(|byte| if *byte == b'\'' { b'"' } else { byte.to_ascii_lowercase() })
            .collect();
        let (_, does) = SCRIPTS.iter().find(|(known, _)| known.as_bytes() == plain)?;
        let digest = sha1(text);
        self.0.retain(|(known, _)| *known != digest);
        self.0.push_back((digest, *does));
        if self.0.len() > DIGESTS_MAX {
            self.0.pop_front();
        }
        Some((digest, *does))
    }

    pub(super) fn find(&self, digest: &[u8]) -> Option<Does> {
        let (_, does) = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(digest))?;
        Some(*does)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_known_whatever_its_blanks() {
        let text = b"if redis.call('get', KEYS[1]) == ARGV[1] then\n return redis.call('DEL', KEYS[1])\nelse return 0 end";
        let mut scripts = Scripts::default();
        let (digest, does) = scripts.load(text).unwrap();
        assert_eq!((does, scripts.find(&digest)), (Does::Release, Some(Does::Release)));
        assert_eq!(scripts.find(&digest.to_ascii_uppercase()), Some(Does::Release));
        assert!(scripts.load(b"return 1").is_none() && scripts.find(b"short").is_none());
        for blanks in 0..200 {
            scripts.load(&[&text[..], &vec![b' '; blanks]].concat());
        }
        assert_eq!(scripts.0.len(), DIGESTS_MAX);
    }

    /// L146: a script whose digest is answered is there, however many others came before.
    #[test]
    fn l146_a_loaded_script_is_there() {
        let mut scripts = Scripts::default();
        for blanks in 0..2 * DIGESTS_MAX {
            let text = [SCRIPTS[0].0.as_bytes(), &vec![b' '; blanks]].concat();
            let (digest, does) = scripts.load(&text).unwrap();
            assert_eq!(scripts.find(&digest), Some(does));
        }
        assert_eq!(scripts.0.len(), DIGESTS_MAX);
    }
}
