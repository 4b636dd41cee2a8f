//! `fanin switch` as its operators meet it: what `docs/switch.md` says is what happens.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{folder, good, refused};
use fanin_comm::{CommError, Communicator, Config, Fallback, Meeting, Operator, Transport};
use fanin_control::ClientSession;
use rustix::process::{Pid, Signal, kill_process};

/// Far longer than anything takes: only a test that hangs meets it.
const GUARD: Duration = Duration::from_secs(120);

fn documentation() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/switch.md")).expect("the operators' page")
}

/// The contents of all blocks in this language.
fn blocks(language: &str) -> Vec<String> {
    let text = documentation();
    let blocks = text.split("\n```").collect::<Vec<_>>();
    blocks.iter().filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).map(str::to_owned).collect()
}

/// A switch process; killed where a test ends without ending it.
struct Switch {
    process: Child,
    output: BufReader<ChildStdout>,
    log: PathBuf,
}

impl Switch {
    fn start(folder: &Path, arguments: &[&str]) -> Switch {
        let log = folder.join("log");
        let mut process = Command::new(env!("CARGO_BIN_EXE_fanin"))
            .current_dir(folder)
            .arg("switch")
            .args(arguments)
            .env_remove("RUST_LOG")
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Switch { process, output, log }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the switch has ended: {}", self.log());
        line.trim_end().to_owned()
    }

