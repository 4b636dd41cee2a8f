//! Whether a rank may join: what can be seen from its request alone, and what from the ranks that are already there.

use std::mem::discriminant;
use std::net::SocketAddr;

use super::config::{JobsConfig, WINDOW_MAX};
use super::job::{Job, Member};
use super::text::span;
use crate::message::{
    ByHosts, JobWish, Join, NODE_BYTES_MAX, OPERATOR_NAME_CHARS_MAX, OPERATORS_BYTES_MAX, OPERATORS_MAX, OperatorWish, Refusal, Refused,
};
use crate::{WORLD_MAX, header_bytes_max, resume};
use fanin_systems::{A2tpParameters, AtpParameters, SwitchMlParameters, System, TreeParameters};

/// The longest name of a job, in characters.
pub const JOB_NAME_CHARS_MAX: usize = 128;
/// The longest identification of a host, in bytes.
pub const HOST_BYTES_MAX: usize = 256;
/// The shortest datagram that a path must carry: what every IPv4 path does.
pub const DATAGRAM_BYTES_MIN: u32 = 548;
/// Payloads are a multiple of this, so that they hold a whole number of elements of any type.
pub const PAYLOAD_STEP_BYTES: u32 = 8;

fn invalid(text: String) -> Result<(), Refused> {
    Err(Refused { code: Refusal::Invalid, text })
}

/// Checks one request by itself.
pub(super) fn check(config: &JobsConfig, join: &Join, peer: SocketAddr) -> Result<(), Refused> {
    check_names(join, peer)?;
    check_node(config, join)?;
    check_wish(config, join)?;
    check_operators(config, join)?;
    check_keys(config, join)?;
    let Some(state) = &join.resume else { return Ok(()) };
    if let Err(error) = resume::check(join.rank, state) {
        return invalid(error.to_string());
    }
    check_payload(config, "resume.payload_bytes", state.payload_bytes)
}

fn check_names(join: &Join, peer: SocketAddr) -> Result<(), Refused> {
    let name = &join.job;
    if name.is_empty() || name.chars().count() > JOB_NAME_CHARS_MAX || name.chars().any(char::is_control) {
        return invalid(format!("job = {name:?}: expected 1 to {JOB_NAME_CHARS_MAX} printable characters"));
    }
    if join.world == 0 || join.world > WORLD_MAX {
        return invalid(format!("world = {}: expected 1 to {WORLD_MAX}", join.world));
    }
    if join.rank >= join.world {
        return invalid(format!("rank = {}: expected 0 to {}, since world is {}", join.rank, join.world - 1, join.world));
    }
    if join.host.0.len() > HOST_BYTES_MAX {
        return invalid(format!("host has {} bytes: expected at most {HOST_BYTES_MAX}", join.host.0.len()));
    }
    let data = join.data;
    if data.port() == 0 {
        return invalid(format!("data = {data}: expected the port of an open UDP socket"));
    }
    if data.ip().to_canonical().is_loopback() && !peer.ip().is_loopback() {
        return invalid(format!("data = {data}: a loopback address cannot be reached from here; rank {} comes from {peer}", join.rank));
    }
    if data.ip().is_multicast() {
        return invalid(format!("data = {data}: expected the address of one host"));
    }
    Ok(())
}

/// Ranks of a fabric say which host they are, and others do not.
fn check_node(config: &JobsConfig, join: &Join) -> Result<(), Refused> {
    match (&config.fabric, &join.node) {
        (Some(fabric), None) => invalid(format!(
            "node: expected the name of a host of the fabric {}: this is its manager, and sums nothing by itself: ranks give its address as \
             FANIN_FABRIC and not as FANIN_SWITCH",
            fabric.name
        )),
        (None, Some(node)) => invalid(format!(
            "node = {node:?}: expected none: this is a switch and no manager of a fabric: ranks give its address as FANIN_SWITCH"
        )),
        (_, Some(node)) if node.len() > NODE_BYTES_MAX => {
            invalid(format!("node has {} bytes: expected at most {NODE_BYTES_MAX}", node.len()))
        }
        _ => Ok(()),
    }
}

/// The most descriptors that a job of Canary may have at a switch without a fabric, and the most aggregators that one of ATP or A2TP may have: as many
/// as a program in the kernel has.
const DESCRIPTORS_MAX: u32 = 16_384;

