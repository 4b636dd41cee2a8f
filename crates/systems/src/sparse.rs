//! Parameters of systems whose vectors are sparse.

use serde::{Deserialize, Serialize};

/// What switches keep sums in (Flare).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlareStorage {
    /// At each switch a table where what is in the sum is expected to fill no more than half of it, else an array (flare 5).
    #[default]
    Fitting,
    /// Tables at the switches of hosts, arrays above (flare 5, two-level approach).
    TwoLevel,
    /// Arrays everywhere.
    Array,
    /// Tables everywhere.
    Table,
}

/// How packets of pairs name the indices of their values (Flare).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlareCoding {
    /// Each packet as takes the fewest bytes: an index for each value; a bit for each index of a range; or the first index alone, where none is
    /// left out.
    #[default]
    Shortest,
    /// An index for each value, as the paper has it (flare 2).
    Pairs,
}

/// At which indices a worker of a sparse job has something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Picks {
    /// At each by chance.
    #[default]
    Random,
    /// At one of every bucket of as many as one over the density, as where the largest element of each is sent (flare 7).
    Buckets,
}

/// The parameters of Flare's sparse allreduce.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct FlareParameters {
    /// The share of the indices at which a worker has something: above 0, at most 1.
    pub density: f64,
    /// The share of these at which all workers have something: 0 to 1.
    pub overlap: f64,
    /// How they are chosen.
    pub picks: Picks,
    /// Indices of a block, at most 65536; 0 for as many as have, on average, nine tenths of a packet of pairs (flare 2).
    pub range: u32,
    /// Whether workers begin a part of each window by their rank (flare 4.7), so that a switch's cores have different blocks to work at. Where switches
    /// are not limited by their cores it only delays each block's sum by the time in which workers go round the window.
    pub staggered: bool,
    /// How packets name indices.
    pub coding: FlareCoding,
    /// What switches keep sums in.
    pub storage: FlareStorage,
    /// Slots of a table; 0 for as many as make 1 KiB of values (flare 4.5).
    pub slots: u32,
    /// Whether tables try the next slot, too.
    pub probes: bool,
}

impl Default for FlareParameters {
    fn default() -> Self {
        FlareParameters {
            density: 0.01,
            overlap: 0.0,
            picks: Picks::Random,
            range: 0,
            staggered: false,
            coding: FlareCoding::Shortest,
            storage: FlareStorage::Fitting,
            slots: 0,
            probes: false,
        }
    }
}

/// The parameters of recursive doubling of lists.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct DoublingParameters {
    /// The share of the indices at which a worker has something: above 0, at most 1.
    pub density: f64,
    /// The share of these at which all workers have something: 0 to 1.
    pub overlap: f64,
    /// How they are chosen.
    pub picks: Picks,
}

impl Default for DoublingParameters {
    fn default() -> Self {
        DoublingParameters { density: 0.01, overlap: 0.0, picks: Picks::Random }
    }
}
