//! Who sends what to whom, and in which order: the algorithms as lists of steps, one list for each worker.

use fanin_core::Rank;

/// How the vectors of workers on several machines are summed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Algorithm {
    /// One ring of all workers, machine by machine (`baselines 1`, FR).
    FlatRing,
    /// Reduce-scatter in each machine, a ring for each worker of a machine, all-gather in each machine (`baselines 2`, PR).
    ParallelRing,
    /// Reduction to a master in each machine, a ring of masters, broadcast in each machine (`baselines 3`, TA).
    Tencent,
    /// As the parallel ring, with accelerators in the connections between machines (`netreduce 5.9`, PN).
    ParallelNetReduce,
}

/// Consecutive units of the vector, which is divided into [`Algorithm::units`] of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Units {
    pub from: u32,
    pub to: u32,
}

/// What a worker sends in a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Send {
    pub to: Rank,
    pub units: Units,
    /// The sum of all workers, not of some.
    pub sums: bool,
}

/// What a worker does with what it receives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Apply {
    /// Adds it to what it holds.
    Add,
    /// Holds it in place of what it held.
    Take,
}

/// What a worker receives in a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Receive {
    pub from: Rank,
    pub units: Units,
    pub apply: Apply,
    /// What is held then is the sum of all workers.
    pub sums: bool,
}

/// A step of one worker. It begins when the worker has received all of the steps before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Step {
    /// What the worker holds here is the sum of all workers.
    pub sums: Option<Units>,
    /// It has become so here; otherwise it came so.
    pub completes: bool,
    pub send: Option<Send>,
    pub receive: Option<Receive>,
    /// Packets pass an accelerator, which puts sums in their place.
    pub accelerated: bool,
}

impl Algorithm {
    /// Into how many parts of equal length the vector is divided, on so many machines with so many workers each.
    pub(super) fn units(self, machines: u32, workers: u32) -> u32 {
        if self == Algorithm::ParallelNetReduce { workers } else { machines * workers }
    }

    /// The steps of worker `own` of machine `machine`; `ranks` are all workers, by machine.
    pub(super) fn steps(self, ranks: &[Box<[Rank]>], machine: usize, own: usize) -> Vec<Step> {
        let (machines, workers) = (ranks.len() as u32, ranks[0].len() as u32);
        let mut steps = Vec::new();
        let inside = Ring { members: &ranks[machine], own };
        match self {
            Algorithm::FlatRing => {
                let all: Vec<Rank> = ranks.iter().flatten().copied().collect();
                let ring = Ring { members: &all, own: machine * workers as usize + own };
                ring.scatter(|chunk| Units { from: chunk, to: chunk + 1 }, true, &mut steps);
                ring.gather(|chunk| Units { from: chunk, to: chunk + 1 }, &mut steps);
            }
            Algorithm::ParallelRing => {
                let chunk = |chunk| Units { from: chunk * machines, to: (chunk + 1) * machines };
                inside.scatter(chunk, machines == 1, &mut steps);
                let peers: Vec<Rank> = ranks.iter().map(|machine| machine[own]).collect();
                let across = Ring { members: &peers, own: machine };
                let part = |part| Units { from: own as u32 * machines + part, to: own as u32 * machines + part + 1 };
                across.scatter(part, true, &mut steps);
                across.gather(part, &mut steps);
                inside.gather(chunk, &mut steps);
            }
            Algorithm::ParallelNetReduce => {
                let chunk = |chunk| Units { from: chunk, to: chunk + 1 };
                inside.scatter(chunk, machines == 1, &mut steps);
                if machines > 1 {
                    let units = chunk(own as u32);
                    let at = |machine: usize| ranks[machine % ranks.len()][own];
                    let send = Send { to: at(machine + 1), units, sums: false };
                    let receive = Receive { from: at(machine + ranks.len() - 1), units, apply: Apply::Take, sums: true };
                    steps.push(Step { send: Some(send), receive: Some(receive), accelerated: true, ..Step::default() });
                }
                inside.gather(chunk, &mut steps);
            }
            Algorithm::Tencent => {
                let local = Tencent { members: &ranks[machine], own: own as u32, machines };
                local.reduce(&mut steps);
                if own == 0 {
                    let masters: Vec<Rank> = ranks.iter().map(|machine| machine[0]).collect();
                    let chunk = |chunk| Units { from: chunk * workers, to: (chunk + 1) * workers };
                    let ring = Ring { members: &masters, own: machine };
                    ring.scatter(chunk, true, &mut steps);
                    ring.gather(chunk, &mut steps);
                    if machines == 1 {
                        steps.push(Step { sums: Some(Units { from: 0, to: workers }), completes: true, ..Step::default() });
                    }
                }
                local.broadcast(&mut steps);
            }
        }
        steps
    }
}

