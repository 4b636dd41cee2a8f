//! Both ends over real sockets: who is taken, who is not, and in which words.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use chrono::{TimeDelta, Utc};
use fanin_channel::issue::{self, Issued, Purpose};
use fanin_channel::server::Reread;
use fanin_channel::{ClientTls, Door, Fingerprint, HandshakeError, Identity, Patience, ServerTls, Stream, Trusted};
use rustls::{ServerConnection, StreamOwned};

const GUARD: Duration = Duration::from_secs(60);

/// A folder with the files of a cluster.
struct Cluster {
    folder: PathBuf,
    ca: Issued,
}

impl Cluster {
    fn new(name: &str) -> Cluster {
        let folder = std::env::temp_dir().join(format!("fanin-channel-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let ca = issue::authority("test", Utc::now(), 30).unwrap();
        fs::write(folder.join("ca.pem"), &ca.certificate).unwrap();
        Cluster { folder, ca }
    }

    fn write(&self, name: &str, issued: &Issued) -> Identity {
        let identity = Identity { certificate: self.folder.join(format!("{name}.pem")), key: self.folder.join(format!("{name}.key")) };
        fs::write(&identity.certificate, &issued.certificate).unwrap();
        fs::write(&identity.key, &issued.key).unwrap();
        identity
    }

    fn issue(&self, name: &str, names: &[&str], purpose: Purpose) -> Identity {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        self.write(name, &issue::certificate(&self.ca, &names, purpose, Utc::now(), 30).unwrap())
    }

    fn trusted(&self) -> Trusted {
        Trusted::Ca(self.folder.join("ca.pem"))
    }

    fn client(&self) -> ClientTls {
        ClientTls { trusted: self.trusted(), name: None, identity: None }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A switch that says back what one client says, as often as it says something.
fn echo(tls: ServerTls) -> (SocketAddr, JoinHandle<std::io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let config = tls.config().unwrap();
    let thread = thread::spawn(move || {
        let (socket, _) = listener.accept()?;
        socket.set_read_timeout(Some(GUARD))?;
        let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
        let mut bytes = vec![0; 100_000];
        loop {
            let count = stream.read(&mut bytes)?;
            if count == 0 {
                return Ok(());
            }
            stream.write_all(&bytes[..count])?;
        }
    });
    (address, thread)
}

fn go(client: &ClientTls, to: SocketAddr, host: &str) -> Result<Stream, HandshakeError> {
    let patience = Patience { until: Instant::now() + GUARD, gives_up: &|| false };
    client.connect(TcpStream::connect(to).unwrap(), host, &patience)
}

/// Why there is no connection; some reasons show when something is read.
fn refused(client: &ClientTls, server: ServerTls, host: &str) -> String {
    let (address, thread) = echo(server);
    let text = match go(client, address, host) {
        Err(HandshakeError::Refused(text)) => text,
        Err(HandshakeError::Io(error)) => panic!("{error}"),
        Ok(mut stream) => {
            let _ = stream.write_all(b"x");
            stream.read(&mut [0; 8]).unwrap_err().to_string()
        }
    };
    assert!(thread.join().unwrap().is_err());
    text
}

fn open(identity: &Identity) -> ServerTls {
    ServerTls { identity: identity.clone(), clients: None }
}

#[test]
fn a_switch_is_known_by_its_ca_and_name_or_by_its_fingerprint() {
    let cluster = Cluster::new("known");
    let switch = cluster.issue("switch", &["agg", "127.0.0.1", "::1"], Purpose::Switch);
    let pinned = Trusted::Pinned(Fingerprint::of_file(&switch.certificate).unwrap());
    let named = ClientTls { name: Some("agg".into()), ..cluster.client() };
    for (client, host) in [
        (cluster.client(), "agg"),
        (cluster.client(), "127.0.0.1"),
        (cluster.client(), "[::1]"),
        (named, "10.1.2.3"),
        (ClientTls { trusted: pinned, ..cluster.client() }, "anything"),
    ] {
        let (address, thread) = echo(open(&switch));
        let mut stream = go(&client, address, host).unwrap();
        assert!(stream.is_sealed());
        assert_eq!(stream.peer_certificate().unwrap(), fanin_channel::show::file(&switch.certificate).unwrap()[0]);
        let mut back = [0; 5];
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"hello");
        stream.shutdown().unwrap();
        assert_eq!(stream.read(&mut back).unwrap(), 0);
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn what_is_wrong_with_either_end_is_said_in_words_that_lead_on() {
    let (cluster, other) = (Cluster::new("wrong"), Cluster::new("other"));
    let switch = cluster.issue("switch", &["agg"], Purpose::Switch);
    let rank = cluster.issue("rank", &["agg"], Purpose::Rank);
    let old = issue::certificate(&cluster.ca, &["agg".into()], Purpose::Switch, Utc::now() - TimeDelta::days(40), 30).unwrap();
    let old = cluster.write("old", &old);
    let pinned = |identity: &Identity| Trusted::Pinned(Fingerprint::of_file(&identity.certificate).unwrap());
    let mutual = |clients: Trusted| ServerTls { clients: Some(clients), ..open(&switch) };
    let with = |identity: &Identity| ClientTls { identity: Some(identity.clone()), ..cluster.client() };
    for (client, server, host, expected) in [
        (other.client(), open(&switch), "agg", "is not one of the CA in"),
        (cluster.client(), open(&switch), "leaf0", "is not for \"leaf0\""),
        (cluster.client(), open(&switch), "127.0.0.1", "FANIN_TLS_NAME"),
        (cluster.client(), open(&old), "agg", "is not good any more"),
        // A rank's certificate makes nobody a switch.
        (cluster.client(), open(&rank), "agg", "is not good: InvalidPurpose"),
        (ClientTls { trusted: pinned(&rank), ..cluster.client() }, open(&switch), "agg", "expected sha256:"),
        (cluster.client(), mutual(cluster.trusted()), "agg", "asks for a certificate of this end"),
        (with(&rank), mutual(other.trusted()), "agg", "does not take the certificate of this end"),
        (with(&rank), mutual(pinned(&switch)), "agg", "does not take the certificate of this end"),
        (with(&old), mutual(cluster.trusted()), "agg", "is not good any more"),
        (ClientTls { trusted: Trusted::Ca("/nowhere/ca.pem".into()), ..cluster.client() }, open(&switch), "agg", "/nowhere/ca.pem"),
        (cluster.client(), open(&switch), "a b", "\"a b\": expected a name"),
    ] {
        let text = refused(&client, server, host);
        assert!(text.contains(expected), "{text:?} instead of {expected:?}");
    }
    // With what they have they do take each other.
    for clients in [cluster.trusted(), pinned(&rank)] {
        let (address, thread) = echo(mutual(clients));
        let mut stream = go(&with(&rank), address, "agg").unwrap();
        stream.write_all(b"x").unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 1);
        stream.shutdown().unwrap();
        thread.join().unwrap().unwrap();
    }
}

#[test]
fn whoever_speaks_no_tls_or_nothing_at_all_is_no_switch() {
    let cluster = Cluster::new("plain");
    for answer in [&b"HTTP/1.0 400 Bad Request\r\n"[..], b"\x60\0\0\0{\"Refused\"", &[0; 40]] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let _ = socket.write_all(answer);
            let _ = socket.read(&mut [0; 4_096]);
        });
        let error = go(&cluster.client(), address, "agg").unwrap_err();
        assert!(matches!(&error, HandshakeError::Refused(text) if text.contains("does not speak TLS")), "{error}");
        thread.join().unwrap();
    }
    // One that says nothing is not waited for longer than it was said, or than the user wants.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = silent.local_addr().unwrap();
    for (limit, gives_up) in [(Duration::from_millis(200), false), (GUARD, true)] {
        let (begun, asked) = (Instant::now(), std::cell::Cell::new(0));
        let gives_up = || {
            asked.set(asked.get() + 1);
            gives_up && asked.get() > 2
        };
        let patience = Patience { until: begun + limit, gives_up: &gives_up };
        let error = cluster.client().connect(TcpStream::connect(to).unwrap(), "agg", &patience).unwrap_err();
        assert!(matches!(&error, HandshakeError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

#[test]
fn who_reads_and_who_writes_do_not_wait_for_each_other() {
    let cluster = Cluster::new("halves");
    let switch = cluster.issue("switch", &["agg"], Purpose::Switch);
    let (address, thread) = echo(open(&switch));
    let stream = go(&cluster.client(), address, "agg").unwrap();
    // More than the buffers of both sockets hold: it gets through only if somebody reads meanwhile.
    let sent: Arc<Vec<u8>> = Arc::new((0..8 << 20).map(|at: u32| ((at * 31) >> 7) as u8).collect());
    let (mut writer, told) = (stream.clone(), sent.clone());
    let writing = thread::spawn(move || told.chunks(70_001).for_each(|part| writer.write_all(part).unwrap()));
    let (mut reader, mut got) = (stream.clone(), vec![0; sent.len()]);
    reader.read_exact(&mut got).unwrap();
    assert!(got == *sent);
    writing.join().unwrap();
    // A read that waits ends where another thread closes.
    let waiting = thread::spawn(move || reader.read(&mut [0; 8]));
    thread::sleep(Duration::from_millis(50));
    stream.shutdown().unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), 0);
    thread.join().unwrap().unwrap();
}

#[test]
fn a_connection_ends_at_once_also_where_a_thread_waits_to_write() {
    let cluster = Cluster::new("full");
    let switch = cluster.issue("switch", &["agg"], Purpose::Switch);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, config) = (listener.local_addr().unwrap(), open(&switch).config().unwrap());
    let (done, wait) = std::sync::mpsc::channel::<()>();
    // A switch that does not read any more.
    let thread = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut session = ServerConnection::new(config).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut socket).unwrap();
        }
        let _ = wait.recv();
    });
    let stream = go(&cluster.client(), address, "agg").unwrap();
    let mut writer = stream.clone();
    let writing = thread::spawn(move || while writer.write_all(&[7; 100_000]).is_ok() {});
    // Far longer than it takes to fill both buffers.
    thread::sleep(Duration::from_millis(300));
    assert!(!writing.is_finished());
    let begun = Instant::now();
    stream.shutdown().unwrap();
    writing.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    drop(done);
    thread.join().unwrap();
}

