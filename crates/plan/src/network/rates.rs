//! Parameters that are stated for one network follow the plan's, where it does not give them: a timeout of 1 us means another thing at
//! 10 Gb/s than at 100, and another one where hosts are far apart.

use std::collections::VecDeque;

use fanin_core::NodeId;
use fanin_sim::Topology;
use fanin_systems::LongestWay;

/// The rate of the slowest link of these hosts, in bits per second; `None` without any.
pub fn slowest(topology: &Topology, hosts: &[NodeId]) -> Option<u64> {
    let cables = hosts.iter().flat_map(|host| topology.links_out(*host));
    cables.map(|number| topology.links[*number as usize].speed.bits_per_second).min()
}

/// The longest of the shortest ways between two hosts; the most links of one, and the largest delay, where these are not the same way's.
pub fn longest_way(topology: &Topology) -> LongestWay {
    let map = &topology.map;
    let mut leaves: Vec<NodeId> = (0..map.hosts()).filter_map(|host| map.leaf_of(NodeId(host))).map(|leaf| leaf.node).collect();
    leaves.sort_unstable();
    leaves.dedup();
    if topology.is_fat_tree() {
        // From each of its leaves the network looks the same.
        leaves.truncate(1);
    }
    let mut longest = LongestWay::default();
    for leaf in leaves {
        // From the leaf's own hosts on: the slowest of their links is the first one of a way.
        let to_hosts = map.neighbours(leaf).iter().filter(|next| map.is_host(next.node));
        let first_ps = to_hosts.filter_map(|next| topology.link_out(leaf, next.port)).map(|link| delay_ps(topology, link)).max();
        let way = longest_from(topology, leaf);
        longest.links = longest.links.max(way.links + 1);
        longest.delay_ps = longest.delay_ps.max(way.delay_ps + first_ps.unwrap_or(0));
    }
    longest
}

fn delay_ps(topology: &Topology, link: u32) -> u64 {
    topology.links[link as usize].speed.latency.as_ps()
}

/// The same from a switch to hosts. Of several ways with as many links, the one with the largest delay counts.
fn longest_from(topology: &Topology, switch: NodeId) -> LongestWay {
    let map = &topology.map;
    let mut ways: Vec<Option<LongestWay>> = vec![None; map.nodes() as usize];
    ways[switch.index()] = Some(LongestWay::default());
    let (mut frontier, mut longest) = (VecDeque::from([switch]), LongestWay::default());
    while let Some(node) = frontier.pop_front() {
        let Some(way) = ways[node.index()] else { continue };
        if map.is_host(node) {
            (longest.links, longest.delay_ps) = (longest.links.max(way.links), longest.delay_ps.max(way.delay_ps));
            continue;
        }
        for next in map.neighbours(node) {
            let Some(link) = topology.link_out(node, next.port) else { continue };
            let here = LongestWay { links: way.links + 1, delay_ps: way.delay_ps + delay_ps(topology, link) };
            match &mut ways[next.node.index()] {
                Some(known) if known.links == here.links => known.delay_ps = known.delay_ps.max(here.delay_ps),
                Some(_) => {}
                unknown => {
                    *unknown = Some(here);
                    frontier.push_back(next.node);
                }
            }
        }
    }
    longest
}

#[cfg(test)]
mod tests {
    use fanin_systems::{CanaryParameters, CongestionParameters, MachinesParameters, System};

    use crate::Plan;

    fn system(rate: &str, job: &str) -> System {
        let network = format!("[network]\nshape = \"star\"\nhosts = 4\nrate = {rate:?}\nlatency = \"1us\"\n");
        let text = format!("{network}[[jobs]]\nworkers = 4\nmessage = \"1MiB\"\n{job}\n");
        let plan = Plan::parse("plan.toml", &text, &[], None).unwrap();
        plan.prepare(&plan.points[0], 0).unwrap().jobs[0].system
    }

