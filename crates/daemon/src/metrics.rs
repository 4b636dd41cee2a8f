//! What is measured, and under which names. The page for operators lists them; a test holds it against this file's output.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use fanin_control::jobs::Phase;
use fanin_control::{FailureKind, Refusal};
use fanin_core::{DropReason, RetransmitReason, Tally};
use fanin_runtime::{LATE, Snapshot, Statistics};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::process::ProcessStatus;
use crate::xdp::XdpView;

/// Labels of a value.
pub type Labels = Vec<(&'static str, String)>;

/// Counts since the start of the switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) admitted: u64,
    pub(crate) resumed: u64,
    pub(crate) by_hosts: u64,
    pub(crate) sent_back: u64,
    pub(crate) ended: u64,
    pub(crate) notices: u64,
    pub(crate) reattached: u64,
    pub(crate) failed: BTreeMap<FailureKind, u64>,
    pub(crate) refused: BTreeMap<Refusal, u64>,
    /// Of jobs that are gone.
    pub(crate) gone: Statistics,
}

/// One job.
#[derive(Clone, Debug)]
pub(crate) struct JobView {
    /// Whether it has series of its own: a tenant has no more of these than its quota says.
    pub(crate) is_shown: bool,
    pub(crate) job_id: u16,
    pub(crate) name: String,
    pub(crate) phase: Phase,
    pub(crate) present: u32,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) in_kernel: Option<XdpView>,
}

/// Everything that is told.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    pub(crate) totals: &'a Totals,
    pub(crate) jobs: Vec<JobView>,
    pub(crate) connections: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) draining: bool,
    pub(crate) process: ProcessStatus,
}

/// A registry that is filled once and thrown away: what a scrape shows is what was true at that moment, and jobs that are gone leave
/// nothing behind.
#[derive(Default)]
pub struct Page(Registry);

impl Page {
    /// In the text format of OpenMetrics.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0).expect("a String takes all text");
        text
    }

    /// Counts by labels; `_total` is added to the name.
    pub fn counters(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, u64)>) {
        let family = Family::<Labels, Counter<u64, AtomicU64>>::default();
        for (labels, value) in values {
            family.get_or_create(&labels).inc_by(value);
        }
        self.0.register(name, help, family);
    }

    /// Times by labels; `_seconds_total` is added to the name.
    pub fn seconds(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, f64)>) {
        let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
        for (labels, value) in values {
            family.get_or_create(&labels).inc_by(value);
        }
        self.0.register_with_unit(name, help, Unit::Seconds, family);
    }

    /// A count; `_total` is added to the name.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        let counter = Counter::<u64, AtomicU64>::default();
        counter.inc_by(value);
        self.0.register(name, help, counter);
    }

    /// Values of now by labels.
    pub fn gauges(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, u64)>) {
        let family = Family::<Labels, Gauge>::default();
        for (labels, value) in values {
            family.get_or_create(&labels).set(value as i64);
        }
        self.0.register(name, help, family);
    }

    /// A value of now.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        let gauge: Gauge = Gauge::default();
        gauge.set(value as i64);
        self.0.register(name, help, gauge);
    }
}

/// All metrics in the text format of OpenMetrics, which Prometheus reads.
pub(crate) fn render(view: &View<'_>) -> String {
    let mut page = Page::default();
    switch(&mut page, view);
    let shown: Vec<&JobView> = view.jobs.iter().filter(|job| job.is_shown).collect();
    jobs(&mut page, &shown);
    ranks(&mut page, &shown);
    in_kernel(&mut page, &shown);
    process(&mut page, &view.process);
    page.text()
}

