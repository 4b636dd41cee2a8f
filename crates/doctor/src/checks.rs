//! From facts to findings: configuration and this host.

use fanin_comm::{Config, ConfigError, Meeting, Transport, Waiting};

use super::facts::{Buffers, Facts, Files, Offload};
use super::finding::Finding;
use super::meeting;

const CONFIGURATION: &str = "configuration";
const VARIABLE: &str = "variable";
const OFFLOAD: &str = "offload";
const BUFFERS: &str = "socket buffers";
const MEMORY: &str = "shared memory";
const CORES: &str = "cores";
const FILES: &str = "open files";
const SOCKETS: &str = "permissions";
/// Files that any process has open, and that every rank adds in the process that runs the switch.
const FILES_BASE: u64 = 64;
const FILES_PER_RANK: u64 = 4;

/// All findings, in the order in which a rank would meet what they are about.
pub fn all(facts: &Facts) -> Vec<Finding> {
    let config = facts.config.as_ref().ok();
    let mut findings = vec![configuration(facts)];
    findings.extend(facts.unknown.iter().map(|name| misspelt(name)));
    findings.push(sockets(&facts.sockets));
    findings.extend(meeting::all(facts));
    findings.push(offload(&facts.offload));
    findings.push(buffers(&facts.buffers));
    findings.push(memory(&facts.memory, config.map_or(Transport::Auto, |config| config.transport)));
    findings.push(cores(facts.cores, facts.processes, config.is_some_and(|config| config.waiting == Waiting::Busy)));
    findings.push(files(facts.files, config.map_or(1, |config| config.world)));
    findings
}

/// A variable's value, without what others could join with: reports go into tickets.
fn shown<'a>(name: &str, value: &'a str) -> &'a str {
    if name == "FANIN_TOKEN" && !value.starts_with('@') { "(a token, not shown)" } else { value }
}

/// What a rank would make of the variables.
fn configuration(facts: &Facts) -> Finding {
    let seen: Vec<String> = facts.variables.iter().map(|(name, value)| format!("{name}={}", shown(name, value))).collect();
    match &facts.config {
        Err(ConfigError::NoMeeting { .. }) if facts.switch_given => {
            Finding::ok(CONFIGURATION, format!("the switch is given on the command line; variables: {}", seen.join(" ")))
        }
        Err(error) => Finding::problem(CONFIGURATION, error.to_string(), mend_config(error)),
        Ok(_) if seen.is_empty() => Finding::ok(
            CONFIGURATION,
            "no variable is set: one rank on its own. Several need FANIN_RANK, FANIN_WORLD and FANIN_SWITCH, or torchrun",
        ),
        Ok(config) => Finding::ok(CONFIGURATION, format!("{} ({})", describe(config), seen.join(" "))),
    }
}

fn describe(config: &Config) -> String {
    let place = match &config.meeting {
        Meeting::Switch(text) => format!("meets the others at the switch {text}"),
        Meeting::Fabric(text) => format!("meets the others at the manager of a fabric, {text}"),
        Meeting::Rendezvous(text) => format!("meets the others at rank 0, {text}"),
        Meeting::Nowhere => "alone".to_string(),
    };
    format!(
        "rank {} of {} in job {:?}, {place}, waits up to {} s for them",
        config.rank,
        config.world,
        config.job,
        config.timeout.as_secs_f64()
    )
}

/// The command that mends a configuration.
fn mend_config(error: &ConfigError) -> String {
    match error {
        // Variables have names in capitals; values that do not go together are named after their field.
        ConfigError::Value { what, expected, .. } => format!("export {}=...   ({expected})", variable(what)),
        ConfigError::Missing { missing, set } => format!("export {missing}=...   (or: unset {set})"),
        ConfigError::Misspelt { name, .. } => format!("unset {name}"),
        ConfigError::NoMeeting { .. } => "export FANIN_SWITCH=HOST:PORT   (without a switch: FANIN_RENDEZVOUS=HOST:PORT, of rank 0)".into(),
    }
}

fn variable(what: &str) -> String {
    if what.chars().any(|character| character.is_ascii_lowercase()) {
        format!("FANIN_{}", what.to_ascii_uppercase())
    } else {
        what.to_string()
    }
}

fn misspelt(name: &str) -> Finding {
    let near = fanin_comm::VARIABLES.iter().map(|(known, _)| (distance(known, name), *known)).min();
    let meant = match near {
        Some((edits, known)) if edits <= 3 => format!(": is {known} meant?"),
        _ => String::new(),
    };
    Finding::warning(VARIABLE, format!("{name} is set, but nothing reads it{meant}"), format!("unset {name}"))
}

