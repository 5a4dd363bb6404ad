//! The stage of a script: a world in which messages and time move only when the script says so.

use std::collections::{BTreeMap, VecDeque};

use quorate_pbft::Timer;
use quorate_process::Event as Happens;
use quorate_wire::{Kind, ReplicaId};

use super::command::{Command, Fault, Filter};
use super::options;
use super::puppet::Puppet;
use super::traffic::{Links, Rule, Traffic};
use crate::adversary::maker::LiarMaker;
use crate::adversary::roster;
use crate::app::{App, KvApp};
use crate::disk::Disk;
use crate::event::Event;
use crate::lanes;
use crate::network::{Flight, NodeId};
use crate::trace::{Line, What};
use crate::world::World;

/// Time for a new cluster to settle, in nanoseconds.
const SETTLING_NS: u64 = 10_000_000;
/// How long `run until` waits, in nanoseconds.
const PATIENCE_NS: u64 = 60_000_000_000;
/// Maximum number of messages that `run` delivers: more are a loop.
const DELIVERIES_MAX: usize = 20_000;

/// A world on a stage.
pub(super) struct Stage {
    pub(super) world: World<KvApp>,
    pub(super) traffic: Traffic,
    puppets: BTreeMap<ReplicaId, Puppet>,
    snapshots: BTreeMap<usize, Disk>,
    /// Only what these nodes do is shown; none stands for all.
    watched: Vec<String>,
    /// Messages of these kinds are not shown.
    hidden: Vec<Kind>,
    /// Nor what is rejected.
    rejected_hidden: bool,
    loud: bool,
    /// The events since the last drawing.
    story: Vec<Line>,
}

impl Stage {
    /// Returns a cluster that has started, and what is to be said of it.
    pub(super) fn new(options: &[(String, String)]) -> Result<(Self, String), String> {
        let (mut setup, faulty) = options::setup(options)?;
        let mut puppets = BTreeMap::new();
        for id in &faulty {
            let puppet = Puppet::default();
            let strings = puppet.clone();
            setup.liars.insert(*id, LiarMaker::new(move || strings.clone()));
            puppets.insert(*id, puppet);
        }
        let cluster = setup.config.cluster;
        let has_statuses = options::has_statuses(&setup);
        let mut world = World::new(KvApp::default(), setup);
        world.held = Some(VecDeque::new());
        let mut stage = Self {
            world,
            traffic: Traffic::default(),
            puppets,
            snapshots: BTreeMap::new(),
            watched: Vec::new(),
            hidden: vec![Kind::NewKey],
            rejected_hidden: false,
            loud: true,
            story: Vec::new(),
        };
        stage.pass(SETTLING_NS, None)?;
        if !has_statuses {
            stage.traffic.silence(Kind::Status);
            stage.hidden.push(Kind::Status);
        }
        stage.world.watch(0);
        Ok((stage, format!("n={} quorum={}\n", cluster.n(), cluster.quorum())))
    }

    /// Executes a command. Returns its output.
    pub(super) fn play(&mut self, command: Command) -> Result<String, String> {
        let mut text = String::new();
        match command {
            Command::Cluster(_) => unreachable!("a new cluster takes a new stage"),
            Command::Ask { client, operation, read_only } => self.ask(&client, &operation, read_only)?,
            Command::Run => self.run()?,
            Command::Deliver(filter) => {
                let links = self.links(&filter)?;
                for flight in self.traffic.take(&links) {
                    self.arrive(flight);
                }
            }
            Command::Time(ns) => _ = self.pass(ns, None)?,
            Command::Until { who, words } => {
                if !self.pass(PATIENCE_NS, Some((who.as_deref(), &words)))? {
                    return Err(format!("`{words}` has not come within a minute"));
                }
            }
            Command::Timer(who, timer) => self.run_out(&who, timer)?,
            Command::Drop(filter) => self.traffic.rule(Rule::Drop, self.links(&filter)?),
            Command::Hold(filter) => self.traffic.rule(Rule::Hold, self.links(&filter)?),
            Command::Pass(filter) => self.traffic.rule(Rule::Pass, self.links(&filter)?),
            Command::Repeat(filter) => {
                let last = self.traffic.last(&self.links(&filter)?);
                self.arrive(last.ok_or("no such message was ever sent")?);
            }
            Command::Partition(groups) => self.partition(&groups)?,
            Command::Heal => {
                self.world.network.heal();
                self.traffic.heal();
            }
            Command::Fault(fault, replicas) => {
                for who in &replicas {
                    self.inject(fault, who)?;
                }
            }
            Command::Lie(who, how) => self.lie(&who, how.as_deref())?,
            Command::Say(saying) => self.say(&saying)?,
            Command::Show(replicas) => {
                for who in &replicas {
                    let h = self.host(who)?;
                    let card = self.world.process(h).map(|process| process.core().0.card());
                    text.push_str(&card.unwrap_or_else(|| format!("{who} down")));
                    text.push('\n');
                }
            }
            Command::Lanes => text = self.draw(),
            Command::Loud(loud) => self.loud = loud,
            Command::Watch(nodes) => {
                self.nodes(&nodes)?;
                self.watched = nodes;
            }
            Command::HideRejected(hidden) => self.rejected_hidden = hidden,
            Command::Hide(kinds, true) => self.hidden.extend(kinds),
            Command::Hide(kinds, false) => self.hidden.retain(|kind| !kinds.contains(kind)),
        }
        self.settle();
        let lines = self.world.take_lines();
        if self.loud {
            for line in lines.iter().filter(|line| self.shows(line)) {
                text.push_str(line.to_string().trim_end());
                text.push('\n');
            }
        }
        self.story.extend(lines);
        Ok(text)
    }

