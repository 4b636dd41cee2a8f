//! Datagrams between sockets of one process, which the kernel need not carry: where rank 0 runs the switch, what it sends to that switch
//! is written once, into memory that the switch reads, instead of being copied into the kernel and out of it again.
//!
//! Sockets that want this ([`SocketConfig::nearby`](crate::SocketConfig::nearby)) have an inbox, which others of them find by the socket's
//! address. Everything else is as with the kernel: what finds no room is lost, and nobody is told.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{self, Arc, PoisonError, Weak};

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use crate::waker::Waker;

/// Empty parcels that an inbox keeps.
const SPARE_MAX: usize = 32;

/// Inboxes of this process, by the address of their socket.
static INBOXES: sync::Mutex<BTreeMap<SocketAddr, Weak<Inbox>>> = sync::Mutex::new(BTreeMap::new());

fn inboxes() -> sync::MutexGuard<'static, BTreeMap<SocketAddr, Weak<Inbox>>> {
    INBOXES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What ends an owner's sleep.
pub(crate) trait Wake {
    /// Makes its present or its next sleep end at once.
    fn wake(&self);
}

impl Wake for Waker {
    fn wake(&self) {
        Waker::wake(self);
    }
}

/// Also where a thread has panicked: every change below is a single one.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Datagrams of one size (the last may be shorter) from one socket.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) source: SocketAddr,
    pub(crate) stride: usize,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct State {
    arrived: VecDeque<Parcel>,
    arrived_bytes: usize,
    spare: Vec<Vec<u8>>,
    /// The socket's owner sleeps, or is about to, and nobody has woken it.
    asleep: bool,
}

/// Where a socket's parcels wait.
#[derive(Debug)]
pub(crate) struct Inbox<W = Waker> {
    address: SocketAddr,
    /// What waits has at most so many bytes.
    bytes_max: usize,
    state: Mutex<State>,
    /// The socket is closed.
    closed: AtomicBool,
    waker: W,
}

impl Inbox {
    /// Opens an inbox for the socket at `address`.
    pub(crate) fn open(address: SocketAddr, bytes_max: usize, waker: Waker) -> Arc<Self> {
        let inbox = Arc::new(Inbox::new(address, bytes_max, waker));
        inboxes().insert(address, Arc::downgrade(&inbox));
        inbox
    }

    /// The inbox of the socket at `address`, if it is one of this process that has one.
    pub(crate) fn find(address: SocketAddr) -> Option<Arc<Self>> {
        inboxes().get(&address).and_then(Weak::upgrade)
    }

    /// Nobody reads it any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        inboxes().remove(&self.address);
        *locked(&self.state) = State::default();
    }
}

impl<W: Wake> Inbox<W> {
    fn new(address: SocketAddr, bytes_max: usize, waker: W) -> Self {
        Inbox { address, bytes_max, state: Mutex::new(State::default()), closed: AtomicBool::new(false), waker }
    }

    /// Whether its socket is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Puts a run of datagrams in, given in parts; false where there is no room, and they are lost.
    pub(crate) fn push(&self, source: SocketAddr, stride: usize, parts: &[&[u8]]) -> bool {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut state = locked(&self.state);
        if state.arrived_bytes + length > self.bytes_max {
            return false;
        }
        state.arrived_bytes += length;
        let mut bytes = state.spare.pop().unwrap_or_default();
        // Others need not wait while this is copied.
        drop(state);
        bytes.clear();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let mut state = locked(&self.state);
        state.arrived.push_back(Parcel { source, stride, bytes });
        // Either the owner sees the parcel before it sleeps, or it is seen here that it sleeps: both look behind the same lock.
        let sleeps = std::mem::take(&mut state.asleep);
        drop(state);
        if sleeps {
            self.waker.wake();
        }
        true
    }

