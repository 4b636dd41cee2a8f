//! What a node that several jobs share knows of each of them, found by the job's number without a search.

use fanin_core::JobId;

/// Marks a number without a job.
const NONE: u16 = u16::MAX;

/// An entry for each job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct JobTable<E> {
    entries: Vec<(JobId, E)>,
    /// By job number: where it stands in `entries`, or [`NONE`].
    place_of: Vec<u16>,
}

impl<E> Default for JobTable<E> {
    fn default() -> Self {
        JobTable { entries: Vec::new(), place_of: Vec::new() }
    }
}

impl<E> JobTable<E> {
    /// A job comes; one of the same number is replaced.
    pub fn insert(&mut self, job: JobId, entry: E) {
        if self.place_of.len() <= job.index() {
            self.place_of.resize(job.index() + 1, NONE);
        }
        match self.place_of[job.index()] {
            NONE => {
                self.place_of[job.index()] = self.entries.len() as u16;
                self.entries.push((job, entry));
            }
            known => self.entries[usize::from(known)].1 = entry,
        }
    }

    /// A job goes.
    pub fn remove(&mut self, job: JobId) -> Option<E> {
        let place = self.place(job)?;
        self.place_of[job.index()] = NONE;
        let (_, entry) = self.entries.swap_remove(place);
        if let Some((moved, _)) = self.entries.get(place) {
            self.place_of[moved.index()] = place as u16;
        }
        Some(entry)
    }

    /// Where a job stands, until one goes.
    #[inline]
    pub fn place(&self, job: JobId) -> Option<usize> {
        self.place_of.get(job.index()).filter(|place| **place != NONE).map(|place| usize::from(*place))
    }

    /// The entry of a job.
    pub fn get(&self, job: JobId) -> Option<&E> {
        self.place(job).map(|place| &self.entries[place].1)
    }

    /// The entry of the job that stands here.
    #[inline]
    pub fn at(&self, place: usize) -> &E {
        &self.entries[place].1
    }

    /// The entry of the job that stands here.
    #[inline]
    pub fn at_mut(&mut self, place: usize) -> &mut E {
        &mut self.entries[place].1
    }

    /// All jobs, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (JobId, &E)> + '_ {
        self.entries.iter().map(|(job, entry)| (*job, entry))
    }

    /// All jobs, in no order that means anything.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut E> + '_ {
        self.entries.iter_mut().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_come_and_go_and_are_found_by_their_numbers() {
        let mut table = JobTable::default();
        for (job, entry) in [(7, 'a'), (0, 'b'), (3, 'c'), (7, 'd')] {
            table.insert(JobId(job), entry);
        }
        assert_eq!([7, 0, 3, 4, 900].map(|job| table.get(JobId(job)).copied()), [Some('d'), Some('b'), Some('c'), None, None]);
        assert_eq!((table.remove(JobId(7)), table.remove(JobId(7)), table.remove(JobId(8))), (Some('d'), None, None));
        assert_eq!([7, 0, 3].map(|job| table.get(JobId(job)).copied()), [None, Some('b'), Some('c')]);
        assert_eq!(table.iter().count(), 2);
    }
}
