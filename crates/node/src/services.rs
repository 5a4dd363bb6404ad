//! The built-in services: one row for each. A new one is a row here and the file of the service itself.

use std::sync::Arc;

use quorate_fs::nfs3::rules::FsRules;
use quorate_service::Service;
use quorate_service::kv::{Kv, Operation};
use quorate_service::parallel::{KeyRules, Rules};

pub mod timed;

/// A service that a node can run by its name.
#[derive(Clone, Copy, Debug)]
pub struct ServiceRow {
    /// Its name in `node.toml` and on the command line.
    pub name: ServiceName,
    /// The number of its operations and its state. Replicas with different numbers disagree.
    pub version: u32,
    /// Its description, for help texts.
    pub about: &'static str,
    /// Keys of `node.toml`, with their values, for a cluster that only users of its machine can reach.
    pub local: &'static [(&'static str, &'static str)],
    /// Writes an operation that changes nothing, to see whether a cluster responds.
    pub probe: fn(&mut Vec<u8>),
}

/// The name of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceName(&'static str);

/// The settings of the built-in services.
pub type ServiceSettings = quorate_fs::Settings;

/// Takes a service of any type.
pub(crate) trait Taker {
    /// What it returns.
    type Output;
    /// Takes the service.
    fn take<S: Service + Send + 'static>(self, service: S) -> Self::Output;
}

/// Declares the rows, each with the function that makes its service from its settings.
macro_rules! services {
    ($($row:ident $name:literal $version:literal, $about:literal, $local:expr, $probe:expr, $make:expr;)*) => {
        /// The built-in services.
        pub const SERVICES: &[ServiceRow] = &[$(ServiceRow {
            name: ServiceName::$row,
            version: $version,
            about: $about,
            local: $local,
            probe: $probe,
        },)*];

        impl ServiceName {
            $(#[doc = $about] pub const $row: Self = Self($name);)*
        }

        /// Passes the service with this name to `taker`. None: it is not built in.
        ///
        /// # Errors
        ///
        /// The settings break a rule.
        pub(crate) fn make<T: Taker>(
            name: ServiceName,
            settings: &ServiceSettings,
            taker: T,
        ) -> Option<Result<T::Output, String>> {
            match name {
                $(ServiceName::$row => {
                    let make: fn(&ServiceSettings) -> Result<_, String> = $make;
                    Some(make(settings).map(|service| taker.take(service)))
                })*
                _ => None,
            }
        }
    };
}

services! {
    FS "fs" 2, "A file system",
        &[("fs_exports", "\"/(rw,no_root_squash)\"")], refused,
        |settings| quorate_fs::Fs::new(settings.clone()).map_err(|error| format!("fs_{error}"));
    KV "kv" 3, "A key-value store",
        &[], |operation| Operation::Get { key: b"\0quorate watches" }.encode(operation),
        |_| Ok(Kv);
    NULL "null" 2, "A service without state, for measurements",
        &[], refused,
        |_| Ok(timed::Timed);
}

/// Returns which requests of a service depend on each other: those of the file system have rules of their own, all
/// others depend on each other by the keys that the service declares.
pub(crate) fn rules<S: Service + Send + 'static>(
    name: ServiceName,
    settings: &ServiceSettings,
    service: &Arc<S>,
) -> Box<dyn Rules + Send> {
    if name == ServiceName::FS
        && let Ok(fs) = quorate_fs::Fs::new(settings.clone())
    {
        return Box::new(FsRules::new(fs));
    }
    Box::new(KeyRules::new(Arc::clone(service)))
}

/// An empty operation, which most services refuse, each replica with the same answer.
fn refused(_operation: &mut Vec<u8>) {}

impl ServiceName {
    /// The service of another program, which runs the node.
    pub const OWN: Self = Self("own");

    /// Returns the service with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let known = SERVICES.iter().map(|row| row.name).chain([Self::OWN]);
        known.into_iter().find(|service| service.0 == name)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Returns its row, if it is built in.
    pub fn row(self) -> Option<&'static ServiceRow> {
        SERVICES.iter().find(|row| row.name == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Executes a row's probe.
    struct Probe<'a>(&'a [u8]);

    impl Taker for Probe<'_> {
        type Output = bool;

        fn take<S: Service + Send + 'static>(self, service: S) -> bool {
            let mut alone =
                quorate_service::Alone::new(service, &quorate_service::Options::default()).unwrap();
            let mut reply = Vec::new();
            alone.execute(1, self.0, &mut reply)
        }
    }

    #[test]
    fn every_row_has_a_name_of_its_own_and_a_probe_that_changes_nothing() {
        let settings = ServiceSettings { service_id: 1, ..ServiceSettings::default() };
        for row in SERVICES {
            assert_eq!(ServiceName::from_name(row.name.name()), Some(row.name));
            assert_eq!(SERVICES.iter().filter(|other| other.name == row.name).count(), 1);
            let mut operation = Vec::new();
            (row.probe)(&mut operation);
            assert_eq!(make(row.name, &settings, Probe(&operation)), Some(Ok(false)), "{}", row.name.name());
        }
        assert_eq!(make(ServiceName::OWN, &settings, Probe(&[])), None);
        assert_eq!(ServiceName::from_name("none"), None);
    }
}
