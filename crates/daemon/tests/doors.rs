//! A switch with a certificate: slow, half-open and wrong handshakes are bounded in number and time, and others find room meanwhile.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use chrono::Utc;
use common::{GUARD, config, join, metric, until};
use fanin_channel::issue::{self, Purpose};
use fanin_channel::{ClientTls, Identity, Patience, ServerTls, Stream, Trusted};
use fanin_control::{ClientError, ClientMessage, ClientSession, Refusal, SwitchMessage, encode};
use fanin_daemon::{Daemon, DaemonConfig, DaemonHandle, StartError};

struct Sealed {
    daemon: DaemonHandle,
    folder: PathBuf,
}

impl Sealed {
    fn start(name: &str, connections_max: usize) -> Sealed {
        let folder = std::env::temp_dir().join(format!("fanin-doors-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let ca = issue::authority("test", Utc::now(), 2).unwrap();
        let own = issue::certificate(&ca, &["127.0.0.1".into()], Purpose::Switch, Utc::now(), 2).unwrap();
        fs::write(folder.join("ca.pem"), ca.certificate).unwrap();
        let identity = Identity { certificate: folder.join("own.pem"), key: folder.join("own.key") };
        fs::write(&identity.certificate, own.certificate).unwrap();
        fs::write(&identity.key, own.key).unwrap();
        let mut config = DaemonConfig { tls: Some(ServerTls { identity, clients: None }), ..config() };
        config.jobs.connections_max = connections_max;
        Sealed { daemon: Daemon::start(config).unwrap(), folder }
    }

    fn at(&self) -> SocketAddr {
        self.daemon.control_address()
    }

    /// Greets by TLS.
    fn greet(&self) -> Stream {
        let tls = ClientTls { trusted: Trusted::Ca(self.folder.join("ca.pem")), name: None, identity: None };
        let patience = Patience { until: Instant::now() + GUARD, gives_up: &|| false };
        let mut stream = tls.connect(TcpStream::connect(self.at()).unwrap(), "127.0.0.1", &patience).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.write_all(&ClientSession::greeting("test")).unwrap();
        stream
    }

    /// Joins a job of one rank by TLS, as far as being admitted.
    fn joins(&self, job: &str) {
        let mut stream = self.greet();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let join = fanin_control::Join { data: socket.local_addr().unwrap(), ..join(job, 0, 1) };
        stream.write_all(&encode(&ClientMessage::Join(Box::new(join)))).unwrap();
        let mut session = ClientSession::new();
        while !matches!(hear(&mut stream, &mut session).unwrap(), SwitchMessage::Admitted(_)) {}
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn hear(stream: &mut impl Read, session: &mut ClientSession) -> Result<SwitchMessage, ClientError> {
    let mut bytes = [0; 4_096];
    loop {
        if let Some(message) = session.next()? {
            return Ok(message);
        }
        let count = stream.read(&mut bytes).expect("the switch says something in time");
        assert!(count > 0, "the switch has closed the connection without a word");
        session.push(&bytes[..count]);
    }
}

/// The beginning of a handshake: the head of a record whose rest never comes, or comes byte by byte.
const HALF: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];

#[test]
fn handshakes_that_are_slow_or_never_whole_end_in_time_and_keep_nobody_out() {
    let switch = Sealed::start("slow", 64);
    let begun = Instant::now();
    // More than there may be, of every kind: silent, half open, a byte now and then, and what is no handshake.
    let mut open: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(switch.at()).unwrap()).collect();
    for (number, stream) in open.iter_mut().enumerate() {
        // Some are over already, since later ones needed their room.
        let _ = match number % 4 {
            0 => Ok(()),
            1 => stream.write_all(HALF),
            2 => stream.write_all(&HALF[..5]),
            _ => stream.write_all(&[22, 3, 1, 0, 4, 1, 2, 3, 4]),
        };
    }
    let trickle: Vec<TcpStream> = open.iter().skip(2).step_by(4).map(|stream| stream.try_clone().unwrap()).collect();
    let trickling = thread::spawn(move || {
        for byte in 0..40u8 {
            trickle.iter().for_each(|mut stream| drop(stream.write_all(&[byte])));
            thread::sleep(Duration::from_millis(200));
        }
    });
    for round in 0..10 {
        let asked = Instant::now();
        switch.joins(&format!("newcomer-{round}"));
        assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
        assert!(metric(&switch.daemon, "fanin_switch_control_connections", "") <= 64.0);
    }
    // All of them are over soon, also those that still say something.
    for stream in &mut open {
        stream.set_read_timeout(Some(GUARD)).unwrap();
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    until("none is left", || metric(&switch.daemon, "fanin_switch_control_connections", "") == 0.0);
    assert!(metric(&switch.daemon, "fanin_switch_refusals_total", "reason=\"unauthorized\"") > 0.0);
    switch.joins("last");
    trickling.join().unwrap();
}

#[test]
fn who_comes_without_tls_is_told_what_to_do() {
    let switch = Sealed::start("plain", 64);
    let mut stream = TcpStream::connect(switch.at()).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(&ClientSession::greeting("test")).unwrap();
    // What it says beside that is not heard.
    stream.write_all(&encode(&ClientMessage::Join(Box::new(join("plain", 0, 1))))).unwrap();
    match hear(&mut stream, &mut ClientSession::new()) {
        Err(ClientError::Refused(refused)) => {
            assert!(refused.code == Refusal::Unauthorized && refused.text.contains("FANIN_TLS"), "{}", refused.text);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(metric(&switch.daemon, "fanin_switch_jobs_admitted_total", ""), 0.0);
    drop(stream);
    // A look whether the port is open is nothing to speak of.
    drop(TcpStream::connect(switch.at()).unwrap());
    switch.joins("sealed");
    assert_eq!(metric(&switch.daemon, "fanin_switch_refusals_total", ""), 1.0);
}

/// Who finds no room is told so, and why, by TLS as well: not now and then, but every time.
#[test]
fn who_finds_no_room_is_told_so_by_tls_and_without() {
    let is_full = |said: Result<SwitchMessage, ClientError>| match said {
        Err(ClientError::Refused(refused)) => assert_eq!(refused.code, Refusal::Full, "{}", refused.text),
        other => panic!("{other:?}"),
    };
    let sealed = Sealed::start("full", 1);
    let mut of_one = config();
    of_one.jobs.connections_max = 1;
    let plain = Daemon::start(of_one).unwrap();
    // A job of which a rank waits for the other, so that its connection makes room for nobody.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let waits = |stream: &mut dyn Write, job: &str| {
        let join = fanin_control::Join { data: socket.local_addr().unwrap(), ..join(job, 0, 2) };
        stream.write_all(&encode(&ClientMessage::Join(Box::new(join)))).unwrap();
    };
    let mut by_tls = sealed.greet();
    waits(&mut by_tls, "sealed");
    let mut without = TcpStream::connect(plain.control_address()).unwrap();
    without.write_all(&ClientSession::greeting("test")).unwrap();
    waits(&mut without, "plain");
    for daemon in [&sealed.daemon, &plain] {
        until("a rank waits", || metric(daemon, "fanin_switch_jobs", "phase=\"waiting\"") == 1.0);
    }
    for _ in 0..10 {
        let (mut stream, mut session) = (sealed.greet(), ClientSession::new());
        is_full(hear(&mut stream, &mut session));
        let (mut stream, mut session) = (TcpStream::connect(plain.control_address()).unwrap(), ClientSession::new());
        stream.set_read_timeout(Some(GUARD)).unwrap();
        is_full(hear(&mut stream, &mut session));
    }
}

/// A part of a record is nothing to read: whoever sends one byte by byte keeps a reader no longer than its timeout and a byte.
#[test]
fn a_record_that_comes_byte_by_byte_does_not_outlast_a_read_s_timeout() {
    let switch = Sealed::start("trickle", 64);
    let between = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, there) = (between.local_addr().unwrap(), switch.at());
    // Passes the handshake and what the switch greets with, then sends the head of a long record, and a byte of it every 20 ms.
    let middle = thread::spawn(move || {
        let (mut client, _) = between.accept().unwrap();
        let mut server = TcpStream::connect(there).unwrap();
        let (mut up, mut down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut up, &mut down));
        server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut bytes = [0; 4_096];
        while let Ok(count @ 1..) = server.read(&mut bytes) {
            client.write_all(&bytes[..count]).unwrap();
        }
        let _ = client.write_all(&[23, 3, 3, 0x40, 0]);
        while client.write_all(&[7]).is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let tls = ClientTls { trusted: Trusted::Ca(switch.folder.join("ca.pem")), name: None, identity: None };
    let patience = Patience { until: Instant::now() + GUARD, gives_up: &|| false };
    let mut stream = tls.connect(TcpStream::connect(at).unwrap(), "127.0.0.1", &patience).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(&ClientSession::greeting("test")).unwrap();
    let mut bytes = [0; 4_096];
    assert!(stream.read(&mut bytes).unwrap() > 0, "the switch's greeting");
    thread::sleep(Duration::from_secs(1));
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let begun = Instant::now();
    let error = stream.read(&mut bytes).unwrap_err();
    assert!(matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    stream.shutdown().unwrap();
    drop(stream);
    middle.join().unwrap();
}

#[test]
fn a_switch_does_not_start_without_its_certificate() {
    let identity = Identity { certificate: "/nowhere/own.pem".into(), key: "/nowhere/own.key".into() };
    let started = Daemon::start(DaemonConfig { tls: Some(ServerTls { identity, clients: None }), ..config() });
    assert!(matches!(started, Err(StartError::Tls(text)) if text.contains("/nowhere/own.pem")));
}
