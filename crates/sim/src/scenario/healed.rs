//! A liar of every kind, caught and cleaned: an intruder who held a replica must not be able to cripple it after
//! that. Half of them have their disk wiped, the others are started on what is there; at the other size it is the
//! other half.

use quorate_pbft::config::MS;
use quorate_wire::ReplicaId;

use super::host::REJOIN_NS;
use super::row::{Expect, Scenario};
use super::stage::{Ended, Stage};
use crate::adversary::roster::ROSTER;
use crate::app::KvApp;
use crate::setup::Setup;
use crate::world::{Load, World};

/// How long a liar has its way.
const HELD_NS: u64 = 400 * MS;
/// How long a replica may take to be as good as any other, once it has its memory.
const RECOVERED_NS: u64 = 10_000 * MS;

macro_rules! healed {
    ($($at:literal $name:literal;)*) => {
        /// The scenarios: one for each liar of the roster, in its order.
        pub const SCENARIOS: &[Scenario] = &[$(
            Scenario::new($name, &["L17", "L18"], "A liar of this kind is healed: the others accept its messages like those of any other replica")
                .expects(&[Expect::Noted("fully recovered")])
                .with(lying::<$at>)
                .play(cleaned::<$at>),
        )*];
    };
}

healed! {
    0 "l17_healed_equivocate";
    1 "l17_healed_equivocate_each";
    2 "l17_healed_propose_twice";
    3 "l17_healed_holes";
    4 "l17_healed_exhaust";
    5 "l17_healed_withhold";
    6 "l17_healed_censor";
    7 "l17_healed_delay";
    8 "l17_healed_unfair";
    9 "l17_healed_stuff";
    10 "l17_healed_order_reads";
    11 "l17_healed_replay_batch";
    12 "l17_healed_phantom";
    13 "l17_healed_bad_choice";
    14 "l17_healed_new_view_few";
    15 "l17_healed_new_view_forged";
    16 "l17_healed_new_view_drops";
    17 "l17_healed_new_view_short";
    18 "l17_healed_new_view_two";
    19 "l17_healed_new_view_checkpoint";
    20 "l17_healed_new_view_invented";
    21 "l17_healed_oversize";
    22 "l17_healed_silent_primary";
    23 "l17_healed_propose_to_one";
    24 "l17_healed_vote_twice";
    25 "l17_healed_vote_unseen";
    26 "l17_healed_complain";
    27 "l17_healed_out_of_role";
    28 "l17_healed_mute";
    29 "l17_healed_half_mute";
    30 "l17_healed_vc_forged";
    31 "l17_healed_vc_later";
    32 "l17_healed_vc_hidden";
    33 "l17_healed_vc_stale";
    34 "l17_healed_vc_checkpoint";
    35 "l17_healed_vc_to_few";
    36 "l17_healed_vc_two";
    37 "l17_healed_view_storm";
    38 "l17_healed_checkpoint";
    39 "l17_healed_checkpoint_future";
    40 "l17_healed_replies";
    41 "l17_healed_state";
    42 "l17_healed_status_flood";
    43 "l17_healed_partial";
    44 "l17_healed_partial_two";
    45 "l17_healed_replay";
    46 "l17_healed_reflect";
    47 "l17_healed_unhelpful";
    48 "l17_healed_mutate";
    49 "l17_healed_stale_reader";
    50 "l17_healed_eager_proof";
    51 "l17_healed_two_faced";
    52 "l17_healed_private_proof";
    53 "l17_healed_mutate_much";
    54 "l17_healed_propose_in_vain";
    55 "l17_healed_collect_silent";
    56 "l17_healed_collect_spoil";
    57 "l17_healed_swinging_choice";
    58 "l17_healed_old_status";
    59 "l17_healed_forged_tree";
    60 "l17_healed_reborn";
    61 "l17_healed_false_read";
}

/// The first `f` replicas lie, so that some of it is a primary's.
fn lying<const AT: usize>(setup: Setup) -> Setup {
    let ids: Vec<ReplicaId> = super::stage::first_f(setup.config.cluster);
    ids.into_iter().fold(setup, |mut setup, id| {
        setup.liars.insert(id, ROSTER[AT].maker());
        setup
    })
}

fn cleaned<const AT: usize>(stage: &mut Stage) -> Ended {
    let f = stage.cluster().f();
    stage.world.set_load(Load::Busy(0, 5 * MS));
    stage.pass(HELD_NS)?;
    let is_wiped = (AT + stage.cluster().n()).is_multiple_of(2);
    for id in super::stage::first_f(stage.cluster()) {
        let h = stage.world.host_of(id);
        stage.world.clean(h);
        if is_wiped {
            stage.world.wipe(h);
        }
        stage.world.restart(h);
        stage.until("it has its memory", REJOIN_NS, move |w| !w.hosts[h].amnesic)?;
    }
    let target = stage.world.committed();
    let ids = stage.all();
    stage.until("everyone has caught up", RECOVERED_NS, move |w| {
        ids.iter().all(|id| w.checkers.facts(*id).executed.0 >= target)
    })?;
    // One that is started on its old disk counts as faulty until no number is in any log for which it may have voted falsely:
    // others may have prepared there, with its vote and those of replicas that go away now.
    let ids = stage.all();
    let highest = ids.iter().map(|id| stage.world.checkers.facts(*id).stable.0).max().unwrap_or(0)
        + stage.world.config.window;
    stage.until("its false votes are behind", RECOVERED_NS, move |w| {
        ids.iter().all(|id| w.checkers.facts(*id).stable.0 >= highest)
    })?;
    // f others are away, the primary among them: every message of those that lied is needed, also to leave the view.
    let primary = u64::try_from(stage.cluster().n()).map_or(0, |n| stage.view() % n);
    let primary = usize::try_from(primary).unwrap_or(0);
    let away: Vec<usize> = (0..stage.cluster().n())
        .map(|i| (primary + i) % stage.cluster().n())
        .filter(|h| *h >= f)
        .take(f)
        .collect();
    for h in &away {
        stage.world.crash(*h);
    }
    let target = stage.world.committed() + 20;
    stage.until("they go on without f others", RECOVERED_NS, move |w: &mut World<KvApp>| {
        w.committed() >= target
    })?;
    stage.note("fully recovered");
    for h in &away {
        stage.world.restart(*h);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_for_every_liar() {
        assert_eq!(SCENARIOS.len(), ROSTER.len());
        for (scenario, entry) in SCENARIOS.iter().zip(ROSTER) {
            assert_eq!(scenario.name, format!("l17_healed_{}", entry.name.replace('-', "_")));
        }
    }
}
