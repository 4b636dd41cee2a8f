//! A worker or switch that runs one node of a system over UDP on loopback, without communicators.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use fanin_core::Suspect;
use fanin_net::{SenderConfig, Socket, SocketConfig};
use fanin_runtime::clock::process_cpu_time;
use fanin_runtime::{DriverConfig, RunError, SwitchDriver, WorkerDriver};

use super::{Inbox, child_statistics, faults, say};
use crate::demo::messages::{Ended, Order, PathFacts, Report, Setup};
use crate::demo::nodes::{self, DemoNode};
use fanin_testbed::sums::Vectors;

/// Does what the parent says, until it says no more.
///
/// # Errors
/// Where the parent says nonsense, or the socket cannot be opened.
pub(super) fn run(setup: &Setup, inbox: &Inbox) -> Result<()> {
    let socket = Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into()))?;
    let window = nodes::window(setup.window, nodes::payload(setup));
    let path = PathFacts {
        text: format!("UDP on loopback, {} bytes a packet, {window} packets under way", nodes::payload(setup)),
        payload_bytes: Some(nodes::payload(setup)),
        window: Some(window),
        receive_buffer_bytes: Some(socket.receive_buffer_bytes() as u64),
    };
    say(&Report::Bound { address: Some(socket.local_address()) })?;
    let config = nodes::node_config(setup, &inbox.peers()?);
    let how = driver_config(setup);
    let node = nodes::node(setup)?;
    if setup.number < setup.workers {
        run_worker(WorkerDriver::new(socket, node, config, &how)?, setup, inbox, path)
    } else {
        run_switch(SwitchDriver::new(socket, node, config, &how)?, inbox, path)
    }
}

fn driver_config(setup: &Setup) -> DriverConfig {
    let faults = faults(setup);
    DriverConfig { sender: SenderConfig { faults, ..SenderConfig::default() }, ..DriverConfig::default() }
}

fn run_switch(mut driver: SwitchDriver<DemoNode>, inbox: &Inbox, path: PathFacts) -> Result<()> {
    // Nobody else sets it: this is the only thread that makes a driver.
    let _ = inbox.waker.set(driver.waker());
    say(&Report::Ready { path: Some(path) })?;
    let begin = process_cpu_time();
    loop {
        match inbox.take()? {
            Some(Order::End) => {
                let spent = process_cpu_time().saturating_sub(begin);
                return say(&Report::Statistics(child_statistics(&driver.statistics(), spent)));
            }
            Some(order) => bail!("a switch does not know how to {order:?}"),
            None => driver.run(&inbox.waiting)?,
        }
    }
}

fn run_worker(mut driver: WorkerDriver<DemoNode>, setup: &Setup, inbox: &Inbox, path: PathFacts) -> Result<()> {
    let _ = inbox.waker.set(driver.waker());
    driver.set_stop_flag(inbox.orphaned.clone());
    let mut vectors = Vectors::new(setup.seed, 0, setup.workers);
    // Written once, so that no page is touched for the first time while an operation is timed.
    let (mut input, mut output) = (vec![1u8; setup.elements as usize * 4], vec![1u8; setup.elements as usize * 4]);
    say(&Report::Ready { path: Some(path) })?;
    loop {
        match inbox.take()? {
            Some(Order::Prepare { iteration }) => {
                vectors = Vectors::new(setup.seed, iteration, setup.workers);
                vectors.fill(setup.number, &mut input);
                // All ones is not a number, which no element may be left at.
                output.fill(0xff);
                say(&Report::Prepared)?;
            }
            Some(Order::Run) => say(&timed(&mut driver, &input, &mut output))?,
            Some(Order::Verify) => {
                let (wrong, first_wrong) = vectors.compare(&output);
                say(&Report::Verified { wrong, first_wrong })?;
            }
            Some(Order::End) => return say(&Report::Statistics(child_statistics(&driver.statistics(), Duration::ZERO))),
            Some(order) => bail!("a worker does not know how to {order:?} now"),
            None => driver.serve_until(&inbox.waiting)?,
        }
    }
}

/// Runs one operation and measures it.
fn timed(driver: &mut WorkerDriver<DemoNode>, input: &[u8], output: &mut [u8]) -> Report {
    // An operation on a single element, not timed, is a barrier: afterwards all workers begin within a round trip.
    let (input_of_barrier, mut output_of_barrier) = ([0; 4], [0; 4]);
    let mut result = driver.allreduce(&input_of_barrier, &mut output_of_barrier);
    let (start, spent) = (Instant::now(), process_cpu_time());
    if result.is_ok() {
        result = driver.allreduce(input, output);
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), process_cpu_time().saturating_sub(spent));
    let ended = match result {
        Ok(()) => Ended::Done,
        Err(error) => {
            let suspect_rank = match &error {
                RunError::Failed(failure) => match failure.suspect {
                    Suspect::Rank(rank) => Some(rank.0),
                    Suspect::Unknown | Suspect::Switch(_) => None,
                },
                _ => None,
            };
            Ended::Failed { text: error.to_string(), suspect_rank }
        }
    };
    Report::Finished { seconds, cpu_seconds: cpu.as_secs_f64(), ended }
}