    /// Gives `parcels` back, whose contents are lost, and takes at most `count` out instead.
    pub(crate) fn exchange(&self, parcels: &mut Vec<Parcel>, count: usize) {
        let mut state = locked(&self.state);
        let room = SPARE_MAX - state.spare.len();
        state.spare.extend(parcels.drain(..).take(room).map(|parcel| parcel.bytes));
        let count = count.min(state.arrived.len());
        parcels.extend(state.arrived.drain(..count));
        state.arrived_bytes -= parcels.iter().map(|parcel| parcel.bytes.len()).sum::<usize>();
    }

    /// The owner is about to sleep; false where it must not, for something waits.
    pub(crate) fn fall_asleep(&self) -> bool {
        let mut state = locked(&self.state);
        state.asleep = state.arrived.is_empty();
        state.asleep
    }

    /// The owner is awake; says whether something waits.
    pub(crate) fn wake_up(&self) -> bool {
        let mut state = locked(&self.state);
        state.asleep = false;
        !state.arrived.is_empty()
    }
}

#[cfg(all(test, loom))]
mod loomed {
    use loom::sync::Condvar;
    use loom::thread;

    use super::*;

    /// What a socket's owner sleeps at.
    #[derive(Debug, Default)]
    struct Bell(Mutex<bool>, Condvar);

    impl Wake for Arc<Bell> {
        fn wake(&self) {
            *locked(&self.0) = true;
            self.1.notify_one();
        }
    }

    impl Bell {
        fn sleep(&self) {
            let mut rung = locked(&self.0);
            while !*rung {
                rung = self.1.wait(rung).unwrap_or_else(PoisonError::into_inner);
            }
            *rung = false;
        }
    }

    /// Two senders leave a parcel each; the owner, who sleeps whenever `falls_asleep` says so, takes them all, each once, and as a whole.
    fn parcels(falls_asleep: fn(&Inbox<Arc<Bell>>) -> bool) {
        let bell = Arc::new(Bell::default());
        let inbox = Arc::new(Inbox::new(([127, 0, 0, 1], 1).into(), 100, bell.clone()));
        let senders = [1u8, 2].map(|number| {
            let inbox = inbox.clone();
            thread::spawn(move || assert!(inbox.push(([127, 0, 0, 1], number.into()).into(), 2, &[&[number], &[number; 2]])))
        });
        let (mut got, mut taken) = (Vec::new(), Vec::new());
        while got.len() < 2 {
            if falls_asleep(&inbox) {
                bell.sleep();
            }
            if inbox.wake_up() {
                inbox.exchange(&mut taken, 4);
                got.extend(taken.iter().map(|parcel| (parcel.source.port(), parcel.bytes.clone())));
            }
        }
        senders.into_iter().for_each(|sender| sender.join().expect("no panic"));
        got.sort();
        assert_eq!(got, [(1, vec![1; 3]), (2, vec![2; 3])]);
    }

