//! `quorate kv`: a line protocol for the key-value store.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use quorate_node::caller::CallerOptions;
use quorate_node::settings::ServiceName;
use quorate_node::{CallError, Caller};
use quorate_service::kv::{Answer, Failure as Refusal, Operation};

use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::node::open_client;
use crate::values;

/// Read and write keys, one operation per line
///
/// Reads operations from standard input:
///
///   get K           read the value of key K
///   put K V         set the value to V
///   del K           remove the key
///   cas K OLD NEW   set the value to NEW if the present value is OLD. `nil` for OLD means: if there is no such key
///   incr K N        add the number N to the value
///   append K S      append S to the value
///
/// K and OLD end at the first space. V, NEW and S extend to the end of the line.
///
/// For each operation, prints a line with the result:
///
///   ok [VALUE]     done
///   nil            no such key
///   fail TEXT      the operation failed, for example because the value is not OLD: nothing was changed
///   unknown TEXT   timed out: the operation may or may not take effect
///
/// Exit status: 0 no operation failed (`nil` is not a failure); 1 an operation failed, or its outcome is unknown; 3 the
/// cluster answered no operation.
///
/// Example:
///
///   echo 'incr visitors 1' | quorate kv --dir cluster/client-0
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Kv {
    /// Directory of a client that no other program uses
    #[arg(long)]
    dir: PathBuf,
    /// Time to wait for the answer to an operation, such as 500ms or 10s
    #[arg(long, default_value = "10s", value_parser = values::duration, value_name = "TIME")]
    deadline: Duration,
}

impl Kv {
    pub(crate) fn run(&self) -> CommandResult {
        let node = open_client(&self.dir, ServiceName::KV)?;
        let options = CallerOptions { lanes: 1, deadline: self.deadline };
        let caller = Caller::start(node.with_lanes(options.lanes), options)?;
        let (mut output, mut answered, mut silent, mut failed) =
            (std::io::stdout().lock(), false, false, false);
        for line in std::io::stdin().lock().split(b'\n') {
            let line = line.map_err(|error| {
                let what = format!("standard input cannot be read: {error}");
                Failure::new(Code::Unreadable, what).next("repeat the operations without an answer")
            })?;
            let (reply, is_answer) = answer(&caller, &line);
            answered |= is_answer;
            silent |= !is_answer;
            failed |= reply.starts_with(b"fail") || reply.starts_with(b"unknown");
            // The reader of the output has gone.
            let told = output.write_all(&reply).and_then(|()| output.write_all(b"\n"));
            if told.and_then(|()| output.flush()).is_err() {
                break;
            }
        }
        if silent && !answered {
            let what = "the cluster answered no operation";
            return Err(Failure::new(Code::Unreachable, what)
                .at(self.dir.display().to_string())
                .next("start the missing replicas; `quorate status` names them"));
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Returns the line for an operation, and whether the cluster has answered it, or had not to.
fn answer(caller: &Caller, line: &[u8]) -> (Vec<u8>, bool) {
    let Some(operation) = parse(line) else {
        let what = "fail unknown operation: use get K, put K V, del K, cas K OLD NEW, incr K N or append K S";
        return (what.as_bytes().to_vec(), true);
    };
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    let read_only = matches!(operation, Operation::Get { .. });
    let mut result = caller.call(&bytes, read_only);
    // Whether a key has expired is decided by ordered operations only.
    if read_only && result.as_deref().map(Answer::decode) == Ok(Ok(Answer::Failed(Refusal::NeedsOrder))) {
        result = caller.call(&bytes, false);
    }
    let is_answer = !matches!(result, Err(CallError::Busy | CallError::Closed | CallError::Unknown { .. }));
    let line = match result {
        Ok(result) => said(&result),
        Err(error @ CallError::ResultLost) => format!("ok ({error})").into_bytes(),
        Err(error) if error.is_refused() || read_only => format!("fail {error}").into_bytes(),
        Err(error) => format!("unknown {error}").into_bytes(),
    };
    (line, is_answer)
}

/// Parses an operation. Values of `put` and `append` extend to the end of the line.
fn parse(line: &[u8]) -> Option<Operation<'_>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let (name, key, rest) = (words.next()?, words.next().filter(|key| !key.is_empty())?, words.next());
    if key.len() > usize::from(u16::MAX) {
        return None;
    }
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    Some(match (name, rest) {
        (b"get", None) => Operation::Get { key },
        (b"del", None) => Operation::Del { key },
        (b"put", Some(value)) => Operation::Put { key, value },
        (b"append", Some(suffix)) => Operation::Append { key, suffix },
        (b"incr", Some(by)) => Operation::Incr { key, by: number(by)? },
        (b"cas", Some(rest)) => {
            let at = rest.iter().position(|byte| *byte == b' ')?;
            let (expected, value) = (&rest[..at], &rest[at + 1..]);
            Operation::Cas { key, expected: (expected != b"nil").then_some(expected), value }
        }
        _ => return None,
    })
}

/// Returns the line for a result. A newline inside a value is shown as `\n`, so that each result is one line.
fn said(result: &[u8]) -> Vec<u8> {
    match Answer::decode(result) {
        Ok(Answer::Done) => b"ok".to_vec(),
        Ok(Answer::Nil) => b"nil".to_vec(),
        Ok(Answer::Value(value)) => {
            let mut line = b"ok ".to_vec();
            for byte in value {
                match byte {
                    b'\n' => line.extend_from_slice(b"\\n"),
                    byte => line.push(*byte),
                }
            }
            line
        }
        Ok(Answer::Failed(why)) => format!("fail {}", why.text()).into_bytes(),
        Ok(Answer::Many(_)) | Err(_) => b"fail the cluster runs another service".to_vec(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn lines_are_operations() {
        let key = &b"k"[..];
        let lines: [(&str, Option<Operation<'_>>); 12] = [
            ("get k", Some(Operation::Get { key })),
            ("put k a b ", Some(Operation::Put { key, value: b"a b " })),
            ("put k \r", Some(Operation::Put { key, value: b"" })),
            ("del k", Some(Operation::Del { key })),
            ("cas k nil new", Some(Operation::Cas { key, expected: None, value: b"new" })),
            ("cas k old new", Some(Operation::Cas { key, expected: Some(b"old"), value: b"new" })),
            ("incr k -3", Some(Operation::Incr { key, by: -3 })),
            ("append k s", Some(Operation::Append { key, suffix: b"s" })),
            ("incr k x", None),
            ("get k v", None),
            ("put k", None),
            ("", None),
        ];
        for (line, operation) in lines {
            assert_eq!(parse(line.as_bytes()), operation, "{line:?}");
        }
    }

    #[test]
    fn an_answer_is_one_line() {
        assert_eq!(said(b"\x02a\nb"), b"ok a\\nb");
        assert_eq!(said(&[1]), b"nil");
        assert_eq!(said(&[3, 3]), b"fail another value");
    }
}