/// How many letters must be put in, taken out or changed to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn sockets(sockets: &Result<(), String>) -> Finding {
    match sockets {
        Ok(()) => Finding::ok(SOCKETS, "TCP and UDP sockets can be opened; no privilege is needed"),
        Err(error) => Finding::problem(
            SOCKETS,
            error.clone(),
            "sudo ip link set dev lo up   (in a container or sandbox: allow AF_INET sockets, as in `docker run --network host`)",
        ),
    }
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Whether the kernel cuts batches into datagrams and puts datagrams together.
fn offload(offload: &Result<Offload, String>) -> Finding {
    const KERNEL: &str = "uname -r   (GSO needs Linux 4.18 or newer, GRO 5.0; gVisor and some sandboxes have neither)";
    let offload = match offload {
        Ok(offload) => offload,
        Err(error) => {
            return Finding::problem(OFFLOAD, format!("datagrams cannot be sent on loopback: {error}"), "sudo ip link set dev lo up");
        }
    };
    let Offload { send_segments_max, datagrams, send_calls, received, runs } = *offload;
    if received == 0 {
        let lost = format!("none of {datagrams} datagrams has arrived on loopback");
        return Finding::problem(OFFLOAD, lost, "sudo iptables -I INPUT -i lo -j ACCEPT   (or whatever filters loopback)");
    }
    let out = send_segments_max > 1 && send_calls < datagrams;
    let back = runs < received;
    let said = format!("{datagrams} datagrams left in {} and arrived in {}", counted(send_calls, "call"), counted(runs, "piece"));
    match (out, back) {
        (true, true) => Finding::ok(OFFLOAD, format!("{said}: GSO and GRO work")),
        (false, true) => Finding::warning(OFFLOAD, format!("{said}: no GSO, so that every datagram sent costs a system call"), KERNEL),
        (true, false) => Finding::warning(OFFLOAD, format!("{said}: no GRO, so that every datagram is received on its own"), KERNEL),
        (false, false) => Finding::warning(OFFLOAD, format!("{said}: neither GSO nor GRO, which takes some ten times the CPU"), KERNEL),
    }
}

/// What was asked for and granted.
fn buffers(buffers: &Result<Buffers, String>) -> Finding {
    let buffers = match buffers {
        Ok(buffers) => *buffers,
        Err(error) => return Finding::problem(BUFFERS, error.clone(), "sudo ip link set dev lo up"),
    };
    let granted = |what: &str, got: usize, wanted: usize| format!("{what} {} of {} KiB", got >> 10, wanted >> 10);
    let text = format!(
        "granted to {} and {}",
        granted("receive:", buffers.receive, buffers.receive_wanted),
        granted("to send:", buffers.send, buffers.send_wanted)
    );
    // The kernel doubles what is asked for, and limits what is asked for.
    let raise = |name: &str, got: usize, wanted: usize| (got < wanted).then(|| format!("net.core.{name}={}", wanted / 2));
    let settings: Vec<String> =
        [raise("rmem_max", buffers.receive, buffers.receive_wanted), raise("wmem_max", buffers.send, buffers.send_wanted)]
            .into_iter()
            .flatten()
            .collect();
    if settings.is_empty() {
        return Finding::ok(BUFFERS, text);
    }
    let limits: Vec<String> = [("rmem_max", buffers.rmem_max), ("wmem_max", buffers.wmem_max)]
        .into_iter()
        .filter_map(|(name, value)| Some(format!("net.core.{name} is {}", value?)))
        .collect();
    let limits = if limits.is_empty() { "a limit that is not visible from here".to_string() } else { limits.join(", ") };
    Finding::warning(
        BUFFERS,
        format!("{text}: {limits}. Bursts that do not fit are lost and sent again"),
        format!("sudo sysctl -w {}   (to keep it: the same lines in /etc/sysctl.d/90-fanin.conf)", settings.join(" ")),
    )
}

fn memory(memory: &Result<(), String>, transport: Transport) -> Finding {
    let error = match memory {
        Ok(()) => return Finding::ok(MEMORY, "can be made (memfd) and opened by other processes (/proc): ranks on this host can use it"),
        Err(error) => error,
    };
    let mend = if error.contains("open it") {
        "sudo mount -o remount,hidepid=0 /proc   (in a container: mount /proc)"
    } else {
        "ulimit -v unlimited   (in a container or sandbox: allow memfd_create and more memory)"
    };
    match transport {
        Transport::Memory => Finding::problem(MEMORY, format!("was asked for, but is not possible: {error}"), mend),
        Transport::Udp => Finding::ok(MEMORY, format!("is not possible ({error}), and not wanted: UDP was asked for")),
        Transport::Auto => Finding::warning(MEMORY, format!("is not possible: {error}. Ranks on this host will use UDP"), mend),
    }
}

fn cores(cores: usize, processes: Option<u32>, busy: bool) -> Finding {
    let all = counted(cores as u64, "core");
    let Some(processes) = processes else {
        return Finding::ok(CORES, format!("{all}; how many ranks run on this host is not known"));
    };
    let said = format!("{} on this host, {all}", counted(processes.into(), "rank"));
    if processes as usize <= cores {
        return Finding::ok(CORES, said);
    }
    if busy {
        return Finding::problem(
            CORES,
            format!("{said}, and FANIN_WAIT=busy: ranks that wait take the cores from those that work"),
            "unset FANIN_WAIT",
        );
    }
    Finding::warning(
        CORES,
        format!("{said}: ranks wait for one another's turn on a core. Right results, but no measure of speed"),
        format!("start at most {cores} ranks here: torchrun --nproc-per-node {cores}"),
    )
}

fn files(files: Files, world: u32) -> Finding {
    let needed = FILES_BASE + FILES_PER_RANK * u64::from(world);
    let Some(soft) = files.soft else { return Finding::ok(FILES, "no limit") };
    if soft >= needed {
        return Finding::ok(FILES, format!("{soft} allowed, up to {needed} needed"));
    }
    let text = format!("{soft} allowed, but the process that runs the switch for {world} ranks needs up to {needed}");
    let raised = needed.next_power_of_two().max(1_024);
    if files.hard.is_none_or(|hard| hard >= raised) {
        Finding::problem(FILES, text, format!("ulimit -n {raised}"))
    } else {
        Finding::problem(FILES, text, format!("sudo prlimit --pid $$ --nofile={raised}:{raised}"))
    }
}

#[cfg(test)]
mod tests;
