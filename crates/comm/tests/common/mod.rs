//! Ranks as threads of the test: each has its own communicator, sockets and mapping, as processes would.
#![allow(dead_code, reason = "each test program uses a part of this")]

pub mod every;
pub mod fabric;
pub mod switch;

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fanin_comm::{CommError, Communicator, Config, Meeting, Notices, Operator, Transport};

/// Waiting is never what is tested: long enough for a machine that is busy with other things.
pub const PATIENT: Duration = Duration::from_secs(60);

/// What ranks were told.
pub type Told = Arc<Mutex<Vec<String>>>;

/// What was told but for who is slow: on a busy machine that is true now and then, and it is not what these tests are about.
pub fn without_delays(told: &Told) -> Vec<String> {
    let is_delay = |text: &str| ["nothing has moved for", "is the one that others wait for"].iter().any(|part| text.contains(part));
    told.lock().unwrap().iter().filter(|text| !is_delay(text)).cloned().collect()
}

/// A place to meet on this machine, where nobody listens yet.
pub fn place() -> Meeting {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Meeting::Rendezvous(listener.local_addr().unwrap().to_string())
}

/// Configurations of all ranks, and what they will be told.
pub fn configs(world: u32, transport: Transport) -> (Vec<Config>, Told) {
    static JOB: AtomicU32 = AtomicU32::new(0);
    let (meeting, told) = (place(), Told::default());
    let job = format!("test-{}", JOB.fetch_add(1, Ordering::Relaxed));
    let configs = (0..world)
        .map(|rank| {
            let told = told.clone();
            Config {
                job: job.clone(),
                transport,
                timeout: PATIENT,
                notices: Notices::to(move |text| told.lock().unwrap().push(text.to_string())),
                ..Config::new(rank, world, meeting.clone())
            }
        })
        .collect();
    (configs, told)
}

/// Runs `act` at every rank, with a communicator each; gives what they return, by rank.
pub fn at_all<R: Send + 'static>(
    configs: Vec<Config>,
    act: impl Fn(Communicator) -> R + Send + Sync + 'static,
) -> Vec<Result<R, CommError>> {
    let act = Arc::new(act);
    let threads: Vec<_> = configs
        .into_iter()
        .map(|config| {
            let act = act.clone();
            thread::spawn(move || Communicator::join(config).map(|comm| act(comm)))
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
}

/// As [`at_all`], where joining must succeed.
pub fn run<R: Send + 'static>(configs: Vec<Config>, act: impl Fn(Communicator) -> R + Send + Sync + 'static) -> Vec<R> {
    let results = at_all(configs, act);
    let errors: Vec<String> = results.iter().filter_map(|result| result.as_ref().err().map(ToString::to_string)).collect();
    assert!(errors.is_empty(), "not joined: {errors:?}");
    results.into_iter().flatten().collect()
}

/// How late a rank comes to each step of [`steps_until_named`].
pub const LATE: Duration = Duration::from_millis(20);

/// Steps with an exact sum, to each of which `late` comes later than the others, until every rank has heard who is waited for, or for as long as
/// tests are patient. All ranks agree on the end.
pub fn steps_until_named(comm: &Communicator, late: u32, told: &Mutex<Vec<String>>) {
    let (begun, world) = (Instant::now(), comm.world());
    for step in 0.. {
        if comm.rank() == late {
            thread::sleep(LATE);
        }
        let mut gradient = vec![1.0f32; 5_000];
        comm.allreduce(&mut gradient, Operator::Sum).unwrap();
        assert!(gradient.iter().all(|value| *value == world as f32));
        let named = told.lock().unwrap().iter().filter(|text| text.contains("is the one that others wait for")).count();
        let mut goes_on = [i32::from(named < world as usize && begun.elapsed() < PATIENT)];
        if step % 10 == 0 {
            comm.broadcast(&mut goes_on, 0).unwrap();
            if goes_on == [0] {
                break;
            }
        }
    }
}
