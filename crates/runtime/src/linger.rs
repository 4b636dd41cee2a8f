//! Before a loop sleeps, it lets others run: with more processes than cores, what it waits for comes from them.
//!
//! A sleeper is woken by the first packet, at once, often in the middle of what its peer is doing, and sleeps again after that packet: a
//! switch of contexts for each, and where the core was idle in between, an interrupt from another core. Who has let others run instead finds
//! all that they had for it. Four workers and a switch on two cores carry a fifth more that way.
//!
//! Where nobody else wants the core, that costs a microsecond. Where somebody has it who is none of a job's processes, and computes, it would
//! cost a time slice, while a sleeper would be woken in the middle of that: then loops sleep at once, for a while.

use std::io;
use std::time::{Duration, Instant};

use fanin_net::{Readiness, Socket};

/// How often others are let run before a sleep.
const YIELDS: u32 = 2;
/// Whoever has the core for longer than that computes.
const TURN_MAX: Duration = Duration::from_millis(1);
/// How many sleeps follow at once then.
const SLEEPS: u32 = 256;

/// Whether and how often others are let run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Linger {
    /// How many sleeps come at once.
    sleeps: u32,
}

impl Linger {
    /// Lets others run; gives what there is to do then, or `None` where it is time to sleep.
    ///
    /// # Errors
    /// What the kernel reports while waiting.
    pub(crate) fn before_sleep(&mut self, limit: Duration, socket: &Socket, writable: bool) -> io::Result<Option<Readiness>> {
        if limit.is_zero() {
            return Ok(None);
        }
        if self.sleeps > 0 {
            self.sleeps -= 1;
            return Ok(None);
        }
        for _ in 0..YIELDS {
            let before = Instant::now();
            std::thread::yield_now();
            let turn = before.elapsed();
            let ready = socket.wait(Some(Duration::ZERO), writable)?;
            if turn > TURN_MAX {
                self.sleeps = SLEEPS;
            }
            if ready.readable || ready.writable || ready.woken {
                return Ok(Some(ready));
            }
            if turn > TURN_MAX || turn > limit {
                break;
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_net::SocketConfig;
    use std::net::{Ipv4Addr, UdpSocket};

    #[test]
    fn what_is_there_is_told_and_nothing_is_waited_for() {
        let socket = Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        let mut linger = Linger::default();
        let day = Duration::from_secs(86_400);
        assert_eq!(linger.before_sleep(day, &socket, false).unwrap(), None);
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().send_to(&[1], socket.local_address()).unwrap();
        // On loopback a datagram is there when it is sent.
        let ready = (0..=SLEEPS).find_map(|_| linger.before_sleep(day, &socket, false).unwrap());
        assert!(ready.unwrap().readable);
        assert_eq!(linger.before_sleep(Duration::ZERO, &socket, false).unwrap(), None, "who is not to sleep looks at once");
    }

    #[test]
    fn where_somebody_computes_loops_sleep_for_a_while() {
        let socket = Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        socket.waker().wake();
        let mut linger = Linger { sleeps: 2 };
        let day = Duration::from_secs(86_400);
        assert_eq!(linger.before_sleep(day, &socket, false).unwrap(), None);
        assert_eq!(linger.before_sleep(day, &socket, false).unwrap(), None);
        assert!(linger.before_sleep(day, &socket, false).unwrap().unwrap().woken, "two sleeps are over");
    }
}
