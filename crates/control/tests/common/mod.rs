//! A switch without sockets: carries out actions and keeps what every connection was told.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fanin_control::{
    Action, Admitted, ByHosts, CallDescription, CallKind, ClientMessage, ConnectionId, Failed, Hello, HostId, JobWish, Jobs, JobsConfig,
    Join, Note, Op, OpenJob, Signature, SwitchMessage,
};
use fanin_systems::System;

pub const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub const PATIENCE_MS: u64 = 10_000;

pub fn wish() -> JobWish {
    JobWish {
        system: System::tree(1),
        payload_bytes: None,
        window: None,
        patience_ms: PATIENCE_MS,
        fixed_point: false,
        reproducible: None,
        beside: None,
        op: Op::F32_SUM,
    }
}

pub fn join(job: &str, rank: u32, world: u32) -> Join {
    Join {
        job: job.into(),
        rank,
        world,
        data: ([0, 0, 0, 0], 20_000 + rank as u16).into(),
        host: HostId("host".into()),
        node: None,
        path_datagram_bytes: 1_472,
        wish: wish(),
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
    CallDescription::begun(operation, Signature { kind: CallKind::Allreduce, op: Op::F32_SUM, elements, part: None }, 8)
}

/// What one connection was told, and whether the switch has closed it.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub messages: Vec<SwitchMessage>,
    pub closed: bool,
}

impl Told {
    pub fn admitted(&self) -> Option<&Admitted> {
        self.messages.iter().find_map(|message| match message {
            SwitchMessage::Admitted(admitted) => Some(&**admitted),
            _ => None,
        })
    }

    pub fn failed(&self) -> Option<&Failed> {
        self.messages.iter().find_map(|message| match message {
            SwitchMessage::Failed(failed) => Some(failed),
            _ => None,
        })
    }

    pub fn refused(&self) -> Option<&str> {
        self.messages.iter().find_map(|message| match message {
            SwitchMessage::Refused(refused) => Some(refused.text.as_str()),
            _ => None,
        })
    }

    pub fn notices(&self) -> Vec<&str> {
        let mut notices = Vec::new();
        for message in &self.messages {
            if let SwitchMessage::Notice { text } = message {
                notices.push(text.as_str());
            }
        }
        notices
    }

    pub fn has(&self, message: &SwitchMessage) -> bool {
        self.messages.contains(message)
    }
}

pub struct Switch {
    pub jobs: Jobs,
    pub now_ms: u64,
    pub told: BTreeMap<ConnectionId, Told>,
    /// Connections that neither side has closed.
    pub open: BTreeSet<ConnectionId>,
    pub sockets: BTreeMap<u16, OpenJob>,
    pub notes: Vec<Note>,
    /// The driver cannot open sockets.
    pub out_of_sockets: bool,
    next_connection: u64,
}

impl Switch {
    pub fn new(config: JobsConfig) -> Self {
        Switch {
            jobs: Jobs::new(config),
            now_ms: 1_000_000,
            told: BTreeMap::new(),
            open: BTreeSet::new(),
            sockets: BTreeMap::new(),
            notes: Vec::new(),
            out_of_sockets: false,
            next_connection: 0,
        }
    }

    /// Carries out what the switch wants, and checks that it wants nothing impossible.
    pub fn settle(&mut self) {
        while let Some(action) = self.jobs.next_action() {
            match action {
                Action::Send(connection, message) => {
                    assert!(self.open.contains(&connection), "{message:?} to {connection:?}, which is closed");
                    self.told.get_mut(&connection).unwrap().messages.push(message);
                }
                Action::Close(connection) => {
                    assert!(self.open.remove(&connection), "{connection:?} is closed twice");
                    self.told.get_mut(&connection).unwrap().closed = true;
                }
                Action::OpenJob(open) => {
                    let job_id = open.job_id;
                    let result = if self.out_of_sockets { Err("too many open files".into()) } else { Ok(7_000 + job_id % 1_000) };
                    assert!(self.sockets.insert(job_id, *open).is_none(), "job {job_id} is opened twice");
                    self.jobs.on_opened(self.now_ms, job_id, result);
                }
                Action::AdoptJob(open) => {
                    let job_id = open.job_id;
                    assert!(self.sockets.insert(job_id, *open).is_none(), "job {job_id} is adopted twice");
                }
                Action::CloseJob { job_id } => {
                    assert!(self.sockets.remove(&job_id).is_some(), "job {job_id} is closed and was not open");
                }
                Action::Note(note) => self.notes.push(note),
            }
        }
        assert!(self.jobs.connections() <= self.open.len());
    }

    pub fn connect(&mut self) -> ConnectionId {
        self.connect_to(LOCAL)
    }

    /// A connection to this address of the switch.
    pub fn connect_to(&mut self, local: IpAddr) -> ConnectionId {
        let connection = ConnectionId(self.next_connection);
        self.next_connection += 1;
        self.open.insert(connection);
        self.told.insert(connection, Told::default());
        let peer = SocketAddr::new(LOCAL, 40_000 + (connection.0 % 20_000) as u16);
        self.jobs.on_connect(self.now_ms, connection, peer, local);
        self.settle();
        connection
    }

    pub fn say(&mut self, connection: ConnectionId, message: ClientMessage) {
        self.jobs.on_message(self.now_ms, connection, message);
        self.settle();
    }

    pub fn join(&mut self, join: Join) -> ConnectionId {
        let connection = self.connect();
        self.say(connection, ClientMessage::Hello(Hello::new("test")));
        self.say(connection, ClientMessage::Join(Box::new(join)));
        connection
    }

    /// A job that runs.
    pub fn run(&mut self, job: &str, world: u32) -> Vec<ConnectionId> {
        let connections: Vec<ConnectionId> = (0..world).map(|rank| self.join(join(job, rank, world))).collect();
        self.ready(&connections);
        connections
    }

    pub fn ready(&mut self, connections: &[ConnectionId]) {
        connections.iter().for_each(|connection| self.say(*connection, ClientMessage::Ready));
        assert!(connections.iter().all(|connection| self.told[connection].has(&SwitchMessage::Start)));
    }

    pub fn close(&mut self, connection: ConnectionId) {
        if self.open.remove(&connection) {
            self.jobs.on_closed(self.now_ms, connection);
            self.settle();
        }
    }

    /// Lets time pass, while all connections in `alive` say that they are.
    pub fn pass(&mut self, ms: u64, alive: &[ConnectionId]) {
        let until = self.now_ms + ms;
        while self.now_ms < until {
            self.now_ms = (self.now_ms + 50).min(until);
            self.jobs.on_tick(self.now_ms);
            self.settle();
            for connection in alive {
                if self.open.contains(connection) {
                    self.say(*connection, ClientMessage::Alive { sequence: 0 });
                }
            }
        }
    }

    pub fn failure(&self, connection: ConnectionId) -> (&str, Option<u32>) {
        let told = &self.told[&connection];
        let failed = told.failed().unwrap_or_else(|| panic!("{connection:?} has not failed: {told:?}"));
        assert!(told.closed);
        (&failed.text, failed.suspect_rank)
    }
}
