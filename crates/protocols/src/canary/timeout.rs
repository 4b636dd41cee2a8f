//! How long a switch waits for a block's contributions where its timeout is adaptive: the paper's open end.
//!
//! A block's sum is not complete anywhere before its last contribution has come, so a switch that waits for a contribution which will
//! come its way, and sends on at once when it has come, delays nobody and spares everyone else a packet. What it must not do is wait for
//! what does not come. A switch therefore learns two things from the blocks whose sums have come down, when all there was to come has
//! come, stragglers too: which contributions to expect, and how long it pays to wait for them.
//!
//! ## What to expect
//! A port's *weight* is the most contributions that one packet has brought by it: the workers behind it. A port is *regular* if most blocks
//! have come by it. There are three reasons to send at once:
//!
//! * All workers but the leader have been counted (`canary 5.2`, 3a). That is so at every root.
//! * **[`Rule::Regular`]**: all regular ports have brought their weight. That is so at a leaf whose workers lead none of the blocks.
//! * **[`Rule::Rest`]**: one port is silent, and its weight is what is missing of all workers. Then the leader is behind it and
//!   nothing comes by it. That is so where the way to the leader turns downwards.
//!
//! The last two are guesses. A guess is checked against what had come in the end, whether it was acted upon or not, and a rule
//! that was wrong is not trusted before it has been right many times in a row. What turns a port into a regular one, or back, are hits and
//! misses of whole blocks; blocks of which a switch has seen everything teach nothing, since they need no guess.
//!
//! ## How long to wait
//! A block whose timer ran out is a measurement. If stragglers came, waiting longer would have spared packets: the timeout moves towards
//! the last one's delay. If none came, the rest of the time was lost: it moves back towards the delay of the last packet that came.
//! Between them the timeout settles where it spares about as many packets as it costs waits, between the bounds that it was given.

use fanin_core::{Duration, Instant, PortId};

use crate::shared::rtt::rebased;

/// A reason to send a block's sum before its time is over.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Rule {
    /// All regular ports have brought their weight.
    Regular,
    /// What is missing of all workers is the weight of the one port that was silent.
    Rest,
}

impl Rule {
    const ALL: [Rule; 2] = [Rule::Regular, Rule::Rest];
}

/// A rule is acted upon from this trust on.
const TRUST_ENOUGH: i8 = 1;
/// Trust has no more than that: what has been right for long is soon doubted.
const TRUST_MAX: i8 = 4;
/// What a wrong guess costs; a right one earns 1.
const TRUST_LOST: i8 = 16;

/// A port is regular from this score on. It begins with it, since what has come once will most likely come again.
const SCORE_REGULAR: u8 = 8;
const SCORE_MAX: u8 = 12;
/// What a miss costs; a hit earns 1. So who is regular for long is there for at least four blocks of five.
const SCORE_LOST: u8 = 4;
/// Never seen in a block that teaches.
const SCORE_NONE: u8 = u8::MAX;

/// Stragglers draw the timeout by one part in so many of the way, waits in vain by one in so many.
const RISE: u64 = 32;
const FALL: u64 = 4;

/// What a switch remembers of one block's arrivals, until its sum comes down.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Arrivals {
    first_at: Instant,
    /// Time from the first packet to the last one so far.
    spread_ps: u64,
    /// How long the block waited until its time was over; 0 where it was sent for another reason.
    waited_ps: u64,
    /// Contributions so far, in the sum or not.
    counter: u16,
    /// Contributions when a rule first said that these were all; 0 where it has not.
    guesses: [u16; Rule::ALL.len()],
}

impl Arrivals {
    /// The first packet of a block.
    #[inline]
    pub(super) fn begin(now: Instant) -> Self {
        Arrivals { first_at: now, ..Arrivals::default() }
    }

    /// Any packet of the block, with so many contributions.
    #[inline]
    pub(super) fn add(&mut self, now: Instant, counter: u16) {
        self.spread_ps = now.since(self.first_at).as_ps();
        self.counter = self.counter.saturating_add(counter);
    }

    /// The block's time is over.
    #[inline]
    pub(super) fn expire(&mut self, now: Instant) {
        self.waited_ps = now.since(self.first_at).as_ps().max(1);
    }

