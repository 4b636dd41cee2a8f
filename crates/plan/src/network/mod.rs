//! `[network]`: shape, links, queues and balancers.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@file`] | networks cable by cable, in files |
//! | `graphml` | the same as other programs write them |
//! | [`hardware`] | what switches can do, as those of prototypes |
//! | [`presets`] | what hardware of today says of other keys |
//! | [`processor`] | what switches compute with |
//! | [`rails`] | networks of several rails and planes |
//! | [`rates`] | how fast the links of hosts are |

pub mod file;
mod graphml;
pub mod hardware;
pub mod presets;
pub mod processor;
pub mod rails;
pub mod rates;

use fanin_core::NodeId;
use fanin_sim::lossless::{CHANNELS_MAX, LosslessConfig, SwitchModel};
use fanin_sim::routing::{Balancer, Conga};
use fanin_sim::scenario::{LinkSpeed, NetworkConfig};
use fanin_sim::shape::{Shape, Size};
use fanin_sim::topology::Topology;
use fanin_sim::trimming::Trimming;

use crate::reading::size::RUN_BYTES_MAX;
use crate::reading::units::{Count, Rate, Time, bytes_about};
use crate::reading::{PlanError, Refuse};
use crate::schema::{
    Aggregating, AsWired, Cards, Lossless, Network, QUEUE_BYTES_DEFAULT, Routing, ShapeName, SwitchModelName, TrimmingName,
};
use file::{Capability, LinkDefaults, NetworkFile};
use rails::Rails;

/// What a network has at most.
const HOSTS_MAX: u64 = 1 << 19;
const CABLES_MAX: u64 = 1 << 22;
/// Where ways are listed, which takes the square of it; and where they are computed.
const SWITCHES_MAX: u64 = 1 << 13;
const COMPUTED_SWITCHES_MAX: u64 = 1 << 14;

/// About what an entry of a table of ways takes, a link in a list of several, and a cable.
const WAY_BYTES: u64 = 8;
const LISTED_BYTES: u64 = 4;
const CABLE_BYTES: u64 = 600;

/// What ways take: nothing in fat trees, where they are computed, unless a load balancer remembers something of each list of them.
fn way_bytes(shape: &Shape, remembers: bool) -> u64 {
    let Size { hosts, switches, .. } = shape.size();
    let table = switches.saturating_mul(switches).saturating_mul(WAY_BYTES);
    let lists = match shape {
        Shape::FatTree2 { .. } | Shape::FatTree3 { .. } if !remembers => return 0,
        Shape::FatTree2 { leaves, spines, parallel_links, .. } => {
            let (leaves, spines) = (u64::from(*leaves), u64::from(*spines));
            (leaves + spines).saturating_mul(leaves.saturating_mul(spines)).saturating_mul((*parallel_links).into())
        }
        Shape::FatTree3 { ports, .. } => switches.saturating_mul(switches).saturating_mul(u64::from(*ports) / 2),
        // A host with several cables is reached by ways of its own.
        Shape::Wired(_) => return hosts.saturating_mul(switches).saturating_mul(WAY_BYTES),
        Shape::Star { .. } | Shape::Dragonfly { .. } => 0,
    };
    table.saturating_add(lists.saturating_mul(LISTED_BYTES))
}

