//! Checks that Fanin's protocols do what they must, whatever happens to their packets.
//!
//! | module | what it holds |
//! |---|---|
//! | [`generate()`] | from a seed to a [`Recipe`]: network, jobs, traffic and faults, all drawn from it |
//! | [`recipe`] | a run as plain data, and what people read when it fails |
//! | [`pods`] | jobs in pods, whose groups are jobs of a recipe that begin nothing by themselves |
//! | [`mod@run`] | a recipe run in the simulator, with census payloads or with elements |
//! | [`invariants`] | what must be true of every run |
//! | [`mod@campaign`] | many seeds: a [`Report`] of what happened, and of every run that is not as it must be |
//! | `elsewhere` | reports of other processes and machines |
//! | [`model`] | every behaviour of small networks, by model checking |
//!
//! ## What a campaign checks of a run
//! * Every piece that a worker was given is the exact sum of all contributions, was delivered once, and none is missing from a completed
//!   operation: by census weights, and again with elements against sums computed without the protocols' loops.
//! * Every operation ends: the run neither comes to a standstill nor to its time limit. All workers complete where nothing fails for
//!   longer than they must bear ([`Demand::MustComplete`]); otherwise a worker may fail, after its patience, with a failure that names
//!   somebody; and where a host that died is all that went wrong, every failure names its rank or its switch.
//! * Where the run goes on until nothing moves, no switch is left holding anything of a Canary job that recovers from losses.
//! * Of a job in pods every step is under way when what it waits for has ended, and a step that fails ends the whole: nothing ends after it.
//! * No node reports a broken invariant, and none panics. No link sends faster than it can; what was dropped is counted.
//! * The same seed gives the same result, and elements take the same course as the census.
//!
//! ## Replaying a failure
//! A finding names its seed. `fanin check --first SEED --seeds 1 --verbose` (`fanin check canary ...` where jobs were to be of one system)
//! prints the run in words and what is wrong with it; the same seed is the same run on every machine, as long as [`generate()`] is the same. A finding
//! that is understood becomes a plain recipe in `tests/regressions.rs`, which does not depend on that.
#![forbid(unsafe_code)]

pub mod campaign;
mod elsewhere;
pub mod generate;
pub mod invariants;
pub mod model;
pub mod pods;
pub mod recipe;
pub mod run;
mod simple;

pub use fanin_systems::Draw;

pub use campaign::{Checks, Finding, Report, campaign, campaign_with, examine};
pub use generate::{generate, generate_for};
pub use invariants::violations;
pub use pods::PodsRecipe;
pub use recipe::{Demand, JobRecipe, Numbers, Recipe};
pub use run::{Payloads, has_parts, run, run_in_parts, run_sampled};
