//! The array of a switch: which descriptor is at which place. It is one job's own, or all jobs have it together (`canary 3`; 3.2 and 3.4 of
//! the paper): then each place also says whose it is.

use fanin_core::{JobId, hash};
use fanin_wire::canary::CanaryId;

use super::config::Placement;

/// An empty place.
const EMPTY: u32 = u32::MAX;

/// Under which blocks' names are hashed: the same at all switches, as their program is.
pub const HASH_KEY: u64 = 0x6361_6e61_7279;

/// Where a block may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Choice {
    first: u32,
    /// As `first` where there is no other.
    second: u32,
}

/// What a block finds at its places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// The descriptor of this block, by number.
    Here(u32),
    /// No descriptor of this block, and an empty place that it may take.
    Free(u32),
    /// Other blocks.
    Taken(u32),
}

/// Descriptors' numbers by place.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Table {
    placement: Placement,
    /// Numbers of descriptors among those of their job, or [`EMPTY`].
    numbers: Box<[u32]>,
    /// Whose they are, where jobs share the array; otherwise there is no place in it.
    owners: Box<[u16]>,
    /// Whether another block has wanted a place since it was taken; no place in it where nobody asks.
    wanted: Box<[bool]>,
}

impl Table {
    /// The array of one job.
    pub(super) fn own(length: u32, placement: Placement) -> Self {
        Table { placement, numbers: vec![EMPTY; length as usize].into(), owners: Box::default(), wanted: Box::default() }
    }

    /// An array that jobs share.
    pub(super) fn shared(length: u32, placement: Placement) -> Self {
        Table { owners: vec![0; length as usize].into(), ..Table::own(length, placement) }
    }

    /// Remembers from now on which places were wanted by others than who has them.
    pub(super) fn remember_wants(&mut self) {
        if self.wanted.is_empty() {
            self.wanted = vec![false; self.numbers.len()].into();
        }
    }

    /// Another block finds a place taken.
    #[inline]
    pub(super) fn want(&mut self, place: u32) {
        if let Some(wanted) = self.wanted.get_mut(place as usize) {
            *wanted = true;
        }
    }

    /// Whether that has happened to who has the place.
    #[inline]
    pub(super) fn is_wanted(&self, place: u32) -> bool {
        self.wanted.get(place as usize).copied().unwrap_or(false)
    }

    pub(super) fn length(&self) -> u32 {
        self.numbers.len() as u32
    }

    pub(super) fn placement(&self) -> Placement {
        self.placement
    }

    /// Where a block may be. One hash gives both places: its halves are as good as independent.
    #[inline]
    pub(super) fn choice(&self, job: JobId, id: CanaryId) -> Choice {
        let length = self.length();
        let within = |half: u32| ((u64::from(half) * u64::from(length)) >> 32) as u32;
        let hashed = || hash::mix(HASH_KEY, u64::from(job.0) << 32 | u64::from(id.bits()));
        let (first, second) = match self.placement {
            Placement::Hash => (within((hashed() >> 32) as u32), None),
            Placement::TwoPlaces => {
                let hash = hashed();
                (within((hash >> 32) as u32), Some(within(hash as u32)))
            }
            Placement::Static if length.is_power_of_two() => (id.block() & (length - 1), None),
            Placement::Static => (id.block() % length, None),
        };
        Choice { first, second: second.unwrap_or(first) }
    }

    /// What is at a block's places.
    #[inline(always)]
    pub(super) fn find(&self, job: JobId, choice: Choice, is_block: impl Fn(u32) -> bool) -> Found {
        if choice.second == choice.first { self.look(job, choice.first, &is_block) } else { self.find_at_two(job, choice, is_block) }
    }

    /// The block may be at the second place though the first one is empty by now, so both are looked at before it takes one.
    #[inline(never)]
    fn find_at_two(&self, job: JobId, choice: Choice, is_block: impl Fn(u32) -> bool) -> Found {
        let first = self.look(job, choice.first, &is_block);
        if matches!(first, Found::Here(_)) {
            return first;
        }
        match (first, self.look(job, choice.second, &is_block)) {
            (_, Found::Here(number)) => Found::Here(number),
            (Found::Free(place), _) => Found::Free(place),
            (_, second) => second,
        }
    }

