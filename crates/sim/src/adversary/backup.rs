//! Backups that lie.
