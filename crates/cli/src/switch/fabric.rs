//! `fanin switch --fabric`: one of the switches of a fabric, until a signal ends it.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;

use anyhow::{Context, Result};
use fanin_daemon::{FabricDaemon, FabricDaemonConfig};
use fanin_trust::{FabricKey, Protection};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::settings::Settings;
use super::{SwitchArgs, log_to_stderr};
use crate::fabric_worker::find_node;

/// Serves until a signal ends it. The exit code is 2 where the file or the settings are wrong.
pub(super) fn run(args: &SwitchArgs, path: &Path, name: &str) -> ExitCode {
    let prepared = find_node(path, name, false).and_then(|found| {
        let settings = Settings::read(args)?;
        check(&settings)?;
        let packets = packets_of_fabric(settings.packets(), args.fabric_key.as_deref())?;
        Ok((found, settings, packets))
    });
    let ((fabric, node), settings, packets) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    log_to_stderr(settings.log_format);
    let daemon = settings.daemon();
    let address = fabric.node(node).address;
    if daemon.tls.is_none() && !address.ip().to_canonical().is_loopback() {
        tracing::warn!(%address, "whoever reaches this port may begin and end jobs: --tls-cert, --tls-key and --tls-clients say who may");
    }
    if packets.is_none() && !address.ip().to_canonical().is_loopback() {
        tracing::warn!(%address, "whoever can forge packets of a job can change its sums: --fabric-key gives them keys");
    }
    let config = FabricDaemonConfig {
        packets,
        http: daemon.http,
        faults: args.faults.plan(),
        jobs_max: daemon.jobs.jobs_max,
        memory_bytes_max: daemon.jobs.memory_bytes_max,
        tls: daemon.tls,
        ..FabricDaemonConfig::new(fabric, node)
    };
    match serve(config, name, args.until_stdin_ends) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {name}: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// Whether a switch of a fabric can be what the settings say.
fn check(settings: &Settings) -> Result<(), String> {
    settings.doors().check()?;
    if settings.doors().certificate.is_some() && settings.doors().clients.is_none() {
        return Err("--fabric with --tls-cert: expected --tls-clients too, which says by what the manager is known: whoever may come may begin and end jobs".into());
    }
    Ok(())
}

/// What is done for packets of a fabric, and the key that they are made with, by what was said of either; sealed, where only the key was.
///
/// # Errors
/// The file is no key, or one of the two is missing.
pub(crate) fn packets_of_fabric(packets: Option<Protection>, file: Option<&Path>) -> Result<Option<(Protection, FabricKey)>, String> {
    match (packets, file) {
        (None | Some(Protection::None), None) => Ok(None),
        (Some(packets), None) => Err(format!(
            "--packets {packets}: expected --fabric-key FILE too: all switches of a fabric and its manager have one key (`fanin token secret` makes it)"
        )),
        (Some(Protection::None), Some(file)) => {
            Err(format!("--fabric-key {} with --packets none: expected mac or seal, or no key", file.display()))
        }
        (packets, Some(file)) => {
            let name = file.display().to_string();
            let text = fs::read_to_string(file).map_err(|error| format!("--fabric-key {name}: cannot be read: {error}"))?;
            let key = FabricKey::parse(&name, &text).map_err(|error| format!("--fabric-key {error}"))?;
            Ok(Some((packets.unwrap_or(Protection::Seal), key)))
        }
    }
}

fn serve(config: FabricDaemonConfig, name: &str, until_stdin_ends: bool) -> Result<()> {
    // Before anything is promised to anybody: a signal that comes now is obeyed.
    let mut signals = Signals::new([SIGTERM, SIGINT]).context("cannot watch for signals")?;
    let switch = FabricDaemon::start(config)?;
    let announce = || -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{name} at {}", switch.address())?;
        if let Some(address) = switch.http_address() {
            writeln!(out, "metrics at http://{address}/metrics, health at http://{address}/healthz")?;
        }
        out.flush()
    };
    // For people and scripts; whoever started the switch may not be listening.
    let _ = announce();
    let (end, ended) = channel();
    if until_stdin_ends {
        let end = end.clone();
        thread::spawn(move || {
            let mut rest = [0; 256];
            while io::stdin().read(&mut rest).is_ok_and(|bytes| bytes > 0) {}
            let _ = end.send(());
        });
    }
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = end.send(());
        }
    });
    // A loop that has ended by itself has an error to tell.
    while !switch.has_ended() && ended.recv_timeout(std::time::Duration::from_millis(200)).is_err() {}
    let status = switch.stop()?;
    tracing::info!(name, forwarded = status.counters.packets_forwarded, "the switch ends");
    Ok(())
}
