//! Small changes to messages.
