//! A minimal Redis client for the demo: sends pipelines of commands, and reads their replies.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest reply that is read, in bytes.
const REPLY_BYTES_MAX: usize = 2 << 20;

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// `+OK`, `:1`, or a value.
    Value(Vec<u8>),
    /// There is no such key.
    Nil,
    /// `-TRYAGAIN ...`: nothing was done.
    TryAgain,
    /// `-UNKNOWN ...`: it may have been done.
    Unknown,
}

/// A connection to the gateway.
#[derive(Debug)]
pub(super) struct Redis {
    stream: BufReader<TcpStream>,
    out: Vec<u8>,
}

impl Redis {
    pub(super) fn connect(door: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect(door)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self { stream: BufReader::new(stream), out: Vec::new() })
    }

    /// Runs commands as a pipeline, and returns their replies.
    pub(super) fn all(&mut self, commands: &[Vec<&[u8]>]) -> io::Result<Vec<Reply>> {
        self.out.clear();
        for words in commands {
            write!(self.out, "*{}\r\n", words.len())?;
            for word in words {
                write!(self.out, "${}\r\n", word.len())?;
                self.out.extend_from_slice(word);
                self.out.extend_from_slice(b"\r\n");
            }
        }
        self.stream.get_mut().write_all(&self.out)?;
        commands.iter().map(|_| self.reply()).collect()
    }

    /// Runs one command.
    pub(super) fn one(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        let mut replies = self.all(&[words.to_vec()])?;
        replies.pop().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let mut line = Vec::new();
        (&mut self.stream).take(1024).read_until(b'\n', &mut line)?;
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        let wrong = || io::Error::other(format!("the gateway answers {text:?}"));
        let Some((kind, rest)) = text.split_at_checked(1) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        match kind {
            "+" | ":" => Ok(Reply::Value(rest.as_bytes().to_vec())),
            "$" if rest == "-1" => Ok(Reply::Nil),
            "$" => {
                let len = rest.parse().ok().filter(|len| *len <= REPLY_BYTES_MAX).ok_or_else(wrong)?;
                let mut value = vec![0; len + 2];
                self.stream.read_exact(&mut value)?;
                value.truncate(len);
                Ok(Reply::Value(value))
            }
            "-" if rest.starts_with("TRYAGAIN") => Ok(Reply::TryAgain),
            "-" if rest.starts_with("UNKNOWN") => Ok(Reply::Unknown),
            _ => Err(wrong()),
        }
    }
}
