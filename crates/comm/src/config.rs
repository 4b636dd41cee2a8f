//! Who takes part, where the ranks meet, and how long they wait: given by the caller or read from the environment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fanin_channel::{ClientTls, Identity};
use fanin_control::{OPERATORS_BYTES_MAX, OPERATORS_MAX, Token, WORLD_MAX};
use fanin_core::{CollectiveKind, ReproducibleBy, units};
use fanin_net::FaultPlan;
use fanin_net::shm::Waiting;
use fanin_operator::CustomOperator;
use fanin_systems::System;
use fanin_terminal::lines::Lines;

use crate::lock::locked;
pub use crate::variables::VARIABLES;
use crate::variables::{self, Misspelt, environment};

mod error;

pub use error::ConfigError;

/// Where the ranks of a job meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Meeting {
    /// At a switch (`fanin switch`), `HOST:PORT`.
    Switch(String),
    /// At rank 0, which runs a switch in its own process and listens on `HOST:PORT`.
    Rendezvous(String),
    /// At the manager of a fabric of several switches (`fanin manager`), `HOST:PORT`: every rank is on a host of the fabric.
    Fabric(String),
    /// Nowhere: there is only one rank.
    Nowhere,
}

/// How vectors travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Transport {
    /// Through shared memory where all ranks are on one host, and over UDP otherwise.
    #[default]
    Auto,
    /// Over UDP, also on one host.
    Udp,
    /// Through shared memory; it is an error where that is not possible.
    Memory,
}

/// How sparse vectors are reduced where ranks do not share memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SparsePath {
    /// By the switch where that saves bytes worth mentioning, and as lists or as a dense vector otherwise.
    #[default]
    Auto,
    /// By the switch wherever it can.
    Switch,
    /// Never by the switch.
    Lists,
}

/// What becomes of a job whose switches do not take it, or are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallback {
    /// It goes on by a ring of the hosts, and a notice says why.
    Ring,
    /// It fails.
    Error,
}

/// Takes what the user should know while a communicator waits: who is missing, why nothing moves.
///
/// It is called in a thread of its own. Where it takes long, as one that writes to a pipe that nobody reads, it holds nothing up: what is to be
/// told while it is still busy is lost.
#[derive(Clone)]
pub struct Notices {
    tell: Arc<dyn Fn(&str) + Send + Sync>,
    is_busy: Arc<AtomicBool>,
}

/// How long whoever has a notice waits for it to be told, so that notices come before what they announce.
const TELL_LIMIT: Duration = Duration::from_secs(1);