    /// Returns the first rule of the protocol that was broken.
    pub(super) fn violation(&self) -> Option<String> {
        self.world.violation().map(|broken| format!("breaks {}: {}", broken.rule, broken.text))
    }

    /// Checks what can only be checked at the end.
    pub(super) fn check_history(&self) -> Result<(), String> {
        self.world.check_history().map_err(|violation| violation.text)
    }

    fn shows(&self, line: &Line) -> bool {
        if !self.watched.is_empty() && !self.watched.contains(&line.who) {
            return false;
        }
        match &line.what {
            What::Sent { text, .. } => {
                !self.hidden.iter().any(|kind| text.split(' ').next() == Some(kind.name()))
            }
            What::Milestone(text) => {
                !self.rejected_hidden || !text.starts_with("rejected") && !text.starts_with("turned away")
            }
            What::Executed(_) | What::Fault(_) => true,
        }
    }

    /// Draws what has happened since this was last done, clients first.
    fn draw(&mut self) -> String {
        let mut clients: Vec<String> = self.story.iter().map(|line| line.who.clone()).collect();
        clients.retain(|who| who.starts_with('c'));
        clients.sort_unstable();
        clients.dedup();
        let replicas = self.world.hosts.iter().map(|host| host.name.clone());
        let names: Vec<String> = clients.into_iter().chain(replicas).collect();
        let story = std::mem::take(&mut self.story);
        lanes::draw(&names, story.iter().filter(|line| self.shows(line)))
    }

    /// Delivers what has been sent, and lets disks and services finish.
    fn settle(&mut self) {
        self.world.finish_work();
        while let Some(flight) = self.world.held.as_mut().and_then(VecDeque::pop_front) {
            self.traffic.send(flight);
        }
    }

    /// A message arrives, now if its time is over.
    fn arrive(&mut self, flight: Flight) {
        self.world.happen(flight.at, flight.to, Event::Arrive(flight.frame));
        self.settle();
    }

    /// Delivers messages until none is on its way.
    fn run(&mut self) -> Result<(), String> {
        self.settle();
        for _ in 0..DELIVERIES_MAX {
            match self.traffic.next() {
                Some(flight) => self.arrive(flight),
                None => return Ok(()),
            }
        }
        Err("this run does not end".to_owned())
    }

    /// Lets time pass, or what comes first, a line with these words. Returns whether it came.
    fn pass(&mut self, ns: u64, until: Option<(Option<&str>, &str)>) -> Result<bool, String> {
        let end = self.world.time() + ns;
        self.settle();
        let mut read = 0;
        loop {
            for line in self.world.lines().skip(read) {
                read += 1;
                if until.is_some_and(|(who, words)| is_told(line, who, words)) {
                    return Ok(true);
                }
            }
            let (message, timer) = (self.traffic.next_at(), self.world.next_at());
            let Some(at) = [message, timer].into_iter().flatten().min().filter(|at| *at <= end) else {
                break;
            };
            // Of what happens at one moment messages come first: they may stop the timer.
            if message.is_some_and(|message| message <= at.max(self.world.time()))
                && let Some(flight) = self.traffic.next()
            {
                self.arrive(flight);
            } else {
                self.world.step();
                self.settle();
            }
            if read > DELIVERIES_MAX {
                return Err("this does not end".to_owned());
            }
        }
        self.world.at = self.world.at.max(end);
        Ok(false)
    }

    fn ask(&mut self, client: &str, operation: &str, read_only: bool) -> Result<(), String> {
        let (c, l) = self.lane(client)?;
        let operation = self.operation(operation)?;
        let ask = crate::app::Ask { operation, read_only };
        if self.world.ask_for(c, l, &ask) { Ok(()) } else { Err(format!("{client} waits for a result")) }
    }

    /// Encodes an operation. A word `a*300` stands for 300 times `a`.
    pub(super) fn operation(&self, text: &str) -> Result<Vec<u8>, String> {
        let word = |word: &str| match word.split_once('*').map(|(what, count)| (what, count.parse::<usize>()))
        {
            Some((what, Ok(count))) => what.repeat(count),
            _ => word.to_owned(),
        };
        let text = text.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
        let ask = self.world.app.parse(&text);
        ask.map(|ask| ask.operation).ok_or_else(|| format!("`{text}` is no operation"))
    }