    /// Where ranks join and where metrics are.
    fn addresses(&mut self) -> (SocketAddr, SocketAddr) {
        let control = self.line().strip_prefix("ranks join at ").unwrap().parse().unwrap();
        let http = self.line();
        let http = http.strip_prefix("metrics at http://").unwrap().split('/').next().unwrap().parse().unwrap();
        (control, http)
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < GUARD, "it does not end: {}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

const EPHEMERAL: [&str; 4] = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];

fn rank(switch: SocketAddr, job: &str, rank: u32, world: u32) -> Config {
    let timeout = GUARD;
    // What a switch refuses or ends is an error: these tests are about the switch.
    let fallback = Some(Fallback::Error);
    Config {
        job: job.into(),
        transport: Transport::Udp,
        timeout,
        fallback,
        ..Config::new(rank, world, Meeting::Switch(switch.to_string()))
    }
}

/// Runs `body` at every rank of a job.
fn job<R: Send>(switch: SocketAddr, name: &str, world: u32, body: impl Fn(Communicator) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let body = &body;
        let at = |number| scope.spawn(move || body(Communicator::join(rank(switch, name, number, world)).unwrap()));
        let threads: Vec<_> = (0..world).map(at).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Every command in the documentation, on free ports, says what the documentation says that it says.
#[test]
fn commands_of_the_documentation_do_what_it_says() {
    let folder = folder("switch_documentation");
    let configs = blocks("toml");
    assert_eq!(configs.len(), 1);
    fs::write(folder.join("switch.toml"), &configs[0]).unwrap();
    let commands = blocks("console");
    assert_eq!(commands.len(), 3);
    for block in commands {
        let check = block.contains("--check");
        let (control, http) = (free_port().to_string(), free_port().to_string());
        let block = if check { block } else { block.replace("7700", &control).replace("9470", &http) };
        let (command, expected) = block.split_once('\n').unwrap();
        let arguments: Vec<&str> = command.strip_prefix("$ fanin switch").unwrap().split_whitespace().collect();
        if check {
            let arguments = [&["switch"], &arguments[..]].concat();
            assert_eq!(good(&folder, &arguments).trim_end(), expected);
            continue;
        }
        // The first one listens where it does by default, which somebody may do already.
        let listen = format!("127.0.0.1:{control}");
        let arguments = if arguments.is_empty() { vec!["--listen", &listen] } else { arguments };
        let mut switch = Switch::start(&folder, &arguments);
        for line in expected.lines() {
            assert_eq!(switch.line(), line, "{}", switch.log());
        }
        switch.signal(Signal::TERM);
        assert!(switch.end().success());
    }
    assert!(
        documentation().contains("| `127.0.0.1:7700` |") && good(&folder, &["switch", "--check"]).contains("listen = \"127.0.0.1:7700\"")
    );
}

/// The table of settings has every setting, with its default; the program itself says which there are.
#[test]
fn every_setting_and_its_default_are_documented_and_can_be_given_in_both_ways() {
    let folder = folder("switch_settings");
    let all = good(&folder, &["switch", "--check"]);
    let documentation = documentation();
    let mut count = 0;
    for line in all.lines() {
        count += 1;
        let (name, default) = match line.strip_prefix("# ") {
            Some(unset) => (unset.split(' ').next().unwrap(), None),
            None => line.split_once(" = ").map(|(name, value)| (name, Some(value.trim_matches('"')))).unwrap(),
        };
        let row = documentation.lines().find(|row| row.starts_with(&format!("| `{name}` |"))).unwrap_or_else(|| panic!("{name}"));
        assert!(
            default.is_none_or(|default| row.contains(&format!("| `{default}` |")) || row.contains(&format!("| {default} |"))),
            "{row}"
        );
        assert!(good(&folder, &["switch", "--help"]).contains(&format!("--{}", name.replace('_', "-"))));
    }
    assert_eq!(count, 16);
    // What is printed is a config file that says the same.
    let config = &blocks("toml")[0];
    fs::write(folder.join("a.toml"), config).unwrap();
    let printed = good(&folder, &["switch", "--config", "a.toml", "--check"]);
    assert_eq!(printed.trim_end(), config.trim_end());
}

#[test]
fn settings_that_make_no_sense_are_refused_with_their_value_and_what_is_expected() {
    let folder = folder("switch_refused");
    for (option, value, expected) in [
        ("--listen", "localhost", "an IP address and a TCP port"),
        ("--http", "9470", "an IP address and a TCP port"),
        ("--data-ports", "8000-7000", "the first and the last UDP port"),
        ("--jobs-max", "0", "a number from 1 to 60000"),
        ("--connections-max", "many", "a number from 1"),
        ("--memory-max", "12parsecs", "a size of at least 1MiB"),
        ("--patience-max", "0s", "a time from 1ms"),
        ("--drain-timeout", "90000s", "a time from 0s to 86400s"),
        ("--log-format", "xml", "text or json"),
        ("--tls-clients", "sha256:12", "a file of a CA's certificates (PEM), or sha256:FINGERPRINT"),
        ("--control", "maybe", "tls or plain"),
    ] {
        let said = refused(&folder, &["switch", option, value]);
        assert!(said.contains(&format!("{option} {value}: expected {expected}")), "{said}");
        let name = option.trim_start_matches('-').replace('-', "_");
        fs::write(folder.join("switch.toml"), format!("{name} = \"{value}\"\n")).unwrap();
        let said = refused(&folder, &["switch", "--config", "switch.toml"]);
        assert!(said.contains(&format!("switch.toml: {name} = \"{value}\": expected {expected}")), "{said}");
    }
    fs::write(folder.join("switch.toml"), "jobs = 4\n").unwrap();
    assert!(refused(&folder, &["switch", "--config", "switch.toml"]).contains("there is no setting jobs; there are listen, http"));
    fs::write(folder.join("switch.toml"), "listen =\n").unwrap();
    assert!(refused(&folder, &["switch", "--config", "switch.toml"]).contains("line 1"));
    assert!(refused(&folder, &["switch", "--config", "missing.toml"]).contains("missing.toml: No such file"));
}

/// Names of samples, and values of a label.
fn samples(metrics: &str) -> BTreeSet<&str> {
    metrics.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(['{', ' ']).next().unwrap()).collect()
}

fn labels<'a>(metrics: &'a str, name: &str) -> BTreeSet<&'a str> {
    let values = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    values.map(|line| line.split("reason=\"").nth(1).unwrap().split('"').next().unwrap()).collect()
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_is_there() {
    let folder = folder("switch_metrics");
    let mut switch = Switch::start(&folder, &EPHEMERAL);
    let (control, http) = switch.addresses();
    let scraped = job(control, "measured", 2, |comm| {
        let mut vector = vec![comm.rank() as f32; 100_000];
        for _ in 0..3 {
            comm.allreduce(&mut vector, Operator::Sum).unwrap();
        }
        // A stranger, so that drops have a reason.
        let metrics = || get(http, "/metrics").1;
        let start = Instant::now();
        let mut scraped = metrics();
        while !scraped.contains("fanin_switch_job_dropped_packets_total{") {
            assert!(start.elapsed() < GUARD, "{scraped}");
            if let fanin_comm::PathReport::Datagrams { switch, .. } = comm.path() {
                let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
                stranger.send_to(b"hello", switch).unwrap();
            }
            scraped = metrics();
        }
        comm.barrier().unwrap();
        scraped
    });
    let documentation = documentation();
    let words: BTreeSet<&str> =
        documentation.split('`').filter(|word| word.starts_with("fanin_switch_") || word.starts_with("process_")).collect();
    let found = samples(&scraped[0]);
    for name in &found {
        assert!(words.contains(name), "{name} is not documented");
    }
    // Nothing had to be sent again, and what is counted beside packets is of lists.
    let absent: Vec<_> =
        words.iter().filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && !found.contains(**word)).collect();
    let seldom = ["fanin_switch_job_retransmitted_packets_total", "fanin_switch_job_events_total"];
    assert!(absent.iter().all(|name| seldom.contains(*name)), "{absent:?}");
    for (name, section) in
        [("fanin_switch_jobs_failed_total", "### Why a job failed"), ("fanin_switch_refusals_total", "### Why a rank was refused")]
    {
        let table = documentation.split(section).nth(1).unwrap().split("\n#").next().unwrap();
        let documented: BTreeSet<&str> =
            table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).filter(|word| *word != "reason").collect();
        assert_eq!(labels(&scraped[0], name), documented);
    }
    assert!(scraped[0].contains("fanin_switch_rank_received_payload_bytes_total{job=\"measured\","));
    assert_eq!(get(http, "/healthz"), (200, "ok\n".into()));
    switch.signal(Signal::INT);
    assert!(switch.end().success());
}

