//! Checks that Fanin's protocols do what they must, whatever happens to their packets.
#![forbid(unsafe_code)]

pub mod campaign;
mod draw;
pub mod generate;
pub mod invariants;
pub mod model;
pub mod recipe;
pub mod run;
mod simple;

pub use campaign::{Checks, Finding, Report, campaign, examine};
pub use draw::Draw;
pub use generate::generate;
pub use invariants::violations;
pub use recipe::{Demand, JobRecipe, Recipe};
pub use run::{Payloads, run};