/// A ring (`baselines 1`), of which worker i ends up with chunk i.
struct Ring<'a> {
    members: &'a [Rank],
    own: usize,
}

impl Ring<'_> {
    fn member(&self, ahead: usize) -> Rank {
        self.members[(self.own + ahead) % self.members.len()]
    }

    /// The chunk so many places behind the worker's own.
    fn behind(&self, count: usize) -> u32 {
        let members = self.members.len();
        ((self.own + 2 * members - count) % members) as u32
    }

    /// Reduce-scatter: in step s the worker passes chunk i-1-s on. What is complete at the end is the sum of all workers, or of these.
    fn scatter(&self, units: impl Fn(u32) -> Units, sums: bool, steps: &mut Vec<Step>) {
        let members = self.members.len();
        for step in 0..members - 1 {
            let send = Send { to: self.member(1), units: units(self.behind(1 + step)), sums: false };
            let from = self.member(members - 1);
            let receive = Receive { from, units: units(self.behind(2 + step)), apply: Apply::Add, sums: sums && step + 2 == members };
            steps.push(Step { send: Some(send), receive: Some(receive), ..Step::default() });
        }
    }

    /// All-gather: in step s the worker passes chunk i-s on.
    fn gather(&self, units: impl Fn(u32) -> Units, steps: &mut Vec<Step>) {
        let members = self.members.len();
        for step in 0..members - 1 {
            let send = Send { to: self.member(1), units: units(self.behind(step)), sums: true };
            let receive = Receive { from: self.member(members - 1), units: units(self.behind(1 + step)), apply: Apply::Take, sums: true };
            steps.push(Step { send: Some(send), receive: Some(receive), ..Step::default() });
        }
    }
}

/// The stages of Tencent's allreduce inside a machine, of which worker 0 is the master (`baselines 3`). The number of workers is a power of
/// two.
struct Tencent<'a> {
    members: &'a [Rank],
    own: u32,
    machines: u32,
}