#[test]
fn a_signal_drains_and_a_second_one_ends() {
    let folder = folder("switch_drain");
    let mut switch = Switch::start(&folder, &[&EPHEMERAL[..], &["--drain-timeout", "3600s", "--log-format", "json"]].concat());
    let (control, http) = switch.addresses();
    let running = &switch;
    // A rank that has not taken its result yet is told of the end first, and rightly so.
    let both_have_it = Barrier::new(2);
    let ends = job(control, "long", 2, |comm| {
        let mut vector = vec![1.0f64; 10];
        comm.allreduce(&mut vector, Operator::Sum).unwrap();
        if comm.rank() == 0 {
            running.signal(Signal::TERM);
            let start = Instant::now();
            while get(http, "/healthz") != (503, "draining\n".into()) {
                assert!(start.elapsed() < GUARD);
            }
        }
        // The job goes on while the switch drains, and nobody else gets in.
        comm.allreduce(&mut vector, Operator::Sum).unwrap();
        assert_eq!(vector, [4.0; 10]);
        both_have_it.wait();
        if comm.rank() == 0 {
            let error = Communicator::join(rank(control, "late", 0, 2)).err().unwrap().to_string();
            assert!(error.contains("about to end"), "{error}");
            running.signal(Signal::TERM);
        }
        // It ends while both wait: one for the other, which has no more to say.
        loop {
            if let Err(error) = comm.allreduce(&mut vector, Operator::Max) {
                return error;
            }
        }
    });
    for error in ends {
        let CommError::Failed { text, .. } = &error else { panic!("{error}") };
        assert!(text.contains("the switch shuts down"), "{text}");
    }
    // Ranks are told before the log is.
    switch.end();
    let log = switch.log();
    let events: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let of = |message: &str| events.iter().find(|event| event["message"] == message).unwrap_or_else(|| panic!("{message}: {log}"));
    assert_eq!((&of("admitted")["job"], &of("admitted")["world"]), (&"long".into(), &2.into()));
    assert_eq!((&of("failed")["reason"], &of("refused")["reason"]), (&"shutdown".into(), &"draining".into()));
}