/// Reads what the simulator needs to know of a network.
///
/// # Errors
/// [`PlanError`] with the key, its value and what was expected.
pub fn network(refuse: &Refuse<'_>, config: &Network) -> Result<NetworkConfig, PlanError> {
    let shape = Reader { refuse, config }.shape()?;
    let background =
        config.background_routing.map(|routing| balancer(refuse, config, "network.background_routing", routing)).transpose()?;
    let collective = balancer(refuse, config, "network.routing", config.routing)?;
    let balancers = [collective, background.unwrap_or(collective)];
    let small = |path: &str, bytes: u64, max: u32| {
        u32::try_from(bytes).ok().filter(|bytes| *bytes <= max).ok_or_else(|| refuse.at(path, format!("at most {max} bytes")))
    };
    Ok(NetworkConfig {
        shape,
        queue_bytes: config.queue.map_or(QUEUE_BYTES_DEFAULT, |bytes| bytes.0),
        lossless: lossless(refuse, config, balancers)?,
        ecn_mark_bytes: config.ecn.map_or(u64::MAX, |bytes| bytes.0),
        nic_queue_bytes: config.nic_queue.0,
        frame_overhead_bytes: small("network.frame_overhead", config.frame_overhead.0, 10_000)?,
        frame_bytes_min: small("network.frame_min", config.frame_min.0, 10_000)?,
        collective_balancer: balancers[0],
        background_balancer: balancers[1],
        trimming: config.trimming.map(|whose| if whose == TrimmingName::All { Trimming::All } else { Trimming::Hosts }),
    })
}

/// The balancer that a plan means by `routing`, which it has at `key`.
fn balancer(refuse: &Refuse<'_>, config: &Network, key: &str, routing: Routing) -> Result<Balancer, PlanError> {
    let most = Balancer::DRILL_MAX;
    if !(1..=most).contains(&config.drill_samples) {
        return Err(refuse.at("network.drill_samples", format!("1 to {most} queues")));
    }
    if config.drill_memory > most {
        return Err(refuse.at("network.drill_memory", format!("at most {most} queues")));
    }
    let (rate_ps, aging_ps) = (config.conga_time.0.as_ps(), config.conga_aging.0.as_ps());
    for (key, ps) in [("network.conga_time", rate_ps), ("network.conga_aging", aging_ps)] {
        if ps < 1_000 {
            return Err(refuse.at(key, "1 ns or more"));
        }
    }
    let gap_ps = config.flowlet_gap.0.as_ps();
    let of_dragonflies = matches!(routing, Routing::Minimal | Routing::Valiant | Routing::Ugal);
    if of_dragonflies && config.shape != ShapeName::Dragonfly {
        return Err(refuse.at(key, "another routing: this one is for shape = \"dragonfly\""));
    }
    Ok(match routing {
        Routing::Ecmp => Balancer::Ecmp,
        Routing::Destination => Balancer::Destination,
        Routing::Random | Routing::Minimal => Balancer::Random,
        Routing::Flowlet => Balancer::Flowlet { gap_ps },
        Routing::Adaptive => Balancer::Adaptive { threshold: config.adaptive_threshold.0 },
        Routing::Drill => Balancer::Drill { samples: config.drill_samples, memory: config.drill_memory },
        Routing::Conga => Balancer::Conga(Conga { gap_ps, rate_ps, aging_ps }),
        Routing::Valiant => Balancer::Valiant,
        Routing::Ugal => Balancer::Ugal,
        Routing::Own(own) => Balancer::Own(own),
    })
}

/// The switches that only forward: all but those that the plan names, or that the network's file says aggregate.
///
/// # Errors
/// [`PlanError`] where a name is no switch's, or there is no file.
pub fn forwarding(refuse: &Refuse<'_>, config: &Network, topology: &Topology) -> Result<Vec<NodeId>, PlanError> {
    let able: Vec<NodeId> = match &config.aggregating {
        None => return Ok(Vec::new()),
        Some(Aggregating::Named(names)) => {
            let switch = |(index, name): (usize, &String)| {
                let node = topology.node_named(name).filter(|node| !topology.map.is_host(*node));
                node.ok_or_else(|| refuse.at(&format!("network.aggregating[{index}]"), "the name of a switch"))
            };
            names.iter().enumerate().map(switch).collect::<Result<_, _>>()?
        }
        Some(Aggregating::AsWired(AsWired::File)) => {
            let file =
                Reader { refuse, config }.file().map_err(|_| refuse.at("network.aggregating", "names of switches with this shape"))?;
            topology.map.switches().zip(file.switches).filter(|(_, switch)| switch.aggregates).map(|(node, _)| node).collect()
        }
    };
    Ok(topology.map.switches().filter(|switch| !able.contains(switch)).collect())
}

