//! What is measured of a transparent switch, and under which names. `docs/transparent.md` lists them; a test holds it against this.

use std::time::Duration;

use fanin_daemon::Page;
use fanin_daemon::page::Labels;
use fanin_transparent::{Damage, Odd, Report, RingView, Unsummed};

/// A switch that has left no report for so long does nothing any more.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// What is not well.
pub(super) fn health(report: &Report) -> Result<(), String> {
    let Some(at) = report.at else { return Err("the switch has not begun yet".to_owned()) };
    if at.elapsed() > SILENCE_MAX {
        return Err(format!("the switch has done nothing for {:.0} s", at.elapsed().as_secs_f64()));
    }
    let out: Vec<&str> = report.ports.iter().filter(|port| !port.in_service).map(|port| port.name.as_str()).collect();
    if report.ports.len() - out.len() < 2 {
        return Err(format!("fewer than 2 interfaces are in service; out of service: {}", out.join(", ")));
    }
    Ok(())
}

/// Everything that is told.
pub(super) fn fill(page: &mut Page, report: &Report) {
    switch(page, report);
    trunks(page, report);
    ports(page, report);
    rings(page, &report.rings);
    rdma(page, report);
}

fn label(name: &'static str, value: impl ToString) -> Labels {
    vec![(name, value.to_string())]
}

fn switch(page: &mut Page, report: &Report) {
    let done = &report.done;
    page.gauges(
        "fanin_transparent_build_info",
        "Always 1; the label says which version runs",
        [(label("version", env!("CARGO_PKG_VERSION")), 1)],
    );
    page.counter("fanin_transparent_frames", "Frames that came in", done.frames);
    page.counter("fanin_transparent_forwarded_frames", "Frames that were forwarded as they were", done.forwarded);
    page.counter("fanin_transparent_summed_segments", "Segments that left with sums in them", done.summed);
    page.counter("fanin_transparent_repeated_segments", "Segments whose bytes had come before, all or in part", done.repeated);
    page.counter("fanin_transparent_cut_segments", "Segments that were cut in two", done.cut);
    page.counter("fanin_transparent_dropped_segments", "Segments dropped for lack of memory, and headers that nobody takes", done.dropped);
    let damaged = Damage::ALL.iter().zip(done.damaged).map(|(damage, count)| (label("reason", damage.name()), count));
    page.counters("fanin_transparent_damaged_frames", "Frames dropped since they were damaged, by reason", damaged);
    let unsummed = Unsummed::ALL.iter().zip(done.unsummed).map(|(why, count)| (label("reason", why.name()), count));
    page.counters("fanin_transparent_unsummed", "Frames with messages, or connections, that passed unsummed, by reason", unsummed);
    page.counter("fanin_transparent_windows_cut", "Answers in which less room was announced than the receiver has", done.windows_cut);
    page.counter(
        "fanin_transparent_answers",
        "Answers in which the switch has acknowledged what is here and others have lost",
        done.answered,
    );
    page.counter("fanin_transparent_owed_segments", "Segments that the switch has sent again after it had acknowledged them", done.owed);
    page.counter("fanin_transparent_rings_begun", "Rings that began", done.rings);
    page.counter("fanin_transparent_rings_failed", "Rings that were reset", done.rings_failed);
    page.counter("fanin_transparent_refused_workers", "Workers that were refused by a ring", done.refused);
    page.counter("fanin_transparent_trace_missed_frames", "Frames that the trace had no room for", report.trace_missed);
    page.gauge("fanin_transparent_rings", "Rings of now", report.rings.len() as u64);
    page.gauge("fanin_transparent_connections", "Connections that are looked at", report.connections as u64);
    page.gauge("fanin_transparent_held_bytes", "Bytes of frames that wait for sums", report.held_bytes);
    page.gauge("fanin_transparent_held_peak_bytes", "The most that there were at once", done.held_bytes_peak);
}

/// What goes between this switch and those that it sums together with.
fn trunks(page: &mut Page, report: &Report) {
    let done = &report.done;
    page.gauge("fanin_transparent_trunks", "Switches above and below that answer", done.trunks);
    page.counter("fanin_transparent_trunk_part_bytes", "Bytes of sums of a part of a ring that went up", done.trunk_part_bytes);
    page.counter("fanin_transparent_trunk_whole_bytes", "Bytes of sums of all workers that went down", done.trunk_whole_bytes);
    page.counter(
        "fanin_transparent_trunk_segments",
        "Segments whose headers went to the switch where their receiver is",
        done.trunk_segments,
    );
    page.counter("fanin_transparent_trunk_repeated_frames", "Frames to other switches that were sent again", done.trunk_repeated);
    page.counter("fanin_transparent_trunk_damaged_frames", "Frames of other switches that were damaged", done.trunk_damaged);
    page.counter("fanin_transparent_trunk_strange_messages", "What other switches said that does not fit", done.trunk_strange);
}

