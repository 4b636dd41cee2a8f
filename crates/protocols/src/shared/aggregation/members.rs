//! Sets of a job's ranks as nodes keep them: a bit for each, however many. A packet names some of one group of 64, or all of a switch
//! ([`RankSet`]).
//!
//! Of jobs with up to 64 workers all ranks are of the first group, and nothing but its word is ever looked at.

use fanin_core::Rank;
use fanin_wire::atp::RankSet;

/// A set of ranks, by their bits.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Members {
    /// The first group.
    low: u64,
    /// The groups behind it.
    high: Box<[u64]>,
}

impl Members {
    /// No rank, with room for those of so many groups.
    pub fn with_groups(groups: usize) -> Self {
        Members { low: 0, high: vec![0; groups.saturating_sub(1)].into() }
    }

    /// Ranks 0 to `count` - 1.
    pub fn first(count: u32) -> Self {
        (0..count).map(Rank).collect()
    }

    /// Makes room for so many groups at least; what is here stays.
    pub fn grow(&mut self, groups: usize) {
        if groups > self.groups() {
            let mut high = std::mem::take(&mut self.high).into_vec();
            high.resize(groups - 1, 0);
            self.high = high.into();
        }
    }

    /// How many groups there is room for.
    #[inline]
    pub fn groups(&self) -> usize {
        self.high.len() + 1
    }

    #[inline]
    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.low).chain(self.high.iter().copied())
    }

    #[inline]
    fn word(&self, group: usize) -> u64 {
        if group == 0 { self.low } else { self.high.get(group - 1).copied().unwrap_or(0) }
    }

    /// These ranks, and more.
    fn add_words(&mut self, other: &Members) {
        self.low |= other.low;
        self.high.iter_mut().zip(&other.high).for_each(|(word, more)| *word |= more);
    }

    /// How many ranks.
    #[inline]
    pub fn count(&self) -> u32 {
        self.low.count_ones() + self.high.iter().map(|word| word.count_ones()).sum::<u32>()
    }

    /// Whether this rank is one of them.
    #[inline]
    pub fn contains(&self, rank: Rank) -> bool {
        self.word((rank.0 / RankSet::GROUP) as usize) >> (rank.0 % RankSet::GROUP) & 1 == 1
    }

    /// Whether a rank is in both.
    #[inline]
    pub fn meets(&self, other: &Members) -> bool {
        self.low & other.low != 0 || self.high.iter().zip(&other.high).any(|(word, others)| word & others != 0)
    }

    /// Each rank, the lowest first.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> + '_ {
        let of_word = |(group, word): (usize, u64)| {
            (0..RankSet::GROUP).filter(move |bit| word >> bit & 1 == 1).map(move |bit| Rank(group as u32 * RankSet::GROUP + bit))
        };
        self.words().enumerate().flat_map(of_word)
    }

    /// The lowest rank that is in `all` and not here.
    pub fn lowest_missing(&self, all: &Members) -> Option<Rank> {
        (0..all.groups()).find_map(|group| {
            let missing = all.word(group) & !self.word(group);
            (missing != 0).then(|| Rank(group as u32 * RankSet::GROUP + missing.trailing_zeros()))
        })
    }

    /// What a packet calls these, where they are of one group.
    #[inline]
    pub fn name(&self) -> Option<RankSet> {
        if self.high.is_empty() { Some(RankSet::from_bits(self.low)) } else { self.name_of_many() }
    }

    fn name_of_many(&self) -> Option<RankSet> {
        let mut groups = self.words().enumerate().filter(|(_, word)| *word != 0);
        let (group, word) = groups.next().unwrap_or_default();
        groups.next().is_none().then(|| RankSet::of_group(group as u8, word))
    }
}

/// What packets name: of each there must be room.
impl Members {
    /// Whether a rank is in both.
    #[inline]
    pub fn overlaps(&self, named: RankSet, switches: &Switches) -> bool {
        match named.switch() {
            None => self.word(usize::from(named.group())) & named.bits() != 0,
            Some(switch) => switches.ranks(switch).is_some_and(|ranks| self.meets(ranks)),
        }
    }

    /// Whether all of these are here; not if there is no such switch.
    #[inline]
    pub fn holds(&self, named: RankSet, switches: &Switches) -> bool {
        match named.switch() {
            None => named.bits() & !self.word(usize::from(named.group())) == 0,
            Some(switch) => {
                switches.ranks(switch).is_some_and(|ranks| ranks.words().enumerate().all(|(group, word)| word & !self.word(group) == 0))
            }
        }
    }

    /// Whether these and no others are here.
    #[inline]
    pub fn is(&self, named: RankSet, switches: &Switches) -> bool {
        match named.switch() {
            None => self.holds(named, switches) && self.count() == named.bits().count_ones(),
            Some(switch) => {
                switches.ranks(switch).is_some_and(|ranks| self.lowest_missing(ranks).is_none() && ranks.lowest_missing(self).is_none())
            }
        }
    }

