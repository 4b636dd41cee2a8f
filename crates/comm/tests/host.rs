//! A switch in this process, at a port that nobody has chosen, for several jobs.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use fanin_comm::{CommError, Communicator, Config, Host, Meeting, Operator};

const ANY: &str = "127.0.0.1:0";

fn start(listen: &str) -> Result<Host, CommError> {
    Host::start(listen.parse::<SocketAddr>().unwrap(), Duration::from_secs(20))
}

#[test]
fn jobs_one_after_the_other_and_at_once_share_a_switch() {
    let host = start(ANY).unwrap();
    assert_ne!(host.address().port(), 0);
    let ranks: Vec<_> = (0..2)
        .map(|rank| {
            let meeting = Meeting::Rendezvous(host.address().to_string());
            thread::spawn(move || {
                let join = |job: &str| Communicator::join(Config { job: job.into(), ..Config::new(rank, 2, meeting.clone()) }).unwrap();
                let sum = |comm: &Communicator| {
                    let mut vector = vec![rank as i32 + 1; 10];
                    comm.allreduce(&mut vector, Operator::Sum).unwrap();
                    assert_eq!(vector, [3; 10]);
                };
                let whole = join("whole");
                for turn in 0..3 {
                    sum(&join(&format!("turn {turn}")));
                    sum(&whole);
                }
            })
        })
        .collect();
    ranks.into_iter().for_each(|rank| rank.join().unwrap());
    // All have left, so that it does not linger.
    drop(host);
}

#[test]
fn every_start_at_port_0_is_another_switch_and_an_address_has_one() {
    let (first, second) = (start(ANY).unwrap(), start(ANY).unwrap());
    assert_ne!(first.address(), second.address());
    let same = start(&first.address().to_string()).unwrap();
    assert_eq!(same.address(), first.address());
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind(ANY).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = start(&address).unwrap_err().to_string();
    assert!(error.contains(&address), "{error}");
}