fn ports(page: &mut Page, report: &Report) {
    let each = |value: fn(&fanin_transparent::PortView) -> u64| {
        report.ports.iter().map(move |port| (label("interface", &port.name), value(port))).collect::<Vec<_>>()
    };
    page.gauges("fanin_transparent_port_up", "1 while the interface is in service", each(|port| u64::from(port.in_service)));
    page.counters("fanin_transparent_port_received_frames", "Frames that came by the interface", each(|port| port.counts.received));
    page.counters("fanin_transparent_port_sent_frames", "Frames that were to leave by it", each(|port| port.counts.sent));
    page.counters(
        "fanin_transparent_port_lost_frames",
        "Those among them that found no room, or no interface",
        each(|port| port.counts.lost),
    );
    page.counters("fanin_transparent_port_outages", "How often it went out of service", each(|port| port.counts.outages));
}

fn rings(page: &mut Page, rings: &[RingView]) {
    // Of two rings of one number the older one is about to end.
    let each = |value: fn(&RingView) -> u64| rings.iter().map(move |ring| (label("ring", ring.ring), value(ring))).collect::<Vec<_>>();
    page.gauges("fanin_transparent_ring_world", "Workers that the ring has", each(|ring| ring.world.into()));
    page.gauges("fanin_transparent_ring_present", "Those among them that are there", each(|ring| ring.present.into()));
    page.gauges("fanin_transparent_ring_switches", "Other switches that sum for it, too", each(|ring| ring.switches as u64));
    page.gauges("fanin_transparent_ring_idle_seconds", "For how long nothing has moved", each(|ring| ring.idle.as_s_f64() as u64));
    let waits =
        rings.iter().flat_map(|ring| ring.waits.iter().map(|rank| (vec![("ring", ring.ring.to_string()), ("rank", rank.to_string())], 1)));
    page.gauges("fanin_transparent_ring_waits", "1 for each rank that the ring waits for", waits);
}

fn rdma(page: &mut Page, report: &Report) {
    let done = &report.done.rdma;
    page.counter("fanin_transparent_rdma_runs", "Runs over RDMA that began", done.runs);
    page.counter("fanin_transparent_rdma_summed_packets", "Packets that left with sums in them", done.summed);
    page.counter("fanin_transparent_rdma_repeated_packets", "Packets that came again", done.repeated);
    page.counter("fanin_transparent_rdma_dropped_packets", "Packets that came before or after their turn", done.dropped);
    page.counter("fanin_transparent_rdma_refused_packets", "Packets that do not fit their ring", done.refused);
    page.counter("fanin_transparent_rdma_damaged_packets", "Packets whose checks were wrong", done.damaged);
    page.counter("fanin_transparent_rdma_ended_rings", "Rings over RDMA that could not go on", done.ended);
    let odd = Odd::ALL.iter().map(|odd| (label("reason", odd.name()), done.odd.of(*odd)));
    page.counters("fanin_transparent_rdma_unsummed_frames", "Frames of RDMA that could not be summed, by reason", odd);
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_transparent::{LinkCounts, PortView};
    use std::time::Instant;

    #[test]
    fn a_switch_is_well_while_it_moves_and_joins_something() {
        let port = |in_service| PortView { name: format!("p{}", u8::from(in_service)), in_service, counts: LinkCounts::default() };
        let report = |ports: &[bool], at| Report { ports: ports.iter().map(|up| port(*up)).collect(), at, ..Report::default() };
        let now = Some(Instant::now());
        assert_eq!(health(&report(&[true, true, false], now)), Ok(()));
        assert_eq!(health(&report(&[true, false], now)).unwrap_err(), "fewer than 2 interfaces are in service; out of service: p0");
        assert_eq!(health(&report(&[true, true], None)).unwrap_err(), "the switch has not begun yet");
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60));
        assert!(
            long_ago.is_none() || health(&report(&[true, true], long_ago)).unwrap_err().starts_with("the switch has done nothing for 60 s")
        );
    }
}
