//! The test vectors of `docs/wire-format.md`: what stands there is what this code makes, and what any
//! other implementation has to make.
//!
//! `UPDATE_VECTORS=1 cargo test -p quorate-wire vectors` writes them into the document.

use std::fmt::Write as _;

use quorate_wire::codec::Writer;
use quorate_wire::frame::Frame;
use quorate_wire::message::{AnyBody, BodyMessage, decode_any};
use quorate_wire::{Admitted, Kind};

use crate::samples::{reply, sample};
use crate::world::{C0, Setting, World, door, encode};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wire-format.md");

/// A vector: its name, to whom the frame goes, and the frame.
type Vector = (String, usize, Vec<u8>);

/// One vector for each kind, under its name, and some for second forms.
fn vectors(world: &mut World) -> Vec<Vector> {
    let mut vectors = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::NewKey) {
        let sample = sample(world, kind);
        vectors.push((kind.name().to_owned(), sample.to, sample.frame));
    }
    vectors.push((Kind::NewKey.name().to_owned(), 1, door(world.setting, 0, 1).take_outgoing().unwrap().1));
    let signed = world.request(7, b"put x 1", true);
    vectors.push(("REQUEST signed".to_owned(), 0, signed.clone()));
    let digest_only = encode(&AnyBody::Reply(reply(world, None)));
    vectors.push(("REPLY digest only".to_owned(), C0, world.seal(2, C0, Kind::Reply, &digest_only)));
    let mut body = Vec::new();
    BodyMessage::encode_request(&signed, &mut Writer::new(&mut body));
    vectors.push(("BODY request".to_owned(), 3, world.seal(2, 3, Kind::Body, &body)));
    vectors
}

fn world() -> World {
    World::of(Setting { ed25519: true, ..Setting::default() })
}

/// Lines of 32 bytes in hexadecimal.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        for byte in line {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks_exact(2).map(byte).collect()
}

/// Returns where the vector of this name stands in the document.
fn place(document: &str, name: &str) -> std::ops::Range<usize> {
    let fence = format!("```vector {name}\n");
    let found = document.find(&fence).unwrap_or_else(|| panic!("docs/wire-format.md has no vector {name}"));
    let start = found + fence.len();
    let len = document[start..].find("```").unwrap();
    start..start + len
}

#[test]
fn the_documents_vectors_are_what_the_code_makes() {
    let mut document = std::fs::read_to_string(DOCUMENT).unwrap();
    let mut world = world();
    let vectors = vectors(&mut world);
    if std::env::var_os("UPDATE_VECTORS").is_some() {
        for (name, _, frame) in &vectors {
            let place = place(&document, name);
            document.replace_range(place, &hex(frame));
        }
        std::fs::write(DOCUMENT, &document).unwrap();
    }
    for (name, _, frame) in &vectors {
        let written = &document[place(&document, name)];
        assert_eq!(written, hex(frame), "{name}: UPDATE_VECTORS=1 writes it, if it was meant to change");
    }
    assert_eq!(document.matches("```vector ").count(), vectors.len());
}

/// The bytes of the document alone are admitted by their receivers and decoded to the same bytes again.
#[test]
fn the_documents_vectors_are_admitted() {
    let document = std::fs::read_to_string(DOCUMENT).unwrap();
    let mut world = world();
    for (name, to, _) in vectors(&mut world) {
        let bytes = unhex(&document[place(&document, &name)]);
        let frame = Frame::decode(&bytes).unwrap();
        assert!(name.starts_with(frame.kind.name()));
        let decoded = decode_any(frame.kind, frame.body, &world.domains()).unwrap();
        assert_eq!(encode(&decoded), frame.body, "{name}");
        match world.doors[to].admit(0, frame) {
            Ok(Admitted::Message(m)) => assert_eq!(m.message().kind(), frame.kind),
            Ok(Admitted::Keys) => assert_eq!(frame.kind, Kind::NewKey),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}
