//! The programs, loaded, and the maps that they share with this process.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Mutex;
use std::time::Duration;

use fanin_core::ReplayWindow;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, ProgramInput, libbpf_sys};

use crate::job::{Refused, XdpJob, XdpSystem};
use crate::layout::{
    CLOCK, CLOCK_ENTRIES, CLOCK_NOW, CLOCK_PLACE, COUNTS, EMPTY, JOB, JOB_HANDED_OVER, JOB_HERE, JOBS_MAX, MEMBER, RANK, RANKS_MAX,
    VERSION, VERSIONS_MAX, WINDOW,
};
use crate::taken::{Numbers, Taken, TakenVersion, XdpCounts, XdpRankCounts};

/// Of clang's making: see `build.rs`.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/switch.bpf.o"));

/// Why programs are not loaded, or not attached.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}{hint}")]
pub struct KernelError {
    what: String,
    error: String,
    hint: &'static str,
}

impl KernelError {
    fn of(what: impl Into<String>, error: &libbpf_rs::Error) -> Self {
        let hint = match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => ": it needs CAP_BPF and CAP_NET_ADMIN, and CAP_PERFMON, or root",
            libbpf_rs::ErrorKind::NotFound => ": Linux 5.18 or later is needed",
            _ => "",
        };
        KernelError { what: what.into(), error: format!("{error:#}"), hint }
    }
}

/// What the program decides about a frame, and how the frame looks then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestRun {
    /// `XDP_DROP` is 1, `XDP_PASS` 2, `XDP_TX` 3, `XDP_REDIRECT` 4.
    pub action: u32,
    /// The frame.
    pub frame: Vec<u8>,
    /// Time that a run took, on average.
    pub duration: Duration,
}

/// Which versions and places are taken.
#[derive(Debug)]
struct Places {
    /// By place: the first version and how many, where a job is there; the port and members to be forgotten with it.
    jobs: Vec<Option<Place>>,
    /// By place: where results go. Such a map is made for a place's first job and stays, since to put one into another map waits until all
    /// programs have ended, tens of milliseconds.
    targets: Vec<Option<MapHandle>>,
}

#[derive(Clone, Debug)]
struct Place {
    first: u32,
    count: u32,
    system: XdpSystem,
    shares: bool,
    port: u16,
    members: Vec<Vec<u8>>,
    behind: Vec<u64>,
    ranks: usize,
}

impl Places {
    /// A place for a job and room for its versions, both the lowest that are free. Jobs that share aggregators have the same.
    fn find(&self, job: &XdpJob) -> Result<(usize, u32), Refused> {
        let place = self.jobs.iter().position(Option::is_none).ok_or(Refused::Jobs)?;
        let needed = job.versions();
        let shares = |entry: &&Place| entry.shares && job.atp.is_some() && entry.count == needed;
        if let Some(entry) = self.jobs.iter().flatten().find(shares) {
            return Ok((place, entry.first));
        }
        let mut used: Vec<(u32, u32)> = self.jobs.iter().flatten().map(|job| (job.first, job.count)).collect();
        used.sort_unstable();
        let (mut from, mut free) = (0, 0);
        for (first, count) in used.into_iter().chain([(VERSIONS_MAX, 0)]) {
            if first.saturating_sub(from) >= needed {
                return Ok((place, from));
            }
            free = free.max(first.saturating_sub(from));
            from = from.max(first + count);
        }
        Err(job.too_many(free))
    }
}

/// The programs in the kernel. They are gone when this is dropped.
#[derive(Debug)]
pub struct Kernel {
    object: Object,
    links: Vec<Link>,
    ports: MapHandle,
    jobs: MapHandle,
    members: MapHandle,
    ranks: MapHandle,
    behind: MapHandle,
    targets: MapHandle,
    versions: MapHandle,
    counts: MapHandle,
    windows: MapHandle,
    clocks: MapHandle,
    exit: i32,
    places: Mutex<Places>,
}

impl Kernel {
    /// Loads the programs, and attaches them to nothing.
    ///
    /// # Errors
    /// What the kernel says, and what is needed.
    pub fn load() -> Result<Self, KernelError> {
        Kernel::load_object(OBJECT)
    }

