//! `fanin switch --transparent`: joins network interfaces at layer 2 and sums inside TCP connections.

mod metrics;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use fanin_daemon::{Page, PageServer};
use fanin_net::PortError;
use fanin_plan::units::microseconds_of;
use fanin_transparent::{Ended, Odd, RdmaRing, RdmaStatistics, ServiceConfig, ServiceError, Watch, serve};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::SwitchArgs;
use crate::quantities;
use crate::trace;
use fanin_terminal::log::LogFormat;

/// What can be set with `--transparent`.
#[derive(Args, Clone, Debug, Default)]
pub struct TransparentArgs {
    /// Join these network interfaces as a layer-2 switch, and sum inside the TCP connections of workers that stream messages to their
    /// successors on a ring. Needs root; the interfaces need no addresses. udp:OWN/OTHER, two IP:PORT, is a cable to an emulator's network card,
    /// as qemu's -netdev dgram, and needs no root.
    #[arg(long, value_name = "IF,IF,..", value_delimiter = ',', conflicts_with_all = ["fabric", "name", "config", "listen", "data_ports",
        "jobs_max", "keys", "open", "packets", "tls_cert", "tls_key", "tls_clients", "control", "connections_max", "memory_max", "patience_max", "drain_timeout", "xdp", "check"])]
    pub transparent: Vec<String>,
    /// With --transparent: bytes of each stream that are kept. Windows are cut to that: twice the largest TCP window costs no speed.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", requires = "transparent", value_parser = stream_bytes)]
    pub stream_memory: usize,
    /// With --transparent: what may wait at a port in each direction; beyond that frames are lost, as at any switch.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", requires = "transparent", value_parser = port_bytes)]
    pub port_memory: usize,
    /// With --transparent: rings at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 64, requires = "transparent")]
    pub rings_max: usize,
    /// With --transparent: a ring that waits for somebody and in which nothing moves for so long is reset, with a word to its workers whom it has
    /// waited for.
    #[arg(long, value_name = "TIME", default_value = "600s", requires = "transparent", value_parser = ring_patience)]
    pub ring_patience: Duration,
    /// With --transparent: the interface behind which another transparent switch is, to sum together with: rings whose workers are behind several
    /// switches are summed in each, and one sum goes up and one comes down. The switch above needs no setting.
    #[arg(long, value_name = "IF", requires = "transparent")]
    pub uplink: Option<String>,
    /// With --transparent: sum inside the RDMA connections (RoCEv2) of these workers, too. May be given several times. RING:TYPE:OPERATOR:IP,IP,..
    /// with the workers by rank, as 7:f32:sum:10.0.0.1,10.0.0.2; behind it :window=N, :packets=N, :payload=BYTES and :silence=TIME where they
    /// are not 2, 170, 1024 and 3s. TIME is how long a worker's network card may leave questions unanswered while others wait. :here=IP,IP,.. (or
    /// :here=none) where a switch above sums the ring, too: the workers behind this one.
    #[arg(long, value_name = "RING", requires = "transparent")]
    pub rdma_ring: Vec<RdmaRing>,
    /// With --transparent: write what comes to each port and what leaves there to a file for Wireshark, tshark or scapy (pcapng).
    #[arg(long, value_name = "FILE.pcapng", requires = "transparent")]
    pub trace: Option<PathBuf>,
    /// With --trace: the most frames; the first ones are kept.
    #[arg(long, value_name = "N", default_value_t = 100_000, requires = "trace", value_parser = clap::value_parser!(u64).range(1..))]
    pub trace_frames: u64,
}

fn stream_bytes(text: &str) -> Result<usize, String> {
    bytes_between(text, 64 << 10, 1 << 30)
}

fn port_bytes(text: &str) -> Result<usize, String> {
    bytes_between(text, 64 << 10, 1 << 30)
}

fn ring_patience(text: &str) -> Result<Duration, String> {
    let expected = || format!("{text} is not a time from 1s to 86400s, as 60s");
    let time = microseconds_of(text).map(|micros| Duration::from_micros(micros as u64)).ok_or_else(expected)?;
    if (Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(&time) { Ok(time) } else { Err(expected()) }
}

fn bytes_between(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let bytes = quantities::bytes(text)?;
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| (least..=most).contains(bytes))
        .ok_or_else(|| format!("{text} is not between {} KiB and {} MiB", least >> 10, most >> 20))
}

/// What of RDMA connections needs somebody's attention.
fn log_odd(done: &RdmaStatistics) {
    if let Some((ring, rank)) = done.blamed {
        tracing::warn!(ring, rank, rings = done.ended, "rings over RDMA could not go on, the last one because of this rank");
    }
    for odd in Odd::ALL.into_iter().filter(|odd| done.odd.of(*odd) > 0) {
        tracing::warn!(reason = odd.name(), frames = done.odd.of(odd), "frames of RDMA could not be summed");
    }
}