/// Whether a switch runs jobs of this system without a fabric.
fn is_for_one_switch(system: &System) -> bool {
    match system {
        System::SwitchMl(_) | System::Tree(TreeParameters { trees: 1, .. }) | System::Flare(_) | System::Ring(_) => true,
        System::Canary(parameters) => !parameters.shared && parameters.descriptors <= DESCRIPTORS_MAX,
        System::Atp(AtpParameters { aggregators, aggregating, .. }) | System::A2tp(A2tpParameters { aggregators, aggregating, .. }) => {
            (1..=DESCRIPTORS_MAX).contains(aggregators) && *aggregating > 0
        }
        _ => false,
    }
}

fn check_wish(config: &JobsConfig, join: &Join) -> Result<(), Refused> {
    let wish = &join.wish;
    if join.path_datagram_bytes < DATAGRAM_BYTES_MIN {
        return invalid(format!("path_datagram_bytes = {}: expected at least {DATAGRAM_BYTES_MIN}", join.path_datagram_bytes));
    }
    if wish.patience_ms == 0 || wish.patience_ms > config.patience_ms_max {
        let most = span(config.patience_ms_max);
        return invalid(format!(
            "patience = {}: this switch allows more than 0 and at most {most}: give ranks such a timeout (FANIN_TIMEOUT), or start the switch \
             with a longer `fanin switch --patience-max`",
            span(wish.patience_ms)
        ));
    }
    if wish.window.is_some_and(|window| window == 0 || window > WINDOW_MAX) {
        return invalid(format!("window = {}: expected 1 to {WINDOW_MAX} packets", wish.window.unwrap_or_default()));
    }
    // Where hosts sum by themselves it does not matter what they had before.
    let sums_nothing = matches!(join.by_hosts, ByHosts::Only(_));
    // What else there is keeps memory at a switch that nobody counts here, or needs several switches.
    if config.fabric.is_none() && !sums_nothing && !is_for_one_switch(&wish.system) {
        // As the request has it.
        let system = serde_json::to_string(&wish.system).unwrap_or_else(|_| wish.system.name().to_string());
        return invalid(format!(
            "system = {system}: expected switchml, flare, tree with one tree, canary with at most {DESCRIPTORS_MAX} descriptors of its own, or atp \
             or a2tp with 1 to {DESCRIPTORS_MAX} aggregators and a switch that aggregates"
        ));
    }
    if wish.op.custom.is_some() {
        return invalid(format!("op = {}: expected an operator that is built in", wish.op));
    }
    wish.payload_bytes.map_or(Ok(()), |bytes| check_payload(config, "payload_bytes", bytes))
}

/// Whether the rank can do what is done for packets here.
fn check_keys(config: &JobsConfig, join: &Join) -> Result<(), Refused> {
    match &config.packets {
        Some(packets) if !join.takes_keys => invalid(format!(
            "this switch asks for packets with keys (`--packets {}`), which this rank's release of Fanin does not know: use the same release on both sides",
            packets.protection
        )),
        _ => Ok(()),
    }
}

/// Only what a request shows by itself: whether modules are operators at all is seen when the job is opened.
fn check_operators(config: &JobsConfig, join: &Join) -> Result<(), Refused> {
    let operators = &join.operators;
    if operators.len() > OPERATORS_MAX {
        return invalid(format!("operators: {} of them: expected at most {OPERATORS_MAX}", operators.len()));
    }
    // In a fabric ranks run them, or switches of systems that take one; where hosts sum by themselves, ranks do.
    let by_switch = config.fabric.is_none() && !matches!(join.by_hosts, ByHosts::Only(_));
    if !operators.is_empty() && by_switch && !matches!(join.wish.system, System::SwitchMl(SwitchMlParameters { fixed_point: false })) {
        return invalid(format!("operators: {} reduces by built-in operators only: expected none", join.wish.system.name()));
    }
    if config.fabric.is_some() && join.wish.system.takes_operators() && operators.len() > 1 {
        let (count, system) = (operators.len(), join.wish.system.name());
        return invalid(format!("operators: {count} of them: expected at most 1, by which the switches of {system} combine"));
    }
    // A rank that comes back to a running job need not bring them again.
    let sends = join.rank == 0 && join.attach.is_none();
    for (index, operator) in operators.iter().enumerate() {
        let OperatorWish { name, digest, module } = operator;
        if name.is_empty() || name.chars().count() > OPERATOR_NAME_CHARS_MAX || name.chars().any(char::is_control) {
            return invalid(format!("operators[{index}].name = {name:?}: expected 1 to {OPERATOR_NAME_CHARS_MAX} printable characters"));
        }
        if digest.len() != 64 || !digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return invalid(format!("operators[{index}].digest = {digest:?}: expected 64 hexadecimal digits"));
        }
        if module.is_some() != sends && join.attach.is_none() {
            return invalid(format!("operators[{index}].module: expected from rank 0 and from nobody else; this is rank {}", join.rank));
        }
    }
    let bytes: usize = operators.iter().filter_map(|operator| operator.module.as_ref()).map(|module| module.len() / 2).sum();
    if bytes > OPERATORS_BYTES_MAX {
        return invalid(format!("operators: {bytes} bytes of modules: expected at most {OPERATORS_BYTES_MAX}"));
    }
    Ok(())
}