#[test]
fn files_that_change_hold_from_the_next_connection_on() {
    let cluster = Cluster::new("rotation");
    let identity = cluster.issue("switch", &["agg"], Purpose::Switch);
    let mut door = Door::open(open(&identity)).unwrap();
    let (first, told) = door.config();
    assert_eq!(told, None);
    let wait = || thread::sleep(Duration::from_millis(1_050));
    // The key of another certificate, as while both files are being written: what was before stays.
    let next = issue::certificate(&cluster.ca, &["agg".into()], Purpose::Switch, Utc::now(), 31).unwrap();
    fs::write(&identity.key, &next.key).unwrap();
    wait();
    let (same, told) = door.config();
    assert!(Arc::ptr_eq(&first, &same) && matches!(told, Some(Reread::Failed(text)) if text.contains("switch.key")));
    fs::write(&identity.certificate, &next.certificate).unwrap();
    wait();
    let (new, told) = door.config();
    assert!(!Arc::ptr_eq(&first, &new) && told == Some(Reread::Done));
    wait();
    assert_eq!(door.config().1, None);
}

#[test]
fn files_that_are_none_of_certificates_are_named() {
    let cluster = Cluster::new("files");
    let switch = cluster.issue("switch", &["agg"], Purpose::Switch);
    let empty = cluster.folder.join("empty.pem");
    fs::write(&empty, "-----BEGIN CERTIFICATE-----\n").unwrap();
    let at = |certificate: &Path, key: &Path| Identity { certificate: certificate.into(), key: key.into() };
    for (identity, expected) in [
        (at(&empty, &switch.key), "empty.pem: expected certificates as PEM"),
        (at(&switch.certificate, &empty), "empty.pem: expected a private key"),
        (at(&switch.certificate, Path::new("/nowhere")), "/nowhere: No such file"),
        (at(Path::new("/dev/zero"), &switch.key), "is longer than"),
        (at(&cluster.folder.join("ca.pem"), &switch.key), "ca.pem with the key of"),
    ] {
        let error = open(&identity).config().unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let error = ServerTls { clients: Some(Trusted::Ca(empty)), ..open(&switch) }.config().unwrap_err();
    assert!(error.contains("empty.pem"), "{error}");
}

#[test]
fn what_is_issued_is_shown() {
    let cluster = Cluster::new("shown");
    let switch = cluster.issue("switch", &["agg", "10.0.0.2", "fd00::2"], Purpose::Switch);
    let shown = fanin_channel::show::file(&switch.certificate).unwrap();
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].names.join(" "), shown[0].is_ca), ("agg 10.0.0.2 fd00::2".into(), false));
    assert_eq!((shown[0].subject.as_str(), shown[0].issuer.as_str()), ("CN=agg", "CN=test"));
    let days = (shown[0].until_s - Utc::now().timestamp()) / 86_400;
    assert!((29..=31).contains(&days), "{days}");
    assert!(fanin_channel::show::file(&cluster.folder.join("ca.pem")).unwrap()[0].is_ca);
    let wrong = |names: &[&str], days| {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        issue::certificate(&cluster.ca, &names, Purpose::Rank, Utc::now(), days).err().unwrap()
    };
    assert!(
        wrong(&[], 3).contains("at least one")
            && wrong(&["a"], 0).contains("1 to 3660")
            && wrong(&["é"], 3).contains("\"é\": expected a host name")
    );
    assert!(wrong(&["agg", "a b"], 3).contains("\"a b\"") && wrong(&["10.0.0.2:7700"], 3).contains("expected a host name"));
}
