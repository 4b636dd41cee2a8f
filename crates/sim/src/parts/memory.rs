//! The most memory that a job has ever had at all switches together. Each part knows of its own switches; what all have together at one time
//! is found by going through what each has noted, and only where it could be more than ever before.

use crate::metrics::SlotResult;

/// A slot that is taken or freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub time_ps: u64,
    /// The event in which it is.
    pub event: u32,
    pub job: u16,
    pub bytes: u32,
    pub taken: bool,
}

/// What jobs have at the switches of one part, or of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Held {
    slots: i64,
    bytes: i64,
}

impl Held {
    fn change(&mut self, change: &Change) {
        let sign = if change.taken { 1 } else { -1 };
        self.slots += sign;
        self.bytes += sign * i64::from(change.bytes);
    }

    fn most(self, other: Held) -> Held {
        Held { slots: self.slots.max(other.slots), bytes: self.bytes.max(other.bytes) }
    }
}

/// What jobs have had at all switches together.
#[derive(Debug)]
pub(super) struct Peaks {
    /// By job: what it has, and the most that it has had.
    jobs: Vec<(Held, Held)>,
    /// Memory for what follows. By job, of the part that is looked at: change since the window began, and the most of it.
    of_part: Vec<(Held, Held)>,
    /// By job: how much the sums of all parts could have grown.
    grown: Vec<Held>,
}

impl Peaks {
    pub fn new(jobs: usize) -> Self {
        let nothing = (Held::default(), Held::default());
        Peaks { jobs: vec![nothing; jobs], of_part: vec![nothing; jobs], grown: vec![Held::default(); jobs] }
    }

    /// One change, in the order of all parts' events.
    pub fn change(&mut self, change: &Change) {
        let (now, most) = &mut self.jobs[usize::from(change.job)];
        now.change(change);
        if change.taken {
            *most = most.most(*now);
        }
    }

    /// All changes of a window, by part; those of each part in their order.
    pub fn window(&mut self, parts: &[&[Change]]) {
        if parts.iter().all(|changes| changes.is_empty()) {
            return;
        }
        self.grown.fill(Held::default());
        for changes in parts {
            self.of_part.fill((Held::default(), Held::default()));
            for change in *changes {
                let (now, most) = &mut self.of_part[usize::from(change.job)];
                now.change(change);
                *most = most.most(*now);
            }
            for (grown, (_, most)) in self.grown.iter_mut().zip(&self.of_part) {
                (grown.slots, grown.bytes) = (grown.slots + most.slots, grown.bytes + most.bytes);
            }
        }
        let is_above =
            |((now, most), grown): (&(Held, Held), &Held)| now.slots + grown.slots > most.slots || now.bytes + grown.bytes > most.bytes;
        if self.jobs.iter().zip(&self.grown).any(is_above) {
            self.in_order(parts);
        } else {
            for change in parts.iter().copied().flatten() {
                self.jobs[usize::from(change.job)].0.change(change);
            }
        }
    }

    /// The changes of all parts in the order of their events. An event that another one of the same time has brought about comes after it,
    /// whatever its number.
    fn in_order(&mut self, parts: &[&[Change]]) {
        let mut heads: Vec<(usize, (u64, u32))> = parts.iter().map(|changes| (0, key(changes.first(), (0, 0)))).collect();
        loop {
            let least = (0..heads.len()).filter(|part| heads[*part].0 < parts[*part].len()).min_by_key(|part| heads[*part].1);
            let Some(part) = least else { return };
            let (place, before) = heads[part];
            self.change(&parts[part][place]);
            heads[part] = (place + 1, key(parts[part].get(place + 1), before));
        }
    }

    /// Puts in what has been found, by job.
    pub fn put(&self, jobs: &mut [SlotResult]) {
        for (result, (_, most)) in jobs.iter_mut().zip(&self.jobs) {
            (result.slots_peak, result.bytes_peak) = (most.slots as u64, most.bytes as u64);
        }
    }
}

/// Where a change stands in the order of all.
fn key(change: Option<&Change>, before: (u64, u32)) -> (u64, u32) {
    change.map_or((u64::MAX, u32::MAX), |change| (change.time_ps, change.event).max(before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::hash::mix;

    #[test]
    fn windows_of_parts_find_what_one_list_finds() {
        for seed in 0..200 {
            let (mut by_parts, mut by_list) = (Peaks::new(2), Peaks::new(2));
            let (mut held, mut step) = ([[Vec::new(), Vec::new()], [Vec::new(), Vec::new()], [Vec::new(), Vec::new()]], 0u64);
            for window in 0..30u64 {
                let mut lists = vec![Vec::new(); 3];
                for event in 0..12u32 {
                    let draw = mix(seed, step);
                    step += 1;
                    let (part, job) = (draw as usize % 3, (draw >> 8) as usize % 2);
                    let own: &mut Vec<u32> = &mut held[part][job];
                    let taken = own.is_empty() || draw >> 16 & 1 == 0;
                    let bytes = if taken { 1 + (draw >> 20) as u32 % 1_000 } else { own.pop().unwrap_or(0) };
                    if taken {
                        own.push(bytes);
                    }
                    // Several events of one time, in all parts.
                    let change =
                        Change { time_ps: window * 10 + u64::from(event / 4), event: event % 4 * 10, job: job as u16, bytes, taken };
                    lists[part].push(change);
                    by_list.change(&change);
                }
                by_parts.window(&lists.iter().map(Vec::as_slice).collect::<Vec<_>>());
            }
            let (mut found, mut expected) = ([SlotResult::default(); 2], [SlotResult::default(); 2]);
            by_parts.put(&mut found);
            by_list.put(&mut expected);
            assert_eq!(found, expected, "seed {seed}");
            assert!(found.iter().all(|job| job.slots_peak > 3), "{found:?}");
        }
    }
}
