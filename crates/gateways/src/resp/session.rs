//! Commands that concern only the connection, and are answered by the gateway itself: PING, HELLO, AUTH, CLIENT and
//! similar ones.

use std::sync::PoisonError;

use quorate_service::kv::{DATABASES, matches};

use crate::front::Ends;

use super::decode::number;
use super::encode::{self, Version};
use super::refusal::{NOT_A_NUMBER, Refusal, SYNTAX, check_patterns, refuse, wrong_count};
use super::reply::{Facts, Form, REDIS_VERSION};
use super::script;
use super::table::COMMANDS;
use super::transaction::{Exec, Queue, Watched};

/// The result of translating a command.
#[derive(Debug)]
pub(super) enum Parsed {
    /// The reply has been appended.
    Answered,
    /// The operation has been appended, for the cluster.
    Ask(Form),
    /// The operation of a transaction has been appended, for the cluster.
    Exec(Exec),
    /// The reply has been appended, and the connection ends.
    Quit,
}

/// The properties of a connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// Its number, from 1.
    pub(super) id: u64,
    /// Where its two ends are.
    pub(super) ends: Option<Ends>,
    /// Its name. At most [`NAME_BYTES_MAX`] bytes.
    pub(super) name: Vec<u8>,
    /// Whether it has given the password, or needs none.
    pub(super) admitted: bool,
    /// The version of the protocol.
    pub(super) version: Version,
    /// The database.
    pub(super) database: u8,
    /// The commands since MULTI, if there was one.
    pub(super) queue: Option<Box<Queue>>,
    /// The keys that are watched.
    pub(super) watched: Watched,
    /// What is due to a client that caches replies.
    pub(super) caching: Caching,
}

/// A client that caches replies (`CLIENT TRACKING ON OPTIN`) names each reply that it is about to cache with `CLIENT
/// CACHING YES`, and relies on the server to say when the reply is no longer true. The gateway does not see what other
/// gateways change, so it says that right after the reply, as a server may whose memory for tracked keys is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Caching {
    /// It caches nothing.
    #[default]
    Off,
    /// It may announce that it caches a reply.
    Optin,
    /// It caches the reply to the next command, or to the next transaction.
    Next,
    /// That command has been handled. Behind its reply, the client is told to forget what it caches.
    Due,
}

impl Session {
    /// Returns the number of bytes it holds.
    pub(super) fn held(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.held()) + self.watched.held()
    }
}

/// The longest name of a connection, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The most commands that COMMAND INFO describes at a time.
const NAMES_MAX: usize = 1024;

/// Answers commands that concern only the connection.
pub(super) fn here(
    name: &str,
    words: &[&[u8]],
    session: &mut Session,
    facts: &Facts<'_>,
    out: &mut Vec<u8>,
) -> Result<Parsed, Refusal> {
    let rest = words.get(1..).unwrap_or(&[]);
    match name {
        "ping" => match rest {
            [] => encode::status(out, "PONG"),
            [text] => encode::bulk(out, text),
            _ => return wrong_count("ping"),
        },
        "echo" => encode::bulk(out, rest.first().copied().unwrap_or_default()),
        "quit" => {
            encode::status(out, "OK");
            return Ok(Parsed::Quit);
        }
        "select" => {
            let index = rest.first().and_then(|index| number(index));
            match index.map(i32::try_from) {
                Some(Ok(index)) => match u8::try_from(index).ok().filter(|index| *index < DATABASES) {
                    Some(index) => {
                        session.database = index;
                        encode::status(out, "OK");
                    }
                    None => return refuse("ERR DB index is out of range"),
                },
                Some(Err(_)) => {
                    return refuse(
                        "ERR value is out of range, value must between -2147483648 and 2147483647",
                    );
                }
                None => return refuse(NOT_A_NUMBER),
            }
        }
        "auth" => {
            let (user, password) = match rest {
                [password] => (None, *password),
                [user, password] => (Some(*user), *password),
                _ => return refuse(SYNTAX),
            };
            admit(user, password, session, facts)?;
            encode::status(out, "OK");
        }
        "hello" => hello(rest, session, facts, out)?,
        "unwatch" => {
            // In a transaction, EXEC compares the marks before it would execute this.
            if session.queue.is_none() {
                session.watched.clear();
            }
            encode::status(out, "OK");
        }
        "reset" => {
            let (id, ends, admitted) = (session.id, session.ends, facts.password.is_none());
            *session = Session { id, ends, admitted, ..Session::default() };
            encode::status(out, "RESET");
        }
        "script" => script::script(rest, facts, out)?,
        "client" => client(rest, session, out)?,
        "config" => config(rest, session.version, facts, out)?,
        "command" => describe(rest, session.version, out)?,
        _ => unreachable!("every command of the table is here or about data"),
    }
    Ok(Parsed::Answered)
}