    fn model(falls_asleep: fn(&Inbox<Arc<Bell>>) -> bool) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(move || parcels(falls_asleep));
    }

    #[test]
    fn every_parcel_is_taken_once_and_no_owner_sleeps_beside_one() {
        model(Inbox::fall_asleep);
    }

    /// An owner that looks before it says that it sleeps misses what comes in between.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn who_looks_before_it_says_that_it_sleeps_is_found() {
        model(|inbox| {
            let is_empty = locked(&inbox.state).arrived.is_empty();
            locked(&inbox.state).asleep = is_empty;
            is_empty
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Receiver, Sender, SenderConfig, Socket, SocketConfig};

    fn nearby() -> Socket {
        Socket::bind(&SocketConfig { nearby: true, ..SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into()) }).unwrap()
    }

    fn push(sender: &mut Sender, from: &Socket, to: crate::DestinationId, datagram: &[u8]) {
        sender.reserve(from, to, datagram.len()).unwrap().copy_from_slice(datagram);
        sender.commit(from, to);
    }

    #[test]
    fn datagrams_come_as_by_the_kernel_and_beside_what_it_brings() {
        let (near, far) = (nearby(), Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap());
        let to = nearby();
        let (mut sender, mut apart) = (Sender::new(SenderConfig::default()), Sender::new(SenderConfig::default()));
        let (there, from_far) = (sender.add(to.local_address()), apart.add(to.local_address()));
        for number in 0..5u8 {
            push(&mut sender, &near, there, &[number; 1_000]);
        }
        push(&mut sender, &near, there, &[5; 300]);
        sender.flush(&near);
        push(&mut apart, &far, from_far, &[9; 700]);
        apart.flush(&far);
        assert!(sender.send_apart(&near, there, [&[1, 2], &[3; 40_000], &[0; 30]]), "nothing waits");
        let mut receiver = Receiver::new(8);
        let (mut got, mut foreign) = (Vec::new(), Vec::new());
        while got.len() + foreign.len() < 8 {
            assert!(to.wait(Some(Duration::from_secs(10)), false).unwrap().readable, "{got:?}");
            receiver.receive(&to).unwrap();
            for run in receiver.runs() {
                let is_near = run.source == near.local_address();
                assert!(is_near || run.source == far.local_address());
                let all = if is_near { &mut got } else { &mut foreign };
                all.extend(run.datagrams().map(|datagram| (datagram[0], datagram.len())));
            }
        }
        assert_eq!(got, [(0, 1_000), (1, 1_000), (2, 1_000), (3, 1_000), (4, 1_000), (5, 300), (1, 40_032)]);
        assert_eq!(foreign, [(9, 700)]);
        assert_eq!((sender.statistics().datagrams, sender.statistics().nearby), (7, 7));
        assert_eq!(to.wait(Some(Duration::ZERO), false).unwrap(), crate::Readiness::default());
    }

    #[test]
    fn a_sleeper_is_woken_by_every_datagram() {
        let (near, to) = (nearby(), nearby());
        let address = to.local_address();
        let rounds = 20_000u32;
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut sender = Sender::new(SenderConfig::default());
                let there = sender.add(address);
                for round in 0..rounds {
                    push(&mut sender, &near, there, &round.to_le_bytes());
                    sender.flush(&near);
                    if round.is_multiple_of(7) {
                        thread::yield_now();
                    }
                }
            });
            let (mut receiver, mut next, start) = (Receiver::new(8), 0u32, Instant::now());
            while next < rounds {
                assert!(start.elapsed() < Duration::from_secs(60), "{next}");
                if to.wait(Some(Duration::from_secs(30)), false).unwrap().readable {
                    receiver.receive(&to).unwrap();
                    for datagram in receiver.runs().flat_map(|run| run.datagrams()) {
                        assert_eq!(datagram, next.to_le_bytes());
                        next += 1;
                    }
                }
            }
        });
    }

    #[test]
    fn what_finds_no_room_is_lost_and_a_closed_inbox_is_left_to_the_kernel() {
        let (near, to) = (nearby(), nearby());
        let inbox = Inbox::open((Ipv4Addr::LOCALHOST, 1).into(), 1_000, to.waker());
        let source = near.local_address();
        assert!(inbox.push(source, 600, &[&[0; 300], &[0; 300]]));
        assert!(!inbox.push(source, 600, &[&[0; 300], &[0; 300]]), "there are 400 left");
        let mut parcels = Vec::new();
        inbox.exchange(&mut parcels, 4);
        assert_eq!(parcels.len(), 1);
        assert!(inbox.push(source, 1_000, &[&[0; 1_000]]));
        inbox.close();
        assert!(inbox.is_closed() && Inbox::find((Ipv4Addr::LOCALHOST, 1).into()).is_none());

        let mut sender = Sender::new(SenderConfig::default());
        let there = sender.add(to.local_address());
        push(&mut sender, &near, there, &[1; 10]);
        sender.flush(&near);
        drop(to);
        push(&mut sender, &near, there, &[1; 10]);
        sender.flush(&near);
        assert_eq!((sender.statistics().datagrams, sender.statistics().nearby), (2, 1));
    }
}