    /// These are here, too.
    #[inline]
    pub fn add(&mut self, named: RankSet, switches: &Switches) {
        match (named.switch(), named.group()) {
            (None, 0) => self.low |= named.bits(),
            (None, group) => {
                if let Some(word) = self.high.get_mut(usize::from(group) - 1) {
                    *word |= named.bits();
                }
            }
            (Some(switch), _) => {
                if let Some(ranks) = switches.ranks(switch) {
                    self.add_words(ranks);
                }
            }
        }
    }

    /// These are here, and nothing else.
    #[inline]
    pub fn set(&mut self, named: RankSet, switches: &Switches) {
        self.low = 0;
        self.high.fill(0);
        self.add(named, switches);
    }
}

impl FromIterator<Rank> for Members {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        let ranks: Vec<Rank> = ranks.into_iter().collect();
        let groups = ranks.iter().map(|rank| (rank.0 / RankSet::GROUP) as usize + 1).max().unwrap_or(1);
        let mut members = Members::with_groups(groups);
        ranks.into_iter().for_each(|rank| members.add(RankSet::of(rank), &Switches::default()));
        members
    }
}

/// The ranks of a job's switches, by the switch's number in the job: 0 for the server's, whose are all that come by way of it. Only of jobs
/// with more than 64 workers does a packet ever name one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Switches(Box<[Members]>);

impl Switches {
    /// Those of which a node knows.
    pub fn new(ranks: Vec<Members>) -> Self {
        Switches(ranks.into())
    }

    fn ranks(&self, switch: u16) -> Option<&Members> {
        self.0.get(usize::from(switch)).filter(|ranks| ranks.count() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(ranks: &[u32]) -> Members {
        ranks.iter().map(|rank| Rank(*rank)).collect()
    }

    #[test]
    fn sets_of_ranks_do_what_sets_do_in_one_group_and_in_many() {
        let none = Switches::default();
        for shift in [0, 64, 640] {
            let mut set = Members::with_groups(12);
            let some = RankSet::of_group((shift / 64) as u8, 0b1011);
            set.add(some, &none);
            assert_eq!((set.count(), set.name(), set.is(some, &none)), (3, Some(some), true));
            assert!(set.contains(Rank(shift + 3)) && !set.contains(Rank(shift + 2)) && !set.contains(Rank(shift + 67)));
            assert!(set.overlaps(RankSet::of(Rank(shift + 1)), &none) && !set.overlaps(RankSet::of(Rank(shift + 2)), &none));
            assert!(set.holds(RankSet::of_group(some.group(), 3), &none) && !set.holds(RankSet::of_group(some.group(), 7), &none));
            assert!(!set.is(RankSet::of_group(some.group(), 3), &none));
            assert_eq!(set.lowest_missing(&Members::first(shift + 4)), Some(Rank(if shift == 0 { 2 } else { 0 })));
            assert_eq!(set.ranks().map(|rank| rank.0).collect::<Vec<_>>(), [shift, shift + 1, shift + 3]);
            set.add(RankSet::of(Rank(130)), &none);
            assert_eq!((set.count(), set.name()), (4, None), "of two groups");
            set.set(RankSet::of(Rank(65)), &none);
            assert_eq!(set.name(), Some(RankSet::of(Rank(65))));
        }
        assert_eq!((Members::first(200).count(), Members::first(200).groups(), Members::default().name()), (200, 4, Some(RankSet::NONE)));
    }

    #[test]
    fn all_of_a_switch_are_the_ranks_that_a_node_knows_there() {
        let switches = Switches::new(vec![Members::default(), members(&[3, 70, 130]), members(&[4])]);
        let (first, second, unknown) = (RankSet::all_of_switch(1), RankSet::all_of_switch(2), RankSet::all_of_switch(9));
        let mut set = Members::with_groups(3);
        set.add(first, &switches);
        assert_eq!((set.count(), set.is(first, &switches), set.holds(first, &switches)), (3, true, true));
        assert!(set.overlaps(first, &switches) && !set.overlaps(second, &switches) && set.meets(&members(&[130])));
        set.add(second, &switches);
        assert!(!set.is(first, &switches) && set.holds(first, &switches) && set.count() == 4);
        // What nobody knows is no set, and neither is that of a switch of which nothing is known.
        for nothing in [unknown, RankSet::all_of_switch(0)] {
            set.add(nothing, &switches);
            assert!(set.count() == 4 && !set.overlaps(nothing, &switches) && !set.holds(nothing, &switches) && !set.is(nothing, &switches));
        }
        // A group for which there is no room is nobody's.
        let far = RankSet::of_group(200, 1);
        set.add(far, &switches);
        assert!(!set.holds(far, &switches) && !set.overlaps(far, &switches) && set.count() == 4);
    }
}
