//! Whether a module writes where it was not asked to: beside the elements that a call is for.

use super::{Instance, Program};
use crate::limits;
use crate::stray::Stray;

/// What lies around the elements, on both sides; elements begin at multiples of 16.
const MARGIN: usize = 4 << 10;
const MARK: u8 = 0xa5;

impl Program {
    /// Does a block of the contributions of two ranks, and looks at what lies around; the first write that is out of place. A module may use what
    /// it was given as scratch. `None` also where a call fails: that is for others to find.
    pub(crate) fn stray(&self, contributions: [&[u8]; 2]) -> Option<Stray> {
        let (layout, bytes) = (self.layout(), contributions[0].len());
        let elements = bytes / layout.element_bytes;
        let mut instance = Instance::new(self).ok()?;
        let room = elements + 2 * MARGIN.div_ceil(layout.element_bytes.min(layout.accumulator_bytes));
        instance.make_room(&layout, room).ok()?;
        let host = instance.accumulators_at..instance.memory.data_size(&instance.store);
        let places = [instance.accumulators_at + MARGIN, instance.inputs_at + MARGIN];
        let lengths = [elements * layout.accumulator_bytes, bytes];
        let mut watch = Watch { host, places, lengths };
        let (acc, input, count) = (places[0] as u32, places[1] as u32, elements as u32);
        watch.prepare(&mut instance, contributions[0]);
        match instance.init.clone() {
            Some(init) => {
                instance.store.set_fuel(limits::fuel(bytes)).ok()?;
                init.call(&mut instance.store, (acc, input, count)).ok()?;
                if let Some(stray) = watch.look(&instance, "init") {
                    return Some(stray);
                }
            }
            None => instance.memory.data_mut(&mut instance.store)[places[0]..][..bytes].copy_from_slice(contributions[0]),
        }
        watch.put(&mut instance, 1, contributions[1]);
        instance.store.set_fuel(limits::fuel(bytes)).ok()?;
        instance.combine.call(&mut instance.store, (acc, input, count)).ok()?;
        if let Some(stray) = watch.look(&instance, "combine") {
            return Some(stray);
        }
        let finish = instance.finish.clone()?;
        let out = if layout.is_beside() { input } else { acc };
        instance.store.set_fuel(limits::fuel(bytes)).ok()?;
        finish.call(&mut instance.store, (acc, out, count, 2)).ok()?;
        watch.look(&instance, "finish")
    }
}

/// The host's part of a module's memory, and where in it accumulators and elements are.
struct Watch {
    host: std::ops::Range<usize>,
    places: [usize; 2],
    lengths: [usize; 2],
}

impl Watch {
    fn prepare(&mut self, instance: &mut Instance, contribution: &[u8]) {
        instance.memory.data_mut(&mut instance.store)[self.host.clone()].fill(MARK);
        self.put(instance, 1, contribution);
    }

    fn put(&self, instance: &mut Instance, vector: usize, bytes: &[u8]) {
        instance.memory.data_mut(&mut instance.store)[self.places[vector]..][..bytes.len()].copy_from_slice(bytes);
    }

    /// The first byte that was written beside both vectors.
    fn look(&self, instance: &Instance, call: &'static str) -> Option<Stray> {
        let memory = instance.memory.data(&instance.store);
        let of = |vector: usize| self.places[vector]..self.places[vector] + self.lengths[vector];
        let at = self.host.clone().find(|at| memory[*at] != MARK && !of(0).contains(at) && !of(1).contains(at))?;
        let distance = |vector: usize| if at < self.places[vector] { self.places[vector] - at } else { at - of(vector).end };
        let nearest = usize::from(distance(1) < distance(0));
        let vector = if nearest == 0 { "accumulators" } else { "elements" };
        Some(Stray { call, offset: at as i64 - self.places[nearest] as i64, vector })
    }
}
