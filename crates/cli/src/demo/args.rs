//! What the user can ask for.

use anyhow::{Result, anyhow, ensure};
use clap::{Args, ValueEnum};

use super::nodes;
use super::system::DemoSystem;
use crate::allreduce::Way;
use crate::quantities;

/// Allreduce real tensors between real processes on this machine.
///
/// Starts a switch process and worker processes, sums vectors of float32 over them, compares every element of every worker with an
/// independently computed sum, and prints the goodput (size of the vector / time of the slowest worker). In a terminal it shows how far
/// each worker is.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// The system that does it: switchml (the default), tree or ring; with --fabric canary, rina, a2tp, ..., or auto (the default).
    #[arg(long)]
    pub system: Option<String>,
    /// Sum over several switches, each a process: LEAVESxSPINES of them (2x2 where nothing is said), or those of a file (docs/fabric.md), at free
    /// ports of this machine.
    #[arg(long, value_name = "LEAVESxSPINES|FABRIC.toml", num_args = 0..=1, default_missing_value = "2x2")]
    pub fabric: Option<String>,
    /// How vectors travel; `auto` takes shared memory. With injected faults it is UDP.
    #[arg(long, value_enum, default_value_t = Way::Udp)]
    pub transport: Way,
    /// Number of worker processes, at most 256: all run on this machine.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: u32,
    /// Length of the vector, a multiple of 4 bytes: `64MiB`, `100kB`, `4`, `0`.
    #[arg(long, default_value = "64MiB", value_parser = parse_size)]
    pub size: u64,
    /// How many operations are run one after the other.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: u32,
    /// Probability that an outgoing packet is lost.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    pub loss: f64,
    /// Probability that an outgoing packet is sent twice.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    pub duplicate: f64,
    /// Probability that an outgoing packet is held back and overtaken.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    pub reorder: f64,
    /// Probability that an outgoing packet is damaged, and so discarded at the receiver.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    pub corrupt: f64,
    /// Seed of the vectors and of the injected faults.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Elements per packet, in bytes, a multiple of 4; by default 1408, or what the manager of a fabric chooses.
    #[arg(long, value_parser = parse_payload)]
    pub payload: Option<u32>,
    /// Packets of a worker that may be on their way at once.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub window: Option<u32>,
    /// Kill this worker in the middle of a run, to see what the others say.
    #[arg(long, value_name = "RANK")]
    pub kill: Option<u32>,
    /// The time without progress after which an operation is given up.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = parse_patience)]
    pub patience: f64,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = DemoFormat::Table)]
    pub format: DemoFormat,
}

impl DemoArgs {
    /// Whether the options make sense together.
    ///
    /// # Errors
    /// Which ones do not, and why.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(rank) = self.kill {
            ensure!(rank < self.workers, "--kill {rank}: there are only workers 0 to {}", self.workers - 1);
            ensure!(self.workers > 1, "--kill: nobody is left to notice");
        }
        let memory = self.transport == Way::Shm;
        let system = self.system()?;
        ensure!(!memory || self.fabric.is_none(), "--transport shm: in a fabric each rank is a host of its own");
        ensure!(!memory || system == DemoSystem::SwitchMl, "--transport shm: only switchml has communicators, which share memory");
        ensure!(!memory || !self.has_faults(), "--transport shm: no packets are sent, so none can be lost or damaged; use udp");
        Ok(())
    }

    /// The system.
    ///
    /// # Errors
    /// Which ones there are.
    pub(super) fn system(&self) -> Result<DemoSystem> {
        DemoSystem::read(self.system.as_deref(), self.fabric.is_some()).map_err(|error| anyhow!(error))
    }

    /// Whether packets are to be lost, repeated, delayed or damaged.
    fn has_faults(&self) -> bool {
        [self.loss, self.duplicate, self.reorder, self.corrupt].iter().any(|probability| *probability > 0.0)
    }

    /// How vectors are to travel.
    pub(super) fn way(&self) -> Way {
        if self.has_faults() { Way::Udp } else { self.transport }
    }
}

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DemoFormat {
    /// For people.
    Table,
    /// One JSON object.
    Json,
}

/// Reads a number of bytes of float32 with an optional unit.
fn parse_size(text: &str) -> Result<u64, String> {
    let bytes = quantities::bytes(text)?;
    if bytes % 4 != 0 {
        return Err(format!("{bytes} bytes are not a whole number of float32 elements (4 bytes each)"));
    }
    Ok(bytes)
}

/// Reads a probability.
pub fn parse_probability(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number between 0 and 1".to_string())?;
    if (0.0..1.0).contains(&value) { Ok(value) } else { Err("expected a probability of at least 0 and less than 1".into()) }
}

/// Reads a payload length.
fn parse_payload(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text)?;
    let max = u64::from(nodes::PAYLOAD_BYTES_MAX);
    if (4..=max).contains(&bytes) {
        Ok(bytes as u32)
    } else {
        Err(format!("a packet holds at least 4 and at most {max} bytes of elements"))
    }
}

/// Reads a time in seconds.
fn parse_patience(text: &str) -> Result<f64, String> {
    let value = quantities::seconds(text)?;
    if (0.01..=3_600.0).contains(&value) { Ok(value) } else { Err("expected between 0.01 and 3600 seconds".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units_and_refused_with_a_reason() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("100kB"), Ok(100_000));
        assert_eq!(parse_size("0"), Ok(0));
        assert!(parse_size("5").unwrap_err().contains("whole number of float32"));
        assert!(parse_size("64 parsecs").unwrap_err().contains("4MiB"));
        assert!(parse_size("99999999GiB").is_err() && parse_size("99999999999999999999GiB").is_err());
        assert!(parse_payload("70000").unwrap_err().contains("at most"));
        assert!(parse_probability("1.5").is_err() && parse_probability("NaN").is_err());
        assert_eq!(parse_patience("2s"), Ok(2.0));
    }
}
