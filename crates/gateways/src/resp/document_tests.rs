//! The table of commands in the documents is that of the gateway.

use std::path::Path;

use super::table::document;

#[test]
fn the_document_has_the_table() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md"));
    let text = std::fs::read_to_string(path).unwrap();
    let start = text.find(" writes it. -->\n\n").unwrap() + " writes it. -->\n\n".len();
    let end = text.find("\n<!-- The end of the table. -->").unwrap();
    if std::env::var("UPDATE_DOCS").is_ok() {
        std::fs::write(path, format!("{}{}{}", &text[..start], document(), &text[end..])).unwrap();
        return;
    }
    assert_eq!(&text[start..end], document(), "UPDATE_DOCS=1 writes the table");
}

/// Every command that the table names is handled, and none has a place twice.
#[test]
fn the_table_is_in_order() {
    let names: Vec<&str> = super::table::COMMANDS.iter().map(|entry| entry.name).collect();
    assert!(names.is_sorted() && names.windows(2).all(|pair| pair[0] != pair[1]));
}