fn check_payload(config: &JobsConfig, name: &str, bytes: u32) -> Result<(), Refused> {
    if bytes == 0 || !bytes.is_multiple_of(PAYLOAD_STEP_BYTES) || bytes > config.payload_bytes_max {
        let most = config.payload_bytes_max;
        return invalid(format!("{name} = {bytes}: expected a multiple of {PAYLOAD_STEP_BYTES}, at most {most}"));
    }
    Ok(())
}

/// What a rank that joins `job` wants otherwise than the ranks that are there, in words.
pub(super) fn disagreement(job: &Job, join: &Join, peer: SocketAddr) -> Option<String> {
    let (&other, there) = job.members.first_key_value()?;
    let rank = join.rank;
    let (ours, theirs) = (&there.join.wish, &join.wish);
    let differ = |what: &str, theirs: String, ours: String| {
        Some(format!("ranks of job `{}` want different things: rank {rank} wants {what} {theirs} and rank {other} {ours}", job.name))
    };
    if join.world != job.world {
        return differ("world", join.world.to_string(), job.world.to_string());
    }
    if theirs.system != ours.system {
        return differ("system", format!("{:?}", theirs.system), format!("{:?}", ours.system));
    }
    let number = |value: Option<u32>| value.map_or("of the switch's choice".into(), |value| value.to_string());
    if theirs.payload_bytes != ours.payload_bytes {
        return differ("payload_bytes", number(theirs.payload_bytes), number(ours.payload_bytes));
    }
    if theirs.window != ours.window {
        return differ("window", number(theirs.window), number(ours.window));
    }
    if theirs.patience_ms != ours.patience_ms {
        return differ("patience", span(theirs.patience_ms), span(ours.patience_ms));
    }
    if theirs.fixed_point != ours.fixed_point {
        return differ("fixed_point", theirs.fixed_point.to_string(), ours.fixed_point.to_string());
    }
    if theirs.reproducible != ours.reproducible {
        let by = |wish: &JobWish| wish.reproducible.map_or("none".into(), |by| format!("by {by}"));
        return differ("reproducible sums", by(theirs), by(ours));
    }
    if theirs.beside != ours.beside {
        let by = |wish: &JobWish| wish.beside.map_or("none".into(), |system| system.name().into());
        return differ("reductions by", by(theirs), by(ours));
    }
    if theirs.op != ours.op {
        return differ("elements", theirs.op.to_string(), ours.op.to_string());
    }
    let modules = |join: &Join| match &join.operators[..] {
        [] => "none".into(),
        operators => operators.iter().map(OperatorWish::describe).collect::<Vec<_>>().join(", "),
    };
    let digests = |join: &Join| join.operators.iter().map(|operator| operator.digest.clone()).collect::<Vec<_>>();
    if digests(join) != digests(&there.join) {
        return differ("operators", modules(join), modules(&there.join));
    }
    let is_ipv4 = |socket: SocketAddr| if socket.is_ipv4() { "IPv4" } else { "IPv6" };
    let families = [Job::data_of(join, peer), Job::data_of(&there.join, there.peer)].map(is_ipv4);
    if families[0] != families[1] {
        return differ("to be reached by", families[0].into(), families[1].into());
    }
    if discriminant(&join.by_hosts) != discriminant(&there.join.by_hosts) {
        let how = |join: &Join| match &join.by_hosts {
            ByHosts::Never => "by the switch alone".to_owned(),
            ByHosts::WhereFull => "by hosts where the switch is full".to_owned(),
            ByHosts::Only(_) => "by hosts alone".to_owned(),
        };
        return differ("sums", how(join), how(&there.join));
    }
    let past = |join: &Join| match &join.resume {
        Some(state) => format!("with job instance {:016x}, {} bytes a packet", state.instance, state.payload_bytes),
        None => "from the beginning".into(),
    };
    let key = |join: &Join| join.resume.as_ref().map(|state| (state.instance, state.payload_bytes));
    if key(join) != key(&there.join) { differ("to go on", past(join), past(&there.join)) } else { None }
}

