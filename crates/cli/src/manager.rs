//! `fanin manager`: where the ranks of jobs in a fabric of several switches meet, until a signal ends it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fanin_channel::{ClientTls, Trusted};
use fanin_control::FabricFile;
use fanin_daemon::DaemonConfig;
use fanin_fabric::Fabric;
use fanin_terminal::log::{self, LogFormat};
use fanin_trust::Protection;

use crate::switch::doors::Doors;
use crate::switch::{TlsArgs, packets_of_fabric};

/// Manage the switches of a fabric for jobs of other processes.
///
/// Ranks join a job here (FANIN_FABRIC=HOST:PORT). The manager tells the switches of the fabric about it (each runs `fanin switch --fabric`), tells
/// them again where one is restarted, and tells all ranks who is gone. Vectors do not pass it, and a job that runs survives its end.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ManagerArgs {
    /// The file that describes the fabric, the same that its switches have.
    #[arg(value_name = "FABRIC.toml")]
    pub fabric: PathBuf,
    /// Where ranks join (TCP).
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7701")]
    pub listen: SocketAddr,
    /// Where to serve /metrics (for Prometheus) and /healthz; nowhere by default.
    #[arg(long, value_name = "IP:PORT")]
    pub http: Option<SocketAddr>,
    /// Who may join: ranks with a token of one of the keys in this file, which is read again when it changes. See `fanin token`.
    #[arg(long, value_name = "FILE")]
    pub keys: Option<PathBuf>,
    /// Everybody who reaches the port may join, and needs no token. Where the manager listens on loopback only, that needs not be said.
    #[arg(long, conflicts_with = "keys")]
    pub open: bool,
    /// TLS of control connections.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// By what the fabric's switches are known, if the manager goes to them by TLS: the CA in this file, or the fingerprint of the certificate that
    /// all of them have. The manager shows them --tls-cert.
    #[arg(long, value_name = "FILE|sha256:HEX", requires = "tls_cert")]
    pub tls_switches: Option<Trusted>,
    /// With which packets are made: the file of the fabric's secret, which all its switches have. `fanin token secret` makes one.
    #[arg(long, value_name = "FILE")]
    pub fabric_key: Option<PathBuf>,
    /// What is done for packets: mac keeps others from changing or making them, seal from reading them too, and none nothing. With --fabric-key it is
    /// seal where nothing is said, and without none. The switches are started with the same.
    #[arg(long, value_name = "none|mac|seal")]
    pub packets: Option<Protection>,
    /// How to write logs to standard error: text, or json with one object a line. RUST_LOG=debug writes more.
    #[arg(long, value_name = "text|json", default_value = "text", value_parser = log_format)]
    pub log_format: LogFormat,
    /// End when standard input ends, as where a testbed has gone.
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
}

const EXAMPLES: &str = "\
Examples:
  fanin manager FABRIC.toml --listen 0.0.0.0:7701 --keys keys.toml --tls-cert tls/manager.pem --tls-key tls/manager.key --tls-switches tls/ca.pem
  FANIN_FABRIC=manager:7701 FANIN_SYSTEM=canary torchrun --nnodes 8 train.py

SIGTERM and Ctrl-C drain: no new jobs, and running ones may end. Said twice they end the manager at once.
More in docs/fabric.md.";

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("expected text or json".into()),
    }
}

/// Serves until a signal ends it. The exit code is 2 where the file is wrong.
pub fn run(args: &ManagerArgs) -> ExitCode {
    let config = match read(&args.fabric, args) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    log::begin("info", args.log_format, false);
    match crate::switch::serve(config, args.until_stdin_ends) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn read(path: &Path, args: &ManagerArgs) -> Result<DaemonConfig, String> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| format!("{name}: cannot be read: {error}"))?;
    let fabric = Fabric::parse(&name, &text).map_err(|error| error.to_string())?;
    let doors = doors(args)?;
    let config = DaemonConfig::manager(args.listen, fabric, FabricFile { name, text })?;
    let to_switches = args.tls_switches.clone().map(|trusted| ClientTls { trusted, name: None, identity: doors.identity() });
    let (packets, fabric_key) = packets_of_fabric(args.packets, args.fabric_key.as_deref())?.unzip();
    let packets = packets.unwrap_or_default();
    Ok(DaemonConfig { packets, fabric_key, http: args.http, keys: args.keys.clone(), tls: doors.tls(), to_switches, ..config })
}

/// How control connections come in, and whether it was said who may join.
fn doors(args: &ManagerArgs) -> Result<Doors, String> {
    let TlsArgs { tls_cert, tls_key, tls_clients, control } = &args.tls;
    let clients = tls_clients.as_ref().map(|text| text.parse().map_err(|expected| format!("--tls-clients {text}: expected {expected}")));
    let control = control.as_ref().map(|text| text.parse().map_err(|expected| format!("--control {text}: {expected}")));
    let doors = Doors {
        certificate: tls_cert.as_ref().map(Into::into),
        key: tls_key.as_ref().map(Into::into),
        clients: clients.transpose()?,
        control: control.transpose()?,
    };
    doors.check()?;
    doors.check_tokens(args.listen, args.keys.is_some())?;
    if args.keys.is_none() && !args.open && !args.listen.ip().to_canonical().is_loopback() {
        return Err(format!(
            "--listen {}: other machines can ask to join there: say who may, by --keys FILE (`fanin token new` makes keys), or --open for everybody \
             who reaches the port",
            args.listen
        ));
    }
    Ok(doors)
}
