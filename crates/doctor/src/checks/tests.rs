//! Findings from injected facts.

use super::super::facts::Trial;
use super::super::finding::Level;
use super::*;

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// A host on which all is well, with these variables.
fn facts(variables: &[(&str, &str)]) -> Facts {
    let variables = pairs(variables);
    let config = Config::from_variables(|name| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()));
    Facts {
        variables,
        unknown: Vec::new(),
        config,
        switch_given: false,
        place: Meeting::Nowhere,
        answer: None,
        route: None,
        path: None,
        trial: Trial { switch: None, outcome: Ok("UDP".into()) },
        offload: Ok(OFFLOADED),
        buffers: Ok(GRANTED),
        memory: Ok(()),
        sockets: Ok(()),
        cores: 8,
        processes: None,
        local_world: None,
        files: Files { soft: Some(1_024), hard: Some(4_096) },
    }
}

const OFFLOADED: Offload = Offload { send_segments_max: 64, datagrams: 32, send_calls: 1, received: 32, runs: 1 };
const GRANTED: Buffers = Buffers {
    receive_wanted: 16 << 20,
    receive: 16 << 20,
    send_wanted: 1 << 20,
    send: 1 << 20,
    rmem_max: Some(212_992),
    wmem_max: Some(212_992),
};

fn mend(finding: &Finding) -> &str {
    finding.mend.as_deref().unwrap_or("")
}

#[test]
fn where_all_is_well_every_check_says_so_once() {
    let findings = all(&facts(&[]));
    assert!(findings.iter().all(|finding| finding.level == Level::Ok && finding.mend.is_none()), "{findings:?}");
    let checks: Vec<&str> = findings.iter().map(|finding| finding.check).collect();
    assert_eq!(checks, ["configuration", "permissions", "trial", "offload", "socket buffers", "shared memory", "cores", "open files"]);
}

#[test]
fn whatever_is_wrong_comes_with_a_command() {
    let broken = Facts {
        unknown: vec!["FANIN_SWTCH".into()],
        offload: Err("no".into()),
        buffers: Err("no".into()),
        memory: Err("no".into()),
        sockets: Err("no".into()),
        processes: Some(9),
        files: Files { soft: Some(8), hard: Some(8) },
        trial: Trial { switch: None, outcome: Err("no".into()) },
        ..facts(&[("FANIN_RANK", "x"), ("FANIN_WORLD", "2")])
    };
    let findings = all(&broken);
    assert!(findings.iter().all(|finding| finding.level != Level::Ok && finding.mend.is_some()), "{findings:?}");
}

