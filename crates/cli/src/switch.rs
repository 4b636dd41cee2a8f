//! `fanin switch`: the software switch as a service, until a signal ends it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`doors`] | how control connections come in |
//! | [`settings`] | what can be set, on the command line and in a file |
//! | [`fabric`] | a switch of a fabric of several |
//! | [`transparent`] | a layer-2 switch that sums inside TCP connections |

pub(crate) mod doors;
mod fabric;
mod settings;
mod transparent;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result};
use clap::Args;
use fanin_daemon::{Daemon, DaemonConfig, DaemonHandle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::fabric_worker::FaultArgs;
pub(crate) use fabric::packets_of_fabric;
use fanin_terminal::log::{self, LogFormat};
use settings::Settings;

/// Sum vectors for jobs of other processes, as a switch in the network would.
///
/// Ranks join a job at this switch (FANIN_SWITCH=HOST:PORT), send their vectors to it by UDP, and get the sums. Each job has a socket, a
/// thread and memory of its own. Without options it listens on loopback only, for processes of this machine.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct SwitchArgs {
    /// Be one of the switches of the fabric that this file describes: it forwards packets by its ports, and jobs are announced to it.
    #[arg(long, value_name = "FABRIC.toml", requires = "name", conflicts_with_all = ["config", "listen", "data_ports",
        "keys", "open", "connections_max", "patience_max", "drain_timeout", "xdp", "check"])]
    pub fabric: Option<PathBuf>,
    /// With which packets of the fabric are made: the file of its secret, which all its switches and its manager have. `fanin token secret` makes one.
    #[arg(long, value_name = "FILE", requires = "fabric")]
    pub fabric_key: Option<PathBuf>,
    /// Which of the fabric's switches, as leaf0.
    #[arg(long, requires = "fabric")]
    pub name: Option<String>,
    /// A TOML file with the same settings, named as here without the dashes: `memory_max = "4GiB"`. Options here come first.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where ranks join (TCP); vectors go to UDP ports of the same IP address. 0.0.0.0 is every address of this host.
    #[arg(long, value_name = "IP:PORT")]
    pub listen: Option<String>,
    /// Where to serve /metrics (for Prometheus) and /healthz; nowhere by default.
    #[arg(long, value_name = "IP:PORT")]
    pub http: Option<String>,
    /// UDP ports for jobs, one each, as 7000-7999; any free ports by default.
    #[arg(long, value_name = "FIRST-LAST")]
    pub data_ports: Option<String>,
    /// Who may join: ranks with a token of one of the keys in this file, which is read again when it changes. See `fanin token`.
    #[arg(long, value_name = "FILE")]
    pub keys: Option<String>,
    /// Everybody who reaches the port may join, and needs no token. Where the switch listens on loopback only, that needs not be said.
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub open: Option<String>,
    /// TLS of control connections.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// What is done for packets: none; mac, so that nobody else can make or alter one; seal, so that nobody else can read one either. By
    /// default none on loopback and with --xdp, and else seal, which takes less time than mac.
    #[arg(long, value_name = "none|mac|seal")]
    pub packets: Option<String>,
    /// Jobs at once.
    #[arg(long, value_name = "NUMBER")]
    pub jobs_max: Option<String>,
    /// Control connections at once: one for each rank of each job.
    #[arg(long, value_name = "NUMBER")]
    pub connections_max: Option<String>,
    /// Memory of all jobs together, as 512MiB or 4GiB; with --fabric that of their slots.
    #[arg(long, value_name = "SIZE")]
    pub memory_max: Option<String>,
    /// The longest that a job may let its ranks wait for one another, as 60s.
    #[arg(long, value_name = "TIME")]
    pub patience_max: Option<String>,
    /// After SIGTERM, how long running jobs may go on, as 30s.
    #[arg(long, value_name = "TIME")]
    pub drain_timeout: Option<String>,
    /// Network devices at whose entrance a program in the kernel sums (XDP), as eth1,eth2: see docs/xdp.md. Needs root, and a program that
    /// was built with it.
    #[arg(long, value_name = "DEV,DEV...")]
    pub xdp: Option<String>,
    /// How to write logs to standard error: text, or json with one object a line. RUST_LOG=debug writes more.
    #[arg(long, value_name = "text|json")]
    pub log_format: Option<String>,
    /// Only read the settings, print them all as a config file, and end.
    #[arg(long)]
    pub check: bool,
    /// Sums inside TCP connections.
    #[command(flatten, next_help_heading = "Sums inside TCP connections")]
    pub transparent: transparent::TransparentArgs,
    /// Faults, for tests.
    #[command(flatten, next_help_heading = "Injected faults, for tests; with --transparent --loss only")]
    pub faults: FaultArgs,
    /// End when standard input ends, as where a testbed has gone.
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
}