/// What the network's file says of how fast switches add, and of their memory; of those that aggregate here.
///
/// # Errors
/// [`PlanError`] where the file cannot be read any more.
pub fn capabilities(refuse: &Refuse<'_>, config: &Network, topology: &Topology) -> Result<Vec<(NodeId, Capability)>, PlanError> {
    if config.shape != ShapeName::File {
        return Ok(Vec::new());
    }
    let switches = topology.map.switches().zip(Reader { refuse, config }.file()?.switches);
    Ok(switches.filter(|(node, switch)| topology.map.can_aggregate(*node) && switch.is_limited()).collect())
}

/// Reads the keys of a shape.
struct Reader<'a> {
    refuse: &'a Refuse<'a>,
    config: &'a Network,
}

impl Reader<'_> {
    /// Keys that only some shapes have: whether each is given, and which shapes have it.
    fn keys_of_shapes(&self) -> [(&'static str, bool, &'static [ShapeName]); 23] {
        use ShapeName::{Dragonfly, FatTree, FatTree3, File, Machines, RailOptimised, Star};
        let config = self.config;
        [
            ("hosts", config.hosts.is_some(), &[Star]),
            ("leaves", config.leaves.is_some(), &[FatTree]),
            ("hosts_per_leaf", config.hosts_per_leaf.is_some(), &[FatTree]),
            ("spines", config.spines.is_some(), &[FatTree, RailOptimised]),
            ("parallel_links", config.parallel_links.is_some(), &[FatTree, RailOptimised]),
            ("ports", config.ports.is_some(), &[FatTree3]),
            ("groups", config.groups.is_some(), &[Dragonfly]),
            ("routers", config.routers.is_some(), &[Dragonfly]),
            ("global_links", config.global_links.is_some(), &[Dragonfly]),
            ("hosts_per_router", config.hosts_per_router.is_some(), &[Dragonfly]),
            ("global_rate", config.global_rate.is_some(), &[Dragonfly]),
            ("global_latency", config.global_latency.is_some(), &[Dragonfly]),
            ("fabric_rate", config.fabric_rate.is_some(), &[FatTree, FatTree3, Dragonfly, RailOptimised]),
            ("fabric_latency", config.fabric_latency.is_some(), &[FatTree, FatTree3, Dragonfly, RailOptimised]),
            ("machines", config.machines.is_some(), &[Machines, RailOptimised]),
            ("per_machine", config.per_machine.is_some(), &[Machines, RailOptimised]),
            ("intra_rate", config.intra_rate.is_some(), &[Machines, RailOptimised]),
            ("intra_latency", config.intra_latency.is_some(), &[Machines, RailOptimised]),
            ("machines_per_leaf", config.machines_per_leaf.is_some(), &[RailOptimised]),
            ("cards", config.cards.is_some(), &[RailOptimised]),
            ("nvls", config.nvls.is_some(), &[RailOptimised]),
            ("planes", config.planes.is_some(), &[FatTree, RailOptimised]),
            ("file", config.file.is_some(), &[File]),
        ]
    }

    fn shape(&self) -> Result<Shape, PlanError> {
        let config = self.config;
        for (name, given, shapes) in self.keys_of_shapes() {
            if given && !shapes.contains(&config.shape) {
                let instead = match (name, config.shape) {
                    ("hosts", ShapeName::FatTree) => "leaves and hosts_per_leaf instead,".to_string(),
                    _ => "no such key".to_string(),
                };
                return Err(self.refuse.at(&format!("network.{name}"), format!("{instead} with shape = \"{}\"", config.shape.text())));
            }
        }
        if config.shape == ShapeName::File {
            return self.wired();
        }
        let link = self.link(config.rate, config.latency)?;
        let other = |rate: Option<Rate>, latency: Option<Time>, or: LinkSpeed| LinkSpeed {
            bits_per_second: rate.map_or(or.bits_per_second, |rate| rate.0),
            latency: latency.map_or(or.latency, |latency| latency.0),
        };
        let fabric_link = other(config.fabric_rate, config.fabric_latency, link);
        let shape = match config.shape {
            ShapeName::Star | ShapeName::File => Shape::Star { hosts: self.needed("hosts", config.hosts)?, link },
            ShapeName::FatTree if self.planes()? > 1 => return self.leaves_in_planes(link, fabric_link),
            ShapeName::RailOptimised => {
                return self.rails(other(config.intra_rate, config.intra_latency, link), link, fabric_link);
            }
            ShapeName::FatTree => Shape::FatTree2 {
                leaves: self.needed("leaves", config.leaves)?,
                hosts_per_leaf: self.needed("hosts_per_leaf", config.hosts_per_leaf)?,
                spines: self.needed("spines", config.spines)?,
                parallel_links: config.parallel_links.map_or(1, |count| count.0),
                host_link: link,
                fabric_link,
            },
            ShapeName::Machines => Shape::FatTree2 {
                leaves: self.needed("machines", config.machines)?,
                hosts_per_leaf: self.needed("per_machine", config.per_machine)?,
                spines: 1,
                parallel_links: 1,
                host_link: other(config.intra_rate, config.intra_latency, link),
                fabric_link: link,
            },
            ShapeName::FatTree3 => Shape::FatTree3 { ports: self.needed("ports", config.ports)?, host_link: link, fabric_link },
            ShapeName::Dragonfly => Shape::Dragonfly {
                routers: self.needed("routers", config.routers)?,
                groups: self.needed("groups", config.groups)?,
                global_links: self.needed("global_links", config.global_links)?,
                hosts_per_router: self.needed("hosts_per_router", config.hosts_per_router)?,
                host_link: link,
                local_link: fabric_link,
                global_link: other(config.global_rate, config.global_latency, fabric_link),
            },
        };
        self.check_size(&shape)?;
        Ok(shape)
    }

    fn planes(&self) -> Result<u32, PlanError> {
        const PLANES_MAX: u32 = 8;
        let planes = self.config.planes.map_or(1, |count| count.0);
        let expected = || self.refuse.at("network.planes", format!("1 to {PLANES_MAX}"));
        if (1..=PLANES_MAX).contains(&planes) { Ok(planes) } else { Err(expected()) }
    }

    /// Leaves and spines in several planes.
    fn leaves_in_planes(&self, card: LinkSpeed, fabric: LinkSpeed) -> Result<Shape, PlanError> {
        let config = self.config;
        let leaves = (self.needed("leaves", config.leaves)?, self.needed("hosts_per_leaf", config.hosts_per_leaf)?);
        let spines = (self.needed("spines", config.spines)?, config.parallel_links.map_or(1, |count| count.0));
        let planes = self.planes()?;
        let hosts = u64::from(leaves.0) * u64::from(leaves.1);
        let cables = (u64::from(leaves.0) * u64::from(spines.0)).saturating_mul(u64::from(spines.1)).saturating_add(hosts);
        let switches = (u64::from(leaves.0) + u64::from(spines.0)) * u64::from(planes);
        let of = (hosts, switches, cables.saturating_mul(planes.into()));
        self.check_numbers(
            of,
            SWITCHES_MAX,
            hosts.saturating_mul(switches).saturating_mul(WAY_BYTES),
            ("hosts_per_leaf", "leaves", "leaves"),
        )?;
        Ok(rails::planes(leaves, spines, planes, card, fabric))
    }

    /// Whether machines sum and hosts carry their sums.
    fn carries(&self) -> Result<bool, PlanError> {
        let config = self.config;
        if config.cards == Some(Cards::Machines) {
            let sums = config.nvls.unwrap_or(true);
            return if sums {
                Ok(false)
            } else {
                Err(self.refuse.at("network.nvls", "true: with cards = \"machines\" their switches sum"))
            };
        }
        let carries = config.nvls.unwrap_or(false);
        if carries && config.trimming == Some(TrimmingName::All) {
            return Err(self.refuse.at("network.trimming", "\"hosts\" with nvls: what a machine's switch has made has no way back to it"));
        }
        if carries && config.aggregating.is_some() {
            return Err(self.refuse.at("network.aggregating", "no such list with nvls: all switches of a tree sum"));
        }
        Ok(carries)
    }

    /// A leaf for each place in a machine.
    fn rails(&self, inside: LinkSpeed, card: LinkSpeed, fabric: LinkSpeed) -> Result<Shape, PlanError> {
        let config = self.config;
        let machines = self.needed("machines", config.machines)?;
        let rails = Rails {
            machines,
            per_machine: self.needed("per_machine", config.per_machine)?,
            machines_per_leaf: config.machines_per_leaf.map_or(machines, |count| count.0),
            spines: config.spines.map_or(0, |count| count.0),
            parallel_links: config.parallel_links.map_or(1, |count| count.0),
            planes: self.planes()?,
            by_machine: config.cards == Some(Cards::Machines),
            carries: self.carries()?,
            inside,
            card,
            fabric,
        };
        let Rails { per_machine, machines_per_leaf, .. } = rails;
        let (hosts, switches, _) = rails.size();
        let way_bytes = hosts.saturating_mul(switches).saturating_mul(WAY_BYTES);
        self.check_numbers(rails.size(), SWITCHES_MAX, way_bytes, ("per_machine", "machines", "machines"))?;
        let joined = machines <= machines_per_leaf && (rails.by_machine || per_machine == 1);
        if rails.spines == 0 && !joined {
            return Err(self.refuse.at("network.spines", "1 or more: hosts of different leaves have no other way to each other"));
        }
        Ok(rails.shape())
    }

    /// A path is taken from the plan's folder on.
    fn wired(&self) -> Result<Shape, PlanError> {
        let shape = Shape::Wired(self.file()?.wiring.into());
        self.check_size(&shape)?;
        Ok(shape)
    }

    fn file(&self) -> Result<NetworkFile, PlanError> {
        let Some(name) = &self.config.file else {
            return Err(self.refuse.at("network.file", "the name of a TOML or GraphML file"));
        };
        NetworkFile::of_plan(self.refuse.file, name, LinkDefaults { rate: self.config.rate, latency: self.config.latency })
    }

    fn needed(&self, name: &str, value: Option<Count>) -> Result<u32, PlanError> {
        value.map(|count| count.0).ok_or_else(|| self.refuse.at(&format!("network.{name}"), "a whole number of 1 or more"))
    }

    fn link(&self, rate: Option<Rate>, latency: Option<Time>) -> Result<LinkSpeed, PlanError> {
        let rate = rate.ok_or_else(|| self.refuse.at("network.rate", "a rate, such as \"100Gb/s\""))?;
        let latency = latency.ok_or_else(|| self.refuse.at("network.latency", "a time, such as \"300ns\""))?;
        Ok(LinkSpeed { bits_per_second: rate.0, latency: latency.0 })
    }

    /// A network that would not fit any machine is refused before it is laid out.
    fn check_size(&self, shape: &Shape) -> Result<(), PlanError> {
        if let Shape::FatTree3 { ports, .. } = shape {
            // Of so many that sizes have no numbers.
            let hosts = u128::from(*ports).pow(3) / 4;
            if hosts > u128::from(u32::MAX) * 16 {
                return Err(self.refuse.at("network.ports", format!("at most {HOSTS_MAX} hosts in all, not {hosts}")));
            }
        }
        let size = shape.size();
        let keys = match shape {
            Shape::Star { .. } => return Ok(()),
            Shape::FatTree2 { .. } if self.config.shape == ShapeName::Machines => ("per_machine", "machines", "machines"),
            Shape::FatTree2 { leaves, spines, .. } => ("leaves", if leaves > spines { "leaves" } else { "spines" }, "spines"),
            Shape::FatTree3 { .. } => ("ports", "ports", "ports"),
            Shape::Dragonfly { .. } => ("hosts_per_router", "groups", "routers"),
            Shape::Wired(_) => ("file", "file", "file"),
        };
        let remembers = |routing: Routing| matches!(routing, Routing::Drill | Routing::Conga | Routing::Own(_));
        let remembers = remembers(self.config.routing) || self.config.background_routing.is_some_and(remembers);
        let computes = matches!(shape, Shape::FatTree2 { .. } | Shape::FatTree3 { .. }) && !remembers;
        let most = if computes { COMPUTED_SWITCHES_MAX } else { SWITCHES_MAX };
        self.check_numbers((size.hosts, size.switches, size.cables), most, way_bytes(shape, remembers), keys)
    }

    /// The same for so many hosts, switches and cables, by the keys that they follow from; `way_bytes` is what ways take.
    fn check_numbers(
        &self,
        of: (u64, u64, u64),
        switches_max: u64,
        way_bytes: u64,
        (hosts, switches, cables): (&str, &str, &str),
    ) -> Result<(), PlanError> {
        let size = Size { hosts: of.0, switches: of.1, cables: of.2 };
        let limits = [
            (hosts, size.hosts, HOSTS_MAX, "hosts"),
            (cables, size.cables, CABLES_MAX, "cables"),
            (switches, size.switches, switches_max, "switches"),
        ];
        if let Some((key, count, most, what)) = limits.into_iter().find(|(_, count, most, _)| count > most) {
            return Err(self.refuse.at(&format!("network.{key}"), format!("at most {most} {what} in all, not {count}")));
        }
        let bytes = way_bytes.saturating_add(size.cables.saturating_mul(CABLE_BYTES));
        if bytes > RUN_BYTES_MAX {
            let (about, most) = (bytes_about(bytes), bytes_about(RUN_BYTES_MAX));
            let expected =
                format!("less: ways from {} switches to {} hosts take about {about}, at most {most} are taken", size.switches, size.hosts);
            return Err(self.refuse.at(&format!("network.{hosts}"), expected));
        }
        Ok(())
    }
}

