//! The exchange of session keys.
