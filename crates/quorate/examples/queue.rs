//! A queue of jobs: each is given to one worker at a time, and found by its owner.
use quorate::{Call, Cell, Key, Operation, Record, Service, State, Table, Value};

/// The whole replicated state.
#[derive(State)]
struct Queue<'a> {
    jobs: Table<'a, u64, Job>,
    last: Cell<'a, u64>,
}

#[derive(Debug, PartialEq, Value)]
struct Job {
    owner: String,
    text: String,
    worker: Option<String>,
}

/// What jobs are found by.
#[derive(Debug, Key)]
enum By {
    Owner { name: String },
    Waiting,
}

impl Record for Job {
    type Index = By;

    fn indexes(&self) -> Vec<By> {
        let owner = By::Owner { name: self.owner.clone() };
        if self.worker.is_none() { vec![owner, By::Waiting] } else { vec![owner] }
    }
}

#[rustfmt::skip]
#[derive(Debug, Operation)]
enum Op {
    /// Adds a job at the end of the queue. Returns its number.
    Push { owner: String, text: String },
    /// Gives the oldest waiting job to a worker.
    Take { worker: String },
    /// Removes a job that this worker has done.
    Done { worker: String, job: u64 },
    /// Puts back the jobs of a worker that has died. Returns how many.
    Release { worker: String },
    /// Returns the jobs of an owner.
    #[read_only] Of { owner: String },
    /// Returns how many jobs there are.
    #[read_only] Count,
}

#[derive(Debug, PartialEq, Value)]
enum Reply {
    Number { n: u64 },
    Jobs { jobs: Vec<(u64, Job)> },
}

impl Service for Queue<'_> {
    type Operation = Op;
    type Reply = Result<Reply, String>; // an Err undoes every write of this call

    fn execute(&mut self, op: &Op, _call: &Call) -> Self::Reply {
        match op {
            Op::Push { owner, text } => {
                let n = self.last.get() + 1;
                self.last.set(&n);
                self.jobs.insert(&n, &Job { owner: owner.clone(), text: text.clone(), worker: None });
                Ok(Reply::Number { n })
            }
            Op::Take { worker } => {
                let (n, job) = self.jobs.by(&By::Waiting).next().ok_or("no job waits")?;
                let job = Job { worker: Some(worker.clone()), ..job };
                self.jobs.insert(&n, &job);
                Ok(Reply::Jobs { jobs: vec![(n, job)] })
            }
            Op::Done { worker, job } => {
                let found = self.jobs.remove(job).ok_or(format!("no job {job}"))?;
                if found.worker.as_ref() != Some(worker) {
                    return Err(format!("job {job} is not {worker}'s"));
                }
                Ok(Reply::Number { n: *job })
            }
            Op::Release { worker } => {
                let all = self.jobs.iter().filter(|(_, job)| job.worker.as_ref() == Some(worker));
                let taken: Vec<(u64, Job)> = all.collect();
                let n = u64::try_from(taken.len()).unwrap_or(0);
                for (number, job) in taken {
                    self.jobs.insert(&number, &Job { worker: None, ..job });
                }
                Ok(Reply::Number { n })
            }
            Op::Of { owner } => {
                let jobs = self.jobs.by(&By::Owner { name: owner.clone() }).collect();
                Ok(Reply::Jobs { jobs })
            }
            Op::Count => Ok(Reply::Number { n: self.jobs.len() }),
        }
    }

    /// Every job that waits is found as waiting, and no other.
    fn check(&self) -> Result<(), String> {
        let waiting = self.jobs.iter().filter(|(_, job)| job.worker.is_none()).count();
        let found = self.jobs.by(&By::Waiting).count();
        if waiting == found { Ok(()) } else { Err(format!("{waiting} jobs wait, {found} are found")) }
    }
}

quorate::main!(Queue);

#[test]
fn no_job_is_lost_or_given_twice() -> Result<(), quorate::sim::Failure> {
    quorate::sim::check::<Queue>(1..=12).map(|report| assert!(report.refused("Done") > 0, "{report}"))
}