/// Runs until a signal ends it. The exit code is 2 where the settings are wrong.
pub(super) fn run(args: &SwitchArgs) -> ExitCode {
    let format = match args.log_format.as_deref() {
        None | Some("text") => LogFormat::Text,
        Some("json") => LogFormat::Json,
        Some(other) => {
            eprintln!("error: `log_format` is {other:?} where text or json is expected");
            return ExitCode::from(2);
        }
    };
    let faults = args.faults.plan();
    if faults.duplicate > 0.0 || faults.reorder > 0.0 || faults.corrupt > 0.0 {
        eprintln!("error: of the faults only --loss is injected with --transparent");
        return ExitCode::from(2);
    }
    super::log_to_stderr(format);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&stop)) {
            eprintln!("error: cannot watch for signals: {error}");
            return ExitCode::from(1);
        }
    }
    let own = &args.transparent;
    let watch = Arc::new(Watch::default());
    let pages = match args.http.as_ref().map(|address| serve_pages(address, &watch)).transpose() {
        Ok(pages) => pages,
        Err((code, error)) => {
            eprintln!("error: {error}");
            return ExitCode::from(code);
        }
    };
    let traced = own.trace.as_ref().map(|path| trace::switch::begin(path, &own.transparent, own.trace_frames)).transpose();
    let (tap, writer) = match traced {
        Ok(traced) => traced.unzip(),
        Err(error) => {
            eprintln!("error: --trace {error:#}");
            return ExitCode::from(2);
        }
    };
    let announce = || {
        // For people and scripts; whoever started the switch may not be listening.
        let _ = writeln!(io::stdout(), "joins {}", own.transparent.join(", "));
        if let Some(pages) = &pages {
            let address = pages.address();
            let _ = writeln!(io::stdout(), "metrics at http://{address}/metrics, health at http://{address}/healthz");
        }
        let _ = io::stdout().flush();
    };
    let ended = serve(&config(args, watch), &stop, tap, announce);
    let written = writer.map(trace::switch::Writer::finish).transpose();
    match ended {
        Ok(ended) => {
            match written {
                Ok(Some(frames)) => tracing::info!(frames, missed = ended.missed, "traced"),
                Ok(None) => {}
                Err(error) => {
                    eprintln!("error: --trace {error:#}");
                    return ExitCode::from(1);
                }
            }
            log_odd(&ended.done.rdma);
            say_goodbye(&ended);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            let wrong_port = |error: &PortError| matches!(error, PortError::NoInterface { .. } | PortError::NoCable { .. });
            let wrong_input = match &error {
                ServiceError::TooFewInterfaces(_)
                | ServiceError::MixedPorts
                | ServiceError::NoUplink(_)
                | ServiceError::SharedNeighbours(..) => true,
                ServiceError::Port(error) => wrong_port(error),
            };
            ExitCode::from(if wrong_input { 2 } else { 1 })
        }
    }
}

fn config(args: &SwitchArgs, watch: Arc<Watch>) -> ServiceConfig {
    let own = &args.transparent;
    let faults = args.faults.plan();
    ServiceConfig {
        interfaces: own.transparent.clone(),
        port_bytes: own.port_memory,
        stream_bytes: own.stream_memory,
        rings_max: own.rings_max,
        patience: own.ring_patience,
        loss: faults.loss,
        seed: faults.seed,
        uplink: own.uplink.clone(),
        rdma: own.rdma_ring.clone(),
        watch: Some(watch),
    }
}

/// Serves `/metrics` and `/healthz`; an error comes with the exit code.
fn serve_pages(address: &str, watch: &Arc<Watch>) -> Result<PageServer, (u8, String)> {
    let address: SocketAddr = address
        .parse()
        .map_err(|_| (2, format!("`http` is {address:?} where an IP address and a TCP port, as 127.0.0.1:9470, are expected")))?;
    let (fills, looks) = (Arc::clone(watch), Arc::clone(watch));
    let filled = move |page: &mut Page| metrics::fill(page, &fills.report());
    PageServer::start(address, filled, move || metrics::health(&looks.report())).map_err(|error| (1, error.to_string()))
}

fn say_goodbye(ended: &Ended) {
    let Ended { done, lost, .. } = ended;
    tracing::info!(
        frames = done.frames,
        forwarded = done.forwarded,
        summed = done.summed,
        repeated = done.repeated,
        answered = done.answered,
        owed = done.owed,
        cut = done.cut,
        dropped = done.dropped,
        damaged = done.damaged.iter().sum::<u64>(),
        unsummed = done.unsummed.iter().sum::<u64>(),
        lost_at_ports = lost,
        rings = done.rings,
        rings_failed = done.rings_failed,
        refused = done.refused,
        held_bytes_peak = done.held_bytes_peak,
        trunk_part_bytes = done.trunk_part_bytes,
        trunk_whole_bytes = done.trunk_whole_bytes,
        trunk_segments = done.trunk_segments,
        trunk_repeated = done.trunk_repeated,
        trunk_damaged = done.trunk_damaged,
        rdma_runs = done.rdma.runs,
        rdma_summed = done.rdma.summed,
        rdma_repeated = done.rdma.repeated,
        rdma_dropped = done.rdma.dropped,
        rdma_refused = done.rdma.refused,
        rdma_damaged = done.rdma.damaged,
        rdma_ended = done.rdma.ended,
        rdma_sent_back = done.rdma.sent_back,
        "ended"
    );
}
