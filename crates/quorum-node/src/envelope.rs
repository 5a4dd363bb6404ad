//! The registers' protocol over the envelope (ADR 14): one MAC for one receiver, over kind, epoch, sender, counter and
//! body.
//!
//! Who may send what to whom follows from who knows whom: a server knows all servers and its clients, a client knows the
//! servers alone. Whether a counter was seen before is for the [link](crate::link) to check.

use quorate_wire::Principal;
use quorate_wire::auth::{Arrival, AuthError, Authenticator, Protocol};
use quorate_wire::codec::{Decoded, Reader};
use quorate_wire::digest::Domains;
use quorate_wire::envelope::frame::Frame;
use quorate_wire::envelope::memo::Memo;
use quorate_wire::keys::Covered;
use quorate_wire::seal::{Kinds, NEW_KEY, Route, Seal};

/// The lowest number of a kind of message that is not agreement's.
const FROM: u8 = 64;

/// A kind of message of the registers, by its number: messages, notes, and NEW-KEY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterKind(pub u8);

impl Kinds for RegisterKind {
    #[inline]
    fn of_number(number: u8) -> Decoded<Self> {
        Ok(Self(number))
    }

    #[inline]
    fn number(self) -> u8 {
        self.0
    }

    fn name(self) -> &'static str {
        match self.0 {
            NEW_KEY => "NEW-KEY",
            0..FROM => "message of agreement",
            FROM.. => "message of a register",
        }
    }

    #[inline]
    fn seal(self) -> Seal {
        if self.0 == NEW_KEY { Seal::Signature } else { Seal::Mac }
    }

    #[inline]
    fn route(self) -> Route {
        if self.0 == NEW_KEY || self.0 >= FROM { Route::WithReplica } else { Route::Nowhere }
    }
}

/// The registers' protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers;

/// A message whose MAC is right.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The number of its kind.
    pub kind: u8,
    /// The sender's generation of session keys.
    pub key_id: u32,
    /// The counter of the channel.
    pub counter: u64,
    /// The body, with the counter.
    pub body: &'a [u8],
}

impl Protocol for Registers {
    type Kind = RegisterKind;
    type Message<'a> = Packet<'a>;

    #[inline]
    fn covered(
        domains: &Domains,
        memo: &mut Memo,
        kind: RegisterKind,
        epoch: u32,
        sender: Principal,
        body: &[u8],
    ) -> Covered {
        Covered::counted(domains, memo, kind.0, epoch, sender, body)
    }

    #[inline]
    fn admit<'a>(
        auth: &mut Authenticator<Self>,
        _: Arrival,
        frame: &Frame<'a, RegisterKind>,
    ) -> Result<Packet<'a>, AuthError> {
        let counter = Reader::new(frame.body).u64()?;
        let (key_id, _) = frame.auth.entries().ok_or(AuthError::WrongSeal(frame.kind.name()))?;
        auth.check_mac(frame)?;
        Ok(Packet { kind: frame.kind.0, key_id, counter, body: frame.body })
    }
}