    fn timeout_ps(rate: &str, more: &str) -> u64 {
        match system(rate, &format!("system = \"canary\"\n{more}")) {
            System::Canary(CanaryParameters { timeout_ps, .. }) => timeout_ps,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_timeout_follows_the_rate_unless_it_is_given() {
        assert_eq!(
            ["10Gb/s", "25Gb/s", "100Gb/s", "400Gb/s"].map(|rate| timeout_ps(rate, "")),
            [10_000_000, 4_000_000, 1_000_000, 250_000]
        );
        assert_eq!(timeout_ps("10Gb/s", "timeout = \"1us\""), 1_000_000);
        assert_eq!(timeout_ps("10Gb/s", "timeout = { leaf = \"2us\" }"), 2_000_000);
    }

    #[test]
    fn the_bounds_of_an_adaptive_timeout_follow_the_rate_unless_they_are_given() {
        let bounds = |rate: &str, more: &str| match system(rate, &format!("system = \"canary\"\ntimeout = \"adaptive\"\n{more}")) {
            System::Canary(CanaryParameters { timeout_adaptive: true, timeout_min_ps, timeout_max_ps, .. }) => {
                (timeout_min_ps / 1_000, timeout_max_ps / 1_000)
            }
            other => panic!("{other:?}"),
        };
        let of = ["1Gb/s", "10Gb/s", "100Gb/s", "400Gb/s"].map(|rate| bounds(rate, ""));
        assert_eq!(of, [(50_000, 1_600_000), (5_000, 160_000), (500, 16_000), (125, 4_000)], "nanoseconds");
        assert_eq!(bounds("10Gb/s", "timeout_min = \"1us\""), (1_000, 160_000));
        assert_eq!(bounds("10Gb/s", "timeout_max = \"50us\""), (5_000, 50_000));
        assert_eq!(bounds("10Gb/s", "timeout_min = \"1us\"\ntimeout_max = \"2us\""), (1_000, 2_000));
        // The one that is given is kept, and the other one is on its side.
        assert_eq!(bounds("1Gb/s", "timeout_max = \"16us\""), (16_000, 16_000));
        assert_eq!(bounds("400Gb/s", "timeout_min = \"10us\""), (10_000, 10_000));
    }

    #[test]
    fn roots_wait_for_the_longest_way_unless_a_timeout_is_given() {
        let root = |network: &str, more: &str| {
            let text = format!("[network]\n{network}\n[[jobs]]\nsystem = \"canary\"\nworkers = 4\nmessage = \"1MiB\"\n{more}\n");
            let plan = Plan::parse("plan.toml", &text, &[], None).unwrap();
            match plan.prepare(&plan.points[0], 0).unwrap().jobs[0].system {
                System::Canary(CanaryParameters { timeout_root_ps, .. }) => timeout_root_ps,
                other => panic!("{other:?}"),
            }
        };
        let leaves = "shape = \"fat-tree\"\nleaves = 2\nhosts_per_leaf = 2\nspines = 2\nrate = \"100Gb/s\"\nlatency = \"300ns\"";
        // d (l + t): four links of 300 ns, and 1 us at each.
        assert_eq!(root(leaves, ""), Some(5_200_000));
        assert_eq!(root(&leaves.replace("100Gb", "400Gb"), ""), Some(2_200_000));
        assert_eq!(root("shape = \"star\"\nhosts = 4\nrate = \"100Gb/s\"\nlatency = \"1us\"", ""), Some(4_000_000));
        assert_eq!(root("shape = \"fat-tree-3\"\nports = 4\nrate = \"100Gb/s\"\nlatency = \"300ns\"", ""), Some(7_800_000));
        for given in ["timeout = \"1us\"", "timeout = { leaf = \"2us\" }", "timeout = \"adaptive\""] {
            assert_eq!(root(leaves, given), None, "{given}");
        }
        let far = root(&leaves.replace("\"300ns\"", "\"800ms\""), "");
        assert_eq!(far, Some(1_000_000_000_000), "a second at most");
    }

    #[test]
    fn the_longest_way_is_the_one_with_most_links_and_delay() {
        let way = |network: &str| {
            let text = format!("[network]\n{network}\n[[jobs]]\nsystem = \"ring\"\nworkers = 2\nmessage = \"1MiB\"\n");
            let plan = Plan::parse("plan.toml", &text, &[], None).unwrap();
            super::longest_way(&plan.prepare(&plan.points[0], 0).unwrap().topology)
        };
        let machines = "shape = \"machines\"\nmachines = 2\nper_machine = 2\nintra_rate = \"400Gb/s\"\nrate = \"100Gb/s\"\nlatency = \"1us\"\nintra_latency = \"100ns\"";
        let longest = way(machines);
        assert_eq!((longest.links, longest.delay_ps), (4, 2_200_000));
        let dragonfly =
            "shape = \"dragonfly\"\ngroups = 3\nrouters = 2\nhosts_per_router = 1\nglobal_links = 1\nrate = \"100Gb/s\"\nlatency = \"1us\"";
        let longest = way(dragonfly);
        assert_eq!((longest.links, longest.delay_ps), (5, 5_000_000));
    }

    #[test]
    fn cards_have_the_rate_of_their_links_unless_it_is_given() {
        let rates = |more: &str| match system("400Gb/s", &format!("system = \"machines\"\ncongestion = \"dcqcn\"\n{more}")) {
            System::Machines(MachinesParameters { congestion: CongestionParameters { line_bps, rate_min_bps, .. }, .. }) => {
                (line_bps / 1_000_000, rate_min_bps / 1_000_000)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(rates(""), (400_000, 400));
        assert_eq!(rates("line_rate = \"100Gb/s\""), (100_000, 100));
        assert_eq!(rates("rate_min = \"1Gb/s\""), (400_000, 1_000));
    }
}
