//! What is particular to a system, asked of the system itself: each question goes to its parameters. Nothing here names one.

use fanin_core::payload::Sparsity;
use fanin_core::{CollectiveKind, JobId, JobNodes, NetworkMap, NodeId, Payload, SharedNode, Wire};

use crate::any::{AnyHeader, AnyNode};
use crate::campaign::{Campaign, First, JobSize, Load};
use crate::config::{BuildError, JobSpec, StepParameters};
use crate::facts::{AggregatorUse, Facts, KeyUse, KeysOf, LongestWay, Nodes, Unit};
use crate::system::System;

/// What all systems are asked, with those from elsewhere.
macro_rules! asked {
    ($($system:ident($Parameters:ident) = $number:literal $name:literal in $module:ident,
        packets $packets:ident $(($Header:ident))?, workers [$($worker:ident),*], others [$($other:ident),*];)*) => {
        impl System {
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

        /// Asks the parameters of the system that a node is of, by a name for their type.
        macro_rules! of_system {
            ($self:expr, $of:ident => $call:expr) => {
                match $self {
                    $(
                        $( AnyNode::$worker(_) )|* $( | AnyNode::$other(_) )* => {
                            type $of = crate::$module::$Parameters;
                            $call
                        }
                    )*
                }
            };
        }
    };
}

systems!(asked with own);

/// What campaigns ask the systems of this workspace.
macro_rules! drawn {
    ($($system:ident($Parameters:ident) = $number:literal $name:literal in $module:ident,
        packets $packets:ident $(($Header:ident))?, workers [$($worker:ident),*], others [$($other:ident),*];)*) => {
        impl System {
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

systems!(drawn);

impl<P: Payload + ?Sized> AnyNode<P> {
    /// Forgets what it has measured, where only the order of times matters: for a model in which a timer may run out at any time.
    pub fn forget_durations(&mut self) {
        of_system!(self, Of => Of::forget_durations(self));
    }

    /// What it says of itself that cannot be true together, in words.
    pub fn contradiction(&self) -> Option<String> {
        of_system!(self, Of => Of::contradiction(self))
    }

    /// Whether it is a switch that still has something of a job of whose end it has been told.
    pub fn has_of(&self, job: JobId) -> bool {
        of_system!(self, Of => Of::has_of(self, job))
    }

    /// Whether it is a switch that holds something of these jobs, which live, beyond the time when it should have given it up by itself. Most
    /// systems' switches give nothing up by themselves: nothing is overdue there.
    pub fn is_overdue(&self, living: &[JobId]) -> bool {
        of_system!(self, Of => Of::is_overdue(self, living))
    }

    /// Whether it is a switch that is reserved for a job whose workers must ask for it.
    pub fn is_reserved_for(&self, job: JobId) -> bool {
        of_system!(self, Of => Of::is_reserved_for(self, job))
    }

    /// Whether it is a worker that has heard that switches are reserved for its job.
    pub fn has_reserved(&self) -> bool {
        of_system!(self, Of => Of::has_reserved(self))
    }
}

impl AnyNode<[u8]> {
    /// Tells the server of a job in fixed point that its workers' driver turns elements into integers. Other nodes need not know: a switch
    /// is given the operator that adds them, and workers have the scale.
    pub fn adds_integers(&mut self) {
        of_system!(self, Of => Of::adds_integers(self));
    }
}

impl AnyHeader {
    /// Length of the longest header of a system's packets; `fixed_point` says that some have exponents.
    pub fn max_len_of(system: &System, fixed_point: bool) -> usize {
        system.facts().header_bytes_max(fixed_point).map_or(Self::MAX_LEN, |own| 1 + own)
    }
}

impl System {
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

    /// The same where switches look at so many entries of their arrays in a second for timers that have expired, but for what was given, by its keys
    /// in plans.
    #[must_use]
    pub fn scanned(mut self, entries_per_second: u32, is_given: &dyn Fn(&str) -> bool) -> Self {
        self.facts_mut().follow_scan(entries_per_second, is_given);
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

    /// Whether a switch knows the ports of a multicast only when packets have come by them.
    pub fn multicasts_by_ports(&self) -> bool {
        self.facts().multicasts_by_ports()
    }

    /// Whether its switches find expired timers by scanning their arrays, if they have no others.
    pub fn has_scans(&self) -> bool {
        self.facts().has_scans()
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
