//! Dependencies by an index of groups: the cost of a request does not depend on how many are pending (spec §17.4).
//!
//! There is one scope for all requests, one for each key that is in use, and one for each lane. A scope has, for each
//! class, the latest group of requests of that class. A new request waits for the latest groups of the classes that
//! its own depends on, and closes them: nobody joins a group that somebody waits for. Older groups need no look. The
//! request that closed an older group depends on it, and the later groups of the same class wait for that request.
//! So a scope has a latest group as long as any of its groups is not complete.
//!
//! Groups and those that wait for them are in two long lists, and refer to each other by places there: many pending
//! requests have room in the cache of a processor.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::parallel::rules::{Arguments, Matrices};
use crate::state::index::Index;

/// A request's place among all that were inserted, from 0 on.
pub(super) type Ordinal = u64;

/// A place in the list of groups, or of those that wait for them.
type Place = u32;

/// No place.
const NONE: Place = Place::MAX;

/// What a scope is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    /// Of a key: its number, mixed with the secret.
    Key(u64),
    /// Of a lane: the same.
    Lane(u64),
}

/// Requests of one class that use one scope and do not depend on each other.
#[derive(Debug)]
struct Group {
    scope: Scope,
    class: u8,
    /// Somebody waits for it: nobody joins it any more.
    is_closed: bool,
    /// It is the latest group of its class and scope.
    is_latest: bool,
    /// Members that have not been removed.
    remaining: u32,
    /// Another latest group of the scope, or another group without members.
    next: Place,
    /// The last that waits for it.
    waiter: Place,
}

/// A request that waits for a group.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    ordinal: Ordinal,
    /// Another one that waits for the group, or another place that nobody has.
    next: Place,
}

/// The groups of a request.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// How many places of groups came before, of all requests. The number wraps around.
    start: u32,
    groups: u32,
    is_removed: bool,
}

/// The groups of the pending requests.
#[derive(Debug)]
pub(super) struct Groups {
    secret: u64,
    all: Vec<Group>,
    /// The first group without members.
    unused: Place,
    waiters: Vec<Waiter>,
    /// The first place there that nobody has.
    unused_waiter: Place,
    /// A latest group of each scope.
    of_all: Place,
    keys: Index,
    lanes: Index,
    /// The requests from `first` on, in order.
    members: VecDeque<Member>,
    first: Ordinal,
    /// Their groups, in order.
    joined: VecDeque<Place>,
}

impl Groups {
    pub(super) fn new(secret: u64) -> Self {
        Self {
            secret,
            all: Vec::new(),
            unused: NONE,
            waiters: Vec::new(),
            unused_waiter: NONE,
            of_all: NONE,
            keys: Index::default(),
            lanes: Index::default(),
            members: VecDeque::new(),
            first: 0,
            joined: VecDeque::new(),
        }
    }

    /// Adds a request and returns how many groups it waits for.
    pub(super) fn insert(
        &mut self,
        ordinal: Ordinal,
        lane: u64,
        arguments: &Arguments,
        matrices: &Matrices,
        steps: &mut u64,
    ) -> u32 {
        let before = self.joined.len();
        let start = self.members.back().map_or(0, |last| last.start.wrapping_add(last.groups));
        let function = arguments.row(matrices);
        let class = u8::try_from(function).unwrap_or(u8::MAX);
        let mut waits = self.enter(Scope::All, (ordinal, class), matrices.always(function), steps);
        let scope = Scope::Lane(hash(self.secret, lane));
        waits += self.enter(scope, (ordinal, 0), plant!(1, 1, 0), steps);
        for &(key, class) in arguments.keys() {
            let class = matrices.class(class);
            let related = plant!(2, matrices.if_related(usize::from(class)), 0);
            waits += self.enter(Scope::Key(hash(self.secret, key)), (ordinal, class), related, steps);
        }
        if self.members.is_empty() {
            self.first = ordinal;
        }
        debug_assert_eq!(
            usize::try_from(ordinal - self.first),
            Ok(self.members.len()),
            "requests enter in order"
        );
        let groups = to_place(self.joined.len() - before);
        self.members.push_back(Member { start, groups, is_removed: false });
        waits
    }

    /// Takes a request out of its groups. Each request that waited for a group that is complete goes to `release`.
    pub(super) fn remove(&mut self, ordinal: Ordinal, release: &mut dyn FnMut(Ordinal)) {
        let place = ordinal.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        let Some(member) = place.and_then(|place| self.members.get_mut(place)) else { return };
        if core::mem::replace(&mut member.is_removed, true) {
            return;
        }
        let Member { start, groups, .. } = *member;
        let from = at(start.wrapping_sub(self.members.front().map_or(start, |first| first.start)));
        for joined in from..from + at(groups) {
            let place = self.joined[joined];
            let group = &mut self.all[at(place)];
            group.remaining -= 1;
            let is_complete = group.remaining == 0;
            if plant!(4, is_complete, true) {
                let mut waiter = core::mem::replace(&mut group.waiter, NONE);
                while waiter != NONE {
                    let Waiter { ordinal, next } = self.waiters[at(waiter)];
                    self.waiters[at(waiter)].next = core::mem::replace(&mut self.unused_waiter, waiter);
                    release(ordinal);
                    waiter = next;
                }
            }
            if is_complete {
                self.forget(place);
            }
        }
        while let Some(member) = self.members.front().filter(|member| member.is_removed) {
            for _ in 0..member.groups {
                self.joined.pop_front();
            }
            self.members.pop_front();
            self.first += 1;
        }
    }

