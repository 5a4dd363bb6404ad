//! The swarm: everything is drawn from a seed: cluster settings, workload, network, disks, Byzantine behaviours, and
//! which faults come when. Then the faults end, and everything has to finish.
//!
//! 1. Under faults, until enough batches are final and enough faults have happened; checkers run after every step.
//! 2. Healed: the network works, every host is up; Byzantine replicas continue to lie. Clients continue until there
//!    are enough batches.
//! 3. Clients send no new requests: every outstanding request has to finish and all correct replicas have to reach
//!    one view within a limit of simulated time, or the run is stuck.

use quorate_pbft::Config;
use quorate_pbft::config::MS;
use quorate_wire::Cluster;

use crate::app::{App, KvApp, NullApp};
use crate::checker::Violation;
use crate::checker::progress::{self, Stuck};
use crate::panics;
use crate::report::{Failure, Rule};
use crate::rng::{Concern, Rng};
use crate::summary::Counters;
use crate::trace::Line;
use crate::work::Workers;
use crate::world::{Load, World};

mod budget;
mod disks;
mod fall_back;
pub mod faults;
pub mod forger;
pub mod kinds;
mod moves;
pub mod plan;
mod story;

use faults::Weather;
use forger::Forger;
use plan::Plan;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
/// The longest that the faults last, in simulated time.
const FAULTS_NS: u64 = 40 * SECOND;
/// The longest that clients continue after the faults, in simulated time.
const HEALED_NS: u64 = 120 * SECOND;
/// The longest that everything may take to finish, in simulated time (I23, I24).
const FINISH_NS: u64 = 60 * SECOND;

/// How often the longest wait for a view a request may take that was asked under faults, once they are over.
const PATIENCE: u64 = 4;
/// How many views may be needed after the faults, in addition to one for each liar.
const VIEWS_AFTER: u64 = 2;

/// What a run is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The cluster.
    pub cluster: Cluster,
    /// The settings, if they are not to follow from the seed.
    pub config: Option<&'a Config>,
    /// How many batches have to be final.
    pub batches: u64,
    /// Ends the run after this many steps of the world, unfinished; 0: never.
    pub steps: u64,
    /// How many last lines of the trace are kept; 0: none, the largest number: all.
    pub lines: usize,
    /// The workers of the replicas, from the seed. None: requests are executed one after the other.
    pub workers: Option<fn(u64) -> Workers>,
    /// Only what was drawn at first: old seeds give the runs that they gave.
    pub plain: bool,
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its seed.
    pub seed: u64,
    /// The counters of events.
    pub counters: Counters,
    /// Simulated time, in nanoseconds.
    pub simulated_ns: u64,
    /// Over every input and action of correct replicas.
    pub hash: [u8; 32],
    /// The failure, if there was one.
    pub failure: Option<Failure>,
    /// The last lines of its trace.
    pub lines: Vec<Line>,
    /// The names of all nodes: lanes of clients first, then hosts.
    pub names: Vec<String>,
    /// The state of each host at the end, if lines were asked for.
    pub states: Vec<String>,
}

/// Runs one seed.
pub fn run(seed: u64, ask: &Ask<'_>) -> Run {
    let mut rng = Rng::new(seed, Concern::Options);
    if rng.one_in(8) {
        run_app(NullApp::default(), seed, ask, &mut rng)
    } else {
        let together = if ask.plain { 0 } else { KvApp::default().together };
        let keys = rng.between(2, 10) * if ask.workers.is_some() { 4 } else { 1 };
        let app = KvApp { keys, together, ..KvApp::default() };
        run_app(app, seed, ask, &mut rng)
    }
}

/// Runs one seed with a service of the caller's.
pub fn run_service<A: App>(app: A, seed: u64, ask: &Ask<'_>) -> Run {
    run_app(app, seed, ask, &mut Rng::new(seed, Concern::Options))
}

fn run_app<A: App>(app: A, seed: u64, ask: &Ask<'_>, rng: &mut Rng) -> Run {
    let mut plan = Plan::draw(seed, ask.cluster, ask.config, rng, ask.plain);
    if let Some(workers) = ask.workers {
        plan.setup.config.tentative = false;
        plan.setup.inline = false;
        // Many requests at once.
        plan.setup.lanes = plan.setup.lanes.max(8);
        plan.load = Load::Busy(0, MS);
        plan.setup.workers = Some(workers(seed));
    }
    plan.setup.page_bytes = app.page_bytes().unwrap_or(plan.setup.page_bytes);
    let faulty = plan.faulty.clone();
    let mut weather = Weather::new(seed, &plan);
    let (load, false_client) = (plan.load, plan.false_client);
    let mut world = World::new(app, plan.setup);
    if plan.has_bad_disks {
        world.hosts.iter_mut().enumerate().for_each(|(h, host)| host.disk.allow_kills(seed, h));
    }
    plan.odd.iter().for_each(|what| world.counters.fault(what));
    if false_client {
        weather.forger = Forger::new(&mut world);
    }
    if ask.lines > 0 {
        world.watch(if ask.lines == usize::MAX { 0 } else { ask.lines });
    }
    let ended = panics::catch(|| drive(&mut world, &mut weather, load, ask));
    let rule = match ended {
        Ok(Ok(())) => None,
        Ok(Err(rule)) => Some(rule),
        Err(panic) => Some(Rule::Panic(panic)),
    };
    let states = if ask.lines > 0 { world.states() } else { Vec::new() };
    let failure = rule.map(|rule| Failure {
        seed,
        scenario: None,
        cluster: ask.cluster,
        step: world.step_count(),
        rule,
        faulty,
        cards: world.cards(),
    });
    Run {
        seed,
        counters: world.counters(),
        simulated_ns: world.time(),
        hash: world.finish_hash(),
        failure,
        lines: world.take_lines(),
        names: world.names(),
        states,
    }
}

