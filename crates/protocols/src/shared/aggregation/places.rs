//! Which aggregator a fragment uses (`a2tp 4`). A job's fragments go round its *places*; a place has a version, and both together give the
//! aggregator, at every worker alike. All begin with the same versions, and only the server changes one: it says so in the acknowledgement
//! of the place's fragment, which every worker has before it sends the place's next one. So no two workers ever differ (P2). Places whose
//! fragments go to the server anyway keep no aggregator from the others: a job with as many places as there are aggregators could
//! never move one otherwise.

use fanin_core::JobId;
use fanin_core::hash::{derive, mix};
use fanin_wire::atp::AggregatorName;

/// The places of a job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Places {
    key: u64,
    /// What is added to a place's number, so that places for different servers differ.
    base: u64,
    aggregators: u32,
    /// By place.
    versions: Box<[u8]>,
}

impl Places {
    /// `count` places at switches with so many aggregators, each with the first version that gives an aggregator which no place before it
    /// has, as long as there is one. Those for a server of the job do not take what those for the servers before it have.
    pub fn new(job: JobId, server: u8, count: u32, aggregators: u32) -> Self {
        let mut used = Used::none(aggregators);
        (0..server).for_each(|before| drop(Places::beside(job, before, count, aggregators, &mut used)));
        Places::beside(job, server, count, aggregators, &mut used)
    }

    fn beside(job: JobId, server: u8, count: u32, aggregators: u32, used: &mut Used) -> Self {
        let (key, base) = (derive(0xa77, u64::from(job.0)), u64::from(server) << 32);
        let mut places = Places { key, base, aggregators, versions: vec![0; count as usize].into() };
        for place in 0..count {
            places.versions[place as usize] = places.free_version(place, 0, used);
            used.add(places.index(place, places.versions[place as usize]));
        }
        places
    }

    /// Number of places.
    pub fn count(&self) -> u32 {
        self.versions.len() as u32
    }

    #[inline]
    fn index(&self, place: u32, version: u8) -> u16 {
        let hash = mix(self.key, (self.base | u64::from(place)) << 8 | u64::from(version));
        (((hash >> 32) * u64::from(self.aggregators)) >> 32) as u16
    }

    /// The aggregator of a place's next fragment.
    #[inline]
    pub fn name(&self, place: u32) -> AggregatorName {
        let version = self.versions[place as usize];
        AggregatorName { index: self.index(place, version), version }
    }

    /// The first version from `version` on whose aggregator no other place has; or that one, where all have.
    fn free_version(&self, place: u32, version: u8, used: &Used) -> u8 {
        (0..=255u8).map(|step| version.wrapping_add(step)).find(|version| !used.has(self.index(place, *version))).unwrap_or(version)
    }

    /// The server says which version a place has from now on.
    #[inline]
    pub fn set_version(&mut self, place: u32, version: u8) {
        if let Some(known) = self.versions.get_mut(place as usize) {
            *known = version;
        }
    }
}

/// How many places of a job use each aggregator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Used(Box<[u16]>);

impl Used {
    fn none(aggregators: u32) -> Self {
        Used(vec![0; aggregators as usize].into())
    }

    fn has(&self, index: u16) -> bool {
        self.0[usize::from(index)] > 0
    }

    fn add(&mut self, index: u16) {
        self.0[usize::from(index)] += 1;
    }

    fn remove(&mut self, index: u16) {
        self.0[usize::from(index)] -= 1;
    }
}

/// The places as the server knows them: it gives a place another aggregator where a fragment found its own one taken.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Assignment {
    places: Places,
    /// By the places whose fragments go to aggregators: those below `active`. What others would use is free for these.
    used: Used,
    active: u32,
}

impl Assignment {
    /// As all workers begin.
    pub fn new(places: Places) -> Self {
        let mut used = Used::none(places.aggregators);
        (0..places.count()).for_each(|place| used.add(places.name(place).index));
        let active = places.count();
        Assignment { places, used, active }
    }

    /// From now on the fragments of so many places, from the first one on, go to aggregators.
    pub fn activate(&mut self, places: u32) {
        let places = places.min(self.places.count());
        (self.active..places).for_each(|place| self.used.add(self.places.name(place).index));
        (places..self.active).for_each(|place| self.used.remove(self.places.name(place).index));
        self.active = places;
    }

    /// The version that a place has.
    #[inline]
    pub fn version(&self, place: u32) -> u8 {
        self.places.versions.get(place as usize).copied().unwrap_or(0)
    }