    /// A planted bug: the second place is not looked at where the first one is empty.
    pub(super) fn find_hastily(&self, job: JobId, choice: Choice, is_block: impl Fn(u32) -> bool) -> Found {
        match self.look(job, choice.first, &is_block) {
            Found::Taken(_) => self.look(job, choice.second, &is_block),
            found => found,
        }
    }

    #[inline(always)]
    fn look(&self, job: JobId, place: u32, is_block: &impl Fn(u32) -> bool) -> Found {
        let number = self.numbers[place as usize];
        if number == EMPTY {
            Found::Free(place)
        } else if self.is_of(job, place) && is_block(number) {
            Found::Here(number)
        } else {
            Found::Taken(place)
        }
    }

    /// Whether a place that is taken is of this job.
    #[inline]
    fn is_of(&self, job: JobId, place: u32) -> bool {
        self.owners.get(place as usize).is_none_or(|owner| *owner == job.0)
    }

    /// A block takes a place.
    #[inline]
    pub(super) fn take(&mut self, job: JobId, place: u32, number: u32) {
        self.numbers[place as usize] = number;
        if let Some(owner) = self.owners.get_mut(place as usize) {
            *owner = job.0;
        }
    }

    /// A place is free again.
    #[inline]
    pub(super) fn free(&mut self, place: u32) {
        self.numbers[place as usize] = EMPTY;
        if let Some(wanted) = self.wanted.get_mut(place as usize) {
            *wanted = false;
        }
    }

    /// Number of places that are taken.
    pub(super) fn taken(&self) -> u32 {
        self.numbers.iter().filter(|number| **number != EMPTY).count() as u32
    }