    /// Makes times relative to `now`.
    pub(super) fn rebase(&mut self, now: Instant) {
        self.first_at = rebased(self.first_at, now);
    }

    /// Forgets all times.
    pub(super) fn forget_durations(&mut self) {
        (self.first_at, self.spread_ps, self.waited_ps) = (Instant::ZERO, 0, 0);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Port {
    weight: u16,
    score: u8,
}

/// What one switch has learnt of one job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Estimator {
    min_ps: u64,
    max_ps: u64,
    timeout_ps: u64,
    ports: Box<[Port]>,
    /// Ports by bits: those with a weight, those with a score, those with the highest, and regular ones.
    known: Box<[u64]>,
    scored: Box<[u64]>,
    certain: Box<[u64]>,
    regular: Box<[u64]>,
    /// Weight of all regular ports, and the greatest of all ports.
    regular_weight: u32,
    weight_max: u16,
    trust: [i8; Rule::ALL.len()],
}

impl Estimator {
    /// Nothing is known of a switch with so many ports.
    pub(super) fn new(ports: u16, min: Duration, max: Duration) -> Self {
        let words = || vec![0; usize::from(ports).div_ceil(64)].into();
        Estimator {
            min_ps: min.as_ps(),
            max_ps: max.as_ps(),
            timeout_ps: min.as_ps(),
            ports: vec![Port { weight: 0, score: SCORE_NONE }; usize::from(ports)].into(),
            known: words(),
            scored: words(),
            certain: words(),
            regular: words(),
            regular_weight: 0,
            weight_max: 0,
            trust: [0, TRUST_ENOUGH],
        }
    }

    /// How long a block that begins now may wait.
    #[inline]
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_ps(self.timeout_ps)
    }

    /// A packet with so many contributions has come by a port.
    #[inline]
    pub(super) fn weigh(&mut self, port: PortId, counter: u16) {
        let weight = &mut self.ports[port.index()].weight;
        if counter <= *weight {
            return;
        }
        let gained = counter - *weight;
        *weight = counter;
        self.weight_max = self.weight_max.max(counter);
        let (word, bit) = place(port);
        self.known[word] |= bit;
        if self.regular[word] & bit != 0 {
            self.regular_weight += u32::from(gained);
        }
    }

    /// Whether everything of a block that is expected has come: `counter` contributions of `hosts` workers, by the ports that `children`
    /// gives word by word.
    #[inline]
    pub(super) fn expects_no_more(&self, arrivals: &mut Arrivals, counter: u16, hosts: u16, children: impl Fn(usize) -> u64) -> bool {
        let mut sends = false;
        for rule in Rule::ALL {
            let says = match rule {
                Rule::Regular => self.regular_are_here(counter, &children),
                Rule::Rest => self.rest_is_silent(hosts.saturating_sub(counter), &children),
            };
            if says {
                let guess = &mut arrivals.guesses[rule as usize];
                if *guess == 0 {
                    *guess = counter;
                }
                sends |= self.trust[rule as usize] >= TRUST_ENOUGH;
            }
        }
        sends
    }

    #[inline]
    fn regular_are_here(&self, counter: u16, children: impl Fn(usize) -> u64) -> bool {
        self.regular_weight > 0
            && u32::from(counter) >= self.regular_weight
            && self.regular.iter().enumerate().all(|(word, regular)| regular & !children(word) == 0)
    }

    /// Whether all ports but one have brought something, and the workers that are missing are those behind that one.
    #[inline]
    fn rest_is_silent(&self, missing: u16, children: impl Fn(usize) -> u64) -> bool {
        if missing > self.weight_max {
            return false;
        }
        let mut silent = None;
        for (word, known) in self.known.iter().enumerate() {
            let silent_here = known & !children(word);
            if silent_here == 0 {
                continue;
            }
            if silent.is_some() || silent_here.count_ones() > 1 {
                return false;
            }
            silent = Some(word * 64 + silent_here.trailing_zeros() as usize);
        }
        silent.is_some_and(|port| self.ports[port].weight == missing)
    }

