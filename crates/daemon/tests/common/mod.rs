//! A minimal rank: speaks the control protocol over a blocking socket and sums vectors by the runtime's driver.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use fanin_control::{
    Admitted, ByHosts, CallDescription, CallKind, ClientError, ClientMessage, ClientSession, HostId, JobWish, Join, Op, Signature,
    SwitchMessage, encode,
};
use fanin_core::{Address, CollectiveKind, ElementOp, JobId, NetworkMap, NodeId, PortId};
use fanin_daemon::{Daemon, DaemonConfig, DaemonHandle, RTO_INITIAL, RTO_MIN};
use fanin_net::{Socket, SocketConfig};
use fanin_runtime::{BlockSet, CollectiveCall, DriverConfig, NodeConfig, PeerConfig, RunError, Vectors, WorkerDriver};
use fanin_systems::{AnyNode, JobSpec, OfferNumbers, SwitchMlParameters, System, build};
use fanin_trust::LinkKeys;

/// Far longer than anything takes: only a test that hangs meets it.
pub const GUARD: Duration = Duration::from_secs(120);

pub const SWITCHML: System = System::SwitchMl(SwitchMlParameters { fixed_point: false });

pub fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

pub fn config() -> DaemonConfig {
    DaemonConfig { http: Some(loopback()), ..DaemonConfig::new(loopback()) }
}

pub fn start() -> DaemonHandle {
    Daemon::start(config()).unwrap()
}

pub fn join(job: &str, rank: u32, world: u32) -> Join {
    Join {
        job: job.into(),
        rank,
        world,
        data: loopback(),
        host: HostId("test".into()),
        node: None,
        path_datagram_bytes: 8_192,
        wish: JobWish {
            system: SWITCHML,
            payload_bytes: None,
            window: None,
            patience_ms: GUARD.as_millis() as u64,
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
        takes_keys: true,
    }
}

pub fn call(operation: u32, elements: u64) -> CallDescription {
    CallDescription::begun(operation, Signature { kind: CallKind::Allreduce, op: Op::F32_SUM, elements, part: None }, 1)
}

/// Waits until `is_so`.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < GUARD, "{what}: has not happened");
        thread::sleep(Duration::from_millis(5));
    }
}

pub struct Rank {
    pub rank: u32,
    pub world: u32,
    pub stream: TcpStream,
    pub session: ClientSession,
    pub socket: Option<Socket>,
    pub wish: JobWish,
    /// Messages that came before the one that was waited for.
    pub heard: Vec<SwitchMessage>,
}

impl Rank {
    /// Connects and asks to join; a data socket is opened where the request does not name one.
    pub fn join(switch: SocketAddr, mut join: Join) -> Rank {
        let socket = (join.data.port() == 0).then(|| Socket::bind(&SocketConfig::new(join.data)).unwrap());
        if let Some(socket) = &socket {
            join.data = socket.local_address();
        }
        let mut stream = TcpStream::connect(switch).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.write_all(&ClientSession::greeting("test")).unwrap();
        let (rank, world, wish) = (join.rank, join.world, join.wish);
        stream.write_all(&encode(&ClientMessage::Join(Box::new(join)))).unwrap();
        Rank { rank, world, stream, session: ClientSession::new(), socket, wish, heard: Vec::new() }
    }

    pub fn say(&mut self, message: ClientMessage) {
        self.stream.write_all(&encode(&message)).unwrap();
    }

    /// The next message that is no sign of life.
    pub fn next(&mut self) -> Result<SwitchMessage, ClientError> {
        let mut buffer = [0; 4_096];
        loop {
            match self.session.next()? {
                Some(SwitchMessage::Alive { .. }) => continue,
                Some(message) => return Ok(message),
                None => {}
            }
            let bytes = self.stream.read(&mut buffer).expect("the switch says something in time");
            assert!(bytes > 0, "the switch has closed the connection without a word; before that: {:?}", self.heard);
            self.session.push(&buffer[..bytes]);
        }
    }

    /// Waits for a message, and keeps the others.
    pub fn wait_for<R>(&mut self, mut wanted: impl FnMut(&SwitchMessage) -> Option<R>) -> Result<R, ClientError> {
        loop {
            let message = self.next()?;
            if let Some(found) = wanted(&message) {
                return Ok(found);
            }
            self.heard.push(message);
        }
    }

    pub fn admitted(&mut self) -> Result<Box<Admitted>, ClientError> {
        self.wait_for(|message| if let SwitchMessage::Admitted(admitted) = message { Some(admitted.clone()) } else { None })
    }

    /// Ready, and all others are.
    pub fn start(&mut self) -> Result<(), ClientError> {
        self.say(ClientMessage::Ready);
        self.wait_for(|message| (*message == SwitchMessage::Start).then_some(()))
    }

    /// How the job failed, or why it was refused.
    pub fn end(&mut self) -> ClientError {
        self.wait_for(|_| None::<()>).unwrap_err()
    }