/// Killed without a word in the middle of a job, and started again at the same address: sums go on and are exact, and nothing is said to
/// the caller of a collective.
#[test]
fn a_job_survives_a_switch_that_is_killed_and_started_again() {
    const OPERATIONS: u64 = 40;
    let folder = folder("switch_restart");
    let listen = format!("127.0.0.1:{}", free_port());
    let arguments = ["--listen", &listen, "--http", "127.0.0.1:0"];
    let mut before = Switch::start(&folder, &arguments);
    let (control, _) = before.addresses();
    let ((tell, told), (answer, answered)) = (channel(), channel());
    let answered = Mutex::new(answered);
    let (_after, http) = thread::scope(|scope| {
        let (folder, arguments, before) = (&folder, &arguments, &mut before);
        let restart = scope.spawn(move || {
            told.recv().expect("the job comes so far");
            before.signal(Signal::KILL);
            assert!(!before.end().success());
            answer.send(()).unwrap();
            let mut after = Switch::start(folder, arguments);
            let (_, http) = after.addresses();
            (after, http)
        });
        job(control, "survivor", 3, move |comm| {
            for operation in 0..OPERATIONS {
                let element = |rank: u64, index: u64| (index * 31 + rank * 7 + operation) as i64;
                let mut vector: Vec<i64> = (0..60_000).map(|index| element(u64::from(comm.rank()), index)).collect();
                if comm.rank() == 1 && operation == OPERATIONS / 4 {
                    // The others are in the operation, or on their way to it.
                    tell.send(()).unwrap();
                    answered.lock().unwrap().recv().expect("the switch is dead");
                }
                comm.allreduce(&mut vector, Operator::Sum).unwrap();
                let expected = |index: u64| (0..3).map(|rank| element(rank, index)).sum::<i64>();
                assert!(vector.iter().zip(0..).all(|(sum, index)| *sum == expected(index)), "operation {operation}");
            }
        });
        restart.join().unwrap()
    });
    let metrics = get(http, "/metrics").1;
    assert!(metrics.contains("fanin_switch_jobs_resumed_total 1\n"), "{metrics}");
}