fn switch(page: &mut Page, view: &View<'_>) {
    let totals = view.totals;
    let label = |name: &'static str, value: &str| vec![(name, value.to_owned())];
    page.gauges(
        "fanin_switch_build_info",
        "Always 1; the label says which version runs",
        [(label("version", env!("CARGO_PKG_VERSION")), 1)],
    );
    page.gauge("fanin_switch_draining", "1 while the switch waits for its jobs to end and takes no others", u64::from(view.draining));
    page.gauge("fanin_switch_control_connections", "Open control connections", view.connections as u64);
    page.gauge("fanin_switch_memory_bytes", "Memory set aside for jobs, as estimated at their admission", view.memory_bytes);
    let count = |phase: Phase| view.jobs.iter().filter(|job| job.phase == phase).count() as u64;
    let phases = [Phase::Waiting, Phase::Opening, Phase::Starting, Phase::Running];
    page.gauges("fanin_switch_jobs", "Jobs by phase", phases.map(|phase| (label("phase", phase.name()), count(phase))));
    page.counter("fanin_switch_jobs_admitted", "Jobs whose ranks had all joined", totals.admitted);
    page.counter("fanin_switch_jobs_resumed", "Those among them that went on after a restart of a switch", totals.resumed);
    page.counter("fanin_switch_jobs_by_hosts", "Those among them whose hosts sum by themselves", totals.by_hosts);
    page.counter("fanin_switch_jobs_sent_back", "Jobs whose hosts need not sum by themselves any more", totals.sent_back);
    page.counter("fanin_switch_jobs_ended", "Jobs that all ranks have left", totals.ended);
    let failed = |kind: &FailureKind| (label("reason", kind.name()), totals.failed.get(kind).copied().unwrap_or(0));
    page.counters("fanin_switch_jobs_failed", "Jobs that failed, by reason", FailureKind::ALL.iter().map(failed));
    let refused = |code: &Refusal| (label("reason", code.name()), totals.refused.get(code).copied().unwrap_or(0));
    page.counters("fanin_switch_refusals", "Connections that were not admitted, by reason", Refusal::ALL.iter().map(refused));
    page.counter("fanin_switch_notices", "Diagnoses told to ranks while nothing moved", totals.notices);
    page.counter("fanin_switch_reattached", "Ranks that came back after their connection was lost", totals.reattached);
    let mut all = totals.gone.clone();
    view.jobs.iter().filter_map(|job| job.snapshot.as_ref()).for_each(|snapshot| all.add(&snapshot.counters, &snapshot.sent));
    let all = all.counters;
    page.counter("fanin_switch_received_packets", "Packets of all jobs that reached their node", all.packets_received);
    page.counter("fanin_switch_received_payload_bytes", "Bytes of vectors in them", all.payload_bytes_received);
    page.counter("fanin_switch_sent_packets", "Packets of all jobs that were sent, copies counted one by one", all.packets_sent);
    page.counter("fanin_switch_sent_payload_bytes", "Bytes of vectors in them", all.payload_bytes_sent);
    page.counter("fanin_switch_broken_invariants", "Bugs that were noticed and contained", all.broken);
    let dropped = DropReason::ALL.iter().map(|reason| (label("reason", reason.name()), all.dropped[reason.index()]));
    page.counters("fanin_switch_dropped_packets", "Packets of all jobs that went no further, by reason", dropped);
    let sent_again = RetransmitReason::ALL.iter().map(|reason| (label("reason", reason.name()), all.retransmitted[reason.index()]));
    page.counters("fanin_switch_retransmitted_packets", "Packets of all jobs that were sent again, by reason", sent_again);
}

fn jobs(page: &mut Page, jobs: &[&JobView]) {
    let label = |job: &JobView| vec![("job", job.name.clone()), ("job_id", job.job_id.to_string())];
    page.gauges(
        "fanin_switch_job_ranks",
        "Ranks that have joined and not left",
        jobs.iter().map(|job| (label(job), u64::from(job.present))),
    );
    let running: Vec<(&JobView, &Snapshot)> = jobs.iter().filter_map(|job| Some((*job, job.snapshot.as_ref()?))).collect();
    let each = |value: fn(&Snapshot) -> u64| running.iter().map(move |(job, snapshot)| (label(job), value(snapshot))).collect::<Vec<_>>();
    page.gauges("fanin_switch_job_slot_bytes", "Aggregator memory in use", each(|snapshot| snapshot.counters.slot_bytes));
    page.gauges("fanin_switch_job_slot_peak_bytes", "The most that was in use at once", each(|snapshot| snapshot.counters.slot_bytes_peak));
    page.counters(
        "fanin_switch_job_received_packets",
        "Packets that reached the node",
        each(|snapshot| snapshot.counters.packets_received),
    );
    page.counters("fanin_switch_job_sent_packets", "Packets that were sent", each(|snapshot| snapshot.counters.packets_sent));
    let with_reason = |job: &JobView, reason: &str| {
        let mut labels = label(job);
        labels.push(("reason", reason.to_owned()));
        labels
    };
    let mut dropped = Vec::new();
    let (mut sent_again, mut counted) = (Vec::new(), Vec::new());
    for (job, snapshot) in &running {
        for tally in Tally::ALL.iter().filter(|tally| snapshot.counters.tallies[tally.index()] > 0) {
            let mut labels = label(job);
            labels.push(("what", tally.name().to_owned()));
            counted.push((labels, snapshot.counters.tallies[tally.index()]));
        }
        for reason in DropReason::ALL.iter().filter(|reason| snapshot.counters.dropped_for(**reason) > 0) {
            dropped.push((with_reason(job, reason.name()), snapshot.counters.dropped_for(*reason)));
        }
        for reason in RetransmitReason::ALL.iter().filter(|reason| snapshot.counters.retransmitted[reason.index()] > 0) {
            sent_again.push((with_reason(job, reason.name()), snapshot.counters.retransmitted[reason.index()]));
        }
    }
    page.counters("fanin_switch_job_dropped_packets", "Packets that went no further, by reason", dropped);
    page.counters("fanin_switch_job_retransmitted_packets", "Packets that were sent again, by reason", sent_again);
    page.counters("fanin_switch_job_events", "What the node has counted beside packets, by what it is", counted);
}

