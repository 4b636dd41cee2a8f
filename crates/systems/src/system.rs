//! Which systems there are, made from the list of them: nothing here names one.

use fanin_core::payload::Sparsity;
use fanin_core::{CollectiveKind, JobNodes, NetworkMap, NodeId, Payload, SharedNode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::any::AnyNode;
use crate::campaign::{Campaign, First, JobSize, Load};
use crate::config::{BuildError, JobSpec, StepParameters};
use crate::facts::{AggregatorUse, Facts, KeyUse, KeysOf, LongestWay, Nodes, Unit};

/// The systems.
macro_rules! kinds {
    ($($system:ident($Parameters:ident) = $number:literal $name:literal in $module:ident,
        packets $packets:ident $(($Header:ident))?, workers [$($worker:ident),*], others [$($other:ident),*];)*) => {
        /// A system and its parameters.
        #[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
        #[serde(tag = "system")]
        pub enum System {
            $(
                #[doc = concat!("`", $name, "`: see [`", stringify!($Parameters), "`](crate::", stringify!($Parameters), ").")]
                #[serde(rename = $name)]
                $system(crate::$module::$Parameters),
            )*
        }

        impl System {
            /// The system's name in the list.
            fn listed_name(&self) -> &'static str {
                match self {
                    $(System::$system(_) => $name,)*
                }
            }

            /// The system's number in hop headers; 0 is not a system.
            pub fn number(&self) -> u8 {
                match self {
                    $(System::$system(_) => $number,)*
                }
            }

            /// What is particular to it.
            pub(crate) fn facts(&self) -> &dyn Facts {
                match self {
                    $(System::$system(parameters) => parameters,)*
                }
            }

            fn facts_mut(&mut self) -> &mut dyn Facts {
                match self {
                    $(System::$system(parameters) => parameters,)*
                }
            }

            /// As [`Nodes::nodes`].
            pub(crate) fn nodes<P: Payload + ?Sized>(
                &self,
                spec: &JobSpec<'_, P::Op>,
                map: &NetworkMap,
            ) -> Result<JobNodes<AnyNode<P>>, BuildError> {
                match self {
                    $(System::$system(parameters) => parameters.nodes(spec, map),)*
                }
            }

            /// As [`Nodes::shared`], of all systems.
            pub(crate) fn shared<P: Payload + ?Sized>(
                specs: &[JobSpec<'_, P::Op>],
                map: &NetworkMap,
            ) -> Result<Vec<SharedNode<AnyNode<P>>>, (usize, BuildError)> {
                let mut nodes = Vec::new();
                $(nodes.extend(<crate::$module::$Parameters as Nodes>::shared(specs, map)?);)*
                Ok(nodes)
            }

            /// As [`Nodes::admit`].
            pub(crate) fn admit<P: Payload + ?Sized>(
                &self,
                node: &mut AnyNode<P>,
                switch: NodeId,
                spec: &JobSpec<'_, P::Op>,
                map: &NetworkMap,
            ) -> Result<bool, BuildError> {
                match self {
                    $(System::$system(_) => <crate::$module::$Parameters as Nodes>::admit(node, switch, spec, map),)*
                }
            }
        }
    };
}

systems!(kinds with own);

/// The systems of this workspace.
macro_rules! listed {
    ($($system:ident($Parameters:ident) = $number:literal $name:literal in $module:ident,
        packets $packets:ident $(($Header:ident))?, workers [$($worker:ident),*], others [$($other:ident),*];)*) => {
        impl System {
            /// Names of all systems of this workspace; [`System::names`] has those from elsewhere, too.
            pub const NAMES: &'static [&'static str] = &[$($name),*];

            /// All systems of this workspace, each with the parameters that it has where nothing is said.
            pub fn all() -> Vec<System> {
                vec![$(System::$system(Default::default())),*]
            }

            /// How campaigns draw jobs of all systems, in the order in which they do.
            pub fn campaigns() -> Vec<Campaign> {
                let mut campaigns: Vec<Campaign> = [$(<crate::$module::$Parameters as Nodes>::CAMPAIGNS),*].concat();
                campaigns.sort_by_key(|campaign| campaign.order);
                campaigns
            }

            /// Of whose jobs campaigns make those of a system, by names; of its own where it is drawn at first.
            pub fn made_of(name: &str) -> Option<&'static str> {
                match name {
                    $($name => <crate::$module::$Parameters as Nodes>::MADE_OF.or(
                        <crate::$module::$Parameters as Nodes>::FIRST.map(|_| $name)
                    ),)*
                    _ => None,
                }
            }

            /// The systems that every job of a campaign may have at first, by name, in the order of their places.
            pub fn firsts() -> Vec<(&'static str, First)> {
                let all = [$(<crate::$module::$Parameters as Nodes>::FIRST.map(|first| ($name, first))),*];
                let mut firsts: Vec<(&str, First)> = all.into_iter().flatten().collect();
                firsts.sort_by_key(|(_, first)| first.place);
                firsts
            }
        }
    };
}

