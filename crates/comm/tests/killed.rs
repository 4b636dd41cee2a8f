//! Ranks and switches that are killed or stopped, as processes: whoever is left names the right one, in every phase, on every path.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use fanin_comm::{CommError, Communicator, Config, Operator};
use fanin_daemon::{Daemon, DaemonConfig};
use rustix::process::{Pid, Signal, kill_process};

/// Only a test that hangs meets it.
const GUARD: Duration = Duration::from_secs(120);

/// What a child is told to do; without it this is no child.
const ROLE: &str = "FANIN_TEST_ROLE";

/// What a child says begins with this: the test program says things, too.
const MARK: &str = "@";

fn say(text: &str) {
    let mut out = std::io::stdout();
    // Whoever reads may have seen enough.
    let _ = writeln!(out, "\n{MARK}{text}").and_then(|()| out.flush());
}

/// A process of a test: not a test of its own.
#[test]
fn child() {
    let Ok(role) = env::var(ROLE) else { return };
    if role == "switch" {
        let daemon = Daemon::start(DaemonConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
        say(&daemon.control_address().to_string());
        wait_for_a_line();
        return;
    }
    match rank(&role) {
        Ok(()) => say("done"),
        Err(error) => say(&format!("{:?} {error}", error.suspect_rank())),
    }
}

fn wait_for_a_line() {
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

fn call(comm: &Communicator) -> Result<(), CommError> {
    comm.allreduce(&mut vec![1i32; 300_000], Operator::Sum)
}

fn rank(role: &str) -> Result<(), CommError> {
    let mut config = Config::from_env().unwrap();
    config.stall_notice = Duration::from_millis(500);
    let (rank, victim): (u32, u32) = (config.rank, env::var("FANIN_TEST_VICTIM").unwrap().parse().unwrap());
    let is_victim = rank == victim;
    if role == "meeting" {
        say("ready");
    }
    let comm = Communicator::join(config)?;
    let (even, overlapping) = if role == "groups" {
        let halves = comm.split(Some(rank % 2), 0)?;
        (halves, comm.split((rank != 3).then_some(0), -i64::from(rank))?)
    } else {
        (None, None)
    };
    comm.barrier()?;
    say("ready");
    match role {
        // All are in it, or between two that follow each other at once.
        "calls" => loop {
            call(&comm)?;
        },
        // The others wait for this one, which does something else.
        "late" if is_victim => thread::sleep(GUARD),
        "late" => return call(&comm),
        // Nobody is in a call when it happens.
        "between" => {
            wait_for_a_line();
            return call(&comm);
        }
        "groups" => loop {
            let mut result = Ok(());
            for group in [&even, &overlapping].into_iter().flatten() {
                result = result.and(call(group));
            }
            result?;
        },
        other => panic!("{other}"),
    }
    Ok(())
}

/// Processes of one run.
struct Run {
    children: Vec<Child>,
    heard: Vec<Receiver<String>>,
}

impl Run {
    fn new() -> Self {
        Run { children: Vec::new(), heard: Vec::new() }
    }

    fn start(&mut self, role: &str, variables: &[(&str, String)]) {
        let mut command = Command::new(env::current_exe().unwrap());
        for (name, _) in env::vars().filter(|(name, _)| name.starts_with("FANIN_")) {
            command.env_remove(name);
        }
        command.args(["--exact", "child", "--nocapture"]).env(ROLE, role);
        command.envs(variables.iter().map(|(name, value)| (*name, value.as_str())));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (tell, heard) = channel();
        let out = child.stdout.take().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Some(text) = line.strip_prefix(MARK) {
                    let _ = tell.send(text.to_owned());
                }
            }
        });
        self.children.push(child);
        self.heard.push(heard);
    }

    fn hear(&self, child: usize) -> String {
        self.heard[child].recv_timeout(GUARD).unwrap_or_else(|error| panic!("child {child}: {error}"))
    }

    fn signal(&self, child: usize, signal: Signal) {
        kill_process(Pid::from_raw(self.children[child].id() as i32).unwrap(), signal).unwrap();
    }

    fn tell_all(&mut self) {
        for child in &mut self.children {
            // The one that was killed hears nothing.
            let _ = child.stdin.as_mut().unwrap().write_all(b"\n");
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn rendezvous() -> (&'static str, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    ("FANIN_RENDEZVOUS", listener.local_addr().unwrap().to_string())
}

/// Starts all ranks but `missing`, and waits until they have come so far.
fn ranks(role: &str, world: u32, victim: u32, missing: Option<u32>, place: &(&'static str, String), transport: &str, timeout: &str) -> Run {
    let mut run = Run::new();
    // Canary at one switch has jobs of its own beside the communicator's.
    let (transport, system) = if transport == "canary" { ("udp", "canary") } else { (transport, "auto") };
    for rank in (0..world).filter(|rank| Some(*rank) != missing) {
        let mut variables = vec![
            ("FANIN_SYSTEM", system.to_owned()),
            ("FANIN_RANK", rank.to_string()),
            ("FANIN_WORLD", world.to_string()),
            ("FANIN_TRANSPORT", transport.to_owned()),
            ("FANIN_TIMEOUT", timeout.to_owned()),
            ("FANIN_TEST_VICTIM", victim.to_string()),
            place.clone(),
        ];
        if place.0 == "FANIN_SWITCH" {
            // Jobs that go on without it are another test's.
            variables.push(("FANIN_FALLBACK", "error".to_owned()));
        }
        run.start(role, &variables);
    }
    for child in 0..run.children.len() {
        assert_eq!(run.hear(child), "ready");
    }
    run
}

/// What survivors say of `victim`, whom they know by this number.
fn check(run: &Run, child: usize, victim: u32, what: &str) {
    let said = run.hear(child);
    let names = said.contains(&format!("rank {victim} ")) || said.contains(&format!("rank {victim},")) || said.contains("rank 0 of job");
    assert!(said.starts_with(&format!("Some({victim}) ")) && names, "{what}: child {child} says: {said}");
    assert!(victim != 0 || !said.contains("the switch at") || said.contains("which r"), "{what}: {said}");
}

#[test]
fn a_rank_that_is_killed_is_named_by_all_others_in_and_between_calls_on_every_path() {
    let daemon = Daemon::start(DaemonConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    for role in ["calls", "late", "between"] {
        for transport in ["shm", "udp", "canary"] {
            for victim in 0..3 {
                // A name of its own for each job at the one switch comes from the place.
                for place in [rendezvous(), ("FANIN_SWITCH", daemon.control_address().to_string())] {
                    // Where ranks meet makes no difference to jobs beside the communicator's, nor does what happens between calls.
                    if transport == "canary" && (role == "between" || place.0 != "FANIN_SWITCH") {
                        continue;
                    }
                    let what = format!("{role}, {transport}, {place:?}, rank {victim}");
                    let mut run = ranks(role, 3, victim, None, &place, transport, "60s");
                    run.signal(victim as usize, Signal::KILL);
                    if role == "between" {
                        thread::sleep(Duration::from_millis(if victim == 1 { 0 } else { 1_500 }));
                    }
                    run.tell_all();
                    (0..3).filter(|child| *child != victim as usize).for_each(|child| check(&run, child, victim, &what));
                }
            }
        }
    }
}

#[test]
fn a_rank_that_is_killed_while_ranks_meet_is_named() {
    for victim in 0..2 {
        // Rank 2 never comes, so the others wait; where rank 0 is killed, that is known at once.
        let timeout = if victim == 0 { "60s" } else { "5s" };
        let run = ranks("meeting", 4, victim, Some(2), &rendezvous(), "auto", timeout);
        thread::sleep(Duration::from_millis(1_500));
        run.signal(victim as usize, Signal::KILL);
        for child in (0..3).filter(|child| *child != victim as usize) {
            let said = run.hear(child);
            if victim == 0 {
                assert!(said.starts_with("Some(0) ") && said.contains("rank 0, which ran the switch"), "{said}");
            } else {
                assert!(said.starts_with("Some(1) ") && said.contains("ranks 1 and 2 of job"), "{said}");
                assert!(said.contains("rank 1 had joined from") && said.contains("has gone again"), "{said}");
            }
        }
    }
}

#[test]
fn in_groups_too_the_one_that_was_killed_is_named() {
    for transport in ["shm", "udp"] {
        for victim in 0..4u32 {
            let run = ranks("groups", 4, victim, None, &rendezvous(), transport, "60s");
            run.signal(victim as usize, Signal::KILL);
            for child in (0..4usize).filter(|child| *child != victim as usize) {
                let said = run.hear(child);
                let what = format!("groups, {transport}, rank {victim}: child {child} says {said}");
                if victim == 0 {
                    // Whoever has no part in a group with rank 0 depends on its switch nevertheless.
                    assert!(said.contains("rank 0 of job \"default\""), "{what}");
                    continue;
                }
                // Who has no group with it goes on, until somebody leaves that group whose other one has failed.
                if child as u32 % 2 != victim % 2 && (child == 3 || victim == 3) {
                    assert!(said.contains("has left the job"), "{what}");
                    continue;
                }
                // Ranks of halves are counted from below, those of the overlapping group from above.
                let (half, overlapping) = (victim / 2, 2u32.wrapping_sub(victim));
                assert!(said.starts_with(&format!("Some({half}) ")) || said.starts_with(&format!("Some({overlapping}) ")), "{what}");
                assert!(said.contains("is gone: its connection was closed"), "{what}");
            }
        }
    }
}

#[test]
fn a_rank_that_was_stopped_says_so_itself_and_the_others_name_it() {
    for transport in ["shm", "udp", "canary"] {
        for victim in 0..3u32 {
            let run = ranks("calls", 3, victim, None, &rendezvous(), transport, "2s");
            run.signal(victim as usize, Signal::STOP);
            (0..3).filter(|child| *child != victim as usize).for_each(|child| check(&run, child, victim, "stopped"));
            thread::sleep(Duration::from_secs(2));
            run.signal(victim as usize, Signal::CONT);
            let said = run.hear(victim as usize);
            assert!(said.starts_with(&format!("Some({victim}) ")), "{transport}: {said}");
            assert!(said.contains(&format!("rank {victim} did not run for")), "{transport}: {said}");
        }
    }
}

fn resources(child: &Child) -> (usize, String) {
    let folder = format!("/proc/{}", child.id());
    let files = std::fs::read_dir(format!("{folder}/fd")).unwrap().count();
    let status = std::fs::read_to_string(format!("{folder}/status")).unwrap();
    (files, status.lines().find(|line| line.starts_with("Threads:")).unwrap().to_owned())
}

#[test]
fn a_switch_that_was_stopped_is_named_recovers_and_keeps_nothing() {
    let mut switch = Run::new();
    switch.start("switch", &[]);
    let place = ("FANIN_SWITCH", switch.hear(0));
    let before = resources(&switch.children[0]);
    for _ in 0..2 {
        let run = ranks("calls", 3, 0, None, &place, "udp", "2s");
        switch.signal(0, Signal::STOP);
        for child in 0..3 {
            let said = run.hear(child);
            assert!(said.starts_with("None ") && said.contains(&format!("the switch at {}", place.1)), "{said}");
            assert!(said.contains("nothing was heard of it for"), "{said}");
        }
        switch.signal(0, Signal::CONT);
        // New jobs of the same name are not disturbed, and nothing is left of the old one.
        let mut run = ranks("between", 3, 0, None, &place, "udp", "60s");
        run.tell_all();
        (0..3).for_each(|child| assert_eq!(run.hear(child), "done"));
    }
    let mut tries = 0;
    while resources(&switch.children[0]) != before && tries < 1_000 {
        thread::sleep(Duration::from_millis(20));
        tries += 1;
    }
    assert_eq!(resources(&switch.children[0]), before);
}

#[test]
fn a_switch_that_was_stopped_for_less_than_ranks_wait_goes_on() {
    let mut switch = Run::new();
    switch.start("switch", &[]);
    let place = ("FANIN_SWITCH", switch.hear(0));
    for transport in ["shm", "udp"] {
        let mut run = ranks("between", 2, 0, None, &place, transport, "20s");
        switch.signal(0, Signal::STOP);
        thread::sleep(Duration::from_secs(3));
        switch.signal(0, Signal::CONT);
        run.tell_all();
        (0..2).for_each(|child| assert_eq!(run.hear(child), "done"));
    }
}
