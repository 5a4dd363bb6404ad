//! Why an execution ends before its end.

use crate::page::PageFault;

/// Why an execution ends without having run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The service refuses: its writes are undone, the result that it has written stands.
    Refused,
    /// A read-only execution needs to be ordered first, because it would write or because the
    /// service says so.
    NeedsOrder,
    /// A page is not here yet.
    Fault(PageFault),
    /// The state is not what the service left there. The replica is faulty; the next checkpoint
    /// shows it and it is repaired (CK-6). Until then the operation is refused.
    Corrupt,
}

impl From<PageFault> for Stop {
    fn from(fault: PageFault) -> Self {
        Self::Fault(fault)
    }
}
