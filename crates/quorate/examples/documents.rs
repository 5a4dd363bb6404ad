//! A document store: documents in folders, found by their tags, with a version each so that no update is lost.
use quorate::{Call, Key, Operation, Record, Service, State, Table, Value};

/// The whole replicated state. A document's key is its folder and its name.
#[derive(State)]
struct Store<'a> {
    documents: Table<'a, (String, String), Document>,
}

#[derive(Debug, PartialEq, Value)]
struct Document {
    version: u64,
    tags: Vec<String>,
    body: String,
}

/// What documents are found by.
#[derive(Debug, Key)]
struct Tag {
    tag: String,
}

impl Record for Document {
    type Index = Tag;

    fn indexes(&self) -> Vec<Tag> {
        self.tags.iter().map(|tag| Tag { tag: tag.clone() }).collect()
    }
}

#[rustfmt::skip]
#[derive(Debug, Operation)]
enum Op {
    /// Stores a document if its version is still this one; 0 if there is none. Returns the new version.
    Put { folder: String, name: String, version: u64, tags: Vec<String>, body: String },
    Delete { folder: String, name: String },
    #[read_only] Get { folder: String, name: String },
    /// Returns the names in a folder from this one on, at most 100.
    #[read_only] List { folder: String, from: String },
    /// Returns the folders and names of the documents with a tag, at most 100.
    #[read_only] Tagged { tag: String },
}

#[derive(Debug, PartialEq, Value)]
enum Reply {
    Version { version: u64 },
    Found { document: Document },
    Names { names: Vec<(String, String)> },
}

/// The longest list in a reply.
const LIST_MAX: usize = 100;

impl Service for Store<'_> {
    type Operation = Op;
    type Reply = Result<Reply, String>; // an Err undoes every write of this call

    fn execute(&mut self, op: &Op, _call: &Call) -> Self::Reply {
        match op {
            Op::Put { folder, name, version, tags, body } => {
                let key = (folder.clone(), name.clone());
                let now = self.documents.get(&key).map_or(0, |document| document.version);
                if now != *version {
                    return Err(format!("the version is {now}"));
                }
                let version = now + 1;
                let document = Document { version, tags: tags.clone(), body: body.clone() };
                self.documents.insert(&key, &document);
                Ok(Reply::Version { version })
            }
            Op::Delete { folder, name } => {
                let old = self.documents.remove(&(folder.clone(), name.clone())).ok_or("no such document")?;
                Ok(Reply::Version { version: old.version })
            }
            Op::Get { folder, name } => {
                let document = self.documents.get(&(folder.clone(), name.clone()));
                Ok(Reply::Found { document: document.ok_or("no such document")? })
            }
            Op::List { folder, from } => {
                let rest = self.documents.range((folder.clone(), from.clone())..);
                let inside = rest.map(|(key, _)| key).take_while(|(of, _)| of == folder);
                Ok(Reply::Names { names: inside.take(LIST_MAX).collect() })
            }
            Op::Tagged { tag } => {
                let found = self.documents.by(&Tag { tag: tag.clone() }).map(|(key, _)| key);
                Ok(Reply::Names { names: found.take(LIST_MAX).collect() })
            }
        }
    }
}

quorate::main!(Store);

#[test]
fn no_update_is_lost() -> Result<(), quorate::sim::Failure> {
    quorate::sim::check::<Store>(1..=12).map(|report| assert!(report.replied("Put") > 0, "{report}"))
}
