//! What one run needs, and the nodes of its jobs.

use std::sync::Arc;

use fanin_core::{Address, Duration, JobId, JobNodes, NodeId, Payload, SharedNode};
use fanin_sim::engine::{Pipeline, Processing};
use fanin_sim::random::{Purpose, Random};
use fanin_sim::scenario::{Scenario, SetupError};
use fanin_sim::topology::Topology;
use fanin_sim::watch::WatchConfig;
use fanin_systems::{AnyHeader, AnyNode, BuildError, JobSpec};

use crate::jobs::PreparedJob;
use crate::jobs::workload::lanes::PreparedProgram;
use crate::network::file::Capability;
use crate::reading::PlanError;
use crate::reading::tree::parse_path;
use crate::reading::units::bytes_about;

/// What one run needs, without the nodes, which depend on what packets carry.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Hosts, switches, links.
    pub topology: Arc<Topology>,
    /// Everything else.
    pub scenario: Scenario,
    /// By number of the network's jobs: copies are jobs of their own. Behind those that are jobs of the plan come those that do lanes of
    /// jobs with a workload.
    pub jobs: Vec<PreparedJob>,
    /// Jobs with a workload.
    pub programs: Vec<PreparedProgram>,
    /// The plan's jobs in their order: copies are jobs of their own.
    pub listed: Vec<Listed>,
    /// Interval of samples of the switches' memory.
    pub memory_interval: Option<Duration>,
    /// Interval of samples of jobs.
    pub series_interval: Option<Duration>,
    /// Blocks and queues that somebody looks at.
    pub watch: Option<WatchConfig>,
    /// What switches can do, where that is less than their links.
    pub capabilities: Vec<(NodeId, Capability)>,
    /// What switches compute with, where that takes time.
    pub processing: Option<Processing<AnyHeader>>,
    /// What packets have to pass several times.
    pub pipeline: Option<Pipeline>,
    pub(super) file: String,
    /// The point in words, for errors.
    pub(super) context: String,
}

/// A job of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listed {
    /// One of the network, by number.
    Job(usize),
    /// One with a workload, by its place among these.
    Program(usize),
}

impl Prepared {
    /// The error for what the simulator refuses.
    pub fn refuse(&self, error: &SetupError) -> PlanError {
        PlanError::new(&self.file, error.to_string()).in_point(&self.context)
    }

    /// The nodes of every job; `op` gives each job's operator in the form of the payload.
    ///
    /// # Errors
    /// [`PlanError`] where a system refuses its configuration.
    pub fn nodes<P: Payload + ?Sized>(&self, op: impl Fn(&PreparedJob) -> P::Op) -> Result<Vec<JobNodes<AnyNode<P>>>, PlanError> {
        let specs = self.specs::<P>(op);
        let nodes_of =
            |(number, spec)| fanin_systems::build::<P>(spec, &self.topology.map).map_err(|error| self.refuse_job(number, &error));
        specs.iter().enumerate().map(nodes_of).collect()
    }

    /// The nodes that several jobs share.
    ///
    /// # Errors
    /// [`PlanError`] where jobs do not agree about them.
    pub fn shared<P: Payload + ?Sized>(&self, op: impl Fn(&PreparedJob) -> P::Op) -> Result<Vec<SharedNode<AnyNode<P>>>, PlanError> {
        let specs = self.specs::<P>(op);
        fanin_systems::shared::<P>(&specs, &self.topology.map).map_err(|(number, error)| self.refuse_job(number, &error))
    }

    /// How fast switches add, where that is slower than their links, in bits per second.
    pub fn adding(&self) -> Vec<(NodeId, u64)> {
        self.capabilities.iter().filter_map(|(switch, can)| Some((*switch, can.bits_per_second?))).collect()
    }

    /// Checks that jobs fit the memory of the switches at which they have nodes.
    ///
    /// # Errors
    /// [`PlanError`] names the parameter of the job that needs most.
    pub fn check_memory<N>(&self, nodes: &[JobNodes<N>], shared: &[SharedNode<N>]) -> Result<(), PlanError> {
        for (switch, memory) in self.capabilities.iter().filter_map(|(switch, can)| Some((*switch, can.memory_bytes?))) {
            let is_here = |at: Address| at == Address::switch(switch);
            let own = (0..).zip(nodes).filter(|(_, job)| job.others.iter().any(|placed| is_here(placed.at))).map(|(number, _)| number);
            let of_many = shared.iter().filter(|node| is_here(node.placed.at)).flat_map(|node| node.jobs.iter().map(|job| job.index()));
            self.check_memory_of(switch, memory, own.chain(of_many))?;
        }
        Ok(())
    }