/// How control connections come in, of switches and managers.
#[derive(Args, Clone, Debug)]
pub struct TlsArgs {
    /// Control connections are TLS 1.3 with the certificate in this file (PEM), which is read again when it changes. See `fanin tls`.
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<String>,
    /// The private key of --tls-cert (PEM).
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<String>,
    /// Who may come, if not everybody: whoever has a certificate of the CA in this file, or the one with this fingerprint (mutual TLS).
    #[arg(long, value_name = "FILE|sha256:HEX")]
    pub tls_clients: Option<String>,
    /// Whether control connections may be plain. It has to be said where tokens go over a network (--keys beyond loopback) without a certificate.
    #[arg(long, value_name = "tls|plain")]
    pub control: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  fanin switch                                        for processes of this machine, at 127.0.0.1:7700
  fanin switch --listen 0.0.0.0:7700 --keys keys.toml --tls-cert tls/agg.pem --tls-key tls/agg.key --http 127.0.0.1:9470
  fanin switch --config switch.toml --check
  fanin switch --fabric FABRIC.toml --name leaf0      one of several, as docs/fabric.md says
  fanin switch --transparent eth1,eth2,eth3,eth4      layer 2, sums inside TCP connections, as docs/transparent.md says

SIGTERM and Ctrl-C drain: no new jobs, and running ones may end within --drain-timeout. Said twice they end the switch at once.
More in docs/switch.md.";

/// Serves until a signal ends it. The exit code is 2 where the settings are wrong.
pub fn run(args: &SwitchArgs) -> ExitCode {
    if let (Some(path), Some(name)) = (&args.fabric, &args.name) {
        return fabric::run(args, path, name);
    }
    if !args.transparent.transparent.is_empty() {
        return transparent::run(args);
    }
    let read = Settings::read(args).and_then(|mut settings| {
        args.xdp.as_ref().map_or(Ok(()), |devices| settings.in_kernel(devices))?;
        settings.check_who_may_join()?;
        Ok(settings)
    });
    let settings = match read {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    if args.check {
        print!("{settings}");
        return ExitCode::SUCCESS;
    }
    log_to_stderr(settings.log_format);
    match serve(DaemonConfig { faults: args.faults.plan(), ..settings.daemon() }, args.until_stdin_ends) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn log_to_stderr(format: LogFormat) {
    log::begin("info", format, false);
}

/// Serves until a signal ends it: a switch, or the manager of several; also until standard input ends, where that is wanted.
///
/// # Errors
/// Where it cannot listen, or ends by itself.
pub(crate) fn serve(config: DaemonConfig, until_stdin_ends: bool) -> Result<()> {
    // Before anything is promised to anybody: a signal that comes now is obeyed.
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot watch for signals")?;
    let daemon = Daemon::start(config)?;
    // For people and scripts; whoever started the switch may not be listening.
    let _ = announce(&daemon);
    if until_stdin_ends {
        let remote = daemon.remote();
        // It ends with the process: nothing can wake it.
        thread::Builder::new().name("fanin-input".into()).spawn(move || {
            let mut rest = [0; 256];
            while io::stdin().read(&mut rest).is_ok_and(|bytes| bytes > 0) {}
            remote.stop();
        })?;
    }
    let (remote, watching) = (daemon.remote(), signals.handle());
    let watcher = thread::Builder::new().name("fanin-signals".into()).spawn(move || {
        for (count, _) in signals.forever().enumerate() {
            if count == 0 { remote.drain() } else { remote.stop() }
        }
    })?;
    let ended = daemon.wait().map(drop);
    watching.close();
    // It only reads signals, and none is left.
    let _ = watcher.join();
    Ok(ended?)
}

fn announce(daemon: &DaemonHandle) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "ranks join at {}", daemon.control_address())?;
    if let Some(address) = daemon.http_address() {
        writeln!(out, "metrics at http://{address}/metrics, health at http://{address}/healthz")?;
    }
    out.flush()
}