    /// The sum of a block has come down by `parent`, so that nothing of it is missing: learns from what has come.
    pub(super) fn learn(&mut self, arrivals: &Arrivals, hosts: u16, parent: PortId, children: impl Fn(usize) -> u64) {
        for (trust, guess) in self.trust.iter_mut().zip(arrivals.guesses) {
            match guess {
                0 => {}
                _ if guess == arrivals.counter => *trust = (*trust + 1).min(TRUST_MAX),
                _ => *trust = (*trust - TRUST_LOST).max(TRUST_ENOUGH - TRUST_LOST),
            }
        }
        self.adapt(arrivals);
        if u32::from(arrivals.counter) + 1 < u32::from(hosts) {
            self.score(parent, children);
        }
    }

    /// Moves the timeout, where the block's was over before everything had come, or for nothing.
    fn adapt(&mut self, arrivals: &Arrivals) {
        let Arrivals { spread_ps, waited_ps, .. } = *arrivals;
        if waited_ps == 0 {
            return;
        }
        if spread_ps > waited_ps {
            self.timeout_ps += spread_ps.min(self.max_ps).saturating_sub(self.timeout_ps) / RISE;
        } else {
            self.timeout_ps -= self.timeout_ps.saturating_sub(spread_ps.max(self.min_ps)) / FALL;
        }
    }

    /// A block was seen whole, as far as it came this way.
    fn score(&mut self, parent: PortId, children: impl Fn(usize) -> u64) {
        for word in 0..self.known.len() {
            let seen = children(word);
            each_port(word, seen & !self.certain[word], |port| self.hit(port));
            // Nothing comes by the port that leads to the leader.
            let (parent_word, parent_bit) = place(parent);
            let silent = self.scored[word] & !seen & if parent_word == word { !parent_bit } else { !0 };
            each_port(word, silent, |port| self.miss(port));
        }
    }

    fn hit(&mut self, port: PortId) {
        let score = self.ports[port.index()].score;
        self.set_score(port, if score == SCORE_NONE { SCORE_REGULAR } else { (score + 1).min(SCORE_MAX) });
    }

    fn miss(&mut self, port: PortId) {
        let score = self.ports[port.index()].score;
        self.set_score(port, score.saturating_sub(SCORE_LOST));
    }

    fn set_score(&mut self, port: PortId, score: u8) {
        let (word, bit) = place(port);
        let entry = &mut self.ports[port.index()];
        entry.score = score;
        let weight = u32::from(entry.weight);
        let was_regular = self.regular[word] & bit != 0;
        set(&mut self.scored[word], bit, score > 0);
        set(&mut self.certain[word], bit, score == SCORE_MAX);
        set(&mut self.regular[word], bit, score >= SCORE_REGULAR);
        match (was_regular, score >= SCORE_REGULAR) {
            (false, true) => self.regular_weight += weight,
            (true, false) => self.regular_weight -= weight,
            _ => {}
        }
    }

    /// Forgets how long anything took.
    pub(super) fn forget_durations(&mut self) {
        self.timeout_ps = self.min_ps;
    }
}

/// The word and the bit of a port.
#[inline]
fn place(port: PortId) -> (usize, u64) {
    (port.index() / 64, 1 << (port.0 % 64))
}

#[inline]
fn set(word: &mut u64, bit: u64, value: bool) {
    *word = if value { *word | bit } else { *word & !bit };
}

