//! From facts to findings: where ranks meet, and the way there.

use std::net::IpAddr;

use fanin_comm::Meeting;

use super::facts::{Answer, AnswerKind, Facts, PathMtu, Route, Trial};
use super::finding::Finding;

const SWITCH: &str = "switch";
const ADDRESS: &str = "local address";
const PATH: &str = "path MTU";
const TRIAL: &str = "trial";
/// Headers of a packet at most, elements apart: IP, UDP and Fanin's.
const HEADER_BYTES: u32 = 48 + fanin_control::HEADER_BYTES_MAX;

/// All findings about the place where ranks meet.
pub fn all(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(answer) = &facts.answer {
        findings.push(switch(&facts.place, answer));
    }
    if let Some(route) = &facts.route {
        let local_world = facts.local_world;
        let world = facts.config.as_ref().map_or(1, |config| config.world);
        findings.push(address(route, local_world.is_some_and(|local| local < world)));
    }
    if let (Some(Ok(route)), Some(path)) = (&facts.route, facts.path) {
        findings.push(path_mtu(route, path));
    }
    findings.push(trial(&facts.trial));
    findings
}

fn host_and_port(text: &str) -> (&str, &str) {
    text.rsplit_once(':').unwrap_or((text, "PORT"))
}

/// Whether somebody answers.
fn switch(place: &Meeting, answer: &Answer) -> Finding {
    let (text, whom) = match place {
        Meeting::Switch(text) => (text.as_str(), "the switch"),
        Meeting::Fabric(text) => (text.as_str(), "the manager of the fabric"),
        Meeting::Rendezvous(text) => (text.as_str(), "rank 0"),
        Meeting::Nowhere => ("", "nobody"),
    };
    let (host, port) = host_and_port(text);
    let here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    let service = if matches!(place, Meeting::Fabric(_)) { "fanin manager FABRIC.toml" } else { "fanin switch" };
    // A switch that others reach is told who may join.
    let who =
        format!(" --keys keys.toml --tls-cert tls/{host}.pem --tls-key tls/{host}.key   (fanin tls new tls --name {host}; or --open)");
    let listen = if here { format!("{service} --listen {text}") } else { format!("on {host}: {service} --listen 0.0.0.0:{port}{who}") };
    let open = format!("on {host}: sudo ufw allow {port}/tcp   (or: sudo firewall-cmd --add-port={port}/tcp)");
    match &answer.kind {
        AnswerKind::Switch { software, round_trip } => {
            Finding::ok(SWITCH, format!("{software} answers at {text} within {:.1} ms", round_trip.as_secs_f64() * 1e3))
        }
        AnswerKind::Free => Finding::ok(SWITCH, format!("this is rank 0, which runs a switch in its own process: it can listen at {text}")),
        AnswerKind::Unresolved(error) => Finding::problem(
            SWITCH,
            format!("the name {host} has no address here ({error})"),
            format!("getent hosts {host}   (give an IP address instead, or add the name to /etc/hosts)"),
        ),
        AnswerKind::Refused if matches!(place, Meeting::Rendezvous(_)) => Finding::warning(
            SWITCH,
            format!("nobody listens at {text} now; that is well if rank 0 has not been started yet"),
            "start rank 0, then run this again",
        ),
        AnswerKind::Refused => Finding::problem(SWITCH, format!("{host} is there, but nobody listens at port {port}"), listen),
        AnswerKind::Silence => Finding::problem(SWITCH, format!("{whom} at {text} does not answer: a firewall, or the host is off"), open),
        AnswerKind::Unreachable(error) => {
            Finding::problem(SWITCH, format!("{text} cannot be reached: {error}"), format!("ip route get {host}   (there is no way there)"))
        }
        AnswerKind::Untrusted(error) => Finding::problem(
            SWITCH,
            format!("{whom} at {text} and this end do not trust each other: {error}"),
            "export FANIN_TLS=ca.pem   (of the switch's CA, or sha256:FINGERPRINT of its certificate: on its host, fanin tls show FILE)",
        ),
        AnswerKind::Stranger(error) => Finding::problem(
            SWITCH,
            format!("{text}: {error}"),
            format!(
                "on {host}: sudo ss -ltnp 'sport = :{port}'   (shows who listens there; {whom} needs another port, or the same release)"
            ),
        ),
        AnswerKind::Taken(error) => taken(text, host, port, error),
    }
}

/// This is rank 0, and it cannot listen where it should.
fn taken(text: &str, host: &str, port: &str, error: &str) -> Finding {
    let said = format!("this is rank 0, but it cannot listen at {text}: {error}");
    let low = port.parse().is_ok_and(|port: u16| port < 1_024);
    if error.contains("denied") && low {
        return Finding::problem(SWITCH, said, format!("export FANIN_RENDEZVOUS={host}:29400   (ports below 1024 are for root)"));
    }
    if error.contains("in use") {
        return Finding::problem(SWITCH, said, format!("sudo ss -ltnp 'sport = :{port}'   (end that program, or choose another port)"));
    }
    Finding::problem(SWITCH, said, "ip -brief address   (FANIN_RENDEZVOUS or MASTER_ADDR must be an address of rank 0's own host)")
}