fn drive<A: App>(world: &mut World<A>, weather: &mut Weather, load: Load, ask: &Ask<'_>) -> Result<(), Rule> {
    let stop = |world: &World<A>| ask.steps > 0 && world.step_count() >= ask.steps;
    world.set_load(load);
    while !weather.is_over(world, ask.batches, world.time() >= FAULTS_NS) {
        let until = weather.next_at();
        world.run(until, |w| stop(w) || weather.is_over(w, ask.batches, false));
        checked(world)?;
        if stop(world) {
            return Ok(());
        }
        if world.time() >= until {
            weather.tick(world);
        }
    }
    let handed_over = world.counters().hand_overs();
    weather.end(world);
    if !ask.plain {
        in_time(world, handed_over, &stop)?;
    }
    let until = world.time() + HEALED_NS;
    let done = world.run(until, |w| stop(w) || w.committed() >= ask.batches);
    checked(world)?;
    if !done {
        return Err(Rule::Stuck(why(world).map_or("too slow".to_owned(), |stuck| stuck.to_string())));
    }
    finish(world, FINISH_NS, stop)
}

/// After the faults, what was asked before has its answer within a few times the longest wait for a view, and few
/// views more are needed (I23): two, two for each liar (as the primary, and if it begins a new life), one for each other
/// replica that still rejoins, since a view that rests on an old life is left (RC-11b), and one for each hand-over, as of
/// a primary that restarted or that a lying client stopped (AU-5).
fn in_time<A: App>(
    world: &mut World<A>,
    handed_over: u64,
    stop: &impl Fn(&World<A>) -> bool,
) -> Result<(), Rule> {
    let view = |world: &World<A>| world.core_facts().map(|facts| facts.view.0).max().unwrap_or(0);
    let asked = world.asked();
    let (healed, before) = (world.time(), view(world));
    let rejoining = world.config.cluster.replicas().filter(|id| !world.checkers.facts(*id).remembers).count();
    let most = VIEWS_AFTER + u64::try_from(2 * world.config.cluster.f() + rejoining).unwrap_or(0);
    let until = healed + PATIENCE * world.config.view_timeout_max_ns;
    let done = world.run(until, |w| stop(w) || w.is_answered(&asked));
    checked(world)?;
    if !done {
        let text = format!("{} of {} requests have waited for 4 T_VC", world.unanswered(&asked), asked.len());
        world.checkers.note(Err(Violation::new("in time (I23)", text, &[])));
    }
    let after = view(world);
    let most = most + world.counters().hand_overs() - handed_over;
    if after > before + most {
        let text = format!("views {before} to {after} after the faults, and {most} more would do");
        world.checkers.note(Err(Violation::new("few views (I23)", text, &[])));
    }
    checked(world)
}

/// Ends the load and waits until everything has finished (I23, I24); then looks at the whole history, and at the state of
/// each correct replica.
pub(crate) fn finish<A: App>(
    world: &mut World<A>,
    within_ns: u64,
    mut stop: impl FnMut(&World<A>) -> bool,
) -> Result<(), Rule> {
    world.set_load(Load::Idle);
    let until = world.time() + within_ns;
    world.run(until, |w| stop(w) || why(w).is_none());
    checked(world)?;
    if !stop(world)
        && let Some(stuck) = why(world)
    {
        return Err(Rule::Stuck(stuck.to_string()));
    }
    world.checkers.finish();
    checked(world)?;
    world.audit().map_err(Rule::Broken)?;
    world.check_history().map_err(Rule::Broken)
}

fn checked<A: App>(world: &World<A>) -> Result<(), Rule> {
    world.violation().map_or(Ok(()), |violation| Err(Rule::Broken(violation.clone())))
}

/// Describes what is still open, if anything is.
pub(crate) fn why<A: App>(world: &World<A>) -> Option<Stuck> {
    let (count, oldest) = world.outstanding();
    if count > 0 {
        return Some(Stuck::Requests { count, oldest });
    }
    if world.checkers.is_early() {
        return Some(Stuck::Tentative);
    }
    progress::open(world.core_facts(), world.config.window)
}
