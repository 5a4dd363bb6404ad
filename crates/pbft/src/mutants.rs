//! Seeded bugs: one build with the feature `mutants` contains all of them, and one is enabled at run time, to show
//! that the swarm and the scenarios find it (spec §19.4).
//!
//! `mutant!(M1, right, wrong)` is `right`. Only with the feature, and only while mutant 1 is active,
//! is it `wrong`. Without the feature the compiler sees `if false`.

/// Declares the mutants: a constant for each, and the list.
macro_rules! mutants {
    ($($id:ident = $number:literal, $name:literal, $what:literal;)*) => {
        $(#[doc = $what] pub const $id: u32 = $number;)*

        /// Every mutant: its number, its name, and what it does wrong.
        pub const LIST: &[(u32, &str, &str)] = &[$(($number, $name, $what),)*];
    };
}

mutants! {
    M1 = 1, "a1-dropped", "A new view takes a prepared batch over without condition A1: nobody can overrule it.";
    M2 = 2, "a2-dropped", "A new view takes a batch over on one replica's word that it prepared, without A2.";
    M3 = 3, "a1-counts-collected", "A1 counts replicas that have discarded their entries for the number (DP-2).";
    M4 = 4, "null-counts-collected", "B counts replicas that have discarded their entries for the number (DP-2, A18).";
    M5 = 5, "first-found", "A new view takes the first prepared batch found, not the one of the highest view.";
    M6 = 6, "nulls-pruned", "A new view leaves out the null batches at the end and uses their numbers again (DP-3).";
    M7 = 7, "leave-with-f", "f SUSPECTs make a `LeaveCert`: faulty replicas alone can end a view (LV-2).";
    M8 = 8, "checkpoint-by-supporters", "The low water marks are counted over a checkpoint's supporters only (A19).";
    M9 = 9, "tentative-weak", "A client takes f + 1 tentative replies for a certificate (CL-7, A13).";
    M10 = 10, "tentative-mixed", "A client counts tentative replies of different views together (CL-7, A13).";
    M11 = 11, "write-weak", "A client takes f + 1 replies to a write although reads go unordered (CL-8, A12).";
    M12 = 12, "read-weak", "A client takes f + 1 replies to an unordered read for a certificate.";
    M13 = 13, "first-reply", "A client takes the first reply.";
    M21 = 21, "prepared-with-fewer", "prepared needs one prepare less than a quorum.";
    M22 = 22, "committed-with-fewer", "committed-local needs one commit less than a quorum.";
    M23 = 23, "attested-by-f", "f COMMITTED statements make a batch committed.";
    M24 = 24, "window-by-low", "The window reaches L above the new view's start, not above the stable checkpoint (DP-6).";
    M25 = 25, "second-digest-silent", "A second PRE-PREPARE for a number is taken for a duplicate, not for a conflict (PP-3).";
    M26 = 26, "requests-unchecked", "Batches are accepted with requests that are not authentic (PP-5).";
    M27 = 27, "prepare-before-bodies", "A batch prepares before the bodies are here (SR-3).";
    M28 = 28, "own-vote-twice", "This replica's own vote counts twice.";
    M29 = 29, "commit-before-durable", "COMMIT leaves before P is durable (D2).";
    M30 = 30, "checkpoint-tentative", "A checkpoint is cut of a tentative state (TE-6).";
    M31 = 31, "no-read-barrier", "Reads are served before what the view took over is executed (RO-4).";
    M32 = 32, "reads-see-overlay", "Reads are served while a batch is tentative (RO-2).";
    M33 = 33, "one-checkpoint-enough", "One replica's word certifies a checkpoint to fetch (ST-1).";
    M34 = 34, "stable-with-weak", "f + 1 CHECKPOINTs make a checkpoint stable (CK-2).";
    M35 = 35, "table-not-transferred", "The request table is not rebuilt from a transferred state (ST-6, B17).";
    M36 = 36, "p-forgotten", "P is forgotten after one view change (VC-1).";
    M37 = 37, "executed-omitted", "Executed numbers are left out of a VIEW-CHANGE (VC-2).";
    M38 = 38, "new-view-unchecked", "A NEW-VIEW is entered without checking it (VV-3).";
    M39 = 39, "choice-checked-again", "The soft check of the choice is applied to what a NEW-VIEW took over (ND-3).";
    M40 = 40, "view-forgotten", "A restarted replica begins in view 0 (I7).";
    M41 = 41, "votes-forgotten", "A restarted replica has forgotten what it voted for (I5, D1).";
    M42 = 42, "amnesia-votes", "A replica that lost its log votes at once (§14.4).";
    M43 = 43, "old-disk-unnoticed", "A replica votes on an old disk without hearing from the others (§14.3).";
    M44 = 44, "requests-lost", "Requests of proposals that a new view dropped are forgotten (PR-4, A26).";
    M45 = 45, "executed-again", "A new view that starts lower makes a replica execute again (A25).";
    M46 = 46, "some-request-timed", "Any execution restarts the request timer, not the oldest request's (TM-1).";
    M47 = 47, "status-unanswered", "Nobody sends again what a status shows as missing (SM-2).";
    M48 = 48, "committed-untold", "Replicas do not tell those who missed a batch that it committed (ST-5, A9).";
    M49 = 49, "unvouched-timers", "One replica's word about a request starts its timer (TM-2, B31).";
    M15 = 15, "lives-uncounted", "A VIEW-CHANGE counts, whatever life it is of (S1, RC-11).";
    M16 = 16, "ended-lives-vote", "A replica votes on in a view that rests on a life that has ended (RC-11a).";
    M17 = 17, "ended-lives-enter", "A view is made and entered on VIEW-CHANGEs of lives that have ended (RC-11b).";
    M18 = 18, "older-life-stays", "Of two lives that count the VIEW-CHANGE that came first stays (RC-11c).";
    M55 = 55, "floor-ignored", "The life before counts for any view, also above u (RC-11).";
    M58 = 58, "bound-without-window", "The limit of a rejoin is a checkpoint, and its request's number, without L (RC-4, RC-7).";
    M64 = 64, "echo-weak", "f + 1 echoes are enough to vote after a restart (§14.3).";
    M66 = 66, "read-before-echoes", "Reads are served before others have confirmed the start (S2b, §14.3).";
    M67 = 67, "floor-unkept", "A restart does not know which state was fetched and shown (S2, RO-4).";
    M68 = 68, "proofs-private", "The PROOFs of others that a NEW-VIEW rests on are not passed on (L2, DP-4).";
    M69 = 69, "choice-below-taken-over", "A new primary's first choice is its clock, whatever X has (L3, ND-1).";
    M70 = 70, "new-view-of-fewer", "A new view is decided and accepted with one VIEW-CHANGE less than a quorum (VV-1).";
    M78 = 78, "leads-beyond-window", "A new primary takes over numbers that it may not vote for (DP-5, DP-7).";
    M79 = 79, "repair-not-raised", "A repair ends at its first target, though a later checkpoint is stable (L16).";
    M81 = 81, "lives-not-transferred", "The table of lives is not taken from a transferred state (RC-11, ST-6).";
    M82 = 82, "lives-tentative", "A life begins when its request is executed tentatively (RC-11).";
    M83 = 83, "divergence-unnoticed", "A state that a quorum contradicts is not repaired (CK-6).";
    M84 = 84, "queued-commits-survive", "Commits that wait for a carrier leave in the next view (PB-3).";
    M85 = 85, "any-hand-over", "A primary can hand over a view that is not the current one (LV-2).";
    M86 = 86, "no-null-batches", "An idle cluster proposes nothing for a replica that rejoins (RC-10).";
    M87 = 87, "bytes-unbounded", "A client may have any number of bytes waiting (L6, SR-1).";
    M88 = 88, "fallback-same-timestamp", "A read falls back under its timestamp, and keeps its replies (DV-20).";
    M89 = 89, "choice-unchecked", "Any choice of the primary is accepted (ND-2).";
    M93 = 93, "restart-forgets-x", "A restarted backup does not vote for the rest of its NEW-VIEW (L7).";
    M94 = 94, "own-vote-of-old-view", "An own vote counts in the view in which it becomes durable (ADR 5).";
    M95 = 95, "rejoining-reads", "A replica that rejoins serves reads (§14.4).";
    M97 = 97, "prepares-of-any-view", "A PREPARE counts, whatever view it is of (PC-1).";
    M98 = 98, "commits-of-two-views", "COMMITs of the view and of the one before are counted together (PC-1).";
    M99 = 99, "waits-for-executed", "The request timer runs for batches of a NEW-VIEW that are executed already (TM-1).";
    M101 = 101, "quota-ignored", "One client may have every lane of the table of last replies (L1).";
    M102 = 102, "slot-released-twice", "A lane that goes gives two places back (L1).";
    M103 = 103, "page-unchecked", "A fetched page is taken without comparing its digest (ST-2).";
    M104 = 104, "node-unchecked", "A fetched node is taken without comparing its digest (ST-2).";
    M106 = 106, "registry-not-undone", "A change of the client registry survives the undo of its batch (TE-4).";
    M107 = 107, "time-goes-back", "The agreed time is the primary's choice, also below the last one (ND-2).";
    M108 = 108, "release-unnoted", "A lane that gives its place away leaves no trace (EX-2, L1).";
    M109 = 109, "tables-of-old-state", "The index of lanes is that of the state before a transfer (ST-6, B17).";
    M110 = 110, "questions-used-up", "One question with a large number makes all later ones replays (L17).";
    M111 = 111, "slow-batches", "A batch has as many requests as wait, however long they take (PR-7).";
    M112 = 112, "soon-left-views", "Time-outs that end one view after the other are not doubled, where each executes some (TM-3).";
    M113 = 113, "full-this-moment", "A primary is suspected between two proposals, though as many are in progress as it may (TM-1).";
    M114 = 114, "passed-over-in-turn", "A request that waits for its turn has been passed over (TM-1, PR-3).";
    M115 = 115, "separate-uncounted", "Proposed separate requests do not count as proposed, so that no turn passes (L29, TM-1).";
    M116 = 116, "proposed-forever", "What lost its number to another batch counts as proposed (L30, TM-1).";
    M117 = 117, "old-status-excuses", "A primary whose STATUS is old is at the end of its window, whatever it proposes (L29, TM-5).";
    M118 = 118, "early-hand-over-lost", "A hand-over that came before its view was reached has no effect then (L28, LV-2).";
    M119 = 119, "held-commits-leave", "A COMMIT that waits for a carrier when a rejoin begins leaves in it (L31, RC-5).";
    M120 = 120, "votes-said-again", "A replica that must not vote says its earlier votes again (L31, RC-5, RC-11a).";
    M121 = 121, "unsynced-votes-leave", "Votes that wait for the disk when a rejoin begins leave in it (L31, RC-5).";
    M160 = 160, "signed-copy-untimed", "A request that is known with a MAC is not timed when it comes again with a signature (L32, TM-2).";
    M161 = 161, "late-time-refused", "A proposal whose time is too old by now is refused, even if others have prepared it (L32, DV-54).";
    M162 = 162, "no-catching-up", "A replica that is far behind asks for more only when its next STATUS is due (L32, SM-1).";
    M163 = 163, "workers-awaited", "With workers, a batch is in progress until it is executed, so a hung run stops proposals (PR-2).";
    M164 = 164, "patient-in-vain", "A client whose requests are answered only when it sends them again waits as long before that (L33, CL-2).";
    M165 = 165, "impatient-while-busy", "A replica that still executes what came before waits no longer for a NEW-VIEW (L35, TM-3).";
    M166 = 166, "few-can-check", "A client's first request leaves although only the primary can check it (L36, CL-11).";
    M167 = 167, "read-beside-its-write", "With workers, a read does not wait for an unsettled write of the same key (PX-8).";
    M168 = 168, "later-views-uncounted", "A replica waits for VIEW-CHANGEs for its view, though the others are beyond it (L41, TM-3).";
    M171 = 171, "hand-over-leaps", "A hand-over moves a replica that waits, however few have come to its view (L51, LV-2).";
    M172 = 172, "view-named-early", "A replica that rejoins hears of a view before the disk knows it (L52, RC-7).";
    M173 = 173, "timer-of-old-view", "The timer for a NEW-VIEW that ran once never runs for another view (L53, TM-3).";
    M174 = 174, "rejoin-noted-late", "Votes leave after a rejoin before the disk knows of its end (L54).";
    M175 = 175, "rejoin-noted-again", "A restart takes a rejoin of long ago for one that needs null batches (L55, RC-10).";
    M176 = 176, "first-view-change-again", "Of large VIEW-CHANGEs, the same ones are sent again and again (L56, SM-4).";
    M177 = 177, "stalled-target-kept", "A replica waits for a part of its target that nobody gives, though another checkpoint is certified (L50, ST-4).";
    M178 = 178, "vouched-unasked", "A primary does not ask for a request that it cannot check and that others vouch for (L65, AU-6).";
    M179 = 179, "few-vouchers", "A primary is timed for a request that f liars vouch for, but not to it (L65, TM-2).";
    M180 = 180, "read-of-a-replica", "A replica's request with the flag read-only is taken for one to order (L126, AU-1).";
    M181 = 181, "wanted-body-swallowed", "A BODY that enough others vouch for does not reach the batch that needs it (L127, SR-4).";
    M182 = 182, "vouchers-of-batches-only", "Other backups vouch for a batch, but not for single requests of it (L128, AU-2).";
    M183 = 183, "unsigned-held", "A primary holds a request that its client has to sign, and no other of the lane comes in (L129, AU-5).";
    M190 = 190, "rejoined-view-forgotten", "A replica does not record the view in which it rejoins (L151, RC-11c).";
    M191 = 191, "any-request-noted", "Null batches follow any request of a replica, where it is executed and not fetched (L152, RC-10).";
    M192 = 192, "lives-at-will", "A replica may begin lives as often as it likes (L150, RC-6).";
    M51 = 51, "own-vote-early", "An own vote is counted before it is durable (ADR 5).";
    M52 = 52, "view-change-early", "VIEW-CHANGE leaves before its record is durable (D3).";
    M53 = 53, "tentative-early", "A tentative reply leaves before its batch is durable (TE-5).";
    M54 = 54, "shown-early", "Replies leave before a restart would know what they reflect (RO-4).";
    M56 = 56, "fetched-unkept", "What is said of a state that was fetched does not wait for its image (D5).";
    M57 = 57, "stable-by-one-flag", "One replica that says that it holds a proof makes a checkpoint stable (CK-2).";
    M59 = 59, "checkpoint-early", "CHECKPOINT leaves before the log up to it is durable (D5).";
    M60 = 60, "prepare-early", "PREPARE leaves before its record is durable (D1).";
    M61 = 61, "no-floor-after-restart", "A restart knows of no number below which reads are not served (RO-4).";
    M62 = 62, "oldest-p", "A restart takes P of the oldest view that the log has, not of the newest (VC-1).";
    M63 = 63, "any-incarnation", "Any count of starts is believed, however far it jumps (§14.3).";
    M50 = 50, "null-anywhere", "Null batches are accepted at any time (PR-6).";
    M90 = 90, "rejoined-by-own-h", "A rejoin is over when this replica's own checkpoint is stable, whatever the others' (RC-9a).";
    M140 = 140, "commit-unchecked", "A commit of the log counts without its checksum (D1).";
    M141 = 141, "commit-unsynced", "The log says that records are durable without a sync (D1, GC-2).";
    M142 = 142, "missing-commits-unnoticed", "A log that ends before a commit that was durable is the whole log (D3, §14.3).";
    M143 = 143, "image-before-pages", "An image is named before its pages are durable (D5).";
    M144 = 144, "index-unsynced", "An image is complete although its index is not durable (D5).";
    M145 = 145, "draft-unsynced", "A new index gets its name before its content is durable (D5).";
    M146 = 146, "dirty-page-dropped", "A page that is only in memory is dropped.";
    M147 = 147, "slot-of-old-page", "A page that was replaced still has the slot of its old content.";
    M148 = 148, "page-unchecked-on-disk", "A page is read from its slot without comparing its digest (H4).";
    M149 = 149, "slot-free-early", "The slot of a page is free before an image without it is complete (D5).";
    M150 = 150, "page-taken-as-written", "A page that changed is taken for the one that the disk has (D5).";
    M151 = 151, "view-not-carried", "The record of the view is lost when the log is cut (D6, I7).";
    M152 = 152, "rejoin-not-noted", "The log of a replica that has not rejoined is its state (§14.4).";
    M153 = 153, "segment-name-unsynced", "A segment is used before its name is durable (D1).";
    M154 = 154, "start-uncounted", "A start does not raise the count of starts (§14.3).";
    M155 = 155, "unreadable-page-awaited", "A page that nobody gives is waited for, even if a later state is certified (ST-8).";
    M71 = 71, "reply-of-another-request", "A client takes a reply by its timestamp, whatever request it answers (S3, RP-5).";
    M72 = 72, "timestamps-not-kept", "A client keeps the first timestamp of a run only, not those that it uses (S3, CL-10).";
    M73 = 73, "voucher-counted-twice", "A replica's word about a request counts as two (TM-2).";
    M74 = 74, "client-judged-by-primary", "A backup puts a client on probation for what the primary says is its request (L4).";
    M75 = 75, "same-timestamp-again", "A lane's request is executed again under the timestamp of the last one (EX-2).";
    M14 = 14, "result-unchecked", "A client takes a result without comparing it with the certified digest (CL-6, K12).";
}

/// The mutants of a replica's storage: `sim/tests/storage.rs` finds them, and so does the swarm.
pub const STORAGE: core::ops::RangeInclusive<u32> = M140..=M154;

#[cfg(feature = "mutants")]
mod switch {
    use core::sync::atomic::{AtomicU32, Ordering};

    /// The active mutant, or 0.
    static ACTIVE: AtomicU32 = AtomicU32::new(0);

    /// Turns on the mutant with this number, alone, or none of them. For the whole process.
    pub fn activate(id: Option<u32>) {
        ACTIVE.store(id.unwrap_or(0), Ordering::Relaxed);
    }

    /// Returns whether the mutant with this number is on.
    pub fn is_active(id: u32) -> bool {
        ACTIVE.load(Ordering::Relaxed) == id
    }
}

#[cfg(feature = "mutants")]
pub use switch::{activate, is_active};

/// Returns that no mutant is on: this build has none.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[allow(clippy::inline_always, reason = "a constant, so that both debug and release drop the branch")]
pub const fn is_active(_id: u32) -> bool {
    false
}

/// Is the second argument, or the third while the mutant named first is active.
macro_rules! mutant {
    ($id:ident, $right:expr, $wrong:expr) => {
        if $crate::mutants::is_active($crate::mutants::$id) { $wrong } else { $right }
    };
}

#[cfg(test)]
mod tests {
    use super::LIST;

    #[test]
    fn every_mutant_has_its_own_number_and_name() {
        for (i, (id, name, _)) in LIST.iter().enumerate() {
            assert!(*id != 0);
            assert!(LIST.iter().skip(i + 1).all(|(other, title, _)| other != id && title != name), "{name}");
        }
    }
}
