//! How large plans, runs and results may be: what would not fit a machine is refused before anything of it is made, with the key that makes
//! it so large and an estimate. Estimates are of the order of what is needed; they are not exact.

/// Points of a plan at most.
pub const POINTS_MAX: u64 = 100_000;
/// Runs of a plan at most.
pub const RUNS_MAX: u64 = 1_000_000;
/// Memory of one run at most, as estimated.
pub const RUN_BYTES_MAX: u64 = 6 << 30;
/// Workers of all jobs together at most.
pub const WORKERS_MAX: u64 = 1 << 22;
/// Parts of a path, and tables and lists in each other, at most.
pub const DEPTH_MAX: usize = 32;
