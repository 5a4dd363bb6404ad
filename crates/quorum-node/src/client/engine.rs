//! The thread of a client: it turns the core, one operation at a time on each object, and tells callers how theirs ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Weak};
use std::time::Duration;

use quorate_node::wake::Waker;
use quorate_node::{Clock, Idle};
use quorate_quorum::access::SignedList;
use quorate_quorum::accusation::Accusation;
use quorate_quorum::settings::Protocol;
use quorate_quorum::step::{Call, Outcome};
use quorate_quorum::{ObjectId, ServerId};

use super::ask::{AccessLists, Ask, CallError, Shared};
use super::watch::{WATCHES_MAX, Watched, Watches};
use crate::core::{Core, Said};
use crate::evidence;
use crate::note::{Note, State};

type Reply = SyncSender<Result<Outcome, CallError>>;

/// An operation that was not answered for so long may have met servers that started again: they get this client's keys.
const SILENT_NS: u64 = 500_000_000;

/// How often to look for operations that are late: there may be one for each of many objects.
const LOOK_NS: u64 = 2_000_000;

/// Who wants an operation.
enum For {
    Caller(Reply),
    Watchers,
    /// Its caller was told that nothing is known.
    Nobody,
}

struct Operation {
    call: Call,
    until: u64,
    whose: For,
}

/// A question for the states of servers. It is asked again: the first one may have come before the keys.
struct Probe {
    reply: SyncSender<Vec<(ServerId, State)>>,
    states: Vec<(ServerId, State)>,
    asked: u64,
    until: u64,
}

/// A question for the evidence of servers: what each has sent, and whether that is all.
struct Gathering {
    reply: SyncSender<BTreeMap<ServerId, Vec<Accusation>>>,
    by: BTreeMap<ServerId, (Vec<Accusation>, bool)>,
    asked: u64,
    until: u64,
}

impl Gathering {
    /// Asks the servers that have more.
    fn ask(&self, core: &mut Core) {
        for (server, (list, over)) in &self.by {
            if !over {
                core.tell_one(*server, &Note::AskEvidence(u16::try_from(list.len()).unwrap_or(u16::MAX)));
            }
        }
    }

    /// Takes what a server has sent. Returns whether there is more of it.
    fn take(&mut self, server: ServerId, (from, total): (u16, u16), items: &[Accusation]) -> bool {
        let Some((list, over)) = self.by.get_mut(&server) else { return false };
        if *over || usize::from(from) != list.len() {
            return false;
        }
        list.extend_from_slice(items);
        *over = items.is_empty() || list.len() >= usize::from(total.min(evidence::ACCUSATIONS_MAX));
        !*over
    }

    fn is_over(&self) -> bool {
        self.by.values().all(|(_, over)| *over)
    }
}

/// An access list that servers are to have, or the question which one they have. It is sent again.
struct Comparing {
    reply: SyncSender<AccessLists>,
    signed: Option<Arc<SignedList>>,
    by: AccessLists,
    asked: u64,
    until: u64,
}

impl Comparing {
    /// Notes the list of a server, if it is not older than the one that servers are to have.
    fn take(&mut self, server: ServerId, has: Option<&Arc<SignedList>>) {
        let rank = |signed: Option<&Arc<SignedList>>| signed.map(|signed| signed.list.rank());
        if rank(has) >= rank(self.signed.as_ref()) {
            self.by.insert(server, has.cloned());
        }
    }
}

/// How often it is asked.
const ASK_NS: u64 = 100_000_000;

/// The operations on one object: the first one is running.
type Queue = VecDeque<Operation>;

struct Engine {
    core: Core,
    queues: BTreeMap<ObjectId, Queue>,
    watches: Watches,
    probes: BTreeMap<u64, Probe>,
    gathering: Vec<Gathering>,
    comparing: Vec<Comparing>,
    settling: Vec<(SyncSender<usize>, u64)>,
    number: u64,
    announced: u64,
    /// When it last looked for what is late.
    looked: u64,
    deadline: u64,
    pushes: bool,
}

