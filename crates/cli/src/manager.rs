//! `fanin manager`: where the ranks of jobs in a fabric of several switches meet, until a signal ends it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fanin_control::FabricFile;
use fanin_daemon::DaemonConfig;
use fanin_fabric::Fabric;
use fanin_terminal::log::{self, LogFormat};

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
    /// How to write logs to standard error: text, or json with one object a line. RUST_LOG=debug writes more.
    #[arg(long, value_name = "text|json", default_value = "text", value_parser = log_format)]
    pub log_format: LogFormat,
}

const EXAMPLES: &str = "\
Examples:
  fanin manager FABRIC.toml --listen 0.0.0.0:7701
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
    match crate::switch::serve(config) {
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
    let config = DaemonConfig::manager(args.listen, fabric, FabricFile { name, text })?;
    Ok(DaemonConfig { http: args.http, keys: args.keys.clone(), ..config })
}