    /// The driver for vectors.
    pub fn driver(&mut self, admitted: &Admitted) -> WorkerDriver<AnyNode<[u8]>> {
        let op = ElementOp::from(self.wish.op);
        let hosts: Vec<NodeId> = (0..self.world).map(NodeId).collect();
        let spec = JobSpec {
            id: JobId(admitted.job_id),
            hosts: &hosts,
            servers: &[],
            system: admitted.system,
            op: op.into(),
            element_bytes: op.dtype.bytes() as u32,
            payload_bytes: admitted.payload_bytes,
            window: admitted.window,
            reliable: true,
            rto_initial: RTO_INITIAL,
            rto_min: RTO_MIN,
            patience: fanin_core::Duration::from_ms(admitted.patience_ms),
            seed: admitted.seed,
        };
        let mut node = build::<[u8]>(&spec, &NetworkMap::star(self.world)).unwrap().workers.swap_remove(self.rank as usize).node;
        node.offer(self.wish.fixed_point);
        let switch = PeerConfig { address: Address::switch(NodeId(self.world)), socket: admitted.data, port: Some(PortId(0)) };
        let config = NodeConfig {
            address: Address::worker(NodeId(self.rank)),
            job: spec.id,
            system: admitted.system.number(),
            op,
            peers: vec![switch],
            // Other ranks are behind the switch, where packets find their way to them.
            routes: (0..self.world).filter(|host| *host != self.rank).map(|host| (NodeId(host), NodeId(self.world))).collect(),
        };
        let how = DriverConfig { epoch: Some(admitted.epoch), peers_epoch: Some(admitted.epoch), ..DriverConfig::default() };
        let mut driver = WorkerDriver::new(self.socket.take().unwrap(), node, config, &how).unwrap();
        driver.protect(admitted.keys.iter().map(LinkKeys::of_rank).collect());
        driver
    }

    /// Leaves, and waits until the switch has closed.
    pub fn leave(mut self, operation: u32) {
        self.say(ClientMessage::Leave { operation });
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
    }

    /// Goes as a process does that is killed.
    pub fn die(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Element i of rank r's input of an operation; sums of a few of them are exact.
pub fn input(rank: u32, operation: u32, elements: usize) -> Vec<u8> {
    (0..elements).flat_map(|i| ((i as u32 % 1_000 + 7 * rank + operation) as f32).to_le_bytes()).collect()
}

pub fn sum(world: u32, operation: u32, elements: usize) -> Vec<u8> {
    let element = |i: usize| (0..world).map(|rank| (i as u32 % 1_000 + 7 * rank + operation) as f32).sum::<f32>();
    (0..elements).flat_map(|i| element(i).to_le_bytes()).collect()
}

/// One allreduce whose result is compared with what it must be; `fingerprint` is the same at all ranks that call the same thing.
pub fn allreduce(
    driver: &mut WorkerDriver<AnyNode<[u8]>>,
    rank: &Rank,
    operation: u32,
    elements: usize,
    fingerprint: u32,
) -> Result<(), RunError> {
    let mut vector = input(rank.rank, operation, elements);
    let op = ElementOp::F32_SUM;
    let call = CollectiveCall {
        kind: CollectiveKind::Allreduce,
        op,
        element_bytes: op.dtype.bytes() as u32,
        op_number: if rank.wish.system == SWITCHML { OfferNumbers::default().built_in(op, false).unwrap() } else { 0 },
        fixed_point: None,
        elements: elements as u64,
        fingerprint,
    };
    let mut delivered = BlockSet::default();
    delivered.reset(elements as u64);
    driver.collective(&call, Vectors::InPlace(&mut vector), (&mut delivered, 0), |_| true)?;
    assert!(vector == sum(rank.world, operation, elements), "rank {} has a wrong sum in operation {operation}", rank.rank);
    Ok(())
}

/// A whole job, one thread a rank: joins, sums, leaves.
pub fn run_job(switch: SocketAddr, name: &str, world: u32, elements: usize, operations: u32) {
    run_job_with(switch, &|rank| join(name, rank, world), world, elements, operations);
}

pub fn run_job_with(switch: SocketAddr, join: &(impl Fn(u32) -> Join + Sync), world: u32, elements: usize, operations: u32) {
    thread::scope(|scope| {
        for rank in 0..world {
            scope.spawn(move || {
                let mut rank = Rank::join(switch, join(rank));
                let admitted = rank.admitted().unwrap();
                let mut driver = rank.driver(&admitted);
                rank.start().unwrap();
                for operation in 0..operations {
                    allreduce(&mut driver, &rank, operation, elements, elements as u32).unwrap();
                }
                rank.leave(operations);
            });
        }
    });
}

/// Status and body of a GET.
pub fn get(address: SocketAddr, path: &str) -> (u16, String) {
    try_get(address, path).unwrap()
}

/// The same; an error where this address has too many connections there at the moment.
pub fn try_get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(GUARD))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned()))
}

/// The sum of all values of a metric whose labels contain `labels`.
pub fn metric(daemon: &DaemonHandle, name: &str, labels: &str) -> f64 {
    let (status, body) = get(daemon.http_address().unwrap(), "/metrics");
    assert_eq!(status, 200);
    let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    let values = body.lines().filter(of_name).filter(|line| line.contains(labels));
    values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}
