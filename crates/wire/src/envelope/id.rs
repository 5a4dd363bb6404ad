//! Identifiers. Every number has its own type, so that a view cannot be used as a sequence number.

/// A view: a period with one primary. Views are numbered from 0 without gaps [OSDI99 §4].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewNum(pub u64);

impl ViewNum {
    /// Returns the view after this one. Saturates, so that no sender can make it wrap (B29).
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The position of a batch in the agreed order. 0 is the initial state; the first batch is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqNum(pub u64);

impl SeqNum {
    /// Returns the number after this one. Saturates, so that no sender can make it wrap (B13).
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Returns the number before this one, or 0.
    #[must_use]
    pub fn prev(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Returns the number `count` places further.
    #[must_use]
    pub fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

/// A replica: one of `0 .. n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u16);

impl ReplicaId {
    /// Returns the replica's place in a vector with one entry a replica.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the replica at `index`, which is below [`crate::envelope::cluster::REPLICAS_MAX`].
    pub fn at(index: usize) -> Self {
        let Ok(id) = u16::try_from(index) else { unreachable!("a cluster has at most 64 replicas") };
        Self(id)
    }
}

/// A client lane: a principal (48 bits) and one of its lanes (16 bits), spec CL-1.
///
/// Keys belong to the principal; a lane has at most one request outstanding, so a process that
/// wants many in flight uses many lanes. Values below 65,536 (principal 0) are replicas acting as
/// clients, which only the recovery request does (spec RC-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

impl ClientId {
    /// Returns the lane `lane` of `principal`, which is from 1 to 2^48 - 1.
    pub fn new(principal: u64, lane: u16) -> Self {
        Self((principal << 16) | u64::from(lane))
    }

    /// Returns the principal that holds the keys, or 0 for a replica.
    pub fn principal(self) -> u64 {
        self.0 >> 16
    }

    /// Returns the lane.
    pub fn lane(self) -> u16 {
        u16::try_from(self.0 & 0xffff).unwrap_or(0)
    }

    /// Returns the replica that acts as this client, if one does.
    pub fn replica(self) -> Option<ReplicaId> {
        (self.principal() == 0).then(|| ReplicaId(self.lane()))
    }
}

/// A client's own number for a request, strictly increasing for each lane [OSDI99 §4.1].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// The sender of a message. On the wire a `u64`: values below 65,536 are replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Principal {
    /// A replica.
    Replica(ReplicaId),
    /// A client lane.
    Client(ClientId),
}

impl Principal {
    /// Returns the number on the wire.
    pub fn to_wire(self) -> u64 {
        match self {
            Self::Replica(id) => u64::from(id.0),
            Self::Client(id) => id.0,
        }
    }

    /// Returns the principal with this number on the wire. Total: every number names one.
    pub fn from_wire(number: u64) -> Self {
        match u16::try_from(number) {
            Ok(id) => Self::Replica(ReplicaId(id)),
            Err(_) => Self::Client(ClientId(number)),
        }
    }

    /// Returns the client identity under which this principal sends requests.
    pub fn as_client(self) -> ClientId {
        ClientId(self.to_wire())
    }

    /// Returns the number of the key holder: the replica's id, or the client's principal shifted
    /// above all replica ids, so that all lanes of a client share keys.
    pub fn key_holder(self) -> u64 {
        match self {
            Self::Replica(id) => u64::from(id.0),
            Self::Client(id) => id.0 & !0xffff,
        }
    }
}

impl From<ReplicaId> for Principal {
    fn from(id: ReplicaId) -> Self {
        Self::Replica(id)
    }
}

impl From<ClientId> for Principal {
    fn from(id: ClientId) -> Self {
        Self::from_wire(id.0)
    }
}

impl core::fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "r{}", self.0)
    }
}

impl core::fmt::Display for ClientId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match (self.replica(), self.lane()) {
            (Some(replica), _) => write!(f, "{replica}"),
            (None, 0) => write!(f, "c{}", self.principal() - 1),
            (None, lane) => write!(f, "c{}.{lane}", self.principal() - 1),
        }
    }
}

impl core::fmt::Display for Principal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Replica(id) => id.fmt(f),
            Self::Client(id) => id.fmt(f),
        }
    }
}
