//! What the service can be asked: operations, commands, further commands, and operations on elements and lists.

use quorate_wire::codec::Decoded;

use super::command::{self, Command};
use super::elements::{self, Elements};
use super::further::{self, Further};
use super::list::{self, ListCall};
use super::operation::Operation;

/// An operation of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// A plain operation.
    Operation(Operation<'a>),
    /// A command.
    Command(Command<'a>),
    /// A further command.
    Further(Further<'a>),
    /// An operation on a hash or a set.
    Elements(Elements<'a>),
    /// An operation on a list.
    List(ListCall<'a>),
}

impl<'a> Asked<'a> {
    /// Decodes all of `bytes`.
    ///
    /// # Errors
    ///
    /// They are none of these.
    pub fn decode(bytes: &'a [u8]) -> Decoded<Self> {
        match bytes.first() {
            Some(code) if *code >= list::CODE_MIN => ListCall::decode(bytes).map(Self::List),
            Some(code) if *code >= elements::CODE_MIN => Elements::decode(bytes).map(Self::Elements),
            Some(code) if *code >= further::CODE_MIN => {
                let further = Further::decode(bytes)?;
                if let Further::In { operation, .. } = further {
                    Self::decode(operation)?;
                }
                Ok(Self::Further(further))
            }
            Some(code) if *code >= command::CODE_MIN => Command::decode(bytes).map(Self::Command),
            Some(_) | None => Operation::decode(bytes).map(Self::Operation),
        }
    }

    /// Returns whether it changes nothing.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Operation(operation) => matches!(operation, Operation::Get { .. }),
            Self::Command(command) => command.is_read_only(),
            Self::Further(further) => further.is_read_only(),
            Self::Elements(elements) => elements.verb.is_read_only(),
            Self::List(call) => call.verb.is_read_only(),
        }
    }
}

impl Command<'_> {
    /// Returns whether it changes nothing.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Length { .. } | Self::Exists(_) | Self::GetMany(_) | Self::Ttl { .. } | Self::Count => true,
            Self::Many(items) => {
                // Many in many are refused, and nothing of them is done; a transaction likewise.
                items.iter().all(|item| match Asked::decode(item) {
                    Ok(Asked::Command(Self::Many(_)) | Asked::Further(Further::All(_))) | Err(_) => true,
                    Ok(asked) => asked.is_read_only(),
                })
            }
            Self::Set { .. }
            | Self::GetDel { .. }
            | Self::Del(_)
            | Self::SetMany(_)
            | Self::Expire { .. }
            | Self::Persist { .. }
            | Self::Clear => false,
        }
    }
}

impl Further<'_> {
    /// Returns whether it changes nothing.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Deadline { .. }
            | Self::Range { .. }
            | Self::Scan { .. }
            | Self::Usage { .. }
            | Self::Mark(_) => true,
            Self::In { operation, .. } => Asked::decode(operation).is_ok_and(|asked| asked.is_read_only()),
            Self::All(all) => all.operations().all(|one| match Asked::decode(one) {
                // Transactions in transactions are refused: nothing is looked at below them.
                Ok(Asked::Command(Command::Many(_)) | Asked::Further(Self::All(_))) | Err(_) => true,
                Ok(asked) => asked.is_read_only(),
            }),
            Self::Set { .. }
            | Self::GetEx { .. }
            | Self::Expire { .. }
            | Self::AddDecimal { .. }
            | Self::Overwrite { .. }
            | Self::SetAbsent(_)
            | Self::Copy { .. }
            | Self::RemoveIf { .. }
            | Self::ExpireIf { .. }
            | Self::Random
            | Self::Time
            | Self::SetBit { .. }
            | Self::ClearOne => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::command::Items;
    use super::*;

    #[test]
    fn many_are_read_only_if_all_are() {
        let mut buffer = Vec::new();
        for (items, read_only) in [(&[[26], [26]][..], true), (&[[26], [27]], false), (&[[99]], true)] {
            assert_eq!(Command::Many(Items::operations(items, &mut buffer)).is_read_only(), read_only);
        }
    }
}
