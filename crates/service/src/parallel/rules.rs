//! The rules of a service: which requests depend on each other [CBASE04 §5.2].
//!
//! The service supplies a parser, two matrices and an analysis of arguments. Here the arguments are keys, and the
//! analysis (AAF) is true if two requests share a key. A class is written next to each key: a request uses different
//! keys in different ways. For the paper's rules the class of each key is the function.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::service::{Access, Mode, Service};

/// Maximum number of functions of a service: a row of a matrix is one word, and one bit is for [`Arguments::everything`].
pub const FUNCTIONS_MAX: usize = 63;

/// The two matrices of a service [CBASE04 §5.2]. Both are symmetric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrices {
    functions: usize,
    /// Pairs of functions that always depend on each other (OCM): a word a row, a bit a column.
    ocm: Vec<u64>,
    /// Pairs of classes that depend on each other if they use the same key (OACM).
    oacm: Vec<u64>,
}

/// Why matrices are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixError {
    /// More than [`FUNCTIONS_MAX`] functions.
    TooMany,
    /// The two functions depend on each other in one direction only.
    Asymmetric(usize, usize),
}

impl core::fmt::Display for MatrixError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::TooMany => write!(f, "the rules have more than {FUNCTIONS_MAX} functions"),
            Self::Asymmetric(a, b) => {
                write!(f, "the rules are not symmetric: function {a} depends on {b}, but not {b} on {a}")
            }
        }
    }
}

impl Matrices {
    /// Returns the matrices with these entries: OCM is `always`, OACM is `if_related`.
    ///
    /// # Errors
    ///
    /// A matrix is not symmetric, or too large.
    pub fn new(
        functions: usize,
        always: impl Fn(usize, usize) -> bool,
        if_related: impl Fn(usize, usize) -> bool,
    ) -> Result<Self, MatrixError> {
        if functions > FUNCTIONS_MAX {
            return Err(MatrixError::TooMany);
        }
        Ok(Self { functions, ocm: rows(functions, always)?, oacm: rows(functions, if_related)? })
    }

    /// Returns the number of functions.
    pub fn functions(&self) -> usize {
        self.functions
    }

    /// Returns the functions that always depend on this one, a bit each. A function that does not exist counts as
    /// one that may touch anything.
    #[inline]
    pub(super) fn always(&self, function: usize) -> u64 {
        self.ocm.get(function).copied().unwrap_or(u64::MAX)
    }

    /// Returns the class as one of the matrices: a class that does not exist depends on all others.
    #[inline]
    pub(super) fn class(&self, class: u8) -> u8 {
        class.min(u8::try_from(self.functions).unwrap_or(u8::MAX))
    }

    /// Returns the classes that depend on this one if they use the same key, a bit each.
    #[inline]
    pub(super) fn if_related(&self, class: usize) -> u64 {
        self.oacm.get(class).copied().unwrap_or(u64::MAX)
    }
}

/// Returns the rows of a matrix. The last row and column are for a request that may touch anything.
fn rows(functions: usize, entry: impl Fn(usize, usize) -> bool) -> Result<Vec<u64>, MatrixError> {
    let mut rows = Vec::new();
    for a in 0..functions {
        if let Some(b) = (0..a).find(|b| entry(a, *b) != entry(*b, a)) {
            let (a, b) = if entry(a, b) { (a, b) } else { (b, a) };
            return Err(MatrixError::Asymmetric(a, b));
        }
        rows.push((0..functions).filter(|b| entry(a, *b)).fold(1 << functions, |row, b| row | 1 << b));
    }
    rows.push(u64::MAX);
    Ok(rows)
}

/// What a parser says of a request: its function and the keys that it uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    function: usize,
    /// Sorted, each key once, with its class.
    keys: Vec<(u64, u8)>,
    everything: bool,
}

impl Arguments {
    /// Maximum number of keys of a request. A request with more depends on all others.
    pub const KEYS_MAX: usize = Access::KEYS_MAX;

    /// Makes it a request for `function` without keys.
    pub fn begin(&mut self, function: usize) {
        self.function = function;
        self.keys.clear();
        self.everything = false;
    }

    /// Adds a key that is used as the function uses its keys.
    pub fn key(&mut self, key: u64) {
        self.key_as(key, u8::try_from(self.function).unwrap_or(u8::MAX));
    }

