//! What a switch of a fabric measures, and under which names. The page about fabrics lists them; a test holds it against this file's
//! output.

use fanin_core::{DropReason, NodeId, RetransmitReason, Tally};
use fanin_fabric::Fabric;
use fanin_runtime::fabric::{FabricStatus, LinkState, PortStatus};
use fanin_runtime::{Counters, LATE};

use super::nodes::neighbour;
use crate::metrics::{Labels, Page, process};
use crate::process::ProcessStatus;

/// All metrics in the text format of OpenMetrics, which Prometheus reads.
pub(crate) fn render(fabric: &Fabric, node: NodeId, status: &FabricStatus) -> String {
    let mut page = Page::default();
    ports(&mut page, fabric, node, status);
    jobs(&mut page, status);
    last(&mut page, fabric, node, status);
    let all = &status.counters;
    page.counter("fanin_fabric_forwarded_packets", "Packets for others that were passed on", all.packets_forwarded);
    page.counter("fanin_fabric_background_packets", "Those among them that were background traffic", status.background_forwarded);
    page.counter("fanin_fabric_peers_restarted", "Neighbours that came back as another process", all.peers_restarted);
    page.counter("fanin_fabric_broken_invariants", "Bugs that were noticed and contained", all.broken);
    let dropped = DropReason::ALL.iter().map(|reason| (label("reason", reason.name()), all.dropped[reason.index()]));
    page.counters("fanin_fabric_dropped_packets", "Packets that went no further, by reason", dropped);
    let sent_again = RetransmitReason::ALL.iter().map(|reason| (label("reason", reason.name()), all.retransmitted[reason.index()]));
    page.counters("fanin_fabric_retransmitted_packets", "Packets that were sent again, by reason", sent_again);
    let counted = Tally::ALL.iter().map(|tally| (label("what", tally.name()), all.tallies[tally.index()]));
    page.counters("fanin_fabric_events", "What nodes of all jobs have counted beside packets, by what it is", counted);
    process(&mut page, &ProcessStatus::read());
    page.text()
}

/// Who was last: by contributor, which is a host or a switch below.
fn last(page: &mut Page, fabric: &Fabric, node: NodeId, status: &FabricStatus) {
    let (mut completed, mut awaited, mut late) = (Vec::new(), Vec::new(), Vec::new());
    for (job, port, last) in status.last.iter().flat_map(|(job, ports)| ports.iter().map(move |(port, last)| (job, *port, last))) {
        let label = || vec![("job_id", job.to_string()), ("contributor", neighbour(fabric, node, port).to_owned())];
        completed.push((label(), last.completed));
        awaited.push((label(), last.awaited_ps as f64 / 1e12));
        for (limit, count) in LATE.iter().zip(last.late) {
            let mut labels = label();
            labels.push(("over", format!("{}ms", limit.as_ps() / 1_000_000_000)));
            late.push((labels, count));
        }
    }
    page.counters("fanin_fabric_job_completed_sums", "Sums that a contributor was the last of", completed);
    page.seconds("fanin_fabric_job_awaited", "How long these had nothing else to wait for", awaited);
    page.counters("fanin_fabric_job_late_sums", "Those among them that waited longer than so long", late);
}

fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, value.to_owned())]
}

fn ports(page: &mut Page, fabric: &Fabric, node: NodeId, status: &FabricStatus) {
    let label = |port: &PortStatus| {
        let peer = neighbour(fabric, node, port.port).to_owned();
        vec![("port", port.port.0.to_string()), ("peer", peer)]
    };
    let each = |value: fn(&PortStatus) -> u64| status.ports.iter().map(move |port| (label(port), value(port))).collect::<Vec<_>>();
    page.gauges(
        "fanin_fabric_link_up",
        "1 while each side of the link hears the other",
        each(|port| u64::from(port.state == LinkState::Up)),
    );
    page.counters("fanin_fabric_link_downs", "Times that the link went out of use", each(|port| port.counts.went_down));
    page.gauges("fanin_fabric_queue_bytes", "Bytes in the port's queue", each(|port| port.queue_bytes));
    page.gauges("fanin_fabric_queue_peak_bytes", "The most that were in it at once", each(|port| port.queue_bytes_peak));
    page.counters("fanin_fabric_port_sent_packets", "Packets that have left by the port", each(|port| port.counts.packets_sent));
    page.counters("fanin_fabric_port_sent_bytes", "Their bytes, whole datagrams", each(|port| port.counts.bytes_sent));
    page.counters("fanin_fabric_port_received_packets", "Packets that have entered by the port", each(|port| port.counts.packets_received));
    page.counters("fanin_fabric_port_marked_packets", "Packets that found a long queue", each(|port| port.counts.marked));
    let dropped = |reason: DropReason, value: fn(&PortStatus) -> u64| {
        status.ports.iter().map(move |port| {
            let mut labels = label(port);
            labels.push(("reason", reason.name().to_owned()));
            (labels, value(port))
        })
    };
    let full = dropped(DropReason::QueueFull, |port| port.counts.dropped_full);
    let down = dropped(DropReason::Down, |port| port.counts.dropped_down);
    page.counters("fanin_fabric_port_dropped_packets", "Packets that could not leave by the port, by reason", full.chain(down));
}

fn jobs(page: &mut Page, status: &FabricStatus) {
    page.gauge("fanin_fabric_jobs", "Jobs with a node here", status.jobs.len() as u64);
    let each = |value: fn(&Counters) -> u64| {
        status.jobs.iter().map(move |(job, counters)| (label("job_id", &job.to_string()), value(counters))).collect::<Vec<_>>()
    };
    page.gauges("fanin_fabric_job_slot_bytes", "Aggregator memory in use", each(|counters| counters.slot_bytes));
    page.gauges("fanin_fabric_job_slot_peak_bytes", "The most that was in use at once", each(|counters| counters.slot_bytes_peak));
    page.counters("fanin_fabric_job_received_packets", "Packets that reached the node", each(|counters| counters.packets_received));
    page.counters("fanin_fabric_job_sent_packets", "Packets that the node sent", each(|counters| counters.packets_sent));
    let to_workers = each(|counters| counters.payload_bytes_to_workers);
    page.counters("fanin_fabric_job_to_workers_payload_bytes", "Bytes of vectors that the node sent to workers", to_workers);
    let with_reason = |job: &fanin_core::JobId, reason: DropReason| vec![("job_id", job.to_string()), ("reason", reason.name().to_owned())];
    let dropped = status.jobs.iter().flat_map(|(job, counters)| {
        let some = DropReason::ALL.iter().filter(|reason| counters.dropped_for(**reason) > 0);
        some.map(move |reason| (with_reason(job, *reason), counters.dropped_for(*reason)))
    });
    page.counters("fanin_fabric_job_dropped_packets", "Packets that the node dropped, by reason", dropped.collect::<Vec<_>>());
    let with_what = |job: &fanin_core::JobId, tally: Tally| vec![("job_id", job.to_string()), ("what", tally.name().to_owned())];
    let counted = status.jobs.iter().flat_map(|(job, counters)| {
        let some = Tally::ALL.iter().filter(|tally| counters.tallies[tally.index()] > 0);
        some.map(move |tally| (with_what(job, *tally), counters.tallies[tally.index()]))
    });
    page.counters("fanin_fabric_job_events", "What the node has counted beside packets, by what it is", counted.collect::<Vec<_>>());
}
