//! The simulator with the nodes of all systems, by payload. Engine, systems and payload together are some hundred thousand lines of machine code:
//! here they are made once, and not anew in everything that simulates.
#![forbid(unsafe_code)]

use fanin_core::{Census, Length, Payload};
use fanin_sim::parts::{Again, Report};
use fanin_sim::trace::{Keep, Trace, TraceConfig};
use fanin_sim::vectors::Simulated;
use fanin_sim::{RunResult, Simulation};
use fanin_systems::{AnyHeader, AnyNode};

/// A simulation of any systems with one payload.
pub type AnySimulation<P> = Simulation<AnyNode<P>, P>;

/// A payload that systems are simulated with.
pub trait Runs: Simulated {
    /// Runs a simulation to its end.
    fn run(simulation: AnySimulation<Self>) -> RunResult;

    /// The same in so many parts, each on a core of its own: see [`Simulation::run_in_parts`].
    ///
    /// # Errors
    /// [`Again`] where it must be built anew and run on one core.
    fn run_in_parts(simulation: AnySimulation<Self>, parts: usize) -> Result<(RunResult, Report), Again>;
}

/// Packets of a run without elements.
pub type LengthTrace = Trace<AnyHeader, <Length as Payload>::Owned>;

/// Runs a simulation without elements to its end, and keeps packets of some of its links.
pub fn run_traced_without(simulation: AnySimulation<Length>, config: TraceConfig, keep: Keep<AnyHeader>) -> (RunResult, LengthTrace) {
    simulation.run_traced(config, keep)
}

macro_rules! runs {
    ($($payload:ty),*) => {
        $(impl Runs for $payload {
            fn run(simulation: AnySimulation<Self>) -> RunResult {
                simulation.run()
            }

            fn run_in_parts(simulation: AnySimulation<Self>, parts: usize) -> Result<(RunResult, Report), Again> {
                simulation.run_in_parts(parts)
            }
        })*
    };
}

runs!(Length, Census, [u8]);

/// Packets of a run with real elements.
pub type ElementTrace = Trace<AnyHeader, Box<[u8]>>;

/// Runs a simulation to its end, and keeps packets of some of its links.
pub fn run_traced(simulation: AnySimulation<[u8]>, config: TraceConfig, keep: Keep<AnyHeader>) -> (RunResult, ElementTrace) {
    simulation.run_traced(config, keep)
}