    /// A timer expires, although time has not advanced so far for the others.
    fn run_out(&mut self, who: &str, timer: Timer) -> Result<(), String> {
        let h = self.host(who)?;
        let host = &mut self.world.hosts[h];
        let deadline = host.process.as_ref().and_then(|process| process.deadline(timer));
        let deadline = deadline.ok_or_else(|| format!("this timer of {who} does not run"))?;
        self.world.at = self.world.at.max(self.world.hosts[h].clock.when(deadline));
        self.world.tell(h, || What::Fault(format!("its {timer:?} timer runs out")));
        self.world.feed(h, Happens::Expired(timer));
        self.world.settle(h);
        Ok(())
    }

    fn partition(&mut self, groups: &[Vec<String>]) -> Result<(), String> {
        let groups: Vec<Vec<NodeId>> =
            groups.iter().map(|names| self.nodes(names)).collect::<Result<_, _>>()?;
        let groups: Vec<&[NodeId]> = groups.iter().map(Vec::as_slice).collect();
        self.world.network.partition(&groups);
        Ok(())
    }

    fn inject(&mut self, fault: Fault, who: &str) -> Result<(), String> {
        let h = self.host(who)?;
        match fault {
            Fault::Crash => self.world.crash(h),
            Fault::Wipe => self.world.wipe(h),
            Fault::Restart => {
                let (at, node) = (self.world.time(), self.world.hosts[h].node);
                self.world.restart(h);
                self.settle();
                // It looks at the time first of all: for its keys, and for its first STATUS.
                self.world.happen(at, node, Event::Wake);
            }
            Fault::Damage(number) => {
                if !self.world.damage_state(h, number) {
                    return Err(format!("{who} has no page to damage"));
                }
            }
            Fault::Pause(ns) => self.world.pause(h, ns),
            Fault::Resume => self.world.resume(h),
            Fault::Snapshot => _ = self.snapshots.insert(h, self.world.snapshot(h)),
            Fault::PutBack => {
                let disk = self.snapshots.get_mut(&h).map(Disk::snapshot);
                self.world.put_back(h, disk.ok_or_else(|| format!("there is no snapshot of {who}"))?);
            }
        }
        Ok(())
    }

    fn lie(&mut self, who: &str, how: Option<&str>) -> Result<(), String> {
        let id = self.world.hosts[self.host(who)?].id;
        let puppet = self.puppets.get(&id).ok_or_else(|| not_faulty(who))?;
        let liar = match how {
            None => None,
            Some(name) => {
                let entry = roster::find(name).ok_or_else(|| format!("`{name}` is not in the roster"))?;
                Some(entry.maker().make())
            }
        };
        puppet.become_liar(liar);
        Ok(())
    }

    /// Returns whether a replica was declared faulty.
    pub(super) fn is_faulty(&self, id: ReplicaId) -> bool {
        self.puppets.contains_key(&id)
    }

    /// Returns the host of this name.
    pub(super) fn host(&self, name: &str) -> Result<usize, String> {
        let found = self.world.hosts.iter().position(|host| host.name == name);
        found.ok_or_else(|| format!("`{name}` is no replica of this cluster"))
    }

    /// Returns the client and the lane of this name.
    pub(super) fn lane(&self, name: &str) -> Result<(usize, usize), String> {
        let (client, lane) = name.split_once('.').unwrap_or((name, "0"));
        let place = client.strip_prefix('c').and_then(|c| Some((c.parse().ok()?, lane.parse().ok()?)));
        let exists = |(c, l): &(usize, usize)| {
            self.world.clients.get(*c).is_some_and(|client| *l < client.lanes.len())
        };
        place.filter(exists).ok_or_else(|| format!("`{name}` is no client of this cluster"))
    }

    fn nodes(&self, names: &[String]) -> Result<Vec<NodeId>, String> {
        let node = |name: &String| match self.host(name) {
            Ok(h) => Ok(self.world.hosts[h].node),
            Err(_) => self.lane(name).map(|(c, _)| self.world.clients[c].node),
        };
        names.iter().map(node).collect()
    }

    fn links(&self, filter: &Filter) -> Result<Links, String> {
        Ok(Links { kind: filter.kind, from: self.nodes(&filter.from)?, to: self.nodes(&filter.to)? })
    }
}

/// Returns whether a line begins with these words, and is this node's.
fn is_told(line: &Line, who: Option<&str>, words: &str) -> bool {
    let text = match &line.what {
        What::Sent { text, .. } | What::Milestone(text) | What::Executed(text) | What::Fault(text) => text,
    };
    who.is_none_or(|who| line.who == who) && text.starts_with(words)
}

/// Returns why a replica that is correct cannot lie.
pub(super) fn not_faulty(who: &str) -> String {
    format!("{who} is correct: only what `cluster faulty=` names may lie")
}