/// Nothing is shown where no program in the kernel has had a job.
fn in_kernel(page: &mut Page, jobs: &[&JobView]) {
    let jobs: Vec<(&JobView, &XdpView)> = jobs.iter().filter_map(|job| Some((*job, job.in_kernel.as_ref()?))).collect();
    if jobs.is_empty() {
        return;
    }
    let label = |job: &JobView| vec![("job", job.name.clone()), ("job_id", job.job_id.to_string())];
    let here = jobs.iter().map(|(job, view)| (label(job), u64::from(view.is_here)));
    page.gauges("fanin_switch_job_in_kernel", "1 while a program in the kernel sums for the job, 0 after it has left", here);
    let mut up = Vec::new();
    for (job, view) in &jobs {
        for (reason, count) in view.up.iter().filter(|(_, count)| **count > 0) {
            let mut labels = label(job);
            labels.push(("reason", (*reason).to_owned()));
            up.push((labels, *count));
        }
    }
    page.counters("fanin_switch_job_passed_up_frames", "Frames that the program has given to the process, by reason", up);
}

fn ranks(page: &mut Page, jobs: &[&JobView]) {
    let mut received = (Vec::new(), Vec::new());
    let mut sent = (Vec::new(), Vec::new());
    let mut dropped = Vec::new();
    let (mut completed, mut awaited, mut late) = (Vec::new(), Vec::new(), Vec::new());
    for job in jobs {
        for (rank, peer) in job.snapshot.iter().flat_map(|snapshot| snapshot.peers.iter().enumerate()) {
            let label = || vec![("job", job.name.clone()), ("job_id", job.job_id.to_string()), ("rank", rank.to_string())];
            received.0.push((label(), peer.packets_received));
            received.1.push((label(), peer.payload_bytes_received));
            sent.0.push((label(), peer.packets_sent));
            sent.1.push((label(), peer.payload_bytes_sent));
            dropped.push((label(), peer.packets_dropped));
            completed.push((label(), peer.last.completed));
            awaited.push((label(), peer.last.awaited_ps as f64 / 1e12));
            for (limit, count) in LATE.iter().zip(peer.last.late) {
                let mut labels = label();
                labels.push(("over", format!("{}ms", limit.as_ps() / 1_000_000_000)));
                late.push((labels, count));
            }
        }
    }
    page.counters("fanin_switch_rank_received_packets", "Packets from a rank that reached the node", received.0);
    page.counters("fanin_switch_rank_received_payload_bytes", "Bytes of its vectors in them", received.1);
    page.counters("fanin_switch_rank_sent_packets", "Packets to a rank", sent.0);
    page.counters("fanin_switch_rank_sent_payload_bytes", "Bytes of results in them: their rate is the rank's goodput", sent.1);
    page.counters("fanin_switch_rank_rejected_packets", "Packets from a rank that were dropped before the node", dropped);
    page.counters("fanin_switch_rank_completed_sums", "Sums that a rank was the last to contribute to", completed);
    page.seconds(
        "fanin_switch_rank_awaited",
        "How long these had nothing else to wait for: time that the others lose to the rank",
        awaited,
    );
    page.counters("fanin_switch_rank_late_sums", "Those among them that waited longer than so long", late);
}

/// The names that Prometheus' client libraries have agreed on.
pub(crate) fn process(page: &mut Page, process: &ProcessStatus) {
    let cpu = Counter::<f64, AtomicU64>::default();
    cpu.inc_by(process.cpu.as_secs_f64());
    page.0.register_with_unit("process_cpu", "Processor time of this process, user and kernel", Unit::Seconds, cpu);
    for (name, help, value) in [
        ("process_resident_memory_bytes", "Memory of this process in RAM", process.resident_bytes),
        ("process_open_fds", "Open file descriptors of this process", process.open_files),
        ("process_threads", "Threads of this process", process.threads),
    ] {
        if let Some(value) = value {
            page.gauge(name, help, value);
        }
    }
}