    /// The places of a job, with its descriptors' numbers, in order.
    pub(super) fn of_job(&mut self, job: JobId) -> impl Iterator<Item = (u32, &mut u32)> {
        let owners = &self.owners;
        let is_of = move |place: usize| owners.get(place).is_none_or(|owner| *owner == job.0);
        let taken = self.numbers.iter_mut().enumerate().filter(|(_, number)| **number != EMPTY);
        taken.filter(move |(place, _)| is_of(*place)).map(|(place, number)| (place as u32, number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(3);

    fn id(block: u32) -> CanaryId {
        CanaryId::new(3, 0, block)
    }

    fn first(table: &Table, job: u16, block: u32) -> u32 {
        table.choice(JobId(job), CanaryId::new(job as u8, 0, block)).first
    }

    /// Pairs of blocks in a row that want the same place, against how many there would be if each took a place by lot. The multiplicative
    /// hash that was here before had none at all, in whatever array: consecutive numbers land far apart.
    #[test]
    fn blocks_in_a_row_collide_as_often_as_by_lot() {
        for (blocks, length) in [(113u32, 200u32), (500, 2_048), (1_024, 32_768), (64, 64)] {
            let table = Table::own(length, Placement::Hash);
            let (mut pairs, mut trials) = (0u64, 0u64);
            for start in (0..200u32).map(|trial| trial * 5_003) {
                let mut at = vec![0u64; length as usize];
                for block in start..start + blocks {
                    let place = &mut at[first(&table, 3, block) as usize];
                    pairs += *place;
                    *place += 1;
                }
                trials += 1;
            }
            let expected = f64::from(blocks * (blocks - 1) / 2) / f64::from(length);
            let found = pairs as f64 / trials as f64;
            // Five standard deviations of the mean of so many trials.
            let bound = 5.0 * (expected / trials as f64).sqrt();
            assert!((found - expected).abs() < bound, "{blocks} in {length}: {found} pairs, {expected} expected");
        }
    }

    #[test]
    fn blocks_of_different_jobs_and_generations_are_as_unrelated() {
        let (table, length) = (Table::shared(1_000, Placement::Hash), 1_000.0);
        // Jobs 1 and 257 have the same number in packets.
        for (a, b) in [(1, 2), (1, 257), (0, 65_535)] {
            let same = (0..20_000u32).filter(|block| first(&table, a, *block) == first(&table, b, *block)).count() as f64;
            assert!((same - 20_000.0 / length).abs() < 5.0 * (20_000.0f64 / length).sqrt(), "{a} and {b}: {same}");
        }
        let at = |generation, block| table.choice(JOB, CanaryId::new(3, generation, block)).first;
        let same = (0..20_000u32).filter(|block| at(0, *block) == at(1, *block)).count() as f64;
        assert!((same - 20.0).abs() < 25.0, "{same}");
    }

    #[test]
    fn every_place_is_used_about_as_often() {
        for length in [1u32, 7, 64, 1000] {
            let table = Table::own(length, Placement::TwoPlaces);
            let mut used = vec![[0u32; 2]; length as usize];
            for block in 0..length * 64 {
                let Choice { first, second } = table.choice(JOB, id(block));
                used[first as usize][0] += 1;
                used[second as usize][1] += 1;
            }
            assert!(used.iter().flatten().all(|count| (24..=128).contains(count)), "{length}: {used:?}");
        }
    }

    #[test]
    fn consecutive_blocks_share_no_place_of_a_static_array() {
        for length in [5u32, 8] {
            let table = Table::own(length, Placement::Static);
            let places: Vec<u32> = (20..20 + length).map(|block| table.choice(JOB, id(block)).first).collect();
            let expected: Vec<u32> = (20..20 + length).map(|block| block % length).collect();
            assert_eq!(places, expected);
        }
    }

    /// Fills half an array: of a share a of the places, a - 1 + e^-a collides with one place each, a - tanh a with two.
    #[test]
    fn a_second_place_saves_most_from_colliding() {
        let collided = |placement| {
            let mut table = Table::own(4_096, placement);
            let mut collided = 0;
            for block in 0..2_048 {
                match table.find(JOB, table.choice(JOB, id(block)), |number| number == block) {
                    Found::Free(place) => table.take(JOB, place, block),
                    Found::Taken(_) => collided += 1,
                    Found::Here(_) => panic!("each block comes once"),
                }
            }
            collided
        };
        const EXP_OF_MINUS_HALF: f64 = 0.606_530_66;
        const TANH_OF_HALF: f64 = 0.462_117_16;
        let [one, two] = [Placement::Hash, Placement::TwoPlaces].map(collided);
        let expected = [0.5 - 1.0 + EXP_OF_MINUS_HALF, 0.5 - TANH_OF_HALF].map(|share| share * 4_096.0);
        for (found, expected) in [one, two].into_iter().zip(expected) {
            assert!((f64::from(found) - expected).abs() < 4.0 * expected.sqrt(), "{found}, {expected} expected");
        }
    }

    #[test]
    fn a_block_is_found_at_its_second_place_when_the_first_is_free_again() {
        let mut table = Table::own(64, Placement::TwoPlaces);
        let block = (0..).find(|block| table.choice(JOB, id(*block)).first != table.choice(JOB, id(*block)).second).unwrap();
        let choice = table.choice(JOB, id(block));
        table.take(JOB, choice.first, 900);
        assert_eq!(table.find(JOB, choice, |number| number == 7), Found::Free(choice.second));
        table.take(JOB, choice.second, 7);
        table.free(choice.first);
        assert_eq!(table.find(JOB, choice, |number| number == 7), Found::Here(7));
        assert_eq!(table.find_hastily(JOB, choice, |number| number == 7), Found::Free(choice.first));
    }

    #[test]
    fn a_descriptor_of_another_job_is_never_found_whatever_its_number() {
        let mut table = Table::shared(1, Placement::Hash);
        let choice = table.choice(JOB, id(0));
        table.take(JobId(9), 0, 0);
        assert_eq!(table.find(JOB, choice, |_| true), Found::Taken(0));
        assert_eq!((table.of_job(JOB).count(), table.of_job(JobId(9)).count(), table.taken()), (0, 1, 1));
        table.free(0);
        assert_eq!(table.find(JOB, choice, |_| true), Found::Free(0));
    }
}
