//! Machines on a model of network and processors (§11), without losses. Each process has a machine of its own, or several
//! share one; handlers take no time but for the work that they ask for, which occupies the processor before anything else; sending comes
//! before receiving. What the processes are is the owner's business: registers in [`crate::lab`], or anything else
//! that takes messages and sends some.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::model::{Model, UNIT};
use crate::rng::Rng;

/// A message, as far as machines care.
pub trait Payload {
    /// Returns its bytes, without frames.
    fn bytes(&self) -> usize;
}

/// What happens to the process of a machine. Its owner handles it, and then asks for the next event.
#[derive(Debug)]
pub enum Event<M, W> {
    /// The time of a call has come.
    Called {
        /// The machine.
        host: usize,
        /// What the call was made with.
        tag: u64,
    },
    /// Work is done.
    Worked {
        /// The machine.
        host: usize,
        /// What was asked for.
        work: W,
    },
    /// A message is there.
    Received {
        /// The machine.
        host: usize,
        /// The sender's.
        from: usize,
        /// The message.
        message: M,
    },
}

#[derive(Debug)]
enum Step<M, W> {
    Out(Event<M, W>),
    /// Is put into the queue of its sender.
    Late(usize, usize, M),
    Sent(usize, usize, M),
    Carried(usize, usize, M),
    Arrived(usize, usize, M),
}

#[derive(Debug)]
struct Host<M, W> {
    /// The processor that it runs on.
    processor: usize,
    work: VecDeque<(u64, W)>,
    sending: VecDeque<(usize, M)>,
    network: VecDeque<(usize, M)>,
    receiving: VecDeque<(usize, M)>,
}

/// A processor, which serves its processes in turn.
#[derive(Debug, Default)]
struct Processor {
    busy: bool,
    hosts: Vec<usize>,
    /// Which of them is asked first.
    turn: usize,
}

/// What all machines have sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Messages.
    pub messages: u64,
    /// Their bytes, without frames.
    pub bytes: u64,
}

/// The machines. See the module.
#[derive(Debug)]
pub struct Machines<M, W> {
    model: Model,
    /// What chance is drawn from.
    pub rng: Rng,
    hosts: Vec<Host<M, W>>,
    processors: Vec<Processor>,
    now: u64,
    sequence: u64,
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    steps: Vec<Option<Step<M, W>>>,
    free: Vec<usize>,
    /// Work that takes no time.
    ready: VecDeque<(usize, W)>,
    /// The machine whose event its owner is handling.
    handled: Option<usize>,
    network_busy: bool,
    last_served: usize,
    sent: Sent,
}

impl<M: Payload, W> Machines<M, W> {
    /// Returns no machines yet.
    pub fn new(model: Model, rng: Rng) -> Self {
        Self {
            model,
            rng,
            hosts: Vec::new(),
            processors: Vec::new(),
            now: 0,
            sequence: 0,
            heap: BinaryHeap::new(),
            steps: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
            handled: None,
            network_busy: false,
            last_served: usize::MAX,
            sent: Sent::default(),
        }
    }

    /// Adds a process with a processor of its own, and returns its number; they count from 0.
    pub fn add(&mut self) -> usize {
        self.add_on(self.processors.len())
    }

    /// Adds a process on a processor, which others may share, and returns its number.
    pub fn add_on(&mut self, processor: usize) -> usize {
        while self.processors.len() <= processor {
            self.processors.push(Processor::default());
        }
        self.processors[processor].hosts.push(self.hosts.len());
        self.hosts.push(Host {
            processor,
            work: VecDeque::new(),
            sending: VecDeque::new(),
            network: VecDeque::new(),
            receiving: VecDeque::new(),
        });
        self.hosts.len() - 1
    }

    /// Returns the time, in ticks.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns a number that is larger than every one before.
    pub fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Returns what has been sent since [`Self::settle`].
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Nothing happens any more: what is counted begins here, and the network serves machine 0 first.
    pub fn settle(&mut self) {
        self.sent = Sent::default();
        self.last_served = usize::MAX;
    }