/// Checks a password in constant time.
fn admit(
    user: Option<&[u8]>,
    password: &[u8],
    session: &mut Session,
    facts: &Facts<'_>,
) -> Result<(), Refusal> {
    let Some(expected) = facts.password else {
        return match user {
            // The user `default` has no password: any is accepted.
            Some(b"default") => Ok(()),
            Some(_) => refuse("WRONGPASS invalid username-password pair or user is disabled."),
            None => refuse(
                "ERR AUTH <password> called without any password configured for the default user. Are you \
                 sure your configuration is correct?",
            ),
        };
    };
    let guesses = || facts.guesses.lock().unwrap_or_else(PoisonError::into_inner);
    if session.ends.is_some_and(|ends| !guesses().may_try(ends, facts.uptime_s)) {
        return refuse("ERR too many wrong passwords: try again in 10 seconds");
    }
    let right = password.len() == expected.len()
        && password.iter().zip(expected).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0;
    if !right || user.is_some_and(|user| user != b"default") {
        if let Some(ends) = session.ends {
            guesses().note(ends, facts.uptime_s);
        }
        return refuse("WRONGPASS invalid username-password pair or user is disabled.");
    }
    session.admitted = true;
    Ok(())
}

/// `HELLO [2 | 3 [AUTH user password] [SETNAME name]]`.
fn hello(
    mut rest: &[&[u8]],
    session: &mut Session,
    facts: &Facts<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let mut version = session.version;
    if let Some((word, options)) = rest.split_first() {
        rest = options;
        match number(word) {
            Some(2) => version = Version::Two,
            Some(3) => version = Version::Three,
            Some(_) => return refuse("NOPROTO unsupported protocol version"),
            None => return refuse("ERR Protocol version is not an integer or out of range"),
        }
    }
    let mut name = None;
    while let Some((option, behind)) = rest.split_first() {
        rest = match (option.to_ascii_uppercase().as_slice(), behind) {
            (b"AUTH", [user, password, behind @ ..]) => {
                admit(Some(user), password, session, facts)?;
                behind
            }
            (b"SETNAME", [text, behind @ ..]) => {
                name = Some(*text);
                behind
            }
            _ => {
                let mut text = b"ERR Syntax error in HELLO option '".to_vec();
                text.extend(option.iter().take(128));
                text.push(b'\'');
                return Err(text);
            }
        };
    }
    if !session.admitted {
        return refuse(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
             AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
             version at the same time",
        );
    }
    if let Some(name) = name {
        rename(name, session)?;
    }
    session.version = version;
    if version == Version::Two {
        session.caching = Caching::Off;
    }
    encode::map(out, 7, version);
    for (key, text) in [("server", "redis"), ("version", REDIS_VERSION)] {
        encode::bulk(out, key.as_bytes());
        encode::bulk(out, text.as_bytes());
    }
    encode::bulk(out, b"proto");
    encode::integer(out, if version == Version::Three { 3 } else { 2 });
    encode::bulk(out, b"id");
    encode::integer(out, i64::try_from(session.id).unwrap_or(i64::MAX));
    for (key, text) in [("mode", "standalone"), ("role", "master")] {
        encode::bulk(out, key.as_bytes());
        encode::bulk(out, text.as_bytes());
    }
    encode::bulk(out, b"modules");
    encode::array(out, 0);
    Ok(())
}