systems!(listed);

impl System {
    /// The system's name in plans.
    pub fn name(&self) -> &'static str {
        if let System::Own(parameters) = self { parameters.name() } else { self.listed_name() }
    }

    /// Its parameters' values, by name, as plans say them or not.
    pub fn to_json(&self) -> Value {
        match self {
            System::Own(parameters) => parameters.to_json(),
            other => serde_json::to_value(other).unwrap_or(Value::Null),
        }
    }

    /// The names of those systems, as they are where nothing is said, that something is true of: `a, b and c`, with `last` before the last one.
    pub fn names_of(last: &str, holds: impl Fn(&System) -> bool) -> String {
        let names: Vec<&str> = System::all().iter().filter(|system| holds(system)).map(System::name).collect();
        match names.split_last() {
            Some((end, [])) => end.to_string(),
            Some((end, others)) => format!("{} {last} {end}", others.join(", ")),
            None => "none".to_string(),
        }
    }

    /// The key that a parameter has in plans, where one key may be several parameters.
    pub fn key_of<'a>(&self, field: &'a str) -> &'a str {
        self.facts().key_of(field)
    }

    /// What a parameter is in plans; `is_float`: it is no whole number.
    pub fn unit_of(&self, field: &str, is_float: bool) -> Unit {
        self.facts().unit_of(field, is_float)
    }

    /// Where vectors are sparse, at which indices workers have something.
    pub fn sparsity(&self) -> Option<Sparsity> {
        self.facts().sparsity()
    }

    /// Whether its switches combine what they get by an operator that the job brings along, at any number of levels.
    pub fn takes_operators(&self) -> bool {
        self.facts().takes_operators()
    }

    /// The same at another density; nothing changes where vectors are not sparse.
    #[must_use]
    pub fn at_density(mut self, share: f64) -> Self {
        self.facts_mut().set_density(share);
        self
    }

    /// The same with parameters that do where switches and hosts are processes.
    #[must_use]
    pub fn for_software(mut self) -> Self {
        self.facts_mut().suit_software();
        self
    }

    /// Whether its jobs go on around switches that are gone, or have nothing there.
    pub fn goes_on_without_switches(&self) -> bool {
        self.facts().goes_on_without_switches()
    }

    /// What steps cost its hosts, where they can.
    pub fn steps_mut(&mut self) -> Option<&mut StepParameters> {
        self.facts_mut().steps_mut()
    }

    /// The same where at most so many switches aggregate; nothing changes where a system does not choose which.
    #[must_use]
    pub fn limit_aggregating(mut self, count: u32) -> Self {
        self.facts_mut().limit_aggregating(count);
        self
    }

    /// The same where the slowest of the workers' links has this rate in bits per second: parameters that are stated for one rate follow
    /// it, but for those that were given, by their keys in plans.
    #[must_use]
    pub fn at_rate(mut self, bits_per_second: u64, is_given: &dyn Fn(&str) -> bool) -> Self {
        self.facts_mut().follow_rate(bits_per_second, is_given);
        self
    }

    /// The same where hosts are so far apart: parameters that depend on that follow it, after the rate, but for those that were given, by
    /// their keys in plans.
    #[must_use]
    pub fn on_ways(mut self, longest: &dyn Fn() -> LongestWay, is_given: &dyn Fn(&str) -> bool) -> Self {
        self.facts_mut().follow_ways(longest, is_given);
        self
    }

    /// The share of these indices.
    pub fn density(&self) -> Option<f64> {
        self.sparsity().map(|sparsity| sparsity.density)
    }

    /// Whether its windows shrink where packets come marked (ECN), and by nothing else.
    pub fn obeys_marks(&self) -> bool {
        self.facts().obeys_marks()
    }

    /// Whether its nodes send to their neighbours only, so that no packet needs a way.
    pub fn stays_next_door(&self) -> bool {
        self.facts().stays_next_door()
    }

    /// Whether packets choose among ways, as those do that go to an address beyond the next node; `partial`: some switches only forward.
    pub fn is_routed(&self, partial: bool) -> bool {
        self.facts().is_routed(partial)
    }

    /// Whether sums are made at switches.
    pub fn sums_at_switches(&self) -> bool {
        self.facts().sums_at_switches()
    }

    /// How many trees pass switches for each worker; `None` where all switches have something of the job.
    pub fn trees(&self) -> Option<u32> {
        self.facts().trees()
    }

    /// Whether some node of the system makes a mean of a sum.
    pub fn divides(&self) -> bool {
        self.facts().divides()
    }

    /// Whether 32-bit floats go on the wire as integers.
    pub fn fixed_point(&self) -> bool {
        self.facts().fixed_point()
    }

    /// With fixed point, in drivers without real elements: the share of packets that are too large at one worker.
    pub fn overflow(&self) -> f64 {
        self.facts().overflow()
    }

    /// The same system for drivers whose elements are real: which do not fit fixed point is found out, not drawn (`a2tp 5.8`).
    #[must_use]
    pub fn with_real_elements(mut self) -> Self {
        self.facts_mut().expect_real_elements();
        self
    }

    /// How many servers a job has where its configuration does not say; 0 for systems that have none.
    pub fn servers(&self) -> u32 {
        self.facts().servers()
    }

    /// Whether a job goes on without workers that have died (`rina 4.5` to `4.7`).
    pub fn goes_on_without_workers(&self) -> bool {
        self.facts().goes_on_without_workers()
    }

    /// Whether workers take this kind of collective at all.
    pub fn offers(&self, kind: CollectiveKind) -> bool {
        self.facts().offers(kind)
    }

    /// Whether patience ends operations also without loss recovery.
    pub fn always_has_patience(&self) -> bool {
        self.facts().always_has_patience()
    }

    /// Whether it may be that a worker without loss recovery knows of nobody who is missing.
    pub fn names_nobody(&self) -> bool {
        self.facts().names_nobody()
    }

    /// Whether a worker that fails as a host has died names the dead rank, or its switch.
    pub fn finds_the_dead(&self) -> bool {
        self.facts().finds_the_dead()
    }

    /// Whether switches hold nothing of a job that has ended, however it ended; `reliable`: it recovers from losses.
    pub fn leaves_nothing(&self, reliable: bool) -> bool {
        self.facts().leaves_nothing(reliable)
    }

    /// What a job has of the aggregators that a network gives each of its switches; `None`: nothing.
    pub fn aggregators(&self) -> Option<AggregatorUse> {
        self.facts().aggregators()
    }

    /// So many of them are the job's.
    pub fn set_aggregators(&mut self, count: u32) {
        self.facts_mut().set_aggregators(count);
    }

    /// About what a job asks of a network.
    pub fn load(&self, job: &JobSize) -> Load {
        self.facts().load(job)
    }

    /// Keys that some values of others make meaningless.
    pub fn idle_keys(&self, job: &KeysOf) -> Vec<KeyUse> {
        self.facts().idle_keys(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_has_a_name_and_a_number_of_its_own() {
        let all = System::all();
        assert_eq!(all.iter().map(System::name).collect::<Vec<_>>(), System::NAMES);
        let mut numbers: Vec<u8> = all.iter().map(System::number).collect();
        numbers.sort_unstable();
        assert!(numbers[0] > 0 && numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    }

    #[test]
    fn names_are_listed_as_people_do() {
        assert_eq!(System::names_of("or", |system| system.number() == 1), "tree");
        assert_eq!(System::names_of("or", |system| [1, 2, 12].contains(&system.number())), "ring, tree or rina");
        assert_eq!(System::names_of("or", |_| false), "none");
    }
}