    /// As [`Kernel::load`], programs that were compiled elsewhere from sources of this form: for tests of what tests find.
    ///
    /// # Errors
    /// As [`Kernel::load`].
    pub fn load_object(object: &[u8]) -> Result<Self, KernelError> {
        let load = || ObjectBuilder::default().name("fanin")?.open_memory(object)?.load();
        let object = load().map_err(|error| KernelError::of("cannot load the switch's program into the kernel", &error))?;
        let map = |name: &str| {
            let found = object.maps().find(|map| map.name() == name).expect("the program has this map");
            MapHandle::try_from(&found).map_err(|error| KernelError::of(format!("cannot open the map {name}"), &error))
        };
        let exit = object.progs().find(|program| program.name() == "fanin_exit").expect("there is one").as_fd().as_raw_fd();
        Ok(Kernel {
            ports: map("ports")?,
            jobs: map("jobs")?,
            members: map("members")?,
            ranks: map("ranks")?,
            behind: map("behind")?,
            targets: map("targets")?,
            versions: map("versions")?,
            counts: map("counts")?,
            windows: map("windows")?,
            clocks: map("clocks")?,
            exit,
            places: Mutex::new(Places { jobs: vec![None; JOBS_MAX as usize], targets: (0..JOBS_MAX).map(|_| None).collect() }),
            links: Vec::new(),
            object,
        })
    }