/// Runs until every handle is gone, or the sockets fail.
pub(super) fn run(
    core: Core,
    asks: &Receiver<Ask>,
    shared: &Weak<Shared>,
    waker: &Waker,
    deadline: Duration,
) {
    let (clock, mut idle) = (Clock::new(), Idle::new(core.waiting()));
    let pushes = matches!(core.config().protocol, Protocol::MinimalC | Protocol::MinimalF);
    let mut engine = Engine {
        core,
        queues: BTreeMap::new(),
        watches: Watches::new(),
        probes: BTreeMap::new(),
        gathering: Vec::new(),
        comparing: Vec::new(),
        settling: Vec::new(),
        number: 0,
        announced: 0,
        looked: 0,
        deadline: u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX),
        pushes,
    };
    loop {
        let now_ns = clock.mono_ns();
        let mut worked = false;
        // Without a handle nobody asks, and nobody waits.
        let Some(holder) = shared.upgrade() else { break };
        while let Ok(ask) = asks.try_recv() {
            holder.taken();
            engine.take(now_ns, ask);
            worked = true;
        }
        drop(holder);
        let Ok(turned) = engine.core.turn(now_ns) else { break };
        worked |= turned | engine.settle(now_ns);
        if worked {
            idle.reset();
            continue;
        }
        let due = engine.due();
        let news = || shared.upgrade().is_none_or(|shared| shared.waits());
        if engine.core.rest(&mut idle, (now_ns, due), Some(waker), news).is_err() {
            break;
        }
    }
    // What is off the path of the last operation.
    let _ = engine.core.turn(clock.mono_ns());
    engine.watches.values().for_each(|watched| watched.close(CallError::Closed));
}

impl Engine {
    fn take(&mut self, now_ns: u64, ask: Ask) {
        let after =
            |wait: Duration| now_ns.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        match ask {
            Ask::Call { object, call, reply } => self.queue(now_ns, object, call, For::Caller(reply)),
            Ask::Watch { object, slot } => {
                if !self.watches.contains_key(&object) && self.watches.len() >= WATCHES_MAX {
                    return slot.close(CallError::Busy);
                }
                let pushes = self.pushes;
                self.watches.entry(object).or_insert_with(|| Watched::new(pushes)).add(slot);
            }
            Ask::Probe { reply, wait } => {
                self.number += 1;
                self.core.tell(&Note::Probe(self.number));
                let probe = Probe { reply, states: Vec::new(), asked: now_ns, until: after(wait) };
                self.probes.insert(self.number, probe);
            }
            Ask::Access { list, reply, wait } => {
                let signed = list.map(|list| Arc::new(self.core.sign(list)));
                self.core.compare(signed.as_ref());
                let (by, until) = (BTreeMap::new(), after(wait));
                self.comparing.push(Comparing { reply, signed, by, asked: now_ns, until });
            }
            Ask::Evidence { reply, wait } => {
                let servers = self.core.settings().thresholds.servers();
                let by = servers.map(|server| (server, (Vec::new(), false))).collect();
                let gathering = Gathering { reply, by, asked: now_ns, until: after(wait) };
                gathering.ask(&mut self.core);
                self.gathering.push(gathering);
            }
            Ask::Settle { reply, wait } => self.settling.push((reply, after(wait))),
        }
    }

    fn queue(&mut self, now_ns: u64, object: ObjectId, call: Call, whose: For) {
        let until = now_ns.saturating_add(self.deadline);
        let queue = self.queues.entry(object).or_default();
        queue.push_back(Operation { call: call.clone(), until, whose });
        if queue.len() == 1 {
            self.core.invoke(now_ns, object, call);
        }
    }

    /// Tells what has ended, what is late, and reads for watchers. Returns whether there was anything.
    fn settle(&mut self, now_ns: u64) -> bool {
        let mut worked = false;
        while let Some((object, result)) = self.core.take_done() {
            worked = true;
            self.ended(now_ns, object, result.map_err(CallError::from));
        }
        let mut look = now_ns.saturating_sub(self.looked) > LOOK_NS;
        while let Some(said) = self.core.take_said() {
            look = true;
            match said {
                Said::News(server, object, version) => {
                    if let Some(watched) = self.watches.get_mut(&object) {
                        watched.told(server, version);
                    }
                }
                Said::State(server, number, state) => {
                    if let Some(probe) = self.probes.get_mut(&number)
                        && probe.states.iter().all(|(other, _)| *other != server)
                    {
                        probe.states.push((server, state));
                    }
                }
                Said::Access(server, has) => {
                    self.comparing.iter_mut().for_each(|one| one.take(server, has.as_ref()));
                }
                Said::Evidence(server, from, total, items) => {
                    for gathering in &mut self.gathering {
                        if gathering.take(server, (from, total), &items) {
                            gathering.ask(&mut self.core);
                        }
                    }
                }
            }
        }
        if look {
            self.looked = now_ns;
            self.expire(now_ns);
        }
        self.read_for_watchers(now_ns) || worked
    }

    fn ended(&mut self, now_ns: u64, object: ObjectId, result: Result<Outcome, CallError>) {
        let Some(queue) = self.queues.get_mut(&object) else { return };
        let Some(operation) = queue.pop_front() else { return };
        if let Some(next) = queue.front() {
            let call = next.call.clone();
            self.core.invoke(now_ns, object, call);
        } else {
            self.queues.remove(&object);
        }
        if let Some(watched) = self.watches.get_mut(&object) {
            match (&operation.whose, &result) {
                (For::Watchers, Err(CallError::NotAllowed)) => {
                    watched.close(CallError::NotAllowed);
                    self.watches.remove(&object);
                    self.core.tell(&Note::Unwatch(object));
                }
                (For::Watchers, result) => watched.ends(result.as_ref().map_err(|error| *error)),
                (_, Ok(outcome)) => watched.see(outcome),
                (_, Err(_)) => {}
            }
        }
        if let For::Caller(reply) = operation.whose {
            let _ = reply.try_send(result);
        }
    }