/// Says that nothing is being told any more, also where that has panicked.
struct Told(Arc<AtomicBool>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Notices {
    /// Calls `tell` for every notice.
    pub fn to(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Notices { tell: Arc::new(tell), is_busy: Arc::default() }
    }

    pub(crate) fn tell(&self, text: &str) {
        if self.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let (told, tell, text) = (Told(self.is_busy.clone()), self.tell.clone(), text.to_owned());
        let (done, wait) = channel::<()>();
        let run = move || {
            tell(&text);
            drop((told, done));
        };
        // Without a thread it is lost. Nothing is ever sent: that the sender is gone says that it is done.
        if thread::Builder::new().name("fanin-notice".into()).spawn(run).is_ok() {
            let _ = wait.recv_timeout(TELL_LIMIT);
        }
    }
}

impl Default for Notices {
    /// To standard error, a line each. Whoever tells something does not wait for a reader of these lines, and is not ended where there is none.
    fn default() -> Self {
        Notices::to(|text| Lines::stderr().say(format!("fanin: {text}\n")))
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notices")
    }
}

/// Asks whether the user has had enough of waiting. Asked by the thread that waits, about every 50 ms, for as long as it does.
#[derive(Clone, Default)]
pub struct Interrupt(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Interrupt {
    /// Waiting ends, and with it the job, once `asked` is true.
    pub fn when(asked: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Interrupt(Some(Arc::new(asked)))
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.0.as_ref().is_some_and(|asked| asked())
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}

/// What is longer is as good as for ever: a hundred years, which clocks can still add.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How often it is asked whether to go on waiting.
pub(crate) const INTERRUPT_LOOK: Duration = Duration::from_millis(50);

/// Why a job ends whose user does not want to wait any more.
pub(crate) const INTERRUPTED: &str = "interrupted by its user";

/// The shortest time that is waited for anybody.
const TIMEOUT_MIN: Duration = Duration::from_millis(10);

/// What a communicator is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// This rank.
    pub rank: u32,
    /// How many ranks there are.
    pub world: u32,
    /// The job's name: ranks that give the same one at the same meeting place belong together.
    pub job: String,
    /// Where the ranks meet.
    pub meeting: Meeting,
    /// How long to wait for other ranks or the switch, when joining and whenever nothing moves.
    pub timeout: Duration,
    /// After how long without progress to find out and tell why.
    pub stall_notice: Duration,
    /// How vectors travel.
    pub transport: Transport,
    /// How to wait for other ranks.
    pub waiting: Waiting,
    /// The local address to send from; by default the one that leads to the switch.
    pub bind: Option<IpAddr>,
    /// Bytes of elements in a packet; by default what the path carries.
    pub payload_bytes: Option<u32>,
    /// Packets under way; by default the switch chooses.
    pub window: Option<u32>,
    /// Sum binary32 floats as block fixed point, as hardware switches do (UDP only).
    pub fixed_point: bool,
    /// Reduce floats so that the bits of the result do not depend on the order: on who comes first, on how many switches there are, on the
    /// path, on restarts. What they do depend on: on the element at all ranks and on nothing else ([`ReproducibleBy::Element`]), or also on
    /// the block of 256 elements where it stands, whose largest one sums are exact relative to ([`ReproducibleBy::Block`]). The same at all
    /// ranks; see [`OrderFree`](fanin_core::OrderFree) for how, and for how exact it is.
    pub reproducible: Option<ReproducibleBy>,
    /// How sparse vectors are reduced; the same at all ranks.
    pub sparse: SparsePath,
    /// Operators that the job brings along, the same at all ranks and in the same order: [`Communicator::operator`](crate::Communicator::operator).
    pub operators: Vec<CustomOperator>,
    /// The system that sums. In a fabric by default the one that this version takes for the best. At one switch SwitchML or, where it is asked for,
    /// Canary or one tree: reductions have jobs of their own there, and all else is SwitchML's.
    pub system: Option<System>,
    /// What becomes of a job whose switch, or fabric, does not take it or is gone; the same at all ranks. Hosts go on by themselves where it
    /// is not said.
    pub fallback: Option<Fallback>,
    /// The host of the fabric that this process is; by default the one at its address.
    pub fabric_host: Option<String>,
    /// What gives this rank the right to join, where the switch asks for it: a token, or `@` and the file that it is read from at each join.
    pub token: Option<Token>,
    /// By what the switch is known to which control connections go by TLS; without it they go as they are. Where rank 0 runs the switch, every rank
    /// is known by the same, and has an identity.
    pub tls: Option<ClientTls>,
    /// Injected faults of what this rank sends by UDP, and the switch if it runs in this process: for tests and demonstrations.
    pub faults: FaultPlan,
    /// Where notices go.
    pub notices: Notices,
    /// Ends waiting, when joining and in calls.
    pub interrupt: Interrupt,
    /// Variables of the environment that begin with `FANIN_` and that nothing reads: the user is told, once.
    pub unread: Vec<String>,
}

/// How long names may be of communicators that have more than one job at a switch, which add at most 48 bytes.
const JOB_BYTES_BESIDE: usize = 80;

/// Variables that say where ranks meet.
const MEETING: &[&str] = &["FANIN_SWITCH", "FANIN_FABRIC", "FANIN_RENDEZVOUS", "MASTER_ADDR", "MASTER_PORT"];

impl Config {
    /// Defaults for rank `rank` of `world`.
    pub fn new(rank: u32, world: u32, meeting: Meeting) -> Self {
        Config {
            rank,
            world,
            job: "default".into(),
            meeting,
            timeout: Duration::from_secs(60),
            stall_notice: Duration::from_secs(5),
            transport: Transport::Auto,
            waiting: Waiting::Adaptive,
            bind: None,
            payload_bytes: None,
            window: None,
            fixed_point: false,
            reproducible: None,
            sparse: SparsePath::Auto,
            operators: Vec::new(),
            system: None,
            fallback: None,
            fabric_host: None,
            token: None,
            tls: None,
            faults: FaultPlan::default(),
            notices: Notices::default(),
            interrupt: Interrupt::default(),
            unread: Vec::new(),
        }
    }

    /// Reads the environment: `FANIN_*` ([`VARIABLES`]), and where these are missing the variables of torchrun and of Open MPI's mpirun.
    ///
    /// # Errors
    /// [`ConfigError`] names the variable, its value and what was expected.
    pub fn from_env() -> Result<Self, ConfigError> {
        Config::from_variables(|name| std::env::var(name).ok())?.with_unread_of(environment())
    }

    /// As [`Config::from_env`], by settings with the names of variables, and behind them the environment where `environment`. Settings that say where
    /// ranks meet make variables void that do.
    ///
    /// # Errors
    /// As [`Config::from_env`].
    pub fn from_settings(given: &BTreeMap<&'static str, String>, environment: bool) -> Result<Self, ConfigError> {
        let meets = MEETING.iter().any(|variable| given.contains_key(variable));
        let variable = |name: &str| match given.get(name) {
            Some(value) => Some(value.clone()),
            None if environment && !(meets && MEETING.contains(&name)) => std::env::var(name).ok(),
            None => None,
        };
        let names = environment.then(variables::environment).into_iter().flatten();
        Config::from_variables(variable)?.with_unread_of(names)
    }

    /// Looks through the names of variables for those that begin with `FANIN_` and that nothing reads ([`Config::unread`]).
    ///
    /// # Errors
    /// [`ConfigError::Misspelt`] for a name that is nearly one of [`VARIABLES`].
    pub fn with_unread_of(mut self, names: impl Iterator<Item = String>) -> Result<Self, ConfigError> {
        self.unread = variables::unread(names).map_err(|Misspelt { name, meant }| ConfigError::Misspelt { name, meant })?;
        Ok(self)
    }

    /// Tells the user of variables that nothing reads, of each once.
    pub(crate) fn tell_unread(&self) {
        static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
        let mut told = locked(&TOLD);
        for name in &self.unread {
            if told.insert(name.clone()) {
                self.notices.tell(&format!("{name} is set, which nothing reads"));
            }
        }
    }

    /// The host of where ranks meet, as it was given: a name or an address.
    pub(crate) fn host(&self) -> &str {
        let text = match &self.meeting {
            Meeting::Switch(text) | Meeting::Rendezvous(text) | Meeting::Fabric(text) => text.as_str(),
            Meeting::Nowhere => "",
        };
        text.rsplit_once(':').map_or(text, |(host, _)| host)
    }

    /// The name that the certificate of whoever ranks meet at must have: `FANIN_TLS_NAME`, or the host of where they meet.
    pub fn known_as(&self) -> String {
        self.tls.as_ref().and_then(|tls| tls.name.clone()).unwrap_or_else(|| self.host().to_owned())
    }

    /// As [`Config::from_env`], from anything that knows variables.
    ///
    /// # Errors
    /// As [`Config::from_env`].
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let first = |names: &[&'static str]| names.iter().find_map(|&name| Some((name, get(name).filter(|value| !value.is_empty())?)));
        let rank = first(&["FANIN_RANK", "RANK", "OMPI_COMM_WORLD_RANK"]);
        let world = first(&["FANIN_WORLD", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"]);
        let (rank, world) = match (rank, world) {
            (None, None) => (0, 1),
            (Some((name, value)), Some((world_name, world_value))) => {
                (number(name, &value, "a rank: 0, 1, 2, ...")?, number(world_name, &world_value, "a number of ranks")?)
            }
            (Some((name, _)), None) => return Err(ConfigError::missing("FANIN_WORLD", name)),
            (None, Some((name, _))) => return Err(ConfigError::missing("FANIN_RANK", name)),
        };
        let mut config = Config::new(rank, world, Meeting::Nowhere);
        config.meeting = meeting(&first, world)?;
        if let Some((_, job)) = first(&["FANIN_JOB", "TORCHELASTIC_RUN_ID"]) {
            config.job = job;
        }
        if let Some((name, value)) = first(&["FANIN_TIMEOUT"]) {
            config.timeout = time(name, &value)?;
        }
        if let Some((name, value)) = first(&["FANIN_STALL_NOTICE"]) {
            config.stall_notice = time(name, &value)?;
        }
        if let Some((name, value)) = first(&["FANIN_TRANSPORT"]) {
            config.transport = choose(name, &value, &[("auto", Transport::Auto), ("udp", Transport::Udp), ("shm", Transport::Memory)])?;
        }
        if let Some((name, value)) = first(&["FANIN_WAIT"]) {
            config.waiting = choose(name, &value, &[("adaptive", Waiting::Adaptive), ("busy", Waiting::Busy)])?;
        }
        if let Some((name, value)) = first(&["FANIN_BIND"]) {
            config.bind = Some(number(name, &value, "an IP address of this host")?);
        }
        if let Some((name, value)) = first(&["FANIN_PAYLOAD"]) {
            config.payload_bytes = Some(bytes(name, &value)?);
        }
        if let Some((name, value)) = first(&["FANIN_WINDOW"]) {
            config.window = Some(number(name, &value, "a number of packets")?);
        }
        if let Some((name, value)) = first(&["FANIN_FIXED_POINT"]) {
            config.fixed_point = choose(name, &value, &[("0", false), ("1", true)])?;
        }
        if let Some((name, value)) = first(&["FANIN_REPRODUCIBLE"]) {
            let by = [ReproducibleBy::Element, ReproducibleBy::Block, ReproducibleBy::Tree].map(|by| (by.name(), Some(by)));
            config.reproducible = choose(name, &value, &[&[("0", None), ("1", Some(ReproducibleBy::Element))][..], &by[..]].concat())?;
        }
        if let Some((name, value)) = first(&["FANIN_SPARSE"]) {
            let choices = [("auto", SparsePath::Auto), ("switch", SparsePath::Switch), ("lists", SparsePath::Lists)];
            config.sparse = choose(name, &value, &choices)?;
        }
        if let Some((name, value)) = first(&["FANIN_SYSTEM"]) {
            config.system = Config::asked_system(name, &value)?;
        }
        if let Some((name, value)) = first(&["FANIN_FALLBACK"]) {
            config.fallback = Some(choose(name, &value, &[("ring", Fallback::Ring), ("error", Fallback::Error)])?);
        }
        config.fabric_host = first(&["FANIN_FABRIC_HOST"]).map(|(_, value)| value);
        config.token = first(&["FANIN_TOKEN"]).map(|(_, value)| Token(value.trim().to_owned()));
        config.tls = tls(&first)?;
        config.check()?;
        Ok(config)
    }

    /// The system of this name as ranks in a fabric run it; `None` where there is none.
    pub fn system_named(name: &str) -> Option<System> {
        let system = System::all().into_iter().find(|system| system.name() == name)?;
        // Flare's dense sums are those of a static tree (`flare 4.3`), which a job of its is beside jobs of pairs.
        let sums_dense = system.sparsity().is_none() || matches!(system, System::Flare(_));
        (sums_dense && system.offers(CollectiveKind::Allreduce)).then(|| system.for_software())
    }

    /// A system by its name, or `auto`.
    fn asked_system(what: &'static str, name: &str) -> Result<Option<System>, ConfigError> {
        if name == "auto" {
            return Ok(None);
        }
        Config::system_named(name).map(Some).ok_or_else(|| {
            let names = System::names_of("or", |system| Config::system_named(system.name()).is_some());
            ConfigError::Value { what, value: name.into(), expected: format!("auto, or a system that sums dense vectors: {names}") }
        })
    }

    /// Whether a system that is asked for is one of those that one switch reduces by, and what goes with it.
    fn check_at_switch(&self) -> Result<(), ConfigError> {
        let Some(system) = &self.system else { return Ok(()) };
        let name = system.name();
        let wrong = |what, value, expected| Err(ConfigError::Value { what, value, expected });
        if !is_at_switch(system) {
            let names = System::names_of("or", |system| Config::system_named(system.name()).is_some_and(|system| is_at_switch(&system)));
            return wrong("system", name.into(), format!("auto, {names} without a fabric (FANIN_FABRIC): what one switch reduces by"));
        }
        if self.transport == Transport::Memory {
            return wrong("transport", "shm".into(), format!("auto or udp where a switch reduces by {name} (FANIN_SYSTEM)"));
        }
        if self.system_beside().is_none() {
            return Ok(());
        }
        if self.fixed_point {
            return wrong("fixed_point", "true".into(), format!("false with {name}: at one switch, switchml alone has block fixed point"));
        }
        if self.job.len() > JOB_BYTES_BESIDE {
            let expected = format!("at most {JOB_BYTES_BESIDE} bytes with {name}, whose jobs have longer names");
            return wrong("job", format!("{:?}", self.job), expected);
        }
        Ok(())
    }

    /// The system that reduces at one switch in jobs of its own, beside the communicator's own job; none in a fabric, or where that job does all.
    pub(crate) fn system_beside(&self) -> Option<System> {
        let at_switch = matches!(self.meeting, Meeting::Switch(_) | Meeting::Rendezvous(_));
        self.system.filter(|system| at_switch && !matches!(system, System::SwitchMl(_)))
    }

    /// Whether switches of a fabric sum pairs of sparse vectors, and by operators that the job brings along.
    pub(crate) fn is_flare(&self) -> bool {
        matches!(self.system, Some(System::Flare(_)))
    }

    /// Whether floats are summed in the order that the tree of a fabric's switches has.
    pub(crate) fn sums_by_tree(&self) -> bool {
        self.reproducible == Some(ReproducibleBy::Tree)
    }

    /// Whether ranks can wait so long for one another.
    pub(crate) fn check_timeout(what: &'static str, time: Duration) -> Result<(), ConfigError> {
        if is_timeout(time) {
            return Ok(());
        }
        Err(ConfigError::Value { what, value: time.as_secs_f64().to_string(), expected: timeouts() })
    }

    /// A rank that is to run a switch for others has nothing to be known by.
    pub(crate) fn no_identity() -> ConfigError {
        let expected =
            "a certificate and its key (FANIN_TLS_CERT, FANIN_TLS_KEY): rank 0 runs the switch, and ranks know each other by theirs";
        ConfigError::Value { what: "tls_cert", value: "none".into(), expected: expected.into() }
    }

    /// Whether somebody is to look who joins, and so not anybody may take the switch's place.
    pub(crate) fn is_guarded(&self) -> bool {
        self.token.is_some() || self.tls.is_some()
    }

    /// Whether the files of certificates can be read, and are there where they are needed.
    fn check_tls(&self) -> Result<(), ConfigError> {
        let Some(tls) = &self.tls else { return Ok(()) };
        if tls.identity.is_none() && matches!(self.meeting, Meeting::Rendezvous(_)) {
            return Err(Config::no_identity());
        }
        let wrong = |expected| ConfigError::Value { what: "tls", value: tls.trusted.to_string(), expected };
        if let Some(name) = &tls.name {
            tls.server_name(name).map_err(wrong)?;
        }
        tls.config().map(drop).map_err(|error| wrong(format!("files that can be read ({error})")))
    }

    /// Whether the values make sense together.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |what: &'static str, value: String, expected: String| Err(ConfigError::Value { what, value, expected });
        if !(1..=WORLD_MAX).contains(&self.world) {
            return wrong("world", self.world.to_string(), format!("1 to {WORLD_MAX} ranks"));
        }
        if self.rank >= self.world {
            return wrong("rank", self.rank.to_string(), format!("0 to {} in a world of {}", self.world - 1, self.world));
        }
        if self.world > 1 && self.meeting == Meeting::Nowhere {
            return Err(ConfigError::NoMeeting { world: self.world });
        }
        if self.job.is_empty() || self.job.len() > 128 || self.job.chars().any(char::is_control) {
            return wrong("job", format!("{:?}", self.job), "a name of 1 to 128 printable characters".into());
        }
        Config::check_timeout("timeout", self.timeout)?;
        if let Some(path) = self.token.as_ref().and_then(|token| token.0.strip_prefix('@'))
            && let Err(error) = std::fs::read_to_string(path)
        {
            return wrong("token", format!("@{path}"), format!("a token, or `@` and a file that can be read ({error})"));
        }
        self.check_tls()?;
        if self.operators.len() > OPERATORS_MAX {
            return wrong("operators", format!("{} of them", self.operators.len()), format!("at most {OPERATORS_MAX}"));
        }
        let bytes: usize = self.operators.iter().map(|operator| operator.module().len()).sum();
        if bytes > OPERATORS_BYTES_MAX {
            return wrong("operators", format!("{bytes} bytes of modules"), format!("at most {OPERATORS_BYTES_MAX}"));
        }
        if self.fixed_point && self.transport == Transport::Memory {
            return wrong("fixed_point", "true".into(), "false with shared memory, where floats are summed as floats".into());
        }
        if !matches!(self.meeting, Meeting::Fabric(_)) {
            self.check_at_switch()?;
            if let Some(fallback) = self.fallback.filter(|_| !matches!(self.meeting, Meeting::Switch(_))) {
                let value = if fallback == Fallback::Ring { "ring" } else { "error" };
                return wrong("fallback", value.into(), "none without a switch (FANIN_SWITCH) or a fabric (FANIN_FABRIC)".into());
            }
            if let Some(host) = &self.fabric_host {
                return wrong("fabric_host", host.clone(), "none without a fabric (FANIN_FABRIC)".into());
            }
        } else {
            if self.transport == Transport::Memory {
                return wrong("transport", "shm".into(), "auto or udp in a fabric, where memory is shared within hosts".into());
            }
            if self.fixed_point {
                return wrong("fixed_point", "true".into(), "false in a fabric: its switches add floats".into());
            }
            if self.sparse == SparsePath::Switch && !self.is_flare() {
                let expected = "auto or lists in a fabric, unless its switches sum by flare (FANIN_SYSTEM=flare)";
                return wrong("sparse", "switch".into(), expected.into());
            }
            if let Some(bind) = self.bind {
                return wrong("bind", bind.to_string(), "none in a fabric: the fabric's file has the addresses of hosts".into());
            }
        }
        if self.reproducible == Some(ReproducibleBy::Tree) {
            let adds_in_order = matches!(self.system, Some(System::Flare(_) | System::Tree(_)));
            if !matches!(self.meeting, Meeting::Fabric(_)) || !adds_in_order {
                let expected =
                    "element or block, unless switches of a fabric add in a fixed order (FANIN_FABRIC with FANIN_SYSTEM=flare or tree)";
                return wrong("reproducible", "tree".into(), expected.into());
            }
            if self.fallback == Some(Fallback::Ring) {
                let expected =
                    "error, or none, where sums are those of the switches' tree: hosts add in another order (FANIN_REPRODUCIBLE=tree)";
                return wrong("fallback", "ring".into(), expected.into());
            }
        }
        if self.fixed_point && self.reproducible.is_some() {
            return wrong("fixed_point", "true".into(), "false where sums are reproducible: these are integers already".into());
        }
        Ok(())
    }
}

/// By what a switch is known, where variables say that.
///
/// # Errors
/// [`ConfigError`] for one that makes no sense, or that is there without another.
pub(crate) fn tls_of(get: impl Fn(&str) -> Option<String>) -> Result<Option<ClientTls>, ConfigError> {
    tls(&|names: &[&'static str]| names.iter().find_map(|&name| Some((name, get(name).filter(|value| !value.is_empty())?))))
}

fn tls(first: &impl Fn(&[&'static str]) -> Option<(&'static str, String)>) -> Result<Option<ClientTls>, ConfigError> {
    let identity = match (first(&["FANIN_TLS_CERT"]), first(&["FANIN_TLS_KEY"])) {
        (Some((_, certificate)), Some((_, key))) => Some(Identity { certificate: certificate.into(), key: key.into() }),
        (Some((set, _)), None) => return Err(ConfigError::missing("FANIN_TLS_KEY", set)),
        (None, Some((set, _))) => return Err(ConfigError::missing("FANIN_TLS_CERT", set)),
        (None, None) => None,
    };
    let name = first(&["FANIN_TLS_NAME"]);
    let Some((what, value)) = first(&["FANIN_TLS"]) else {
        // What is said of TLS is never passed over in silence.
        let set = name.map(|(set, _)| set).or(identity.map(|_| "FANIN_TLS_CERT"));
        return set.map_or(Ok(None), |set| Err(ConfigError::missing("FANIN_TLS", set)));
    };
    let trusted = value.parse().map_err(|expected| ConfigError::Value { what, value, expected })?;
    Ok(Some(ClientTls { trusted, name: name.map(|(_, name)| name), identity }))
}

/// Whether communicators at one switch may ask for a system.
fn is_at_switch(system: &System) -> bool {
    matches!(system, System::SwitchMl(_) | System::Tree(_) | System::Canary(_) | System::Atp(_) | System::A2tp(_))
}

fn meeting(first: &impl Fn(&[&'static str]) -> Option<(&'static str, String)>, world: u32) -> Result<Meeting, ConfigError> {
    let address = |name: &'static str, value: String| match value.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(value),
        _ => Err(ConfigError::Value { what: name, value, expected: "HOST:PORT".into() }),
    };
    if let Some((name, value)) = first(&["FANIN_FABRIC"]) {
        if let Some((other, place)) = first(&["FANIN_SWITCH", "FANIN_RENDEZVOUS"]) {
            let expected = "none beside FANIN_FABRIC: ranks meet at one place".into();
            return Err(ConfigError::Value { what: other, value: place, expected });
        }
        return Ok(Meeting::Fabric(address(name, value)?));
    }
    if let Some((name, value)) = first(&["FANIN_SWITCH"]) {
        return Ok(Meeting::Switch(address(name, value)?));
    }
    if let Some((name, value)) = first(&["FANIN_RENDEZVOUS"]) {
        return Ok(Meeting::Rendezvous(address(name, value)?));
    }
    if let (Some((_, host)), Some((name, port))) = (first(&["MASTER_ADDR"]), first(&["MASTER_PORT"])) {
        // The port itself is taken by torchrun's own store.
        let port: u16 = number(name, &port, "a port")?;
        let port = port.checked_add(1).ok_or_else(|| ConfigError::Value {
            what: name,
            value: port.to_string(),
            expected: "below 65535".into(),
        })?;
        return Ok(Meeting::Rendezvous(format!("{host}:{port}")));
    }
    if world > 1 { Err(ConfigError::NoMeeting { world }) } else { Ok(Meeting::Nowhere) }
}

fn number<T: FromStr>(what: &'static str, value: &str, expected: &str) -> Result<T, ConfigError> {
    value.trim().parse().map_err(|_| ConfigError::Value { what, value: value.into(), expected: expected.into() })
}

fn time(what: &'static str, value: &str) -> Result<Duration, ConfigError> {
    let read = units::time_or_seconds(value).map(|time| Duration::from_nanos(time.as_ps() / 1_000));
    read.filter(|time| *time >= TIMEOUT_MIN).ok_or_else(|| {
        let expected = format!("{} of at least 10ms; a bare number is seconds", units::TIME_EXPECTED);
        ConfigError::Value { what, value: value.into(), expected }
    })
}

/// A number of bytes that fits into a packet, as far as that is known here.
fn bytes(what: &'static str, value: &str) -> Result<u32, ConfigError> {
    units::bytes_of(value).and_then(|bytes| u32::try_from(bytes).ok()).ok_or_else(|| ConfigError::Value {
        what,
        value: value.into(),
        expected: units::BYTES_EXPECTED.into(),
    })
}

fn is_timeout(time: Duration) -> bool {
    (TIMEOUT_MIN..=TIMEOUT_MAX).contains(&time)
}

fn timeouts() -> String {
    format!("seconds, {} to {}", TIMEOUT_MIN.as_secs_f64(), TIMEOUT_MAX.as_secs())
}

fn choose<T: Copy>(what: &'static str, value: &str, choices: &[(&str, T)]) -> Result<T, ConfigError> {
    choices.iter().find(|(name, _)| *name == value).map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        ConfigError::Value { what, value: value.into(), expected: names.join(" or ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::from_variables(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_string()))
    }

    #[test]
    fn a_misspelt_variable_is_named_with_the_one_that_is_meant() {
        let config = Config::new(0, 1, Meeting::Nowhere);
        let error = config.with_unread_of(["FANIN_SWTICH".to_string()].into_iter()).unwrap_err();
        assert_eq!(error, ConfigError::Misspelt { name: "FANIN_SWTICH".into(), meant: "FANIN_SWITCH" });
        assert_eq!(error.to_string(), "FANIN_SWTICH is set, which nothing reads: is FANIN_SWITCH meant?");
    }

    #[test]
    fn without_any_variable_there_is_one_rank() {
        let config = read(&[]).unwrap();
        assert_eq!((config.rank, config.world, config.meeting), (0, 1, Meeting::Nowhere));
    }

    #[test]
    fn torchrun_is_understood_and_fanins_own_variables_win() {
        let torchrun = [("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "h0"), ("MASTER_PORT", "29500"), ("TORCHELASTIC_RUN_ID", "r7")];
        let config = read(&torchrun).unwrap();
        assert_eq!((config.rank, config.world, config.job.as_str()), (1, 4, "r7"));
        assert_eq!(config.meeting, Meeting::Rendezvous("h0:29501".into()));
        let own = [&torchrun[..], &[("FANIN_RANK", "2"), ("FANIN_SWITCH", "s:7000"), ("FANIN_TRANSPORT", "udp"), ("FANIN_TIMEOUT", "1.5")]];
        let config = read(&own.concat()).unwrap();
        assert_eq!((config.rank, config.meeting), (2, Meeting::Switch("s:7000".into())));
        assert_eq!((config.transport, config.timeout), (Transport::Udp, Duration::from_millis(1_500)));
    }

    #[test]
    fn whoever_does_not_read_notices_holds_nothing_up() {
        let (go_on, wait) = channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let notices = Notices::to(move |_| {
            let _ = wait.lock().unwrap().recv();
        });
        // These come back although nobody reads.
        (0..100).for_each(|_| notices.tell("nothing moves"));
        drop(go_on);
        while notices.is_busy.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let panics = Notices::to(|_| panic!("the user's own bug"));
        panics.tell("one");
        panics.tell("two");
        assert!(!panics.is_busy.load(Ordering::Acquire));
    }

    #[test]
    fn times_and_sizes_are_written_as_everywhere() {
        for (text, ms) in
            [("5", 5_000), ("0.5", 500), ("5s", 5_000), ("300ms", 300), ("2h", 7_200_000), (" 1.5 s ", 1_500), ("1e3", 1_000_000)]
        {
            let config = read(&[("FANIN_TIMEOUT", text), ("FANIN_STALL_NOTICE", text)]).unwrap();
            assert_eq!((config.timeout.as_millis(), config.stall_notice), (ms, config.timeout), "{text}");
        }
        assert_eq!(read(&[("FANIN_PAYLOAD", "8KiB")]).unwrap().payload_bytes, Some(8_192));
        assert_eq!(read(&[("FANIN_PAYLOAD", "8192")]).unwrap().payload_bytes, Some(8_192));
        assert!(read(&[("FANIN_TIMEOUT", "1e300")]).unwrap().timeout > Duration::from_hours(24 * 200), "as long as can be told");
    }

    #[test]
    fn reproducible_sums_are_asked_for_by_name() {
        let read_one = |value| read(&[("FANIN_REPRODUCIBLE", value)]);
        assert_eq!(read(&[]).unwrap().reproducible, None);
        let (element, block) = (Some(ReproducibleBy::Element), Some(ReproducibleBy::Block));
        for (value, expected) in [("0", None), ("1", element), ("element", element), ("block", block)] {
            assert_eq!(read_one(value).unwrap().reproducible, expected, "{value}");
        }
        let wrong = read_one("yes").unwrap_err().to_string();
        assert_eq!(wrong, "FANIN_REPRODUCIBLE = yes: expected 0 or 1 or element or block or tree");
        let both = read(&[("FANIN_REPRODUCIBLE", "1"), ("FANIN_FIXED_POINT", "1")]).unwrap_err().to_string();
        assert!(both.starts_with("fixed_point = true: expected false where sums are reproducible"), "{both}");
    }

    #[test]
    fn wrong_values_are_named_with_what_was_expected() {
        let world = [("FANIN_RANK", "0"), ("FANIN_WORLD", "2"), ("FANIN_SWITCH", "s:1")];
        for (variable, expected) in [
            (("FANIN_RANK", "x"), "FANIN_RANK = x: expected a rank"),
            (("FANIN_RANK", "2"), "rank = 2: expected 0 to 1"),
            (("FANIN_SWITCH", "s"), "FANIN_SWITCH = s: expected HOST:PORT"),
            (("FANIN_TRANSPORT", "rdma"), "FANIN_TRANSPORT = rdma: expected auto or udp or shm"),
            (("FANIN_SPARSE", "hash"), "FANIN_SPARSE = hash: expected auto or switch or lists"),
            (
                ("FANIN_TIMEOUT", "-1"),
                "FANIN_TIMEOUT = -1: expected a time, such as \"300ns\", \"1.5us\", \"10ms\" or \"2s\" of at least 10ms; a bare",
            ),
            (("FANIN_TIMEOUT", "5 parsecs"), "FANIN_TIMEOUT = 5 parsecs: expected a time"),
            (("FANIN_STALL_NOTICE", "9ms"), "FANIN_STALL_NOTICE = 9ms: expected a time"),
            (("FANIN_PAYLOAD", "1024 bits"), "FANIN_PAYLOAD = 1024 bits: expected bytes, such as 1024"),
            (("FANIN_BIND", "eth0"), "FANIN_BIND = eth0: expected an IP address"),
            (("FANIN_WORLD", "5000"), "world = 5000: expected 1 to 1024"),
        ] {
            let mut variables: Vec<_> = world.into_iter().filter(|(name, _)| *name != variable.0).collect();
            variables.push(variable);
            let error = read(&variables).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        assert_eq!(read(&[("RANK", "0")]).unwrap_err().to_string(), "FANIN_WORLD is not set, but RANK is");
        let error = read(&[("RANK", "0"), ("WORLD_SIZE", "2")]).unwrap_err().to_string();
        assert!(error.contains("FANIN_RENDEZVOUS"), "{error}");
    }
}