    /// Puts the program at the entrance of a device.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn attach(&mut self, name: &str, ifindex: u32) -> Result<(), KernelError> {
        let program = self.object.progs_mut().find(|program| program.name() == "fanin_switch").expect("there is one");
        let link = program.attach_xdp(ifindex as i32).map_err(|error| KernelError::of(format!("cannot attach to {name}"), &error))?;
        self.links.push(link);
        Ok(())
    }

    /// Takes a job; gives its place.
    ///
    /// # Errors
    /// Why it is not taken; nothing has changed then.
    pub fn open(&self, job: &XdpJob) -> Result<u32, Refused> {
        job.check()?;
        let mut places = self.places.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (place, first) = places.find(job)?;
        let shared = places.jobs.iter().flatten().any(|other| other.shares && other.first == first);
        let entry = Place {
            first,
            count: job.versions(),
            system: job.system,
            shares: job.atp.is_some(),
            port: job.port,
            members: (0..job.ranks.len()).map(|rank| member_of(place as u32, job, rank)).collect(),
            behind: devices_of(job).iter().map(|(ifindex, _)| (place as u64) << 32 | u64::from(*ifindex)).collect(),
            ranks: job.ranks.len(),
        };
        let written = self
            .targets_of(place as u32, &mut places.targets[place])
            .and_then(|targets| self.write(place as u32, (first, shared), job, targets));
        match written {
            Ok(()) => {
                places.jobs[place] = Some(entry);
                Ok(place as u32)
            }
            Err(error) => {
                self.forget(place as u32, &entry, places.targets[place].as_ref());
                Err(Refused::Kernel(format!("{error:#}")))
            }
        }
    }

    /// The map that says where results of a place's jobs go.
    fn targets_of<'a>(&self, place: u32, targets: &'a mut Option<MapHandle>) -> libbpf_rs::Result<&'a MapHandle> {
        if targets.is_none() {
            let options = libbpf_sys::bpf_map_create_opts {
                sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
                ..Default::default()
            };
            let map = MapHandle::create(MapType::Devmap, Some("fanin_targets"), 4, 8, RANKS_MAX, &options)?;
            self.targets.update(&place.to_ne_bytes(), &map.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)?;
            *targets = Some(map);
        }
        Ok(targets.as_ref().expect("there is one now"))
    }

    /// Writes what the program needs to know of a job; its port comes last.
    fn write(&self, place: u32, (first, is_shared): (u32, bool), job: &XdpJob, targets: &MapHandle) -> libbpf_rs::Result<()> {
        let nothing = vec![0; VERSION.bytes()];
        for version in first..if is_shared { first } else { first + job.versions() } {
            self.versions.update(&version.to_ne_bytes(), &nothing, MapFlags::ANY)?;
        }
        self.clocks.update(&place.to_ne_bytes(), &vec![0; CLOCK.bytes()], MapFlags::ANY)?;
        let processors = libbpf_rs::num_possible_cpus()?;
        self.counts.update_percpu(&place.to_ne_bytes(), &vec![vec![0; COUNTS.bytes()]; processors], MapFlags::ANY)?;
        for (number, rank) in job.ranks.iter().enumerate() {
            let number = number as u32;
            let at = place * RANKS_MAX + number;
            self.ranks.update(&at.to_ne_bytes(), &rank_of(job, number as usize), MapFlags::ANY)?;
            self.windows.update(&at.to_ne_bytes(), &vec![0; WINDOW.bytes()], MapFlags::ANY)?;
            self.members.update(&member_of(place, job, number as usize), &number.to_ne_bytes(), MapFlags::ANY)?;
            let target = [rank.ifindex.to_ne_bytes(), self.exit.to_ne_bytes()].concat();
            targets.update(&number.to_ne_bytes(), &target, MapFlags::ANY)?;
        }
        for (ifindex, ranks) in devices_of(job) {
            self.behind.update(&(u64::from(place) << 32 | u64::from(ifindex)).to_ne_bytes(), &ranks.to_ne_bytes(), MapFlags::ANY)?;
        }
        self.jobs.update(&place.to_ne_bytes(), &job_of(job, first), MapFlags::ANY)?;
        self.ports.update(&u32::from(job.port).to_ne_bytes(), &place.to_ne_bytes(), MapFlags::ANY)
    }

    /// Forgets a job: whatever comes for it goes up the stack.
    pub fn close(&self, place: u32) {
        let mut places = self.places.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(entry) = places.jobs.get_mut(place as usize).and_then(Option::take) {
            self.forget(place, &entry, places.targets[place as usize].as_ref());
        }
    }

    fn forget(&self, place: u32, entry: &Place, targets: Option<&MapHandle>) {
        // What is not there need not be forgotten.
        let _ = self.ports.delete(&u32::from(entry.port).to_ne_bytes());
        let _ = self.jobs.update(&place.to_ne_bytes(), &vec![0; JOB.bytes()], MapFlags::ANY);
        for rank in 0..entry.ranks as u32 {
            let _ = targets.map(|targets| targets.delete(&rank.to_ne_bytes()));
        }
        entry.members.iter().for_each(|member| drop(self.members.delete(member)));
        if entry.shares {
            self.dismiss(place, entry);
        }
        entry.behind.iter().for_each(|key| drop(self.behind.delete(&key.to_ne_bytes())));
    }

    /// What a job has of aggregators that others use as well is free.
    fn dismiss(&self, place: u32, entry: &Place) {
        for index in (entry.first..entry.first + entry.count).map(u32::to_ne_bytes) {
            let Ok(Some(mut value)) = self.versions.lookup(&index, MapFlags::LOCK) else { continue };
            if VERSION.get(&value, "leader") == u64::from(place) + 1 {
                // With its job's place, what one met too late to be told would be told to the next job there.
                VERSION.set(&mut value, "state", EMPTY);
                VERSION.set(&mut value, "leader", 0);
                let _ = self.versions.update(&index, &value, MapFlags::LOCK);
            }
        }
    }

    /// What has been counted for a job.
    pub fn counts(&self, place: u32) -> XdpCounts {
        let ranks = self.place(place).map_or(0, |entry| entry.ranks);
        let each = self.counts.lookup_percpu(&place.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
        let mut counts = XdpCounts::default();
        each.iter().for_each(|value| counts.add(value));
        for rank in 0..ranks as u32 {
            let value = self.rank(place, rank).unwrap_or_else(|| vec![0; RANK.bytes()]);
            counts.ranks.push(XdpRankCounts::of(&value));
        }
        counts
    }

    /// Takes a job out of the kernel: from now on the program gives all of its packets to the stack, and changes nothing any more. Gives what
    /// it held; of ATP and A2TP nothing, since what aggregators hold is lost with them as packets are, and sent again. The job keeps its place until it is closed, and may [come back](Kernel::take_back).
    ///
    /// # Errors
    /// What the kernel says; the job may be lost then.
    pub fn hand_over(&self, place: u32) -> Result<Taken, KernelError> {
        let failed = |error: libbpf_rs::Error| KernelError::of("cannot take a job out of the kernel", &error);
        let Some(entry) = self.place(place) else { return Ok(Taken::default()) };
        self.set_state(place, JOB_HANDED_OVER).map_err(failed)?;
        let mut taken = Taken::default();
        if entry.system == XdpSystem::Canary {
            // What descriptors hold leaves, as if their time were over. Nothing is lost with the rest: who is no child any more asks for the sum.
            self.tick(place, FLUSH)?;
        }
        if entry.shares {
            self.dismiss(place, &entry);
        }
        for index in 0..if entry.system.checks_numbers() { 0 } else { entry.count } {
            // With the lock: a program that has come before has finished, and one that comes later looks at the state first.
            let value = self.versions.lookup(&(entry.first + index).to_ne_bytes(), MapFlags::LOCK).map_err(failed)?;
            if let Some(version) = value.and_then(|value| TakenVersion::of(index % (entry.count / 2), &value)) {
                taken.versions.push(version);
            }
        }
        for rank in 0..entry.ranks as u32 {
            let value = self.rank(place, rank).unwrap_or_else(|| vec![0; RANK.bytes()]);
            let heard = match entry.system {
                // Windows of links begin a span before the number that they are told.
                system if system.checks_numbers() => self.past(place, rank).map_err(failed)?.wrapping_add(ReplayWindow::SPAN as u32),
                _ => RANK.get(&value, "heard") as u32,
            };
            taken.numbers.push(Numbers { next: RANK.get(&value, "next_sequence") as u32, heard });
        }
        Ok(taken)
    }

    /// Takes a job back that had left: from now on the program goes on with what user space held; of Canary, ATP and A2TP, that is which numbers have come
    /// from ranks ([`Numbers::heard`] is past all of them), and no descriptor or aggregator. Whatever has come to user space before and has
    /// not been told to its node must not be told to it any more.
    ///
    /// # Errors
    /// What the kernel says; the job is user space's then, as before.
    pub fn take_back(&self, place: u32, system: XdpSystem, taken: &Taken) -> Result<(), KernelError> {
        let failed = |error: libbpf_rs::Error| KernelError::of("cannot give a job back to the kernel", &error);
        let Some(entry) = self.place(place) else { return Ok(()) };
        let slots = entry.count / 2;
        let mut values = vec![vec![0; VERSION.bytes()]; entry.count as usize];
        for version in &taken.versions {
            values[system.index(slots, version.slot, version.round) as usize] = version.value(entry.ranks as u32);
        }
        // What others share is as they left it.
        for (index, value) in (entry.first..).zip(&values).filter(|_| !entry.shares) {
            self.versions.update(&index.to_ne_bytes(), value, MapFlags::ANY).map_err(failed)?;
        }
        for (rank, numbers) in (0..entry.ranks as u32).zip(&taken.numbers) {
            // The program changes nothing of a rank while the job is not here.
            let mut value = self.rank(place, rank).unwrap_or_else(|| vec![0; RANK.bytes()]);
            RANK.set(&mut value, "next_sequence", numbers.next.into());
            RANK.set(&mut value, "heard", numbers.heard.into());
            let at = (place * RANKS_MAX + rank).to_ne_bytes();
            self.ranks.update(&at, &value, MapFlags::ANY).map_err(failed)?;
            if system.checks_numbers() {
                self.windows.update(&at, &window_past(numbers.heard), MapFlags::ANY).map_err(failed)?;
            }
        }
        if system == XdpSystem::Canary {
            // It is as early as at the beginning, and no descriptor is taken.
            self.clocks.update(&place.to_ne_bytes(), &vec![0; CLOCK.bytes()], MapFlags::ANY).map_err(failed)?;
        }
        self.set_state(place, JOB_HERE).map_err(failed)
    }

    /// A number that all numbers that have come from a rank are below, where sums would count again what comes twice: none of them is believed
    /// again by who goes on from here.
    fn past(&self, place: u32, rank: u32) -> libbpf_rs::Result<u32> {
        let value = self.windows.lookup(&(place * RANKS_MAX + rank).to_ne_bytes(), MapFlags::LOCK)?;
        let past = value.map_or(0, |value| WINDOW.get(&value, "past"));
        Ok(past.next_multiple_of(u64::from(u64::BITS)) as u32)
    }

    /// Descriptors of a job of Canary that are taken.
    pub fn descriptors_in_use(&self, place: u32) -> u32 {
        let job = self.jobs.lookup(&place.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        job.map_or(0, |job| JOB.get(&job, "in_use") as u32)
    }

    /// Tells a job of Canary the time in ns: sums leave whose time is over (Canary 4.3). Each call must name a later time. Frames are made for it
    /// that find no descriptor whose time is over, or become its sum.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn tick(&self, place: u32, now: u64) -> Result<(), KernelError> {
        let failed = |error: libbpf_rs::Error| KernelError::of("cannot tell the program the time", &error);
        let Some(entry) = self.place(place) else { return Ok(()) };
        // Once through all descriptors, and once more for each of them at most, since a frame ends at a sum.
        for _ in 0..2 * entry.count {
            self.run_clock(place, now, entry.count / CLOCK_ENTRIES + 1).map_err(failed)?;
            let clock = self.clocks.lookup(&place.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
            if clock.is_none_or(|clock| CLOCK.get(&clock, "cursor") as u32 >= entry.count) {
                break;
            }
        }
        Ok(())
    }

    /// Frames that are sent where the program says.
    fn run_clock(&self, place: u32, now: u64, frames: u32) -> libbpf_rs::Result<()> {
        let program = self.object.progs_mut().find(|program| program.name() == "fanin_clock").expect("there is one");
        let frame = clock_frame(place, now);
        program.test_run(ProgramInput {
            data_in: Some(&frame),
            flags: BPF_F_TEST_XDP_LIVE_FRAMES,
            repeat: frames,
            ..Default::default()
        })?;
        Ok(())
    }

    /// Runs the program that tells the time once, without sending anything.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn test_clock(&self, place: u32, now: u64) -> Result<TestRun, KernelError> {
        self.run("fanin_clock", &clock_frame(place, now), 1, 1)
    }

    /// For tests: from now on it is so late for a job of ATP or A2TP, in ns.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn set_time(&self, place: u32, now: u64) -> Result<(), KernelError> {
        let mut clock = vec![0; CLOCK.bytes()];
        CLOCK.set(&mut clock, "now", now);
        let set = self.clocks.update(&place.to_ne_bytes(), &clock, MapFlags::ANY);
        set.map_err(|error| KernelError::of("cannot set the time", &error))
    }

    /// Whether a scan has come to the end of a job's descriptors.
    pub fn is_scanned(&self, place: u32) -> bool {
        let clock = self.clocks.lookup(&place.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        let count = self.place(place).map_or(0, |entry| entry.count);
        clock.is_none_or(|clock| CLOCK.get(&clock, "cursor") as u32 >= count)
    }

    fn set_state(&self, place: u32, state: u64) -> libbpf_rs::Result<()> {
        let mut job = self.jobs.lookup(&place.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_else(|| vec![0; JOB.bytes()]);
        JOB.set(&mut job, "state", state);
        if state == JOB_HERE {
            JOB.set(&mut job, "in_use", 0);
        }
        self.jobs.update(&place.to_ne_bytes(), &job, MapFlags::ANY)
    }

    fn place(&self, place: u32) -> Option<Place> {
        let places = self.places.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        places.jobs.get(place as usize).cloned().flatten()
    }

    fn rank(&self, place: u32, rank: u32) -> Option<Vec<u8>> {
        self.ranks.lookup(&(place * RANKS_MAX + rank).to_ne_bytes(), MapFlags::ANY).ok().flatten()
    }

    /// Runs the program on a frame that has come in by a device, `repeat` times.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn test(&self, frame: &[u8], ifindex: u32, repeat: u32) -> Result<TestRun, KernelError> {
        self.run("fanin_switch", frame, ifindex, repeat)
    }

    /// Runs the program of a device's exit on a copy of a result.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn test_exit(&self, frame: &[u8], ifindex: u32) -> Result<TestRun, KernelError> {
        self.run("fanin_exit_probe", frame, ifindex, 1)
    }

    fn run(&self, name: &str, frame: &[u8], ifindex: u32, repeat: u32) -> Result<TestRun, KernelError> {
        let program = self.object.progs_mut().find(|program| program.name() == name).expect("there is one");
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let mut context: Vec<u8> = [0, frame.len() as u32, 0, ifindex, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut out = vec![0; 4_096];
        let input =
            ProgramInput { context_in: Some(&mut context), data_in: Some(frame), data_out: Some(&mut out), repeat, ..Default::default() };
        let output = program.test_run(input).map_err(|error| KernelError::of("cannot run the program on a frame", &error))?;
        let frame = output.data.map(|frame| frame.to_vec()).unwrap_or_default();
        Ok(TestRun { action: output.return_value, frame, duration: output.duration })
    }
}

