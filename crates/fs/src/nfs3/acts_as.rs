//! As whom a gateway executes the calls of a connection. `AUTH_SYS` is a claim without proof, and not every peer may make
//! every claim.

use alloc::vec::Vec;

use crate::rpc::xdr::{self, Reader, Xdr as _};
use crate::rpc::{CallHead, Credential, GROUPS_MAX, OpaqueAuth};

/// The user and the group that no claim stands for.
pub const NOBODY: u32 = 65_534;

/// Whose rights the calls of a connection have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ActsAs {
    /// Those of the user that each call names.
    #[default]
    Anyone,
    /// The same, but nobody's for root.
    AnyoneButRoot,
    /// Those of this user, and not of the one that a call names.
    One {
        /// The user.
        uid: u32,
        /// The user's group.
        gid: u32,
        /// Further groups; the first 16 count.
        gids: Vec<u32>,
    },
}

impl ActsAs {
    /// The user without rights of its own.
    pub const NOBODY: Self = Self::One { uid: NOBODY, gid: NOBODY, gids: Vec::new() };

    /// Returns the call as it is executed. Only the user in it may be another one: a call without a user stays so, and
    /// what is no call is not changed.
    pub(super) fn apply(&self, call: Vec<u8>) -> Vec<u8> {
        let mut r = Reader::new(&call);
        let Ok(mut head) = CallHead::decode(&mut r) else { return call };
        let Credential::Sys(mut user) = head.credential.credential() else { return call };
        let but_root = |id: u32| if id == 0 { NOBODY } else { id };
        match self {
            Self::Anyone => return call,
            Self::AnyoneButRoot => {
                (user.uid, user.gid) = (but_root(user.uid), but_root(user.gid));
                user.gids.iter_mut().for_each(|gid| *gid = but_root(*gid));
            }
            Self::One { uid, gid, gids } => {
                (user.uid, user.gid) = (*uid, *gid);
                user.gids = gids.iter().copied().take(GROUPS_MAX).collect();
            }
        }
        let body = xdr::encode(&user);
        head.credential = OpaqueAuth::sys(&body);
        let mut changed = xdr::encode(&head);
        changed.extend_from_slice(r.rest());
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs3::calls::Calls;
    use crate::nfs3::{Call, Fh};
    use crate::rpc::xdr::Opaque;

    /// The user, the group and the further groups in a call, and its arguments.
    fn user_of(call: &[u8]) -> ((u32, u32, Vec<u32>), Vec<u8>) {
        let mut r = Reader::new(call);
        let head = CallHead::decode(&mut r).unwrap();
        let Credential::Sys(user) = head.credential.credential() else { unreachable!() };
        ((user.uid, user.gid, user.gids), r.rest().to_vec())
    }

    /// H2: what is claimed is replaced, and nothing else of the call.
    #[test]
    fn h2_a_claim_is_replaced_and_nothing_else() {
        let handle: Fh<'_> = Opaque(b"handle");
        let call = Calls::new("machine", 0, 0, &[0, 7], 1).nfs(&Call::GetAttr(handle));
        let (claimed, arguments) = user_of(&call);
        assert_eq!(claimed, (0, 0, [0, 7].to_vec()));
        assert_eq!(ActsAs::Anyone.apply(call.clone()), call);
        let squashed = ActsAs::AnyoneButRoot.apply(call.clone());
        assert_eq!(user_of(&squashed), ((NOBODY, NOBODY, [NOBODY, 7].to_vec()), arguments.clone()));
        let one = ActsAs::One { uid: 5, gid: 6, gids: (10..40).collect() };
        let changed = one.apply(call.clone());
        assert_eq!(user_of(&changed), ((5, 6, (10..26).collect()), arguments.clone()));
        assert_eq!(user_of(&ActsAs::NOBODY.apply(call)), ((NOBODY, NOBODY, Vec::new()), arguments));
        // A call without a user, and what is no call at all.
        let anonymous = xdr::encode(&CallHead::new(9, 100_003, 3, 0));
        assert_eq!(one.apply(anonymous.clone()), anonymous);
        assert_eq!(one.apply(b"nonsense".to_vec()), b"nonsense");
    }
}
