//! PHALANX [SRDS98, on the protocol]: an atomic register of self-verifying values with write-back (§3).
//!
//! n >= 3f + 1; clients are correct but may crash. A version contains the digest of its value, so
//! the writer's signature covers object and version only.

pub(crate) mod client;
pub(crate) mod server;

use quorate_wire::Principal;

use crate::crypto::{Crypto, Signature, Statement};
use crate::mutants::Mutant;
use crate::settings::Settings;
use crate::step::Reject;
use crate::version::{ObjectId, Version};

/// Judges whether the writer of `version` signed it, and may have written it (§15). GENESIS needs no signature.
pub(crate) fn judge(
    settings: &Settings,
    crypto: &mut dyn Crypto,
    object: &ObjectId,
    version: Version,
    signature: Option<&Signature>,
) -> Result<(), Reject> {
    if version.is_genesis() || settings.wrong(Mutant::VerifyNothing) {
        return Ok(());
    }
    let rules = &settings.rules;
    let rightful = if settings.wrong(Mutant::AccessOnRelays) {
        rules.may_write(version.client, object)
    } else {
        rules.may_have_written(version.client, object)
    };
    if !rightful && !settings.wrong(Mutant::RightsOfSender) {
        return Err(Reject::NotAllowed);
    }
    let writer = settings.shared_writer.unwrap_or(version.client);
    let signed = signature.is_some_and(|signature| {
        crypto.verify(Principal::from(writer), object, &Statement::Written(version), signature)
    });
    // A server is no writer: the numbers of clients and servers are one range. If it signed one, that is evidence (§15).
    if signed && version.client.replica().is_none() { Ok(()) } else { Err(Reject::BadProof) }
}