    /// Adds a key with a class of its own. A key that is used as two classes makes the request depend on all others.
    pub fn key_as(&mut self, key: u64, class: u8) {
        match self.keys.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(at) if self.keys[at].1 == class => {}
            Ok(_) => self.everything(),
            Err(_) if self.keys.len() == Self::KEYS_MAX => self.everything(),
            Err(at) => self.keys.insert(at, (key, class)),
        }
    }

    /// Declares that the request may touch anything.
    pub fn everything(&mut self) {
        self.everything = true;
        self.keys.clear();
    }

    /// Returns whether the request may touch anything.
    pub fn is_everything(&self) -> bool {
        self.everything
    }

    /// Returns the keys without their classes. None: the request may touch anything.
    pub(super) fn declared(&self) -> Option<Vec<u64>> {
        (!self.everything).then(|| self.keys.iter().map(|(key, _)| *key).collect())
    }

    /// Returns the row of the matrices that this request has.
    #[inline]
    pub(super) fn row(&self, matrices: &Matrices) -> usize {
        if self.everything { matrices.functions } else { self.function.min(matrices.functions) }
    }

    /// Returns the keys in order, each with its class.
    #[inline]
    pub fn keys(&self) -> &[(u64, u8)] {
        &self.keys
    }

    /// Returns whether the two requests depend on each other [CBASE04 §5.2]: OCM, or a common key and OACM.
    pub fn depends(&self, other: &Self, matrices: &Matrices) -> bool {
        if matrices.always(self.row(matrices)) >> other.row(matrices) & 1 == 1 {
            return true;
        }
        let (mut left, mut right) = (self.keys.iter().peekable(), other.keys.iter().peekable());
        while let (Some(&&(a, class_a)), Some(&&(b, class_b))) = (left.peek(), right.peek()) {
            if a == b && matrices.if_related(usize::from(class_a)) >> matrices.class(class_b) & 1 == 1 {
                return true;
            }
            if a <= b {
                left.next();
            }
            if b <= a {
                right.next();
            }
        }
        false
    }
}

/// The rules of a service [CBASE04 §5.2]. Wrong rules cost time: a request that met another runs again. They never
/// change the state or, with early replies off, a reply.
pub trait Rules {
    /// Returns the matrices. Checked once, at the start.
    ///
    /// # Errors
    ///
    /// They are not symmetric, or too large.
    fn matrices(&self) -> Result<Matrices, MatrixError>;

    /// Parses a request: its function and its keys. Total: a request that cannot be decoded may touch anything.
    fn parse(&self, operation: &[u8], arguments: &mut Arguments);
}

impl<R: Rules + ?Sized> Rules for Box<R> {
    fn matrices(&self) -> Result<Matrices, MatrixError> {
        (**self).matrices()
    }

    fn parse(&self, operation: &[u8], arguments: &mut Arguments) {
        (**self).parse(operation, arguments);
    }
}

/// The rules of a service that declares the keys that each operation reads and writes ([`Service::access`]).
#[derive(Debug)]
pub struct KeyRules<S> {
    service: S,
}

/// The class of a key that is read.
const READ: u8 = 0;
/// The class of a key that is written.
const WRITE: u8 = 1;

impl<S: Service> KeyRules<S> {
    /// Returns the rules of `service`.
    pub fn new(service: S) -> Self {
        Self { service }
    }
}

impl<S: Service> Rules for KeyRules<S> {
    fn matrices(&self) -> Result<Matrices, MatrixError> {
        Matrices::new(2, |_, _| false, |a, b| a != usize::from(READ) || b != usize::from(READ))
    }

    fn parse(&self, operation: &[u8], arguments: &mut Arguments) {
        let mut access = Access::new();
        self.service.access(operation, &mut access);
        arguments.begin(usize::from(READ));
        match access.keys() {
            Some(keys) => {
                for &(key, mode) in keys {
                    arguments.key_as(key, if mode == Mode::Read { READ } else { WRITE });
                }
            }
            None => arguments.everything(),
        }
    }
}

/// The default: all requests depend on each other.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllDependent;

impl Rules for AllDependent {
    fn matrices(&self) -> Result<Matrices, MatrixError> {
        Matrices::new(1, |_, _| true, |_, _| true)
    }

    fn parse(&self, _operation: &[u8], arguments: &mut Arguments) {
        arguments.begin(0);
    }
}
