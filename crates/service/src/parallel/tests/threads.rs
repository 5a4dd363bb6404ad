//! Runs on real threads, which ask the thread with the state for each cell: replies and root are those of sequential
//! execution.

use alloc::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;
use std::vec::Vec;

use quorate_wire::{Batch, Replies, SeqNum};

use crate::kv::Kv;
use crate::parallel::tests::schedules::{KINDS, KvRules, PLAN, Plan, batches, executor, said};
use crate::parallel::*;
use crate::testing::Xorshift;

/// What a worker says.
enum Word {
    Asks(Question, Sender<Option<Answer>>),
    Is(Done),
}

#[derive(Debug)]
struct Sends(Sender<Word>);

impl Questions for Sends {
    fn ask(&self, question: Question) -> Option<Answer> {
        let (to, from) = mpsc::channel();
        self.0.send(Word::Asks(question, to)).ok()?;
        from.recv().ok()?
    }
}

fn work(jobs: &Mutex<Receiver<Job>>, place: ServicePart, to: &Sender<Word>) {
    loop {
        let job = jobs.lock().unwrap().recv();
        let Ok(job) = job else { return };
        let _ = to.send(Word::Is(job.run(&Kv, &place, &Sends(to.clone()))));
    }
}

fn compare(plan: Plan, batches: &[Batch]) -> Counters {
    let (mut sequential, mut ahead) = (executor(plan), executor(plan));
    let mut runs = Runs::new(plan.kind, KvRules(None), 7, true).unwrap();
    let (give, jobs) = mpsc::channel::<Job>();
    let (to, from) = mpsc::channel::<Word>();
    let (jobs, place) = (Arc::new(Mutex::new(jobs)), ahead.service_part());
    let workers: Vec<_> = (0..plan.workers)
        .map(|_| {
            let (jobs, to) = (Arc::clone(&jobs), to.clone());
            thread::spawn(move || work(&jobs, place, &to))
        })
        .collect();
    let (mut inserted, mut busy, mut early) = (0, 0, Vec::<Early>::new());
    let mut replies = Replies::new();
    while ahead.last_executed().0 < plan.batches {
        while let Some(batch) = batches.get(inserted).filter(|_| runs.parallelizer().len() < 60) {
            inserted += 1;
            runs.insert(&mut ahead, SeqNum(inserted as u64), batch).unwrap();
        }
        while busy < plan.workers
            && let Some(job) = runs.start(&mut ahead)
        {
            give.send(job).unwrap();
            busy += 1;
        }
        match runs.settle(&mut ahead, &mut replies).unwrap() {
            Some(Settled::Batch(seq)) => {
                let mut expected = Replies::new();
                let batch = &batches[usize::try_from(seq.0 - 1).unwrap()];
                sequential.execute(seq, batch, false, &mut expected).unwrap();
                assert_eq!(said(&replies), said(&expected), "{plan:?} {seq:?}");
                let settled = said(&replies);
                for reply in early.extract_if(.., |reply| reply.position.seq == seq) {
                    let result = &settled[usize::try_from(reply.position.index).unwrap()].3;
                    assert_eq!(*result, Some(reply.result), "{plan:?} {seq:?}");
                }
                replies.clear();
                assert_eq!(ahead.checkpoint(seq), sequential.checkpoint(seq), "{plan:?} {seq:?}");
                ahead.discard(0, seq);
                sequential.discard(0, seq);
            }
            None => match from.recv_timeout(Duration::from_secs(60)).unwrap() {
                Word::Asks(question, to) => to.send(runs.answer(&ahead, &question)).unwrap(),
                Word::Is(done) => {
                    busy -= 1;
                    early.extend(runs.finish(done));
                }
            },
            Some(Settled::Request(_)) => {}
        }
    }
    drop(give);
    for worker in workers {
        worker.join().unwrap();
    }
    assert!(runs.wrong().is_empty() && early.is_empty());
    runs.counters()
}

/// PX-3, PX-11 with threads: other requests settle between two reads of a run.
#[test]
fn px11_threads_give_what_sequential_execution_gives() {
    for kind in KINDS {
        let mut sum = Counters::default();
        for seed in 0..6 {
            let plan = Plan { kind, workers: 4, batches: 60, ..PLAN };
            sum = sum.plus(compare(plan, &batches(&mut Xorshift::new(seed), plan)));
        }
        std::println!("{kind:?}: {sum:?}");
        assert!(sum.runs > 300, "{sum:?}");
        assert!(kind == EngineKind::Sequential || sum.most > 2, "{sum:?}");
    }
}