impl Tencent<'_> {
    fn count(&self) -> u32 {
        self.members.len() as u32
    }

    fn rank(&self, worker: u32) -> Rank {
        self.members[(worker % self.count()) as usize]
    }

    /// Chunks of the vector, of which there is one for each worker of the machine.
    fn units(&self, from: u32, to: u32) -> Units {
        Units { from: from * self.machines, to: to * self.machines }
    }

    /// Rabenseifner's reduction: halves are exchanged until each worker has the machine's sum of its own chunk; then chunks are collected.
    fn reduce(&self, steps: &mut Vec<Step>) {
        let mut half = self.count() / 2;
        let mut from = 0;
        while half > 0 {
            let upper = self.own & half != 0;
            let (kept, given) = if upper { (from + half, from) } else { (from, from + half) };
            let peer = self.rank(self.own ^ half);
            let send = Send { to: peer, units: self.units(given, given + half), sums: false };
            let receive = Receive { from: peer, units: self.units(kept, kept + half), apply: Apply::Add, sums: false };
            steps.push(Step { send: Some(send), receive: Some(receive), ..Step::default() });
            (from, half) = (kept, half / 2);
        }
        let mut distance = 1;
        while distance < self.count() {
            if self.own & distance != 0 {
                let (to, units) = (self.rank(self.own - distance), self.units(self.own, self.own + distance));
                steps.push(Step { send: Some(Send { to, units, sums: false }), ..Step::default() });
                return;
            }
            let (from, units) = (self.rank(self.own + distance), self.units(self.own + distance, self.own + 2 * distance));
            let receive = Receive { from, units, apply: Apply::Take, sums: false };
            steps.push(Step { receive: Some(receive), ..Step::default() });
            distance *= 2;
        }
    }

    /// Van de Geijn's broadcast: a tree scatters chunks, and a ring gathers them. The master has all, so nothing is sent to it.
    fn broadcast(&self, steps: &mut Vec<Step>) {
        let (count, own) = (self.count(), self.own);
        let mut distance = count / 2;
        while distance > 0 {
            if own.is_multiple_of(2 * distance) {
                let (to, units) = (self.rank(own + distance), self.units(own + distance, own + 2 * distance));
                steps.push(Step { send: Some(Send { to, units, sums: own == 0 }), ..Step::default() });
            } else if own % (2 * distance) == distance {
                let (from, units) = (self.rank(own - distance), self.units(own, own + distance));
                steps.push(Step { receive: Some(Receive { from, units, apply: Apply::Take, sums: false }), ..Step::default() });
            }
            distance /= 2;
        }
        if own != 0 {
            steps.push(Step { sums: Some(self.units(own, own + 1)), ..Step::default() });
        }
        for step in 0..count - 1 {
            let chunk = |behind: u32| {
                let chunk = (own + 2 * count - behind) % count;
                self.units(chunk, chunk + 1)
            };
            let send = (own + 1 != count).then(|| Send { to: self.rank(own + 1), units: chunk(step), sums: true });
            let from = self.rank(own + count - 1);
            let receive = (own != 0).then(|| Receive { from, units: chunk(step + 1), apply: Apply::Take, sums: true });
            steps.push(Step { send, receive, ..Step::default() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet, VecDeque};

    const ALL: [Algorithm; 4] = [Algorithm::FlatRing, Algorithm::ParallelRing, Algorithm::Tencent, Algorithm::ParallelNetReduce];

    fn ranks(machines: u32, workers: u32) -> Vec<Box<[Rank]>> {
        (0..machines).map(|machine| (0..workers).map(|own| Rank(machine * workers + own)).collect()).collect()
    }

    /// Whose contributions are in a unit, each as often as it is counted; and whether the worker takes it for the sum.
    type Held = Vec<(Vec<Rank>, bool)>;

    /// Runs all lists by hand, a step at a time: what every worker holds at the end, and how many units each has sent.
    fn walk(algorithm: Algorithm, machines: u32, workers: u32) -> (Vec<Held>, Vec<u32>) {
        let ranks = ranks(machines, workers);
        let count = (machines * workers) as usize;
        let lists: Vec<Vec<Step>> =
            (0..count).map(|rank| algorithm.steps(&ranks, rank / workers as usize, rank % workers as usize)).collect();
        let units = algorithm.units(machines, workers);
        let mut held: Vec<Held> = (0..count as u32).map(|rank| vec![(vec![Rank(rank)], false); units as usize]).collect();
        let mut wires: BTreeMap<(usize, usize), VecDeque<(Units, Held)>> = BTreeMap::new();
        let mut at = vec![(0, false); count];
        let mut sent = vec![0; count];
        let mut moved = true;
        while moved {
            moved = false;
            for rank in 0..count {
                let (step, begun) = at[rank];
                let Some(list) = lists[rank].get(step) else { continue };
                if !begun {
                    if let Some(own) = list.sums {
                        (own.from..own.to).for_each(|unit| held[rank][unit as usize].1 = true);
                    }
                    if let Some(send) = list.send {
                        let contents: Held = held[rank][send.units.from as usize..send.units.to as usize].to_vec();
                        assert!(contents.iter().all(|(_, sums)| *sums == send.sums), "{algorithm:?}, rank {rank}, step {step}");
                        sent[rank] += send.units.to - send.units.from;
                        wires.entry((rank, send.to.index())).or_default().push_back((send.units, contents));
                    }
                    at[rank].1 = true;
                    moved = true;
                }
                let Some(receive) = list.receive else {
                    at[rank] = (step + 1, false);
                    continue;
                };
                if list.accelerated && !at.iter().all(|(other, begun)| *other > step || *begun && *other == step) {
                    continue;
                }
                let Some((units, contents)) = wires.entry((receive.from.index(), rank)).or_default().pop_front() else { continue };
                assert_eq!(units, receive.units, "{algorithm:?}, rank {rank}, step {step}");
                for (unit, (mut from, _)) in (units.from..units.to).zip(contents) {
                    if list.accelerated {
                        // The accelerator adds up what the ring's workers hold.
                        from = ranks
                            .iter()
                            .flat_map(|machine| held[machine[rank % workers as usize].index()][unit as usize].0.clone())
                            .collect();
                        from.truncate(count);
                        from.sort();
                    }
                    let slot = &mut held[rank][unit as usize];
                    assert!(!slot.1, "{algorithm:?}, rank {rank}: a sum is overwritten");
                    match receive.apply {
                        Apply::Add => slot.0.extend(from),
                        Apply::Take => slot.0 = from,
                    }
                    slot.1 = receive.sums;
                }
                at[rank] = (step + 1, false);
                moved = true;
            }
        }
        assert!(
            at.iter().zip(&lists).all(|((step, _), list)| *step == list.len()),
            "{algorithm:?} {machines} x {workers} is stuck: {at:?}"
        );
        (held, sent)
    }

    #[test]
    fn every_worker_ends_with_the_sum_of_all() {
        for (machines, workers) in [(1, 2), (2, 1), (1, 8), (2, 2), (3, 4), (4, 8), (5, 1), (2, 16)] {
            for algorithm in ALL.into_iter().filter(|algorithm| *algorithm != Algorithm::ParallelNetReduce || machines == 1) {
                let (held, _) = walk(algorithm, machines, workers);
                let all: Vec<Rank> = (0..machines * workers).map(Rank).collect();
                for (rank, held) in held.iter().enumerate() {
                    for (unit, (contributions, sums)) in held.iter().enumerate() {
                        let mut contributions = contributions.clone();
                        contributions.sort();
                        assert_eq!(contributions, all, "{algorithm:?}, {machines} x {workers}, rank {rank}, unit {unit}");
                        assert!(sums, "{algorithm:?}, {machines} x {workers}, rank {rank}, unit {unit}");
                    }
                }
            }
        }
    }

    /// `baselines 1` to `3`: how much each sends.
    #[test]
    fn workers_send_as_much_as_the_formulas_say() {
        let sent = |algorithm| walk(algorithm, 4, 8).1;
        // 2 (P - 1) of P units; with parallel rings 2 (n - 1) / n inside and 2 (G - 1) / P of it across: the same.
        assert_eq!(sent(Algorithm::FlatRing), [62; 32]);
        assert_eq!(sent(Algorithm::ParallelRing), [62; 32]);
        // A master halves (7/8), rings (2 * 3/4), scatters (7/8) and gathers (7/8) 32 units.
        let tencent = sent(Algorithm::Tencent);
        assert_eq!(tencent.iter().copied().step_by(8).collect::<BTreeSet<_>>(), BTreeSet::from([28 + 48 + 28 + 28]));
        assert_eq!(tencent[1], 28 + 4 + 28, "halves, its chunk, a ring");
        assert_eq!(tencent[7], 28 + 4, "halves, its chunk: its successor is the master");
    }

    #[test]
    fn parallel_netreduce_sends_a_vector_less_what_a_ring_sends_twice() {
        let ranks = ranks(4, 8);
        let steps = Algorithm::ParallelNetReduce.steps(&ranks, 1, 3);
        assert_eq!((steps.len(), steps.iter().filter(|step| step.accelerated).count()), (7 + 1 + 7, 1));
        let across = steps[7];
        assert_eq!(across.send.map(|send| (send.to, send.units)), Some((Rank(19), Units { from: 3, to: 4 })));
        assert_eq!(across.receive.map(|receive| (receive.from, receive.units)), Some((Rank(3), Units { from: 3, to: 4 })));
        assert_eq!(steps.iter().filter_map(|step| step.send).map(|send| send.units.to - send.units.from).sum::<u32>(), 7 + 1 + 7);
    }
}
