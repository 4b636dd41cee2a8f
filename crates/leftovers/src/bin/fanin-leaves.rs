//! A program that leaves something behind when it ends, for the tests of what finds that.

use std::fs::File;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use std::{env, mem};

fanin_leftovers::watched!("lasting");

/// A thread of this name that runs for so long.
fn thread(name: &str, time: Duration) {
    let started = thread::Builder::new().name(name.into()).spawn(move || thread::sleep(time));
    drop(started.expect("a thread"));
}

fn main() {
    match env::args().nth(1).as_deref() {
        Some("thread") => thread("forgotten", Duration::from_secs(600)),
        Some("descriptor") => mem::forget(File::open("/dev/null").expect("it is there")),
        Some("process") => {
            let child = Command::new("sleep").arg("3").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            mem::forget(child.expect("a process"));
        }
        _ => {
            thread("soon over", Duration::from_millis(100));
            thread("lasting one", Duration::from_secs(600));
        }
    }
}