fn rename(name: &[u8], session: &mut Session) -> Result<(), Refusal> {
    if name.len() > NAME_BYTES_MAX || !name.iter().all(u8::is_ascii_graphic) {
        return refuse("ERR Client names cannot contain spaces, newlines or special characters.");
    }
    session.name = name.to_vec();
    Ok(())
}

fn client(rest: &[&[u8]], session: &mut Session, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let [what, arguments @ ..] = rest else { return wrong_count("client") };
    match (what.to_ascii_lowercase().as_slice(), arguments) {
        (b"id", []) => encode::integer(out, i64::try_from(session.id).unwrap_or(i64::MAX)),
        (b"getname", []) if session.name.is_empty() => encode::nil(out, session.version),
        (b"getname", []) => encode::bulk(out, &session.name),
        (b"setname", [name]) => {
            rename(name, session)?;
            encode::status(out, "OK");
        }
        (b"setinfo", [attribute, _])
            if attribute.eq_ignore_ascii_case(b"lib-name") || attribute.eq_ignore_ascii_case(b"lib-ver") =>
        {
            encode::status(out, "OK");
        }
        (b"info" | b"list", []) => {
            let name = String::from_utf8_lossy(&session.name);
            let version = if session.version == Version::Three { 3 } else { 2 };
            let line = format!("id={} name={name} db={} resp={version}\n", session.id, session.database);
            encode::text(out, &line, session.version);
        }
        (b"no-evict" | b"no-touch", [switch])
            if switch.eq_ignore_ascii_case(b"on") || switch.eq_ignore_ascii_case(b"off") =>
        {
            encode::status(out, "OK");
        }
        (b"tracking", [switch, options @ ..]) => {
            session.caching = tracking(switch, options, session)?;
            encode::status(out, "OK");
        }
        (b"caching", [switch]) if switch.eq_ignore_ascii_case(b"yes") => {
            if session.caching == Caching::Off {
                return refuse(
                    "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
                );
            }
            session.caching = Caching::Next;
            encode::status(out, "OK");
        }
        _ => {
            let known = ["id", "getname", "setname", "setinfo", "info", "list", "tracking", "caching"];
            return no_such("client", &known, what);
        }
    }
    Ok(())
}

/// `CLIENT TRACKING ON OPTIN` and `CLIENT TRACKING OFF`. In the other modes, a client caches every reply.
fn tracking(switch: &[u8], options: &[&[u8]], session: &Session) -> Result<Caching, Refusal> {
    if switch.eq_ignore_ascii_case(b"off") && options.is_empty() {
        return Ok(Caching::Off);
    }
    if !switch.eq_ignore_ascii_case(b"on") {
        return refuse(SYNTAX);
    }
    if session.version == Version::Two {
        return refuse("ERR CLIENT TRACKING needs version 3 of the protocol: send HELLO 3 first");
    }
    match options {
        [option] if option.eq_ignore_ascii_case(b"optin") => Ok(Caching::Optin),
        _ => refuse("ERR CLIENT TRACKING ON is implemented with the option OPTIN alone"),
    }
}

/// Refuses a subcommand, or a wrong number of arguments.
fn no_such<T>(command: &str, known: &[&str], what: &[u8]) -> Result<T, Refusal> {
    if let Some(name) = known.iter().find(|name| what.eq_ignore_ascii_case(name.as_bytes())) {
        return wrong_count(&format!("{command}|{name}"));
    }
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend(what.iter().take(128));
    text.extend_from_slice(format!("'. Try {} HELP.", command.to_ascii_uppercase()).as_bytes());
    Err(text)
}

