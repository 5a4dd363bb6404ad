//! Registers whose values have a type.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use quorate_quorum::Value;

use super::{CallError, Client, VersionedValue, Watch};

/// A type whose values are stored in registers.
pub trait Item: Sized {
    /// Returns its bytes.
    fn to_bytes(&self) -> Value;
    /// Returns the value with these bytes. None: there is none.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
}

impl Item for String {
    fn to_bytes(&self) -> Value {
        Arc::from(self.as_bytes())
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        String::from_utf8(bytes.to_vec()).ok()
    }
}

impl Item for Vec<u8> {
    fn to_bytes(&self) -> Value {
        Arc::from(self.as_slice())
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
}

impl Item for u64 {
    fn to_bytes(&self) -> Value {
        Arc::from(&self.to_le_bytes()[..])
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}

/// One key whose value is a `T`.
#[derive(Clone, Debug)]
pub struct Register<T> {
    client: Client,
    key: String,
    of: PhantomData<fn() -> T>,
}

/// Why a typed register has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// The operation failed.
    Call(CallError),
    /// Somebody has written bytes that are no value of the type.
    OtherType,
}

impl core::fmt::Display for RegisterError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::OtherType => f.write_str("the value is of another type"),
        }
    }
}

impl std::error::Error for RegisterError {}

impl From<CallError> for RegisterError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Client {
    /// Returns a handle for one key, whose value is a `T`.
    pub fn register<T: Item>(&self, key: &str) -> Register<T> {
        Register::new(self.clone(), key)
    }
}

impl<T: Item> Register<T> {
    fn new(client: Client, key: &str) -> Self {
        Self { client, key: key.to_owned(), of: PhantomData }
    }

    /// Returns the value. None: it was never written, or was deleted.
    ///
    /// # Errors
    ///
    /// As [`Client::read`], or the value is of another type.
    pub fn read(&self) -> Result<Option<T>, RegisterError> {
        let entry = self.client.read(self.key.as_bytes())?;
        entry.map(|entry| T::from_bytes(&entry.value).ok_or(RegisterError::OtherType)).transpose()
    }

    /// Replaces the value.
    ///
    /// # Errors
    ///
    /// As [`Client::write`].
    pub fn write(&self, value: &T) -> Result<VersionedValue, CallError> {
        self.client.write(self.key.as_bytes(), value.to_bytes())
    }

    /// Deletes the value.
    ///
    /// # Errors
    ///
    /// As [`Client::delete`].
    pub fn delete(&self) -> Result<VersionedValue, CallError> {
        self.client.delete(self.key.as_bytes())
    }

    /// Calls `each` with the present value and with newer ones until it returns false, or nothing new comes for `quiet`.
    /// None: the value was deleted.
    ///
    /// # Errors
    ///
    /// As [`Client::watch`], or a value is of another type.
    pub fn follow(
        &self,
        quiet: Duration,
        mut each: impl FnMut(Option<T>) -> bool,
    ) -> Result<(), RegisterError> {
        let watch: Watch = self.client.watch(self.key.as_bytes())?;
        while let Some(entry) = watch.next(quiet)? {
            let present = (!entry.is_deleted()).then_some(&entry.value);
            let value =
                present.map(|bytes| T::from_bytes(bytes).ok_or(RegisterError::OtherType)).transpose()?;
            if !each(value) {
                break;
            }
        }
        Ok(())
    }
}