    /// The same of one switch with these jobs.
    fn check_memory_of(&self, switch: NodeId, memory: u64, jobs: impl Iterator<Item = usize>) -> Result<(), PlanError> {
        let (mut sum, mut shared, mut largest) = (0u64, 0u64, (0, 0));
        for number in jobs {
            let (job, schedule) = (&self.jobs[number], &self.scenario.jobs[number]);
            let spec = job.spec(());
            let payload = u64::from(spec.payload_bytes.max(1));
            let lane = self.programs.iter().flat_map(|program| &program.job.lanes).find(|lane| lane.job == u16::try_from(number).ok());
            let of_lane = lane.into_iter().flat_map(|lane| &lane.operations).map(|operation| &operation.elements);
            let packets =
                schedule.elements.iter().chain(of_lane).map(|elements| (elements * u64::from(spec.element_bytes)).div_ceil(payload));
            let blocks = if schedule.sparsity.is_some() { u64::MAX } else { packets.fold(0, u64::saturating_add) };
            let bytes = spec.switch_slots(blocks).saturating_mul(spec.slot_bytes(&self.topology.map, switch));
            match spec.shares_slots() {
                true => shared = shared.max(bytes),
                false => sum = sum.saturating_add(bytes),
            }
            largest = largest.max((bytes, number));
        }
        let (all, (bytes, number)) = (sum.saturating_add(shared), largest);
        if all <= memory {
            return Ok(());
        }
        let spec = self.jobs[number].spec(());
        let key = spec.slots_key();
        let (name, memory, all) = (self.topology.name(switch), bytes_about(memory), bytes_about(all));
        let expected = format!(
            "less: the job has up to {} slots, {}, at {name}, all jobs {all}, and {name} has {memory} of memory",
            spec.switch_slots(u64::MAX),
            bytes_about(bytes)
        );
        let given = serde_json::to_value(spec.system).ok().and_then(|system| Some(system.get(key)?.to_string()));
        let value = given.unwrap_or_else(|| spec.window.to_string());
        Err(self.refuse_job(number, &BuildError::new(key, value, expected)))
    }

    /// A job's configuration, as its system has it in this run.
    pub fn spec(&self, number: usize) -> JobSpec<'_, ()> {
        let seed = Random::new(self.scenario.seed, Purpose::Systems, number as u64).bits();
        JobSpec { id: JobId(number as u16), seed, ..self.jobs[number].spec(()) }
    }

    fn specs<P: Payload + ?Sized>(&self, op: impl Fn(&PreparedJob) -> P::Op) -> Vec<JobSpec<'_, P::Op>> {
        let spec = |(number, job)| {
            let job: &PreparedJob = job;
            let seed = Random::new(self.scenario.seed, Purpose::Systems, number as u64).bits();
            JobSpec { id: JobId(number as u16), seed, ..job.spec(op(job)) }
        };
        self.jobs.iter().enumerate().map(spec).collect()
    }

    /// The error for what a system refuses of a job.
    fn refuse_job(&self, number: usize, error: &BuildError) -> PlanError {
        let (job, path) = (&self.jobs[number], parse_path(&error.field));
        let origin = job.table.closest(&path).origin.clone();
        // As it stands in the plan, if it does.
        let value = job.table.find(&path).map_or_else(|| error.value.clone(), ToString::to_string);
        // The lifetime of Canary's descriptors is half of the patience where the plan does not say otherwise.
        let (field, value, expected) = match job.table.find(&path) {
            None if error.field == "lifetime" => {
                let patience = job.settings.common.patience.0;
                (
                    "patience",
                    patience.to_string(),
                    format!("more: half of it is the lifetime of descriptors, and that is {}", error.expected),
                )
            }
            _ => (error.field.as_str(), value, error.expected.clone()),
        };
        let what = format!("jobs[{}].{field} = {value}: expected {expected}", job.entry);
        PlanError::new(&self.file, what).at(origin).in_point(&self.context)
    }
}