/// The ports of a word's bits.
#[inline]
fn each_port(word: usize, mut bits: u64, mut visit: impl FnMut(PortId)) {
    while bits != 0 {
        visit(PortId((word * 64) as u16 + bits.trailing_zeros() as u16));
        bits &= bits - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_ns(500);
    const MAX: Duration = Duration::from_us(16);

    /// A switch of 70 ports, as far as its timeout goes.
    struct Switch {
        estimator: Estimator,
        hosts: u16,
    }

    impl Switch {
        fn new(hosts: u16) -> Self {
            Switch { estimator: Estimator::new(70, MIN, MAX), hosts }
        }

        /// A block of which packets come by these ports, with so many contributions each, until its sum comes by `parent`: gives after how
        /// many packets the switch would have sent it on.
        fn block(&mut self, packets: &[(u16, u16)], parent: u16) -> Option<usize> {
            let mut children = [0; 2];
            let mut arrivals = Arrivals::begin(Instant::ZERO);
            let mut sent = None;
            for (index, (port, counter)) in packets.iter().enumerate() {
                let (word, bit) = place(PortId(*port));
                children[word] |= bit;
                arrivals.add(Instant::ZERO, *counter);
                self.estimator.weigh(PortId(*port), *counter);
                let sum = arrivals.counter;
                if self.estimator.expects_no_more(&mut arrivals, sum, self.hosts, |word| children[word]) {
                    sent = sent.or(Some(index + 1));
                }
            }
            self.estimator.learn(&arrivals, self.hosts, PortId(parent), |word| children[word]);
            sent
        }

        /// A block whose time was over after `waited`, and whose last packet came `last` after its first one.
        fn waits(&mut self, waited: Duration, last: Duration) -> Duration {
            let mut arrivals = Arrivals::begin(Instant::ZERO);
            arrivals.add(Instant::ZERO + last, 1);
            arrivals.expire(Instant::ZERO + waited);
            self.estimator.adapt(&arrivals);
            self.estimator.timeout()
        }
    }

    /// Contributions of workers at these ports.
    fn workers(ports: &[u16]) -> Vec<(u16, u16)> {
        ports.iter().map(|port| (*port, 1)).collect()
    }

    #[test]
    fn a_leaf_sends_at_once_from_the_third_block_on() {
        for ports in [&[0, 1, 2, 3][..], &[5], &[0, 63, 64, 69]] {
            let mut leaf = Switch::new(12);
            let sent: Vec<_> = (0..5).map(|_| leaf.block(&workers(ports), 40)).collect();
            let all = Some(ports.len());
            assert_eq!(sent, [None, None, all, all, all], "seen once, guessed once, then trusted");
        }
    }

    #[test]
    fn blocks_that_a_leaf_leads_do_not_make_it_expect_their_packets() {
        let mut leaf = Switch::new(12);
        for _ in 0..3 {
            leaf.block(&workers(&[0, 1, 2, 3]), 40);
        }
        // Worker 2 leads: the others' contributions come by spine 41.
        let led: Vec<_> = workers(&[0, 1, 3]).into_iter().chain([(41, 8)]).collect();
        let before = leaf.estimator.clone();
        for _ in 0..3 {
            assert_eq!(leaf.block(&led, 2), Some(4), "not before it has the whole");
        }
        assert_eq!(leaf.estimator.regular, before.regular);
        assert_eq!(leaf.block(&workers(&[3, 2, 1, 0]), 40), Some(4));
    }

    #[test]
    fn where_the_way_turns_what_is_behind_the_leaders_port_is_not_waited_for() {
        // Four leaves with 3, 1, 2 and 4 of 10 workers.
        let leaves = [(0, 3), (1, 1), (2, 2), (66, 4)];
        let without = |leader: usize| -> Vec<(u16, u16)> { (0..4).filter(|leaf| *leaf != leader).map(|leaf| leaves[leaf]).collect() };
        let mut spine = Switch::new(10);
        assert_eq!(spine.block(&without(0), leaves[0].0), None);
        // The fourth leaf is new with this block, and the silent one is known: nothing more to learn.
        assert_eq!(spine.block(&without(1), leaves[1].0), Some(3));
        for leader in [3, 3, 0, 1, 2, 2, 2, 1, 0] {
            assert_eq!(spine.block(&without(leader), leaves[leader].0), Some(3), "leader behind {leader}");
        }
        // A leaf whose sum comes in two parts is waited for.
        assert_eq!(spine.block(&[(1, 1), (66, 3), (2, 2), (66, 1)], 0), Some(4));
    }

    #[test]
    fn a_port_that_is_not_used_any_more_is_waited_for_a_few_times_only() {
        let mut leaf = Switch::new(12);
        (0..50).for_each(|_| _ = leaf.block(&workers(&[0, 1, 2, 3]), 40));
        let sent: Vec<_> = (0..6).map(|_| leaf.block(&workers(&[0, 1, 2]), 40)).collect();
        assert_eq!(sent, [None, None, Some(3), Some(3), Some(3), Some(3)]);
        // And one that is used again is waited for again, before long.
        let back = (0..60).map(|_| leaf.block(&workers(&[0, 1, 2, 3]), 40)).collect::<Vec<_>>();
        assert_eq!(back[0], Some(3), "nobody knew");
        assert!(back[1..].iter().all(|sent| *sent != Some(3)), "and nobody guesses for a while: {back:?}");
        assert!(back[40..].iter().all(|sent| *sent == Some(4)), "{back:?}");
    }

    #[test]
    fn a_port_that_is_used_now_and_then_is_not_counted_on() {
        // As at a spine to which leaves turn from others that are full: by one port come three blocks of four.
        let mut spine = Switch::new(40);
        let mut early = 0;
        for block in 0..400u64 {
            let turned = !fanin_core::hash::mix(7, block).is_multiple_of(4);
            let packets: &[(u16, u16)] = if turned { &[(0, 5), (1, 5), (2, 5)] } else { &[(0, 5), (1, 5)] };
            let sent = spine.block(packets, 9);
            early += u32::from(turned && sent == Some(2));
        }
        assert!(early <= 400 / 17, "{early} stragglers by guesses");
    }

    #[test]
    fn trust_is_lost_faster_than_it_is_earned() {
        let mut leaf = Switch::new(12);
        (0..20).for_each(|_| _ = leaf.block(&workers(&[0, 1]), 40));
        assert_eq!(leaf.block(&workers(&[0, 1, 2]), 40), Some(2), "wrong once");
        let doubted = (0..100).take_while(|_| leaf.block(&workers(&[0, 1]), 40) != Some(2)).count();
        assert!((10..30).contains(&doubted), "{doubted}");
    }

    #[test]
    fn stragglers_raise_the_timeout_and_waits_in_vain_lower_it() {
        let mut switch = Switch::new(12);
        assert_eq!(switch.estimator.timeout(), MIN);
        for _ in 0..400 {
            switch.waits(switch.estimator.timeout(), Duration::from_us(4));
        }
        let raised = switch.estimator.timeout();
        assert!(raised > Duration::from_ns(3_900) && raised < Duration::from_us(4), "{raised}");
        for _ in 0..40 {
            switch.waits(switch.estimator.timeout(), Duration::from_ns(900));
        }
        let lowered = switch.estimator.timeout();
        assert!(lowered >= Duration::from_ns(900) && lowered < Duration::from_ns(910), "as long as packets come: {lowered}");
    }

    #[test]
    fn the_timeout_stays_within_its_bounds() {
        let mut switch = Switch::new(12);
        for block in 0..4_000u64 {
            let draw = |what| fanin_core::hash::mix(block / 500, 2 * block + what);
            let timeout = switch.waits(Duration::from_ns(draw(0) % 20_000), Duration::from_ns(draw(1) % 60_000));
            assert!((MIN..=MAX).contains(&timeout), "{timeout}");
        }
        (0..2_000).for_each(|_| _ = switch.waits(MIN, Duration::from_ms(1)));
        assert!(switch.estimator.timeout() > Duration::from_ns(15_900));
        (0..200).for_each(|_| _ = switch.waits(MAX, Duration::ZERO));
        assert!(switch.estimator.timeout() < Duration::from_ns(501));
    }

    #[test]
    fn a_straggler_in_nine_is_not_worth_a_wait_for_all() {
        // Half of what waiting longer would spare one of nine, it costs the other eight: the timeout stays low.
        let mut switch = Switch::new(12);
        for block in 0..2_000 {
            let last = if block % 9 == 0 { Duration::from_us(8) } else { Duration::from_ns(600) };
            switch.waits(switch.estimator.timeout(), last);
        }
        assert!(switch.estimator.timeout() < Duration::from_us(1), "{}", switch.estimator.timeout());
    }

    #[test]
    fn blocks_sent_for_another_reason_are_no_measurement() {
        let mut switch = Switch::new(12);
        let mut arrivals = Arrivals::begin(Instant::ZERO);
        arrivals.add(Instant::ZERO + MAX, 3);
        switch.estimator.adapt(&arrivals);
        assert_eq!(switch.estimator.timeout(), MIN);
    }
}