/// From where packets leave. `spread` says that ranks are on several hosts.
fn address(route: &Result<Route, String>, spread: bool) -> Finding {
    let route = match route {
        Ok(route) => route,
        Err(error) if error.contains("assign") => {
            return Finding::problem(
                ADDRESS,
                format!("FANIN_BIND is not an address of this host: {error}"),
                "unset FANIN_BIND   (or choose one of: ip -brief address)",
            );
        }
        Err(error) => {
            return Finding::problem(ADDRESS, format!("no packet can be sent there: {error}"), "ip route   (shows the ways there are)");
        }
    };
    if spread && route.to.ip().is_loopback() {
        return Finding::problem(
            ADDRESS,
            format!("ranks are on several hosts, but meet at {}, which every host takes for itself", route.to.ip()),
            "export FANIN_SWITCH=HOST:PORT   (or MASTER_ADDR, with an address that all hosts can reach)",
        );
    }
    let by = route.interface.as_ref().map_or(String::new(), |(name, mtu)| format!(" by {name} (MTU {mtu})"));
    Finding::ok(ADDRESS, format!("packets to {} leave from {}{by}", route.to.ip(), route.local))
}

/// Which lengths arrive.
fn path_mtu(route: &Route, path: PathMtu) -> Finding {
    let name = route.interface.as_ref().map_or("the interface", |(name, _)| name.as_str());
    let set = |mtu: u32| format!("sudo ip link set dev {name} mtu {mtu}");
    match path {
        PathMtu::Whole { mtu } if mtu < 1_280 => {
            Finding::warning(PATH, format!("only packets of {mtu} bytes: each costs as much as a long one"), set(1_500))
        }
        PathMtu::Whole { mtu } => Finding::ok(PATH, format!("packets of {mtu} bytes arrive whole")),
        PathMtu::Shorter { tried, mtu } => Finding::warning(
            PATH,
            format!(
                "{name} takes packets of {tried} bytes, but the way to {} only {mtu}; a router says so, and ranks heed it",
                route.to.ip()
            ),
            set(mtu),
        ),
        PathMtu::Hole { tried, arrives } => Finding::problem(
            PATH,
            format!(
                "packets of {tried} bytes vanish on the way to {} without a word, those of {arrives} arrive: vectors would never get there",
                route.to.ip()
            ),
            format!("{}   (or: export FANIN_PAYLOAD={})", set(arrives), (arrives - HEADER_BYTES) / 8 * 8),
        ),
        PathMtu::Unknown => Finding::warning(
            PATH,
            format!("{} does not answer to datagrams of any length, so it cannot be said which arrive; the trial says more", route.to.ip()),
            format!("ping -M do -s {} {}   (if that fails: {})", route.mtu.saturating_sub(28), route.to.ip(), set(1_400)),
        ),
    }
}

