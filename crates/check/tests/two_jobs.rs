//! Every behaviour of two jobs that share the aggregators of a switch (ATP, A2TP): collisions of one with the other, a job that crashes, and
//! aggregators that are taken from a job that has said nothing for long.

use crate::small::{assert_found, assert_holds};
use fanin_check::model::{Limits, NetworkModel};
use fanin_core::{Census, Duration, JobId, NetworkMap, NodeId};
use fanin_protocols::shared::aggregation::Planted;
use fanin_systems::{A2tpParameters, AnyNode, AtpParameters, CollisionRule, JobSpec, System};

/// Where an aggregator is a zombie only when a whole run of the model is over: nothing takes time there.
const NEVER: u64 = u64::MAX / 4;
/// Where whoever finds an aggregator taken may take it at once: every moment at which its time could be over is looked at.
const AT_ONCE: u64 = 0;

fn atp(reclaim_ps: u64) -> System {
    System::Atp(AtpParameters { aggregators: 1, initial: 1, reclaim_ps, ..AtpParameters::default() })
}

fn a2tp(reclaim_ps: u64) -> System {
    System::A2tp(A2tpParameters { aggregators: 1, initial: 1, reclaim_ps, ..A2tpParameters::default() })
}

/// Switches share collisions out, and tell a job that is late of its own.
fn shared(reclaim_ps: u64) -> System {
    let collisions = CollisionRule::Shared;
    System::A2tp(A2tpParameters { aggregators: 1, initial: 1, reclaim_ps, collisions, ..A2tpParameters::default() })
}

/// Two jobs of two workers and a server each on one switch with one aggregator, which both want for every fragment.
fn two_jobs(systems: [System; 2], elements: [&[u64]; 2], limits: Limits) -> NetworkModel {
    let hosts = [[NodeId(0), NodeId(1)], [NodeId(2), NodeId(3)]];
    let servers = [[NodeId(4)], [NodeId(5)]];
    let spec = |job: usize| JobSpec {
        id: JobId(job as u16),
        hosts: &hosts[job],
        servers: &servers[job],
        system: systems[job],
        op: (),
        element_bytes: 4,
        payload_bytes: 16,
        window: 1,
        reliable: true,
        // Times mean little here; but what a node may do again after some time, it may do at once.
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience: Duration::from_ms(1_000),
        seed: 0,
    };
    let jobs = [(spec(0), elements[0]), (spec(1), elements[1])];
    NetworkModel::of_jobs(&jobs, NetworkMap::star(6), limits).expect("the jobs fit the network")
}

fn limits(losses: u8, early_timeouts: u8) -> Limits {
    Limits { losses, duplicates: 0, early_timeouts, rounds: 10 }
}

fn planted(bug: Planted) -> impl Fn(&mut AnyNode<Census>) {
    move |node| {
        if let AnyNode::AtpSwitch(switch) = node {
            switch.plant(bug);
        }
    }
}

#[test]
fn jobs_that_collide_are_exact() {
    for (name, systems) in [
        ("atp", [atp(NEVER); 2]),
        ("a2tp", [a2tp(NEVER); 2]),
        ("atp and a2tp", [atp(NEVER), a2tp(NEVER)]),
        ("shared", [shared(NEVER); 2]),
        ("atp and shared", [atp(NEVER), shared(NEVER)]),
    ] {
        let model = || two_jobs(systems, [&[4], &[4]], limits(0, 0)).with_ends();
        assert_holds(&format!("{name}, a fragment each"), model(), 500);
        let model = two_jobs(systems, [&[8], &[4]], limits(0, 0)).with_ends();
        assert_holds(&format!("{name}, two fragments and one"), model, 500);
        let model = two_jobs(systems, [&[4], &[4]], limits(1, 0)).with_ends();
        assert_holds(&format!("{name}, a loss"), model, 5_000);
    }
}

#[test]
fn jobs_of_which_one_crashes() {
    for (name, system) in [("atp", atp as fn(u64) -> System), ("a2tp", a2tp), ("shared", shared)] {
        // Switches are told that it is over, sooner or later.
        let told = two_jobs([system(NEVER); 2], [&[8], &[4]], limits(0, 0)).with_crash_of(1).with_ends();
        assert_holds(&format!("{name}, a crash that is told"), told, 500);
        // They are not told: what the other one wants is reclaimed, or goes by way of the server.
        for (how, reclaim_ps) in [("at once", AT_ONCE), ("never", NEVER)] {
            let untold = two_jobs([system(reclaim_ps); 2], [&[8], &[4]], limits(0, 0)).with_crash_of(1);
            assert_holds(&format!("{name}, a crash that is not told, reclaimed {how}"), untold, 500);
        }
    }
}

/// The worst that reclaiming can do: every aggregator is taken from a job that still needs it, whenever the other one wants it.
#[test]
fn an_aggregator_that_is_taken_away_costs_no_contribution() {
    for (name, system) in [("atp", atp as fn(u64) -> System), ("a2tp", a2tp), ("shared", shared)] {
        let model = two_jobs([system(AT_ONCE); 2], [&[8], &[4]], limits(0, 0)).with_ends();
        assert_holds(&format!("{name}, reclaimed at once"), model, 500);
        let model = two_jobs([system(AT_ONCE); 2], [&[4], &[4]], limits(1, 0)).with_ends();
        assert_holds(&format!("{name}, reclaimed at once, a loss"), model, 1_000);
    }
}

#[test]
fn bugs_between_jobs_have_counterexamples() {
    use fanin_check::model::{EXACT, NOTHING_LEFT};
    for (name, system) in [("atp", atp as fn(u64) -> System), ("a2tp", a2tp)] {
        let model = |reclaim_ps| two_jobs([system(reclaim_ps); 2], [&[4], &[4]], limits(0, 0)).with_ends();
        let found = |bug, reclaim_ps, property| {
            assert_found(&format!("{name}, {bug:?}"), model(reclaim_ps).altered(planted(bug)), property);
        };
        found(Planted::IgnoreJob, NEVER, EXACT);
        found(Planted::IgnoreOwner, NEVER, EXACT);
        found(Planted::KeepAccumulator, AT_ONCE, EXACT);
        let crash = two_jobs([system(NEVER); 2], [&[4], &[4]], limits(0, 0)).with_crash_of(1).with_ends();
        assert_found(&format!("{name}, KeepDismissed"), crash.altered(planted(Planted::KeepDismissed)), NOTHING_LEFT);
    }
}