fn lossless(refuse: &Refuse<'_>, config: &Network, balancers: [Balancer; 2]) -> Result<Option<LosslessConfig>, PlanError> {
    let Some(lossless) = &config.lossless else { return Ok(None) };
    if config.queue.is_some() {
        return Err(refuse.at("network.queue", "no such key beside lossless"));
    }
    let output_queued_has_none = [
        ("output", lossless.output.is_some()),
        ("arbitration", lossless.arbitration.is_some()),
        ("made_packets", lossless.made_packets.is_some()),
    ];
    let model = match lossless.model {
        SwitchModelName::InputQueued => SwitchModel::InputQueued,
        SwitchModelName::OutputQueued => {
            if let Some((key, _)) = output_queued_has_none.iter().find(|(_, given)| *given) {
                return Err(refuse.at(&format!("network.lossless.{key}"), "no such key with model = \"output-queued\""));
            }
            SwitchModel::OutputQueued
        }
    };
    Ok(Some(LosslessConfig {
        model,
        input_bytes: lossless.input.0,
        output_bytes: lossless.output.unwrap_or(lossless.input).0,
        arbitration: lossless.arbitration.unwrap_or_default(),
        made_packets: lossless.made_packets.unwrap_or_default(),
        channels: channels(refuse, config, lossless, balancers)?,
    }))
}

/// Virtual channels: where the plan does not say, one for each class of hops that its routing needs.
fn channels(refuse: &Refuse<'_>, config: &Network, lossless: &Lossless, balancers: [Balancer; 2]) -> Result<u8, PlanError> {
    let is_dragonfly = config.shape == ShapeName::Dragonfly;
    let Some(count) = lossless.channels else {
        return Ok(match is_dragonfly {
            true if balancers.iter().any(|balancer| balancer.goes_round()) => 3,
            true => 2,
            false => 1,
        });
    };
    let key = "network.lossless.channels";
    if !is_dragonfly {
        return Err(refuse.at(key, format!("no such key with shape = \"{}\"", config.shape.text())));
    }
    u8::try_from(count.0).ok().filter(|count| *count <= CHANNELS_MAX).ok_or_else(|| refuse.at(key, format!("at most {CHANNELS_MAX}")))
}