#[test]
fn an_address_that_is_taken_is_an_error_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = common::fanin(&folder("switch_taken"), &["switch", "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("cannot listen for control connections at {address}")));
}

/// One setting of a config file, and what is to be seen of it at a switch that runs: with the value it has to differ from without.
struct Probe {
    name: &'static str,
    value: String,
    seen: fn(&mut Switch, SocketAddr) -> String,
}

/// Both ranks of a job, in so far as they get in.
fn pair(control: SocketAddr, name: &str) -> Vec<Result<Communicator, CommError>> {
    let config = |number| Config { timeout: Duration::from_secs(5), ..rank(control, name, number, 2) };
    thread::scope(|scope| {
        let threads = [0, 1].map(|number| scope.spawn(move || Communicator::join(config(number))));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// What the ranks of a job are told that comes after so many others, which stay.
fn after_others(control: SocketAddr, others: u32) -> String {
    let others: Vec<_> = (0..others).flat_map(|other| pair(control, &format!("other{other}"))).collect();
    let told = |rank: &Result<Communicator, CommError>| rank.as_ref().map_or_else(|error| error.to_string(), |_| "joined".into());
    let last: Vec<String> = pair(control, "last").iter().map(told).collect();
    drop(others);
    last.join("; ")
}

/// A file with a key whose tokens nobody has.
fn keys(folder: &Path) -> PathBuf {
    let _ = fs::remove_file(folder.join("issuer.key"));
    let table = good(folder, &["token", "new", "--name", "one", "--private", "issuer.key"]);
    fs::write(folder.join("keys.toml"), table).unwrap();
    folder.join("keys.toml")
}

/// What a switch says of the packets that it takes.
fn greeting(control: SocketAddr) -> String {
    let mut stream = TcpStream::connect(control).unwrap();
    stream.write_all(&ClientSession::greeting("a test")).unwrap();
    let (mut session, mut buffer) = (ClientSession::new(), [0; 4_096]);
    while session.switch().is_none() {
        let bytes = stream.read(&mut buffer).unwrap();
        session.push(&buffer[..bytes]);
        assert_eq!(session.next(), Ok(None));
    }
    session.switch().unwrap().packets.to_string()
}

/// A switch that others than processes of this machine can reach is told who may join, and packets have keys there.
#[test]
fn who_may_join_is_said_where_others_can_ask() {
    let folder = folder("switch_open");
    let said = refused(&folder, &["switch", "--listen", "0.0.0.0:0"]);
    assert!(said.contains("--keys FILE") && said.contains("--open"), "{said}");
    let keys = keys(&folder).display().to_string();
    assert!(refused(&folder, &["switch", "--keys", &keys, "--open"]).contains("expected one of them"));
    for arguments in [&["--open"][..], &["--keys", &keys, "--control", "plain"]] {
        let arguments = [&["--listen", "0.0.0.0:0"], arguments].concat();
        let mut switch = Switch::start(&folder, &arguments);
        let control: SocketAddr = switch.line().strip_prefix("ranks join at ").unwrap().parse().unwrap();
        let here = SocketAddr::new([127, 0, 0, 1].into(), control.port());
        assert_eq!(greeting(here), "seal");
        let joined = after_others(here, 0);
        assert_eq!(joined == "joined; joined", arguments.contains(&"--open"), "{joined}");
        let token = ["token", "issue", "--private", "issuer.key", "--name", "one", "--tenant", "red", "--job", "last", "--lasts", "1h"];
        let token = good(&folder, &token);
        assert!(good(&folder, &["token", "show", "--keys", &keys, token.trim()]).contains("tenant  red\njobs    last\nranks   all"));
        let with = |number| {
            let token = Some(fanin_control::Token(token.trim().into()));
            Communicator::join(Config { timeout: Duration::from_secs(5), token, ..rank(here, "last", number, 2) })
        };
        thread::scope(|scope| {
            let threads = [0, 1].map(|number| scope.spawn(move || with(number).map(drop)));
            threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
    }
    // A key is not lost by mistake, and shown to nobody else.
    let again = common::fanin(&folder, &["token", "new", "--name", "two", "--private", "issuer.key"]);
    assert!(again.status.code() == Some(1) && String::from_utf8_lossy(&again.stderr).contains("issuer.key"));
    let mode = fs::metadata(folder.join("issuer.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// What is seen of each setting. The ports of `listen` and of `data_ports` are free ones.
fn probes(folder: &Path, listen: u16, data: u16) -> Vec<Probe> {
    fn probe(name: &'static str, value: impl ToString, seen: fn(&mut Switch, SocketAddr) -> String) -> Probe {
        Probe { name, value: value.to_string(), seen }
    }
    vec![
        probe("listen", format!("\"127.0.0.1:{listen}\""), |_, control| control.to_string()),
        probe("http", "\"127.0.0.1:0\"", |switch, control| {
            assert_eq!(after_others(control, 0), "joined; joined");
            switch.signal(Signal::TERM);
            switch.output.by_ref().lines().map(Result::unwrap).filter(|line| line.starts_with("metrics at ")).count().to_string()
        }),
        probe("data_ports", format!("\"{data}-{data}\""), |_, control| after_others(control, 1)),
        probe("keys", format!("{:?}", keys(folder)), |_, control| after_others(control, 0)),
        probe("packets", "\"seal\"", |_, control| greeting(control)),
        probe("jobs_max", 1, |_, control| after_others(control, 1)),
        probe("connections_max", 2, |_, control| after_others(control, 1)),
        probe("memory_max", "\"1MiB\"", |_, control| after_others(control, 0)),
        probe("patience_max", "\"1s\"", |_, control| {
            let start = Instant::now();
            let alone = Communicator::join(Config { timeout: Duration::from_secs(4), ..rank(control, "alone", 0, 2) });
            format!("{} {}", alone.err().unwrap(), start.elapsed() < Duration::from_secs(3))
        }),
        probe("drain_timeout", "\"0s\"", |switch, control| {
            let _joined = pair(control, "job");
            switch.signal(Signal::TERM);
            thread::sleep(Duration::from_millis(1500));
            switch.process.try_wait().unwrap().is_some().to_string()
        }),
        probe("log_format", "\"json\"", |switch, control| {
            assert_eq!(after_others(control, 0), "joined; joined");
            // Lines are written by a thread of their own.
            while switch.log().is_empty() {
                thread::sleep(Duration::from_millis(5));
            }
            switch.log().starts_with('{').to_string()
        }),
    ]
}

/// No key of a config file is read and forgotten: each shows in what a running switch does.
#[test]
fn every_key_of_a_config_file_changes_what_a_switch_does() {
    let folder = folder("switch_keys");
    fs::write(folder.join("switch.toml"), "unknown_to_all = 1\n").unwrap();
    let said = refused(&folder, &["switch", "--config", "switch.toml"]);
    let known: BTreeSet<&str> = said.split("there are ").nth(1).unwrap().split(", ").collect();
    let probes = probes(&folder, free_port(), free_port());
    // Of `open` see above: it says who may join where others than processes of this machine can ask. Of the last four see crates/cli/tests/tls.rs.
    let others = ["open", "tls_cert", "tls_key", "tls_clients", "control"];
    assert_eq!(known, probes.iter().map(|probe| probe.name).chain(others).collect());
    for Probe { name, value, seen } in probes {
        let see = |config: String| {
            fs::write(folder.join("switch.toml"), config).unwrap();
            let mut switch = Switch::start(&folder, &["--config", "switch.toml"]);
            let control = switch.line().strip_prefix("ranks join at ").unwrap().parse().unwrap();
            seen(&mut switch, control)
        };
        let listen = if name == "listen" { "" } else { "listen = \"127.0.0.1:0\"\n" };
        let without = see("listen = \"127.0.0.1:0\"\n".into());
        let with = see(format!("{listen}{name} = {value}\n"));
        assert_ne!(without, with, "{name} = {value} changes nothing");
        println!("{name} = {value}: {with:?} where it was {without:?}");
    }
}

#[test]
fn top_shows_jobs_and_the_rank_that_others_wait_for() {
    let folder = folder("switch_top");
    let mut switch = Switch::start(&folder, &EPHEMERAL);
    let (control, http) = switch.addresses();
    let top = move |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_fanin")).arg("top").args(arguments).output().unwrap();
    let shown = job(control, "watched", 2, move |comm| {
        let seen = std::thread::scope(|scope| {
            let watch = scope.spawn(|| (comm.rank() == 0).then(|| top(&[&http.to_string(), "--once", "--interval", "2s"])));
            // Until it has looked twice, as both ranks agree on.
            loop {
                let mut goes_on = [i32::from(!watch.is_finished())];
                if comm.rank() == 1 {
                    std::thread::sleep(Duration::from_millis(20));
                    goes_on = [0];
                }
                comm.allreduce(&mut goes_on, Operator::Max).unwrap();
                if goes_on == [0] {
                    break watch.join().unwrap();
                }
            }
        });
        seen.map(|output| String::from_utf8(output.stdout).unwrap())
    });
    let text = shown[0].as_ref().unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let waited = |rank: &str| -> f64 {
        let row = rows.iter().find(|row| row.first() == Some(&"watched") && row.get(1) == Some(&rank));
        let row = row.unwrap_or_else(|| panic!("rank {rank} in {text}"));
        row[row.len() - 2].parse().unwrap()
    };
    assert!(waited("1") > 30.0 && waited("1") > 2.0 * waited("0"), "{text}");
    let nobody = top(&["127.0.0.1:1", "--once"]);
    let error = String::from_utf8(nobody.stderr).unwrap();
    assert!(nobody.status.code() == Some(2) && error.starts_with("error: 127.0.0.1:1: "), "{error}");
    let wrong = top(&[&control.to_string(), "--once", "--interval", "0s"]);
    assert_eq!(wrong.status.code(), Some(2));
}