/// `CONFIG GET name ...`: the few settings that tools read. `CONFIG SET`: see [`set`].
fn config(rest: &[&[u8]], version: Version, facts: &Facts<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let [what, names @ ..] = rest else { return wrong_count("config") };
    let connections = facts.connections_max.to_string();
    let settings = [
        ("databases", "16"),
        ("maxclients", connections.as_str()),
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
        ("proto-max-bulk-len", "1048576"),
        ("save", ""),
        ("timeout", "0"),
    ];
    if what.eq_ignore_ascii_case(b"SET") && !names.is_empty() {
        return set(names, &settings, out);
    }
    if !what.eq_ignore_ascii_case(b"GET") || names.is_empty() {
        return no_such("config", &["get", "set"], what);
    }
    check_patterns(names)?;
    let is_asked =
        |name: &str| names.iter().any(|asked| matches(&asked.to_ascii_lowercase(), name.as_bytes()));
    let found: Vec<_> = settings.into_iter().filter(|(name, _)| is_asked(name)).collect();
    encode::map(out, found.len(), version);
    for (name, value) in found {
        encode::bulk(out, name.as_bytes());
        encode::bulk(out, value.as_bytes());
    }
    Ok(())
}

/// `CONFIG SET name value ...`: accepts what is set already, and the thresholds of memory layouts, which nobody can tell
/// from the replies. The store has no such layouts.
fn set(pairs: &[&[u8]], settings: &[(&str, &str)], out: &mut Vec<u8>) -> Result<(), Refusal> {
    if !pairs.len().is_multiple_of(2) {
        return wrong_count("config|set");
    }
    for pair in pairs.chunks(2) {
        let (name, value) = (pair[0].to_ascii_lowercase(), pair[1]);
        let is_layout = ["hash-max-", "list-max-", "list-compress-", "set-max-", "zset-max-"]
            .iter()
            .any(|layout| name.starts_with(layout.as_bytes()));
        let is_set = |(known, now): &(&str, &str)| known.as_bytes() == name && now.as_bytes() == value;
        if !is_layout && !settings.iter().any(is_set) {
            let mut text = b"ERR Unknown option or number of arguments for CONFIG SET - '".to_vec();
            text.extend(pair[0].iter().take(128));
            text.push(b'\'');
            return Err(text);
        }
    }
    encode::status(out, "OK");
    Ok(())
}

/// `COMMAND [COUNT | DOCS ... | INFO name ... | LIST]`.
fn describe(rest: &[&[u8]], version: Version, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let Some((what, names)) = rest.split_first() else {
        encode::array(out, COMMANDS.len());
        for entry in COMMANDS {
            entry.describe(out);
        }
        return Ok(());
    };
    match what.to_ascii_uppercase().as_slice() {
        b"COUNT" if names.is_empty() => {
            encode::integer(out, i64::try_from(COMMANDS.len()).unwrap_or(i64::MAX));
        }
        b"DOCS" => encode::map(out, 0, version),
        b"LIST" if names.is_empty() => {
            encode::array(out, COMMANDS.len());
            for entry in COMMANDS {
                encode::bulk(out, entry.name.as_bytes());
            }
        }
        b"INFO" if names.len() > NAMES_MAX => {
            return refuse(format!("ERR too many names: at most {NAMES_MAX}"));
        }
        b"INFO" => {
            let of = |name: &&[u8]| COMMANDS.iter().find(|e| name.eq_ignore_ascii_case(e.name.as_bytes()));
            encode::array(out, names.len());
            for name in names {
                match of(name) {
                    Some(entry) => entry.describe(out),
                    None => encode::no_array(out, version),
                }
            }
        }
        _ => return no_such("command", &["count", "list"], what),
    }
    Ok(())
}
