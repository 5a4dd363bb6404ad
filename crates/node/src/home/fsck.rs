//! Checks the file system of a stopped replica.
//!
//! The state is built as the replica would build it at its next start: the image on its disk, then every committed
//! batch in its log. It is compared with the newest agreed checkpoint in the log, and its structure is checked.
//! Nothing on the disk is changed.

use std::path::Path;

use quorate_fs::fsck::{self, Report};
use quorate_pbft::Committed;
use quorate_service::{Executor, PageFault, Service};
use quorate_wire::{Digest, Principal, Replies, SeqNum};

use crate::error::{NodeError, NodeErrorKind};
use crate::home::examine::examine;
use crate::home::place::lock;
use crate::home::settings::ServiceName;
use crate::storage::{self, Files, Paged};
use quorate_process::executor_options;

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The last batch that the state reflects.
    pub seq: SeqNum,
    /// The newest agreed checkpoint that was passed while executing, with its root.
    pub agreed: Option<(SeqNum, Digest)>,
    /// The root that was computed there, if it differs.
    pub differs: Option<Digest>,
    /// The report on the file system's structure.
    pub report: Report,
}

impl Checked {
    /// Returns whether there are no findings.
    pub fn is_clean(&self) -> bool {
        self.differs.is_none() && self.report.is_clean()
    }
}

/// Checks the file system in the directory of a stopped replica.
///
/// # Errors
///
/// It is not a replica's directory, a process uses it, or its files cannot be read. Findings in the file system are
/// not errors.
pub fn check(dir: &Path) -> Result<Checked, NodeError> {
    let node = examine(dir)?;
    let Principal::Replica(id) = node.own else {
        return Err(NodeError::new(NodeErrorKind::Rule, "a client keeps no state")
            .in_file(dir)
            .next("name the directory of a stopped replica: --dir DIR/replica-0"));
    };
    if node.settings.service != ServiceName::FS {
        return Err(
            NodeError::new(NodeErrorKind::Rule, "the replicated service is not a file system").in_file(dir)
        );
    }
    // Keeps the replica from being started during the check.
    let _lock = lock(dir)?;
    let config = &node.settings.config;
    let fs = node.settings.file_system(&dir.join("node.toml"))?;
    let settings = fs.settings().clone();
    let (domains, options) = (config.domains(), executor_options(config, 1));
    let (files, limit) = (Files::below(dir), node.settings.state_memory_max);
    let store = Paged::new(files, domains.clone(), options.page_bytes, limit);
    let executor = Executor::with_store(fs, domains, options, store);
    let mut executor = executor.governed(node.members.founders(), node.members.cluster.n());
    let owner = (node.members.cluster_id(), id);
    let records = storage::read(dir, owner, config.durability, &mut executor)?.unwrap_or_default();
    let committed = Committed::read(&records, &config.domains(), executor.last_executed());
    let unreadable = |page| {
        NodeError::new(
            NodeErrorKind::Unreadable,
            format!("page {page} of the state cannot be read from the disk"),
        )
        .in_file(dir)
        .next("start the replica: it fetches the page from the others")
    };
    let executed = execute(&mut executor, &committed, config.checkpoint_interval);
    let (agreed, differs) = executed.map_err(|fault| unreadable(fault.page))?;
    let report = fsck::check(&settings, executor.view()).map_err(|stop| {
        NodeError::new(NodeErrorKind::Unreadable, format!("the state is incomplete: {stop:?}")).in_file(dir)
    })?;
    Ok(Checked { seq: executor.last_executed(), agreed, differs, report })
}

type Compared = Result<(Option<(SeqNum, Digest)>, Option<Digest>), PageFault>;

/// Executes the committed batches, and compares with the agreed checkpoint.
fn execute<S: Service>(executor: &mut Executor<S, Paged>, committed: &Committed, interval: u64) -> Compared {
    let image = executor.last_executed();
    let (mut agreed, mut differs) = (None, None);
    if let Some((stable, root)) = committed.stable.filter(|(stable, _)| *stable == image) {
        agreed = Some((stable, root));
        differs = executor.root_at(stable).filter(|found| *found != root);
    }
    let mut replies = Replies::default();
    for (seq, batch) in &committed.batches {
        executor.relax();
        executor.execute(*seq, batch, false, &mut replies)?;
        if seq.0 % interval != 0 {
            continue;
        }
        let found = executor.checkpoint(*seq);
        executor.discard(0, *seq);
        if let Some((stable, root)) = committed.stable.filter(|(stable, _)| stable == seq) {
            agreed = Some((stable, root));
            differs = Some(found).filter(|found| *found != root);
        }
    }
    Ok((agreed, differs))
}