    /// Calls a machine after a delay.
    pub fn call(&mut self, host: usize, delay: u64, tag: u64) {
        self.after(delay, Step::Out(Event::Called { host, tag }));
    }

    /// Puts a message into the queue of a machine whose event is handled, or that is called soon.
    pub fn send(&mut self, host: usize, to: usize, message: M) {
        self.hosts[host].sending.push_back((to, message));
    }

    /// Puts a message into the queue of a machine after a delay.
    pub fn send_after(&mut self, host: usize, to: usize, message: M, delay: u64) {
        self.after(delay, Step::Late(host, to, message));
    }

    /// Occupies the processor of a machine whose event is handled.
    pub fn work(&mut self, host: usize, cost: u64, work: W) {
        self.hosts[host].work.push_back((cost, work));
    }

    fn after(&mut self, delay: u64, step: Step<M, W>) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.steps.push(None);
            self.steps.len() - 1
        });
        self.steps[place] = Some(step);
        self.sequence += 1;
        self.heap.push(Reverse((self.now + delay, self.sequence, place)));
    }

    /// Returns the next thing that happens. None: nothing happens any more.
    pub fn next_event(&mut self) -> Option<Event<M, W>> {
        loop {
            if let Some(host) = self.handled.take() {
                self.serve(host);
            }
            if let Some((host, work)) = self.ready.pop_front() {
                self.processor(host).busy = false;
                self.handled = Some(host);
                return Some(Event::Worked { host, work });
            }
            let Reverse((now, _, place)) = self.heap.pop()?;
            self.now = now;
            let Some(step) = self.steps[place].take() else { continue };
            self.free.push(place);
            match step {
                Step::Out(event) => {
                    let (host, occupied) = match &event {
                        Event::Called { host, .. } => (*host, false),
                        Event::Worked { host, .. } | Event::Received { host, .. } => (*host, true),
                    };
                    self.processor(host).busy &= !occupied;
                    self.handled = Some(host);
                    return Some(event);
                }
                Step::Late(host, to, message) => {
                    self.send(host, to, message);
                    self.serve(host);
                }
                Step::Sent(host, to, message) => {
                    self.processor(host).busy = false;
                    if let Some(delay) = self.model.wire(host, to, &mut self.rng) {
                        self.after(delay, Step::Arrived(host, to, message));
                    } else {
                        self.hosts[host].network.push_back((to, message));
                        self.carry();
                    }
                    self.serve(host);
                }
                Step::Carried(from, to, message) => {
                    self.network_busy = false;
                    self.carry();
                    self.arrived(from, to, message);
                }
                Step::Arrived(from, to, message) => self.arrived(from, to, message),
            }
        }
    }

    fn arrived(&mut self, from: usize, to: usize, message: M) {
        self.hosts[to].receiving.push_back((from, message));
        self.serve(to);
    }

    /// The shared network serves machines in turn, one message at a time.
    fn carry(&mut self) {
        if self.network_busy {
            return;
        }
        let count = self.hosts.len();
        for step in 1..=count {
            let host = self.last_served.wrapping_add(step) % count;
            if let Some((to, message)) = self.hosts[host].network.pop_front() {
                self.network_busy = true;
                self.last_served = host;
                return self.after(UNIT, Step::Carried(host, to, message));
            }
        }
    }

    fn processor(&mut self, host: usize) -> &mut Processor {
        let processor = self.hosts[host].processor;
        &mut self.processors[processor]
    }

    /// The processor of a host does the work of handlers first, then sends, then receives.
    fn serve(&mut self, host: usize) {
        let place = self.hosts[host].processor;
        let Processor { busy: false, hosts, turn } = &self.processors[place] else { return };
        let (count, turn) = (hosts.len(), *turn);
        let Self { hosts: all, processors, .. } = self;
        let mine = &processors[place].hosts;
        let find = |waits: fn(&Host<M, W>) -> bool| {
            (0..count).map(|step| mine[(turn + step) % count]).find(|host| waits(&all[*host]))
        };
        let next = find(|host| !host.work.is_empty())
            .or_else(|| find(|host| !host.sending.is_empty()))
            .or_else(|| find(|host| !host.receiving.is_empty()));
        let Some(host) = next else { return };
        let after = mine.iter().position(|one| *one == host).unwrap_or(0) + 1;
        (processors[place].busy, processors[place].turn) = (true, after);
        let place = &mut all[host];
        if let Some((cost, work)) = place.work.pop_front() {
            if cost == 0 {
                self.ready.push_back((host, work));
            } else {
                self.after(cost, Step::Out(Event::Worked { host, work }));
            }
        } else if let Some((to, message)) = place.sending.pop_front() {
            self.sent.messages += 1;
            self.sent.bytes += u64::try_from(message.bytes()).unwrap_or(0);
            self.after(self.model.cpu(), Step::Sent(host, to, message));
        } else if let Some((from, message)) = place.receiving.pop_front() {
            self.after(self.model.cpu(), Step::Out(Event::Received { host, from, message }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Payload for u64 {
        fn bytes(&self) -> usize {
            8
        }
    }

    fn machines(thousandths: u64, count: usize) -> Machines<u64, ()> {
        let mut machines = Machines::new(Model::contention(thousandths), Rng::new(1, 1));
        (0..count).for_each(|_| _ = machines.add());
        machines
    }

    /// §11.2: one message takes 2 lambda + 1; k messages from an idle machine to idle ones are there at 2 lambda + k,
    /// for lambda up to 1.
    #[test]
    fn messages_take_their_time() {
        for (lambda, count) in [(100, 1), (100, 5), (1000, 5), (0, 3)] {
            let mut machines = machines(lambda, count + 1);
            machines.call(0, 0, 9);
            let mut last = 0;
            let mut received = 0;
            while let Some(event) = machines.next_event() {
                match event {
                    Event::Called { host: 0, tag: 9 } => (1..=count).for_each(|to| machines.send(0, to, 7)),
                    Event::Received { from: 0, message: 7, host } => {
                        received += 1;
                        assert_eq!(host, received);
                        last = machines.now();
                    }
                    Event::Called { .. } | Event::Worked { .. } | Event::Received { .. } => {
                        unreachable!("another machine")
                    }
                }
            }
            assert_eq!((received, last), (count, 2 * lambda * 1000 + u64::try_from(count).unwrap() * UNIT));
            let count = u64::try_from(count).unwrap();
            assert_eq!(machines.sent(), Sent { messages: count, bytes: 8 * count });
        }
    }

    /// Work occupies the processor before anything is sent, and work without a cost is done at once.
    #[test]
    fn work_comes_before_sending() {
        let mut machines = machines(0, 2);
        machines.call(0, 5, 0);
        let mut done = Vec::new();
        while let Some(event) = machines.next_event() {
            match event {
                Event::Called { .. } => {
                    machines.send(0, 1, 1);
                    machines.work(0, 0, ());
                    machines.work(0, 10, ());
                }
                Event::Worked { host: 0, .. } | Event::Received { host: 1, .. } => done.push(machines.now()),
                Event::Worked { .. } | Event::Received { .. } => unreachable!("another machine"),
            }
        }
        assert_eq!(done, [5, 15, 15 + UNIT]);
    }

    /// Two processes on one processor: what one sends waits until the other's work is done.
    #[test]
    fn processes_on_one_processor_wait_for_each_other() {
        let mut machines: Machines<u64, ()> = Machines::new(Model::sim2006(0), Rng::new(1, 1));
        for processor in [0, 0, 1] {
            machines.add_on(processor);
        }
        machines.call(0, 0, 0);
        machines.call(1, 1, 0);
        let mut received = 0;
        while let Some(event) = machines.next_event() {
            match event {
                Event::Called { host: 0, .. } => machines.work(0, 14 * UNIT, ()),
                Event::Called { host, .. } => machines.send(host, 2, 7),
                Event::Worked { .. } => {}
                Event::Received { .. } => received = machines.now(),
            }
        }
        assert_eq!(received, 14 * UNIT + 2 * 270_000 + 100_000);
    }
}
