//! Dependencies by an index of groups: the cost of a request does not depend on how many are pending (spec §17.4).
//!
//! There is one scope for all requests, one for each key that is in use, and one for each lane. A scope has, for each
//! class, the latest group of requests of that class. A new request waits for the latest groups of the classes that
//! its own depends on, and closes them: nobody joins a group that somebody waits for. Older groups need no look. The
//! request that closed an older group depends on it, and the later groups of the same class wait for that request.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::parallel::rules::{Arguments, Matrices};
use crate::state::index::Index;

/// A request's place among all that were inserted, from 0 on.
pub(super) type Ordinal = u64;

/// A place in the list of groups, or of scopes.
type Place = u32;

/// Requests of one class that use one scope and do not depend on each other.
#[derive(Debug, Default)]
struct Group {
    scope: Place,
    class: u8,
    /// Members that have not been removed.
    remaining: u32,
    /// Somebody waits for it: nobody joins it any more.
    is_closed: bool,
    waiters: Vec<Ordinal>,
}

/// What a scope is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum About {
    #[default]
    All,
    Key(u64),
    Lane(u64),
}

/// The latest group of each class.
#[derive(Debug, Default)]
struct Scope {
    about: About,
    /// One bit for each class that has a group.
    present: u64,
    latest: Vec<(u8, Place)>,
    /// Groups that are not complete, the latest ones included.
    groups: u32,
}

/// The groups of the pending requests.
#[derive(Debug)]
pub(super) struct Groups {
    secret: u64,
    all: Vec<Group>,
    unused: Vec<Place>,
    scopes: Vec<Scope>,
    free_scopes: Vec<Place>,
    keys: Index,
    lanes: Index,
    /// The groups of each request from `first` on, in order; none for one that was removed.
    members: VecDeque<Vec<Place>>,
    first: Ordinal,
    /// Lists of groups for later use.
    spare: Vec<Vec<Place>>,
}

/// The scope of all requests, which never goes.
const ALL: Place = 0;

impl Groups {
    pub(super) fn new(secret: u64) -> Self {
        Self {
            secret,
            all: Vec::new(),
            unused: Vec::new(),
            scopes: alloc::vec![Scope::default()],
            free_scopes: Vec::new(),
            keys: Index::default(),
            lanes: Index::default(),
            members: VecDeque::new(),
            first: 0,
            spare: Vec::new(),
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
        let mut joined = self.spare.pop().unwrap_or_default();
        let function = arguments.row(matrices);
        let class = |class: usize| u8::try_from(class).unwrap_or(u8::MAX);
        let mut waits =
            self.enter(ALL, (ordinal, class(function)), matrices.always(function), &mut joined, steps);
        let scope = self.scope(About::Lane(lane));
        waits += self.enter(scope, (ordinal, 0), plant!(1, 1, 0), &mut joined, steps);
        for &(key, class) in arguments.keys() {
            let scope = self.scope(About::Key(key));
            let class = matrices.class(class);
            let related = plant!(2, matrices.if_related(usize::from(class)), 0);
            waits += self.enter(scope, (ordinal, class), related, &mut joined, steps);
        }
        if self.members.is_empty() {
            self.first = ordinal;
        }
        debug_assert_eq!(
            usize::try_from(ordinal - self.first),
            Ok(self.members.len()),
            "requests enter in order"
        );
        self.members.push_back(joined);
        waits
    }

    /// Takes a request out of its groups. Each request that waited for a group that is complete goes to `release`.
    pub(super) fn remove(&mut self, ordinal: Ordinal, release: &mut dyn FnMut(Ordinal)) {
        let place = ordinal.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        let Some(members) = place.and_then(|place| self.members.get_mut(place)) else { return };
        let mut joined = core::mem::take(members);
        while self.members.front().is_some_and(Vec::is_empty) {
            self.members.pop_front();
            self.first += 1;
        }
        for place in joined.drain(..) {
            let group = &mut self.all[at(place)];
            group.remaining -= 1;
            if plant!(4, group.remaining == 0, true) {
                group.waiters.drain(..).for_each(&mut *release);
            }
            if group.remaining == 0 {
                self.forget(place);
            }
        }
        self.spare.push(joined);
    }

    /// Adds a request to a scope: waits for the latest groups of `depends`, and joins that of its own class.
    fn enter(
        &mut self,
        scope: Place,
        (ordinal, class): (Ordinal, u8),
        depends: u64,
        joined: &mut Vec<Place>,
        steps: &mut u64,
    ) -> u32 {
        let Self { scopes, all: groups, .. } = self;
        let of = &mut scopes[at(scope)];
        let mut waits = 0;
        let mut own = None;
        *steps += 1;
        for &(other, place) in &of.latest {
            *steps += 1;
            if depends >> other & 1 == 1 {
                let group = &mut groups[at(place)];
                group.is_closed = plant!(5, true, false);
                group.waiters.push(ordinal);
                waits += 1;
            }
            if other == class {
                own = Some(place);
            }
        }
        let open = own.filter(|place| plant!(6, !groups[at(*place)].is_closed, true));
        let place = open.unwrap_or_else(|| self.open(scope, class));
        self.all[at(place)].remaining += 1;
        joined.push(place);
        waits
    }

    /// Makes a new group the latest of its class.
    fn open(&mut self, scope: Place, class: u8) -> Place {
        let place = self.unused.pop().unwrap_or_else(|| {
            self.all.push(Group::default());
            to_place(self.all.len() - 1)
        });
        let group = &mut self.all[at(place)];
        (group.scope, group.class, group.is_closed) = (scope, class, false);
        let of = &mut self.scopes[at(scope)];
        of.groups += 1;
        if of.present >> class & 1 == 1 {
            let latest = of.latest.iter_mut().find(|(other, _)| *other == class);
            if let Some((_, latest)) = latest {
                *latest = place;
            }
        } else {
            of.present |= 1 << class;
            of.latest.push((class, place));
        }
        place
    }

    /// Forgets a group that is complete, and its scope if that was the last.
    fn forget(&mut self, place: Place) {
        let group = &self.all[at(place)];
        let (scope, class) = (group.scope, group.class);
        self.unused.push(place);
        let of = &mut self.scopes[at(scope)];
        of.groups -= 1;
        if let Some(latest) = of.latest.iter().position(|entry| *entry == (class, place)) {
            of.latest.swap_remove(latest);
            of.present &= !(1 << class);
        }
        if of.groups == 0 && scope != ALL {
            match of.about {
                About::Key(key) => self.keys.remove(hash(self.secret, key)),
                About::Lane(lane) => self.lanes.remove(hash(self.secret, lane)),
                About::All => {}
            }
            self.free_scopes.push(scope);
        }
    }

    /// Returns the scope of a key or a lane.
    fn scope(&mut self, about: About) -> Place {
        let (index, number) = match about {
            About::All => return ALL,
            About::Key(key) => (&mut self.keys, key),
            About::Lane(lane) => (&mut self.lanes, lane),
        };
        let number = hash(self.secret, number);
        if let Some(place) = index.get(number) {
            return place;
        }
        let place = self.free_scopes.pop().unwrap_or_else(|| {
            self.scopes.push(Scope::default());
            to_place(self.scopes.len() - 1)
        });
        self.scopes[at(place)].about = about;
        index.insert(number, place);
        place
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
