//! Parameters that are stated for one rate follow the network's, where the plan does not give them: a timeout of 1 us means another thing at
//! 10 Gb/s than at 100.

use fanin_core::NodeId;
use fanin_sim::Topology;

/// The rate of the slowest link of these hosts, in bits per second; `None` without any.
pub fn slowest(topology: &Topology, hosts: &[NodeId]) -> Option<u64> {
    let cables = hosts.iter().flat_map(|host| topology.links_out(*host));
    cables.map(|number| topology.links[*number as usize].speed.bits_per_second).min()
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