/// Whether two ranks can sum.
fn trial(trial: &Trial) -> Finding {
    let through = trial.switch.map_or("a switch in this process".to_string(), |switch| format!("the switch at {switch}"));
    match (&trial.outcome, trial.switch) {
        (Ok(path), _) => Finding::ok(TRIAL, format!("two ranks in this process have summed 1 MiB through {through}: {path}")),
        (Err(error), Some(switch)) if error.contains("token") => Finding::problem(
            TRIAL,
            format!("two ranks in this process could not join the switch at {switch}: {error}"),
            "export FANIN_TOKEN=$(fanin token issue ...) and FANIN_JOB, the job that the token is for   (whoever has the key's private half issues tokens)",
        ),
        (Err(error), Some(switch)) => Finding::problem(
            TRIAL,
            format!("two ranks in this process could not sum through {through}: {error}"),
            format!(
                "on {}: fanin switch --listen {switch} --data-ports 7000-7999, and sudo ufw allow 7000:7999/udp   (vectors go by UDP)",
                switch.ip()
            ),
        ),
        (Err(error), None) => Finding::problem(
            TRIAL,
            format!("two ranks in this process could not sum over 127.0.0.1: {error}"),
            "sudo ip link set dev lo up   (and let UDP on loopback through the firewall)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::finding::Level;
    use super::*;

    fn at(kind: AnswerKind) -> Answer {
        Answer { address: Some("10.0.0.9:7000".parse().unwrap()), kind }
    }

    fn route() -> Route {
        Route {
            to: "10.0.0.9:7000".parse().unwrap(),
            local: "10.0.0.1".parse().unwrap(),
            interface: Some(("eth0".into(), 1_500)),
            mtu: 1_500,
        }
    }

    fn mend(finding: &Finding) -> &str {
        finding.mend.as_deref().unwrap_or("")
    }

    #[test]
    fn whoever_does_not_answer_as_a_switch_is_a_problem_with_a_command() {
        let place = Meeting::Switch("agg:7000".into());
        let good = switch(&place, &at(AnswerKind::Switch { software: "fanin 0.1.0".into(), round_trip: Duration::from_micros(1_500) }));
        assert_eq!(good, Finding::ok("switch", "fanin 0.1.0 answers at agg:7000 within 1.5 ms"));
        let here = switch(&Meeting::Switch("127.0.0.1:7000".into()), &at(AnswerKind::Refused));
        assert_eq!(mend(&here), "fanin switch --listen 127.0.0.1:7000");
        let cases = [
            (AnswerKind::Unresolved("unknown".into()), "getent hosts agg"),
            (
                AnswerKind::Refused,
                "on agg: fanin switch --listen 0.0.0.0:7000 --keys keys.toml --tls-cert tls/agg.pem --tls-key tls/agg.key   (fanin tls new tls --name agg; or --open)",
            ),
            (AnswerKind::Silence, "ufw allow 7000/tcp"),
            (AnswerKind::Unreachable("no route".into()), "ip route get agg"),
            (AnswerKind::Untrusted("its certificate is not one of the CA in ca.pem".into()), "export FANIN_TLS=ca.pem"),
            (AnswerKind::Stranger("not a Fanin switch".into()), "ss -ltnp 'sport = :7000'"),
        ];
        for (kind, command) in cases {
            let finding = switch(&place, &at(kind.clone()));
            assert_eq!(finding.level, Level::Problem, "{kind:?}");
            assert!(mend(&finding).contains(command), "{kind:?}: {finding:?}");
        }
    }

    #[test]
    fn rank_0_listens_itself_and_the_others_may_come_before_it() {
        let place = Meeting::Rendezvous("h0:29501".into());
        assert_eq!(switch(&place, &at(AnswerKind::Free)).level, Level::Ok);
        assert_eq!(switch(&place, &at(AnswerKind::Refused)).level, Level::Warning);
        let taken = switch(&place, &at(AnswerKind::Taken("Address already in use (os error 98)".into())));
        assert!(taken.level == Level::Problem && mend(&taken).contains("sport = :29501"), "{taken:?}");
        let foreign = switch(&place, &at(AnswerKind::Taken("Cannot assign requested address (os error 99)".into())));
        assert!(foreign.level == Level::Problem && mend(&foreign).contains("ip -brief address"), "{foreign:?}");
        let low = switch(&Meeting::Rendezvous("h0:80".into()), &at(AnswerKind::Taken("Permission denied (os error 13)".into())));
        assert!(mend(&low).contains("export FANIN_RENDEZVOUS=h0:29400"), "{low:?}");
    }

    #[test]
    fn a_loopback_address_for_several_hosts_is_a_problem() {
        let loopback = Route { to: "127.0.0.1:7000".parse().unwrap(), ..route() };
        assert_eq!(address(&Ok(loopback.clone()), false).level, Level::Ok);
        assert_eq!(address(&Ok(loopback), true).level, Level::Problem);
        let good = address(&Ok(route()), true);
        assert_eq!(good, Finding::ok("local address", "packets to 10.0.0.9 leave from 10.0.0.1 by eth0 (MTU 1500)"));
        let foreign = address(&Err("Cannot assign requested address (os error 99)".into()), false);
        assert!(foreign.level == Level::Problem && mend(&foreign).starts_with("unset FANIN_BIND"), "{foreign:?}");
    }

    #[test]
    fn lengths_that_vanish_are_a_problem_and_lengths_that_a_router_refuses_are_not() {
        assert_eq!(path_mtu(&route(), PathMtu::Whole { mtu: 9_000 }).level, Level::Ok);
        let tiny = path_mtu(&route(), PathMtu::Whole { mtu: 576 });
        assert!(tiny.level == Level::Warning && mend(&tiny) == "sudo ip link set dev eth0 mtu 1500", "{tiny:?}");
        let shorter = path_mtu(&route(), PathMtu::Shorter { tried: 1_500, mtu: 1_420 });
        assert!(shorter.level == Level::Warning && mend(&shorter) == "sudo ip link set dev eth0 mtu 1420", "{shorter:?}");
        let hole = path_mtu(&route(), PathMtu::Hole { tried: 9_000, arrives: 1_400 });
        assert!(
            hole.level == Level::Problem && mend(&hole).starts_with("sudo ip link set dev eth0 mtu 1400   (or: export FANIN_PAYLOAD=1")
        );
        assert_eq!(path_mtu(&route(), PathMtu::Unknown).level, Level::Warning);
    }

    #[test]
    fn a_trial_that_fails_is_a_problem_wherever_the_switch_is() {
        let switch = Some("10.0.0.9:7000".parse().unwrap());
        assert_eq!(trial(&Trial { switch, outcome: Ok("UDP".into()) }).level, Level::Ok);
        let blocked = trial(&Trial { switch, outcome: Err("nothing moves".into()) });
        assert!(
            blocked.level == Level::Problem && blocked.text.contains("nothing moves") && mend(&blocked).contains("/udp"),
            "{blocked:?}"
        );
        let stranger = trial(&Trial { switch, outcome: Err("the switch refuses: the token is for jobs train-*".into()) });
        assert!(stranger.level == Level::Problem && mend(&stranger).contains("FANIN_JOB"), "{stranger:?}");
        assert_eq!(trial(&Trial { switch: None, outcome: Err("x".into()) }).level, Level::Problem);
    }
}