    /// Tells callers whose time is over that nothing is known. The operation itself goes on: it is atomic or nothing.
    fn expire(&mut self, now_ns: u64) {
        let mut silent = false;
        for queue in self.queues.values_mut() {
            for (place, operation) in queue.iter_mut().enumerate() {
                let begun = operation.until.saturating_sub(self.deadline);
                silent |= place == 0 && now_ns.saturating_sub(begun) > SILENT_NS;
                if operation.until <= now_ns
                    && let For::Caller(reply) = std::mem::replace(&mut operation.whose, For::Nobody)
                {
                    let _ = reply.try_send(Err(CallError::Unavailable));
                }
            }
            // What has not begun need not begin.
            let mut place = 0;
            queue.retain(|operation| {
                place += 1;
                place == 1 || !matches!(operation.whose, For::Nobody)
            });
        }
        if silent && now_ns.saturating_sub(self.announced) > SILENT_NS {
            self.announced = now_ns;
            self.core.announce();
        }
        let servers = self.core.settings().thresholds.n();
        let mut over = Vec::new();
        for (number, probe) in &mut self.probes {
            if probe.states.len() >= servers || probe.until <= now_ns {
                over.push(*number);
            } else if now_ns.saturating_sub(probe.asked) > ASK_NS {
                probe.asked = now_ns;
                self.core.tell(&Note::Probe(*number));
            }
        }
        for number in over {
            if let Some(Probe { reply, mut states, .. }) = self.probes.remove(&number) {
                states.sort_unstable_by_key(|(server, _)| *server);
                let _ = reply.try_send(states);
            }
        }
        for gathering in &mut self.gathering {
            if now_ns.saturating_sub(gathering.asked) > ASK_NS {
                gathering.asked = now_ns;
                gathering.ask(&mut self.core);
            }
        }
        for gathering in self.gathering.extract_if(.., |one| one.is_over() || one.until <= now_ns) {
            let heard = gathering.by.into_iter().filter(|(_, (list, over))| *over || !list.is_empty());
            let _ = gathering.reply.try_send(heard.map(|(server, (list, _))| (server, list)).collect());
        }
        for comparing in &mut self.comparing {
            if now_ns.saturating_sub(comparing.asked) > ASK_NS {
                comparing.asked = now_ns;
                self.core.compare(comparing.signed.as_ref());
            }
        }
        for one in self.comparing.extract_if(.., |one| one.by.len() >= servers || one.until <= now_ns) {
            let _ = one.reply.try_send(one.by);
        }
        let backlog = self.core.backlog();
        self.settling.retain(|(reply, until)| {
            let over = backlog == 0 || *until <= now_ns;
            if over {
                let _ = reply.try_send(backlog);
            }
            !over
        });
    }

    fn read_for_watchers(&mut self, now_ns: u64) -> bool {
        let gone: Vec<ObjectId> = self
            .watches
            .iter_mut()
            .filter_map(|(object, watched)| (!watched.is_wanted()).then_some(*object))
            .collect();
        for object in gone {
            self.watches.remove(&object);
            self.core.tell(&Note::Unwatch(object));
        }
        let due: Vec<ObjectId> = self
            .watches
            .iter()
            .filter(|(_, watched)| watched.due() <= now_ns)
            .map(|(object, _)| *object)
            .collect();
        for object in &due {
            if let Some(watched) = self.watches.get_mut(object)
                && watched.begins(now_ns)
                && self.pushes
            {
                self.core.tell(&Note::Watch(*object));
            }
            self.queue(now_ns, *object, Call::Read, For::Watchers);
        }
        !due.is_empty()
    }

    fn due(&self) -> u64 {
        let operations = self.queues.values().flatten().map(|operation| operation.until);
        let silent = if self.queues.is_empty() { u64::MAX } else { self.announced.saturating_add(SILENT_NS) };
        let watches = self.watches.values().map(Watched::due);
        let probes = self.probes.values().map(|probe| probe.until.min(probe.asked.saturating_add(ASK_NS)));
        let comparing = self.comparing.iter().map(|one| one.until.min(one.asked.saturating_add(ASK_NS)));
        let settling = self.settling.iter().map(|(_, until)| *until);
        let gathering = self.gathering.iter().map(|one| one.until.min(one.asked.saturating_add(ASK_NS)));
        let all = operations.chain(watches).chain(probes).chain(gathering).chain(comparing).chain(settling);
        all.min().unwrap_or(u64::MAX).min(self.core.due()).min(silent)
    }
}