/// Whether ranks can reach each other, as far as their addresses show it.
///
/// # Errors
/// In words, where one is at an address that only its own host knows.
pub(super) fn reach_each_other(job: &Job) -> Result<(), String> {
    let at = |(rank, member): (&u32, &Member)| (*rank, Job::data_of(&member.join, member.peer).ip());
    let (here, elsewhere): (Vec<_>, Vec<_>) = job.members.iter().map(at).partition(|(_, ip)| ip.is_loopback());
    match (here.first(), elsewhere.first()) {
        (Some((rank, ip)), Some((other, from))) => Err(format!(
            "hosts cannot sum by themselves instead, since rank {rank} is at {ip}, where rank {other} at {from} does not reach it: give the \
             switch's address as ranks on other hosts know it (FANIN_SWITCH)"
        )),
        _ => Ok(()),
    }
}

/// Bytes of elements in a packet: what is wished for or, without a wish, what the shortest path carries.
pub(super) fn payload_bytes(config: &JobsConfig, joins: &[&Join]) -> Result<u32, String> {
    let Some(narrow) = joins.iter().min_by_key(|join| join.path_datagram_bytes) else { return Ok(PAYLOAD_STEP_BYTES) };
    let tag_bytes = config.packets.as_ref().map_or(0, |packets| packets.protection.tag_bytes() as u32);
    let headers = header_bytes_max(&narrow.wish.system, narrow.wish.fixed_point) + tag_bytes;
    let room = (narrow.path_datagram_bytes - headers).min(config.payload_bytes_max) / PAYLOAD_STEP_BYTES * PAYLOAD_STEP_BYTES;
    let wanted = joins[0].resume.as_ref().map(|state| state.payload_bytes).or(joins[0].wish.payload_bytes);
    match wanted {
        Some(bytes) if bytes > room => Err(format!(
            "packets with {bytes} bytes of elements do not fit: the path to rank {} carries datagrams of {} bytes, which leaves {room}",
            narrow.rank, narrow.path_datagram_bytes
        )),
        Some(bytes) => Ok(bytes),
        None => Ok(room),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Op;
    use crate::message::{HostId, JobWish};
    use fanin_systems::CanaryParameters;

    const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7)), 999);

    fn join() -> Join {
        Join {
            job: "train".into(),
            rank: 1,
            world: 4,
            data: ([0, 0, 0, 0], 5_000).into(),
            host: HostId("a".into()),
            node: None,
            path_datagram_bytes: 1_472,
            wish: JobWish {
                system: System::tree(1),
                payload_bytes: None,
                window: None,
                patience_ms: 30_000,
                fixed_point: false,
                reproducible: None,
                beside: None,
                op: Op::F32_SUM,
            },
            operators: Vec::new(),
            attach: None,
            resume: None,
            adopt: None,
            by_hosts: ByHosts::Never,
            token: None,
            takes_keys: false,
        }
    }

    #[test]
    fn a_request_that_makes_no_sense_is_refused_with_its_value_and_what_was_expected() {
        type Change = fn(&mut Join);
        let cases: [(Change, &str); 16] = [
            (
                |join| join.wish.system = System::A2tp(A2tpParameters { aggregators: 0, ..A2tpParameters::default() }),
                "or atp or a2tp with 1 to 16384 aggregators and a switch that aggregates",
            ),
            (
                |join| join.wish.system = System::Atp(AtpParameters { aggregating: 0, ..AtpParameters::default() }),
                "or atp or a2tp with 1 to 16384 aggregators and a switch that aggregates",
            ),
            (
                |join| join.wish.system = System::tree(2),
                "system = {\"system\":\"tree\",\"trees\":2,\"sum_order\":\"arrival\"}: expected switchml, flare, tree with one tree, canary",
            ),
            (
                |join| join.wish.system = System::Canary(CanaryParameters { descriptors: u32::MAX, ..CanaryParameters::default() }),
                "canary with at most 16384 descriptors of its own",
            ),
            (|join| join.job = String::new(), "job = \"\": expected 1 to 128"),
            (|join| join.job = "a\nb".into(), "job = \"a\\nb\""),
            (|join| join.job = "x".repeat(129), "1 to 128"),
            (|join| join.world = 0, "world = 0: expected 1 to 1024"),
            (|join| join.world = 1_025, "world = 1025"),
            (|join| join.rank = 4, "rank = 4: expected 0 to 3"),
            (|join| join.data.set_port(0), "data = 0.0.0.0:0"),
            (|join| join.data = ([127, 0, 0, 1], 9).into(), "a loopback address cannot be reached"),
            (|join| join.path_datagram_bytes = 100, "path_datagram_bytes = 100"),
            (|join| join.wish.patience_ms = 0, "patience = 0 ms"),
            (|join| join.wish.payload_bytes = Some(12), "payload_bytes = 12: expected a multiple of 8"),
            (|join| join.wish.window = Some(1 << 20), "window = 1048576: expected 1 to 65536"),
        ];
        let config = JobsConfig::default();
        assert_eq!(check(&config, &join(), PEER), Ok(()));
        for (change, expected) in cases {
            let mut join = join();
            change(&mut join);
            let refused = check(&config, &join, PEER).unwrap_err();
            assert!(refused.code == Refusal::Invalid && refused.text.contains(expected), "{refused:?}");
        }
    }

    #[test]
    fn operators_that_make_no_sense_are_refused_by_field() {
        let config = JobsConfig::default();
        let wish = OperatorWish { name: "lse".into(), digest: "0f".repeat(32), module: None };
        let with = |change: &dyn Fn(&mut Join)| {
            let mut join = Join { operators: vec![wish.clone()], ..join() };
            change(&mut join);
            check(&config, &join, PEER).map_err(|refused| refused.text)
        };
        let switchml = |join: &mut Join| join.wish.system = System::SwitchMl(SwitchMlParameters { fixed_point: false });
        assert_eq!(with(&|join| switchml(join)), Ok(()));
        type Change = fn(&mut Join);
        let cases: [(Change, &str); 6] = [
            (|join| join.operators = vec![join.operators[0].clone(); 5], "operators: 5 of them: expected at most 4"),
            (|join| join.operators[0].name = "a\tb".into(), "operators[0].name = \"a\\tb\": expected 1 to 64"),
            (|join| join.operators[0].digest = "0F".repeat(32), "operators[0].digest"),
            (
                |join| join.operators[0].module = Some("00".into()),
                "operators[0].module: expected from rank 0 and from nobody else; this is rank 1",
            ),
            (|join| join.rank = 0, "this is rank 0"),
            (
                |join| {
                    join.rank = 0;
                    join.operators[0].module = Some("0".repeat(600 << 10));
                },
                "operators: 307200 bytes of modules: expected at most 262144",
            ),
        ];
        for (change, expected) in cases {
            let text = with(&|join| {
                switchml(join);
                change(join);
            })
            .unwrap_err();
            assert!(text.contains(expected), "{text}");
        }
        assert!(with(&|_| ()).unwrap_err().contains("tree reduces by built-in operators only: expected none"));
        let sent = OperatorWish { module: Some(OperatorWish::digits(&[0, 0xa5, 255])), ..wish };
        assert_eq!((sent.module.as_deref(), sent.bytes()), (Some("00a5ff"), Some(vec![0, 0xa5, 255])));
        for nonsense in ["0", "0g", "+1"] {
            assert_eq!(OperatorWish { module: Some(nonsense.into()), ..sent.clone() }.bytes(), None);
        }
    }

    #[test]
    fn the_shortest_path_decides_and_a_wish_that_does_not_fit_names_it() {
        let config = JobsConfig::default();
        let (wide, mut narrow) = (Join { path_datagram_bytes: 9_000, ..join() }, Join { rank: 2, ..join() });
        let dense = System::SwitchMl(SwitchMlParameters { fixed_point: false });
        for (system, fixed_point) in [(System::tree(1), false), (dense, false), (dense, true)] {
            let of_system = |join: &Join| Join { wish: JobWish { system, fixed_point, ..join.wish }, ..join.clone() };
            let bytes = payload_bytes(&config, &[&of_system(&wide), &of_system(&narrow)]).unwrap();
            let whole = bytes + header_bytes_max(&system, fixed_point);
            assert!(bytes.is_multiple_of(8) && whole <= 1_472 && whole + 8 > 1_472, "{bytes}");
        }
        narrow.path_datagram_bytes = 600;
        let wishing = Join { wish: JobWish { payload_bytes: Some(1_024), ..wide.wish }, ..wide };
        let error = payload_bytes(&config, &[&wishing, &narrow]).unwrap_err();
        assert!(error.contains("1024 bytes") && error.contains("rank 2") && error.contains("600"), "{error}");
    }
}