/// Later than any descriptor's time.
const FLUSH: u64 = 1 << 63;
/// linux/bpf.h: what the program decides about a frame is done.
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;

/// A window of a link no number of which has come: all that have are below `past`, the low half of a multiple of a word's bits.
fn window_past(past: u32) -> Vec<u8> {
    let mut value = vec![0; WINDOW.bytes()];
    WINDOW.set(&mut value, "base", past.into());
    WINDOW.set(&mut value, "past", past.into());
    value
}

/// A clock packet, as long as a frame is at least.
fn clock_frame(place: u32, now: u64) -> [u8; 64] {
    let mut frame = [0; 64];
    frame[CLOCK_PLACE..][..4].copy_from_slice(&place.to_ne_bytes());
    frame[CLOCK_NOW..][..8].copy_from_slice(&now.to_ne_bytes());
    frame
}

fn job_of(job: &XdpJob, first: u32) -> Vec<u8> {
    let mut value = vec![0; JOB.bytes()];
    for (name, number) in [
        ("state", JOB_HERE),
        ("epoch", job.epoch.into()),
        ("ranks", job.ranks.len() as u64),
        ("pool", job.slots().into()),
        ("first", first.into()),
        ("block_bytes", job.block_bytes.into()),
        ("rounds_ahead_max", job.rounds_ahead_max().into()),
        ("job", job.job.into()),
        ("system", job.system.number().into()),
    ] {
        JOB.set(&mut value, name, number);
    }
    if let Some(canary) = job.canary {
        let ns = |duration: fanin_core::Duration| if duration == fanin_core::Duration::MAX { u64::MAX } else { duration.as_ps() / 1_000 };
        for (name, number) in [
            ("pool", canary.descriptors.into()),
            ("hashed", canary.is_hashed.into()),
            ("timeout_ns", ns(canary.timeout)),
            ("lifetime_ns", ns(canary.lifetime)),
            ("fan_in", canary.fan_in.unwrap_or(0).into()),
        ] {
            JOB.set(&mut value, name, number);
        }
    }
    if let Some(atp) = &job.atp {
        let workers = if atp.workers < u64::BITS { (1 << atp.workers) - 1 } else { u64::MAX };
        for (name, number) in [
            ("pool", atp.aggregators.into()),
            ("timeout_ns", atp.reclaim.as_ps() / 1_000),
            ("workers", workers),
            ("server_count", atp.servers.len() as u64),
        ] {
            JOB.set(&mut value, name, number);
        }
        atp.servers.iter().enumerate().for_each(|(at, node)| JOB.set_item(&mut value, "servers", at, u64::from(*node)));
    }
    job.late.iter().enumerate().for_each(|(index, late)| JOB.set_item(&mut value, "late_ns", index, late.as_ps() / 1_000));
    job.ops.iter().enumerate().for_each(|(number, op)| JOB.set_item(&mut value, "ops", number, u64::from(*op)));
    value
}