#[test]
fn the_configuration_is_told_and_its_errors_name_the_variable() {
    let good = configuration(&facts(&[("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "h0"), ("MASTER_PORT", "29500")]));
    assert_eq!(good.level, Level::Ok);
    assert!(
        good.text.starts_with("rank 1 of 4") && good.text.contains("rank 0, h0:29501") && good.text.contains("MASTER_PORT=29500"),
        "{good:?}"
    );
    let rank = [("FANIN_RANK", "0"), ("FANIN_WORLD", "2"), ("FANIN_SWITCH", "h:1"), ("FANIN_TOKEN", "v4.public.abc")];
    let told = configuration(&facts(&rank));
    assert!(!told.text.contains("v4.public") && told.text.contains("FANIN_TOKEN=(a token, not shown)"), "{told:?}");
    type Variables = &'static [(&'static str, &'static str)];
    let cases: [(Variables, &str, &str); 5] = [
        (&[("FANIN_RANK", "x"), ("FANIN_WORLD", "2")], "FANIN_RANK = x", "export FANIN_RANK="),
        (&[("FANIN_RANK", "1")], "FANIN_WORLD is not set", "export FANIN_WORLD="),
        (&[("FANIN_RANK", "0"), ("FANIN_WORLD", "2")], "no place to meet", "export FANIN_SWITCH="),
        (&[("FANIN_RANK", "2"), ("FANIN_WORLD", "2"), ("FANIN_SWITCH", "h:1")], "rank = 2", "export FANIN_RANK="),
        (&[("FANIN_TRANSPORT", "rdma")], "FANIN_TRANSPORT = rdma", "export FANIN_TRANSPORT="),
    ];
    for (variables, said, command) in cases {
        let finding = configuration(&facts(variables));
        assert_eq!(finding.level, Level::Problem, "{variables:?}");
        assert!(finding.text.contains(said) && mend(&finding).contains(command), "{finding:?}");
    }
    let given = Facts { switch_given: true, ..facts(&[("FANIN_RANK", "0"), ("FANIN_WORLD", "2")]) };
    assert_eq!(configuration(&given).level, Level::Ok, "the place to meet is on the command line");
}

#[test]
fn a_misspelt_variable_is_recognised() {
    let finding = misspelt("FANIN_SWTICH");
    assert!(finding.text.contains("is FANIN_SWITCH meant?") && mend(&finding) == "unset FANIN_SWTICH", "{finding:?}");
    assert!(!misspelt("FANIN_COLOUR_OF_OUTPUT").text.contains("meant"));
    assert_eq!((distance("abc", "abc"), distance("abc", "acb"), distance("", "abc"), distance("abc", "ab")), (0, 2, 3, 1));
}

#[test]
fn offloads_are_judged_by_what_happened() {
    let judged = |offload: Offload| {
        let finding = super::offload(&Ok(offload));
        (finding.level, finding.text)
    };
    assert!(matches!(judged(OFFLOADED), (Level::Ok, text) if text.contains("32 datagrams left in 1 call and arrived in 1 piece")));
    let (level, text) = judged(Offload { send_segments_max: 1, send_calls: 32, ..OFFLOADED });
    assert!(level == Level::Warning && text.contains("no GSO"), "{text}");
    let (level, text) = judged(Offload { runs: 32, ..OFFLOADED });
    assert!(level == Level::Warning && text.contains("no GRO"), "{text}");
    let (level, text) = judged(Offload { send_segments_max: 1, send_calls: 32, runs: 32, ..OFFLOADED });
    assert!(level == Level::Warning && text.contains("neither"), "{text}");
    assert_eq!(judged(Offload { received: 0, runs: 0, ..OFFLOADED }).0, Level::Problem);
}

#[test]
fn small_buffers_are_raised_by_half_of_what_is_wanted_since_the_kernel_doubles_it() {
    assert_eq!(buffers(&Ok(GRANTED)).level, Level::Ok);
    let small = buffers(&Ok(Buffers { receive: 425_984, ..GRANTED }));
    assert_eq!(small.level, Level::Warning);
    assert!(small.text.contains("receive: 416 of 16384 KiB") && small.text.contains("rmem_max is 212992"), "{small:?}");
    assert!(mend(&small).starts_with("sudo sysctl -w net.core.rmem_max=8388608   "), "{small:?}");
    let both = buffers(&Ok(Buffers { receive: 425_984, send: 425_984, rmem_max: None, wmem_max: None, ..GRANTED }));
    assert!(both.text.contains("not visible") && mend(&both).contains("rmem_max=8388608 net.core.wmem_max=524288"), "{both:?}");
}

#[test]
fn missing_shared_memory_is_as_bad_as_it_was_wanted() {
    let missing = Err("shared memory: open it: Permission denied".to_string());
    assert_eq!(memory(&missing, Transport::Auto).level, Level::Warning);
    assert_eq!(memory(&missing, Transport::Memory).level, Level::Problem);
    assert_eq!(memory(&missing, Transport::Udp).level, Level::Ok);
    assert!(mend(&memory(&missing, Transport::Auto)).contains("hidepid=0"));
    assert!(mend(&memory(&Err("shared memory: memfd_create: x".into()), Transport::Auto)).contains("memfd_create"));
}

#[test]
fn more_ranks_than_cores_are_a_warning_and_a_problem_if_they_spin() {
    assert_eq!(cores(2, None, true).level, Level::Ok);
    assert_eq!(cores(2, Some(2), true).level, Level::Ok);
    assert!(mend(&cores(2, Some(3), false)).contains("--nproc-per-node 2"));
    let spinning = cores(2, Some(3), true);
    assert!(spinning.level == Level::Problem && mend(&spinning) == "unset FANIN_WAIT", "{spinning:?}");
}

#[test]
fn a_low_limit_of_files_is_raised_as_far_as_one_may() {
    assert_eq!(files(Files { soft: None, hard: None }, 1_024).level, Level::Ok);
    assert_eq!(files(Files { soft: Some(1_024), hard: None }, 16).level, Level::Ok);
    assert_eq!(mend(&files(Files { soft: Some(1_024), hard: Some(1 << 20) }, 1_024)), "ulimit -n 8192");
    assert_eq!(mend(&files(Files { soft: Some(1_024), hard: Some(4_096) }, 1_024)), "sudo prlimit --pid $$ --nofile=8192:8192");
}