    /// Adds a request to a scope: waits for the latest groups of `depends`, and joins that of its own class.
    fn enter(&mut self, scope: Scope, (ordinal, class): (Ordinal, u8), depends: u64, steps: &mut u64) -> u32 {
        let head = self.latest(scope);
        let (mut waits, mut own, mut before_own) = (0, NONE, NONE);
        let (mut place, mut before) = (head, NONE);
        *steps += 1;
        while place != NONE {
            *steps += 1;
            let Group { class: other, next, waiter, .. } = self.all[at(place)];
            if depends >> other & 1 == 1 {
                let waiter = self.wait(ordinal, waiter);
                let group = &mut self.all[at(place)];
                (group.is_closed, group.waiter) = (plant!(5, true, false), waiter);
                waits += 1;
            }
            if other == class {
                (own, before_own) = (place, before);
            }
            (place, before) = (next, place);
        }
        let is_new = own == NONE || plant!(6, self.all[at(own)].is_closed, false);
        let place = if is_new { self.open(scope, class) } else { own };
        if is_new {
            if own == NONE {
                self.all[at(place)].next = head;
            } else {
                self.all[at(place)].next = self.all[at(own)].next;
                self.all[at(own)].is_latest = false;
            }
            self.link(scope, before_own, place);
        }
        self.all[at(place)].remaining += 1;
        self.joined.push_back(place);
        waits
    }

    /// Returns the first of the latest groups of a scope.
    fn latest(&self, scope: Scope) -> Place {
        match scope {
            Scope::All => self.of_all,
            Scope::Key(number) => self.keys.get(number).unwrap_or(NONE),
            Scope::Lane(number) => self.lanes.get(number).unwrap_or(NONE),
        }
    }

    /// Makes a place the one behind `before` in the list of a scope's latest groups, or the first.
    fn link(&mut self, scope: Scope, before: Place, place: Place) {
        let (index, number) = match scope {
            _ if before != NONE => return self.all[at(before)].next = place,
            Scope::All => return self.of_all = place,
            Scope::Key(number) => (&mut self.keys, number),
            Scope::Lane(number) => (&mut self.lanes, number),
        };
        if place == NONE { index.remove(number) } else { index.insert(number, place) }
    }

    /// Returns a new group.
    fn open(&mut self, scope: Scope, class: u8) -> Place {
        let (is_closed, is_latest, remaining, next, waiter) = (false, true, 0, NONE, NONE);
        let new = Group { scope, class, is_closed, is_latest, remaining, next, waiter };
        let place = self.unused;
        if let Some(group) = self.all.get_mut(at(place)) {
            self.unused = core::mem::replace(group, new).next;
            return place;
        }
        self.all.push(new);
        to_place(self.all.len() - 1)
    }

    /// Returns the place of a request that waits for the same group as `next`.
    fn wait(&mut self, ordinal: Ordinal, next: Place) -> Place {
        let (new, place) = (Waiter { ordinal, next }, self.unused_waiter);
        if let Some(waiter) = self.waiters.get_mut(at(place)) {
            self.unused_waiter = core::mem::replace(waiter, new).next;
            return place;
        }
        self.waiters.push(new);
        to_place(self.waiters.len() - 1)
    }

    /// Forgets a group that is complete.
    fn forget(&mut self, place: Place) {
        let Group { scope, is_latest, next, .. } = self.all[at(place)];
        if is_latest {
            let (mut found, mut before) = (self.latest(scope), NONE);
            while found != place && found != NONE {
                (found, before) = (self.all[at(found)].next, found);
            }
            self.link(scope, before, next);
        }
        self.all[at(place)].next = core::mem::replace(&mut self.unused, place);
    }
}

/// Mixes a number with the replica's secret. Different numbers stay different.
pub(super) fn hash(secret: u64, number: u64) -> u64 {
    let mut mixed = number ^ secret;
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        mixed = (mixed ^ mixed >> 33).wrapping_mul(factor);
    }
    mixed ^ mixed >> 33
}

fn at(place: Place) -> usize {
    let Ok(at) = usize::try_from(place) else { unreachable!("an address has 32 bits or more") };
    at
}

fn to_place(at: usize) -> Place {
    let Ok(place) = Place::try_from(at) else {
        unreachable!("the caller bounds the requests and their keys")
    };
    place
}