fn rank_of(job: &XdpJob, rank: usize) -> Vec<u8> {
    let rank = &job.ranks[rank];
    let mut value = vec![0; RANK.bytes()];
    let bytes = |value: &mut Vec<u8>, name, bytes: &[u8]| {
        bytes.iter().enumerate().for_each(|(at, byte)| RANK.set_item(value, name, at, u64::from(*byte)));
    };
    // What the program learns is known of all ranks from the beginning: some may have contributed in user space only.
    bytes(&mut value, "ethernet", rank.ethernet.as_flattened());
    bytes(&mut value, "ip", &[rank.from.octets(), rank.socket.ip().octets()].concat());
    bytes(&mut value, "ports", &[job.port.to_be_bytes(), rank.socket.port().to_be_bytes()].concat());
    RANK.set(&mut value, "ifindex", rank.ifindex.into());
    value
}

fn member_of(place: u32, job: &XdpJob, rank: usize) -> Vec<u8> {
    let socket = &job.ranks[rank].socket;
    let mut key = vec![0; MEMBER.bytes()];
    MEMBER.set(&mut key, "place", place.into());
    socket.ip().octets().iter().enumerate().for_each(|(at, byte)| MEMBER.set_item(&mut key, "ip", at, u64::from(*byte)));
    socket.port().to_be_bytes().iter().enumerate().for_each(|(at, byte)| MEMBER.set_item(&mut key, "port", at, u64::from(*byte)));
    key
}

/// Devices, each with the ranks behind it as bits.
fn devices_of(job: &XdpJob) -> Vec<(u32, u64)> {
    let mut devices: Vec<(u32, u64)> = Vec::new();
    for (number, rank) in job.ranks.iter().enumerate() {
        match devices.iter_mut().find(|(ifindex, _)| *ifindex == rank.ifindex) {
            Some((_, ranks)) => *ranks |= 1 << number,
            None => devices.push((rank.ifindex, 1 << number)),
        }
    }
    devices
}