    /// Whether a place whose fragments go to the server would have an aggregator that another one has: it would lose as soon as its fragments
    /// went there, too.
    #[inline]
    pub fn would_lose(&self, place: u32) -> bool {
        (self.active..self.places.count()).contains(&place) && self.used.has(self.places.name(place).index)
    }

    /// Gives a place another aggregator, and tells its version: one that no active place of the job has, if there is one.
    pub fn move_on(&mut self, place: u32) -> u8 {
        if place >= self.places.count() {
            return 0;
        }
        let old = self.places.name(place);
        let is_active = place < self.active;
        if is_active {
            self.used.remove(old.index);
        }
        // Its own aggregator is taken by somebody else: any other one that is free will do, and the same one where there is none.
        let next = |version: u8| version.wrapping_add(1);
        let mut version = self.places.free_version(place, next(old.version), &self.used);
        if self.places.index(place, version) == old.index {
            version = self.places.free_version(place, next(version), &self.used);
        }
        self.places.set_version(place, version);
        if is_active {
            self.used.add(self.places.index(place, version));
        }
        version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_job_have_aggregators_of_their_own_as_long_as_there_are_enough() {
        for (count, aggregators) in [(1, 1), (20, 450), (200, 450)] {
            let places = Places::new(JobId(3), 0, count, aggregators);
            let mut indices: Vec<u16> = (0..count).map(|place| places.name(place).index).collect();
            assert!(indices.iter().all(|index| u32::from(*index) < aggregators));
            indices.sort_unstable();
            indices.dedup();
            assert_eq!(indices.len(), count as usize);
        }
        let both: std::collections::BTreeSet<u16> = [0, 1]
            .into_iter()
            .flat_map(|server| {
                let places = Places::new(JobId(3), server, 100, 450);
                (0..100).map(move |place| places.name(place).index).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(both.len(), 200, "for two servers, too");
        let more = Places::new(JobId(3), 0, 10, 4);
        assert!((0..10).all(|place| more.name(place).index < 4));
        assert_ne!(Places::new(JobId(3), 0, 8, 450), Places::new(JobId(4), 0, 8, 450));
    }

    #[test]
    fn a_place_moves_to_an_aggregator_that_no_other_place_has() {
        let mut workers = Places::new(JobId(3), 0, 50, 100);
        let mut server = Assignment::new(workers.clone());
        for round in 0..500 {
            let place = round % 50;
            let before = workers.name(place);
            let version = server.move_on(place);
            workers.set_version(place, version);
            assert_eq!(server.version(place), version);
            assert_ne!(workers.name(place), before);
            let mut indices: Vec<u16> = (0..50).map(|place| workers.name(place).index).collect();
            indices.sort_unstable();
            indices.dedup();
            assert!(indices.len() >= 49, "a place finds a free one within 256 attempts, all but surely");
        }
        assert_eq!(server.move_on(50), 0, "there is no such place");
    }

    /// A job with as many places as there are aggregators moves nevertheless, as long as not all of them go there.
    #[test]
    fn what_places_beyond_the_window_for_aggregators_would_use_is_free() {
        let mut server = Assignment::new(Places::new(JobId(3), 0, 64, 64));
        let distinct = |server: &Assignment| {
            let mut indices: Vec<u16> = (0..32).map(|place| server.places.name(place).index).collect();
            indices.sort_unstable();
            indices.dedup();
            indices.len()
        };
        let moved = |server: &mut Assignment| {
            let moves = |place: u32| {
                let before = server.places.name(place).index;
                server.move_on(place);
                server.places.name(place).index != before
            };
            (0..32).map(moves).filter(|moved| *moved).count()
        };
        server.activate(32);
        for _ in 0..10 {
            assert!(moved(&mut server) >= 31 && distinct(&server) == 32);
        }
        // A place that is to go there next is moved before it would lose.
        assert!(!server.would_lose(31) && !server.would_lose(64));
        let losing: Vec<u32> = (32..64).filter(|place| server.would_lose(*place)).collect();
        assert!(losing.len() > 5, "{losing:?}");
        for place in &losing {
            server.move_on(*place);
        }
        assert!(losing.iter().filter(|place| server.would_lose(**place)).count() <= 1);
        server.activate(64);
        server.activate(32);
        assert_eq!((server.active, server.used.0.iter().map(|count| u32::from(*count)).sum::<u32>()), (32, 32));
    }
}
