//! What is to be expected of a step, beside the paper's formula: all jobs on all links, adders and windows, as `fanin advise` counts it.
//!
//! The formulas see neither the links between switches (rings), nor other jobs (rings), nor what an agent's link carries twice, nor windows, and
//! are off by several times where one of these binds. Where the rules of `fanin advise` say that they do not know, a part of the step's vectors is
//! simulated.

use fanin_advise::setting::{New, Setting};
use fanin_advise::value::{Value, value};
use fanin_plan::PlanError;
use fanin_plan::upgrade::{Aggregation, Assumptions, Step};

use super::PlannerArgs;

/// What is to be expected of a step.
#[derive(Clone, PartialEq, Debug)]
pub struct Expected {
    /// What all jobs together reduce, in Gb/s.
    pub gbps: f64,
    /// A part of the vectors was simulated, since the rules do not know.
    pub is_simulated: bool,
    /// What holds the slowest job up.
    pub bound: String,
}

/// The network and its jobs, as `fanin advise` sees them.
pub struct Counted {
    setting: Setting,
    new: New,
}

impl Counted {
    /// Reads the same files.
    ///
    /// # Errors
    /// [`PlanError`] as [`Setting::load`].
    pub fn load(args: &PlannerArgs, assumptions: Assumptions) -> Result<Counted, PlanError> {
        let ps = |us: f64| (us * 1e6) as u64;
        let new = New {
            bits_per_second: assumptions.new_bits_per_second,
            memory_bytes: None,
            step_ps: (ps(assumptions.overhead_us), ps(assumptions.sigma_us)),
        };
        Ok(Counted { setting: Setting::load(&args.network, &args.jobs)?, new })
    }

    /// Of a ring of workers, which no switch sums.
    pub fn ring(&self) -> Result<Expected, PlanError> {
        self.of("ring", &self.setting.today())
    }

    /// Of each step; none for kinds of aggregation that no system here does.
    ///
    /// # Errors
    /// [`PlanError`] where the system cannot do these jobs on this network.
    pub fn steps(&self, aggregation: Aggregation, steps: &[Step]) -> Result<Vec<Option<Expected>>, PlanError> {
        let system = match aggregation {
            Aggregation::ServerAtTors => "atp",
            Aggregation::RinaAtTors => "rina",
            Aggregation::Server | Aggregation::Rina => return Ok(vec![None; steps.len()]),
        };
        let mut able = self.setting.today();
        let mut found = Vec::with_capacity(steps.len());
        for step in steps {
            if let Some(switch) = self.setting.switches.iter().position(|switch| Some(&switch.name) == step.switch.as_ref()) {
                able[switch] = true;
            }
            found.push(Some(self.of(system, &able)?));
        }
        Ok(found)
    }

    fn of(&self, system: &str, able: &[bool]) -> Result<Expected, PlanError> {
        // The first draw of placement and paths, which the formula and `--simulate` have too.
        let given = |simulates: bool| value(&self.setting, system, able, self.new, (1, simulates));
        let failed = || match self.setting.prepare(system, able, self.new, 0) {
            Err(error) => error,
            Ok(_) => PlanError::new(system, "a job did not complete in a simulation of a part of its vector".to_string()),
        };
        let by_rules = given(false).ok_or_else(failed)?;
        if by_rules.unknown.is_none() {
            let Value { gbps, bound, .. } = by_rules;
            return Ok(Expected { gbps, is_simulated: false, bound });
        }
        let Value { simulated, bound, .. } = given(true).ok_or_else(failed)?;
        Ok(Expected { gbps: simulated.unwrap_or(0.0), is_simulated: true, bound })
    }
}
