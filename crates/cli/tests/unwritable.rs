//! What a command says ends no command: a full disk, a closed pipe and a reader that does not read are tried under logs and results.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::folder;
use fanin_comm::{Communicator, Config, Meeting, Operator, Transport};

/// Far longer than anything takes: only a test that hangs meets it.
const GUARD: Duration = Duration::from_secs(120);

/// Strangers that the switch refuses.
const STRANGERS: usize = 3_000;

/// A switch; its standard output stays open.
struct Switch(Child, #[expect(dead_code, reason = "only held")] BufReader<ChildStdout>);

impl Switch {
    fn start(stderr: Stdio, level: &str) -> (Switch, SocketAddr) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fanin"));
        command.args(["switch", "--listen", "127.0.0.1:0"]).env("RUST_LOG", level);
        let mut process = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut out = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("ranks join at ").unwrap().parse().unwrap();
        (Switch(process, out), address)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Comes, says nonsense, and waits until the switch has said so.
fn strange(switch: SocketAddr) {
    let mut stream = TcpStream::connect(switch).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(&[0xff; 8]).unwrap();
    let mut refusal = Vec::new();
    // What counts is that the switch answers at all: it may have closed before all of that was read.
    let _ = stream.read_to_end(&mut refusal);
    assert!(String::from_utf8_lossy(&refusal).contains("refused"), "the switch says nothing any more");
}

/// A job beside the strangers, which must be exact.
fn job(switch: SocketAddr) {
    thread::scope(|scope| {
        for rank in 0..2 {
            scope.spawn(move || {
                let config =
                    Config { transport: Transport::Udp, timeout: GUARD, ..Config::new(rank, 2, Meeting::Switch(switch.to_string())) };
                let comm = Communicator::join(config).unwrap();
                for round in 0..50 {
                    let mut vector = vec![round + rank as i32; 1_000];
                    comm.allreduce(&mut vector, Operator::Sum).unwrap();
                    assert!(vector.iter().all(|sum| *sum == 2 * round + 1));
                    strange(switch);
                }
            });
        }
    });
}

#[test]
fn a_full_disk_a_closed_pipe_and_a_reader_that_does_not_read_end_no_switch() {
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    // Kept open, and never read.
    let (_unread, unread) = std::io::pipe().unwrap();
    let full = Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    for (what, stderr) in [("full", full), ("closed", closed()), ("unread", Stdio::from(unread))] {
        // With a line for everything there is far more than a pipe holds.
        let (mut switch, address) = Switch::start(stderr, "trace");
        for _ in 0..STRANGERS / 10 {
            strange(address);
        }
        job(address);
        assert!(switch.0.try_wait().unwrap().is_none(), "{what}: the switch has ended");
    }
}

#[test]
fn refusals_are_counted_and_not_written_one_by_one() {
    let folder = folder("unwritable_refusals");
    let log = folder.join("log");
    let (switch, address) = Switch::start(Stdio::from(File::create(&log).unwrap()), "info");
    for _ in 0..STRANGERS {
        strange(address);
    }
    job(address);
    drop(switch);
    let log = std::fs::read_to_string(&log).unwrap();
    let refusals = log.lines().filter(|line| line.contains("refused")).count();
    assert!((1..=20).contains(&refusals), "{refusals} of {STRANGERS}: {log}");
    assert!(log.contains("admitted") && log.contains("job=\"default\"") || log.contains("default"), "{log}");
}

#[test]
fn a_result_that_cannot_be_written_is_an_error_and_no_panic() {
    let folder = folder("unwritable_results");
    let sizes = ["model", "a2tp", "--flows", "2..32", "--aggregators", "450,900"];
    let operator = common::examples().join("operators/extremes.wasm");
    let operator = ["operator", "check", operator.to_str().unwrap()];
    for arguments in [&sizes[..], &operator, &["repro"], &["switch", "--check"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_fanin")).current_dir(&folder).args(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        assert_ne!(output.status.code(), Some(101), "{arguments:?}: {said}");
        assert!(said.contains("No space left on device"), "{arguments:?}: {said}");
    }
    // And errors that cannot be written change no exit code.
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_fanin")).args(["sim", "/no/such/plan.toml"]).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}
