//! Input of key-value store clients: the Redis protocol at the gateway, and the operations behind it.
//!
//! The first byte chooses, and says in how large pieces the bytes of a connection come: whatever the
//! pieces, the same commands come out and the same error ends them.

use quorate_gateways::resp::decode::{COMMAND_BYTES_MAX, Decoder, ProtocolError, WORD_BYTES_MAX, WORDS_MAX};
use quorate_service::kv::{Answer, Asked};

use crate::{Target, feature};

/// The target.
pub const TARGET: Target = Target {
    name: "resp",
    run,
    seeds,
    input_bytes_max: 16 << 10,
    memory_bytes_max: 4 << 20,
    millis_max: 1000,
};

type Commands = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

fn run(input: &[u8]) -> u64 {
    let Some((choice, bytes)) = input.split_first() else { return 0 };
    match choice % 4 {
        0 => operation(bytes),
        1 => answer(bytes),
        _ => {
            let piece = usize::from(choice / 4) + 1;
            let (commands, error) = decode(bytes, bytes.len().max(1));
            assert_eq!(decode(bytes, piece), (commands.clone(), error), "in pieces of {piece}");
            let words = commands.iter().map(Vec::len).max().unwrap_or(0);
            let error = error.map_or(0, |error| error.text().len());
            feature(&[2, bucket(commands.len()), bucket(words), u64::try_from(error).unwrap_or(0)])
        }
    }
}

fn bucket(number: usize) -> u64 {
    u64::from(number.checked_ilog2().map_or(0, |log| log + 1))
}

fn decode(bytes: &[u8], piece: usize) -> Commands {
    let (mut decoder, mut held, mut commands) = (Decoder::default(), Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        held.extend_from_slice(piece);
        loop {
            match decoder.read(&held) {
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
                Ok(Some(len)) => {
                    assert!((1..=held.len().min(COMMAND_BYTES_MAX)).contains(&len));
                    let words: Vec<Vec<u8>> = decoder.words(&held).map(<[u8]>::to_vec).collect();
                    assert!(words.len() <= WORDS_MAX);
                    commands.push(words);
                    held.drain(..len);
                }
            }
        }
        assert!(decoder.wants() <= COMMAND_BYTES_MAX + WORD_BYTES_MAX, "what is held has a bound");
    }
    (commands, None)
}

/// An operation of the store: what decodes has one encoding.
fn operation(bytes: &[u8]) -> u64 {
    let mut again = Vec::new();
    let code = match Asked::decode(bytes) {
        Err(_) => return feature(&[0]),
        Ok(Asked::Operation(operation)) => {
            operation.encode(&mut again);
            0
        }
        Ok(Asked::Command(command)) => {
            command.encode(&mut again);
            u64::from(command.is_read_only()) + 1
        }
        Ok(Asked::Further(further)) => {
            further.encode(&mut again);
            u64::from(further.is_read_only()) + 3
        }
        Ok(Asked::Elements(elements)) => {
            elements.encode(&mut again);
            5
        }
        Ok(Asked::List(call)) => {
            call.encode(&mut again);
            6
        }
    };
    assert_eq!(again, bytes, "an operation is not canonical");
    feature(&[0, code, u64::from(bytes.first().copied().unwrap_or(0))])
}

/// An answer of the store, which a lying replica makes up.
fn answer(bytes: &[u8]) -> u64 {
    let Ok(answer) = Answer::decode(bytes) else { return feature(&[1]) };
    let mut again = Vec::new();
    answer.encode(&mut again);
    assert_eq!(again, bytes, "an answer is not canonical");
    let count = if let Answer::Many(answers) = answer { answers.iter().count() } else { 0 };
    feature(&[1, u64::from(bytes.first().copied().unwrap_or(0)), bucket(count)])
}

fn seeds() -> Vec<Vec<u8>> {
    let seeds: [&[u8]; 21] = [
        b"\x02*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n",
        b"\x07*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n\r\n\r\nGET k\r\n",
        b"\x0bset \"a b\" '\\'c' \"\\x41\\n\"\r\n\r\nPING\n",
        b"\x02*1\r\n$536870912\r\n",
        b"\x02*1048577\r\n",
        b"\x02*-1\r\n*0\r\n$1\r\n",
        b"\x00\x01\x01\x00k",
        b"\x00\x10\x0d\x07\0\0\0\0\0\0\0\x01\x00kvalue",
        b"\x00\x16\x01\x00k\x01\0\0\0v",
        b"\x00\x1c\x04\0\0\0\x01\x01\x00k\x01\0\0\0\x1a",
        b"\x00\x40\x05\x02\x07\0\0\0\0\0\0\0\x01\x00kvalue",
        b"\x00\x42\x0a\x01\x07\0\0\0\0\0\0\0\x01\x00k",
        b"\x00\x4b\x0a\0\0\0\0\x01\x00k*",
        b"\x00\x4f\0\0\x04\0\0\0\x01\x01\x00k\x01\0\0\0\x1a",
        b"\x00\x50\x03\x01\x01\x00k",
        b"\x00\x60\x01\0\0\0\0\0\0\0\0\x01\x00k\x01\x00f\x01\0\0\0v",
        b"\x00\x71\x02\0\0\0\0\0\0\0\0\x01\x00k\x01\x00m",
        b"\x00\x80\0\0\0\0\0\0\0\0\x01\x00k\x01\0\0\0v\x01\0\0\0w",
        b"\x00\x85\0\0\0\0\0\0\0\0\x01\x00k\x08\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x01\x02value",
        b"\x01\x04\x01\0\0\0\x01\x02\0\0\0\x02x",
    ];
    seeds.iter().map(|seed| seed.to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_seeds_reach_what_they_are_for() {
        let features: BTreeSet<u64> = seeds().iter().map(|seed| run(seed)).collect();
        assert!(features.len() >= 10, "{}", features.len());
        assert!(!features.contains(&feature(&[0])) && !features.contains(&feature(&[1])));
    }
}
