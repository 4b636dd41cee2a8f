//! Operators that a job brings along: checked and compiled beside the control loop, by one thread that is there only while there is
//! something to compile. What waits for it is bounded, in all and by address, so that nobody can make a switch start threads or keep modules.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use fanin_control::{OpenJob, OperatorWish};
use fanin_operator::{CustomOperator, Digest};

/// Jobs that may wait for their operators to be compiled; half of them may be of ranks of one address.
const WAITING_MAX: usize = 32;

/// A job whose operators have been compiled, or why one was not.
pub(crate) struct Compiled {
    pub(crate) open: Box<OpenJob>,
    pub(crate) operators: Result<Vec<CustomOperator>, String>,
}

/// Where a compiled job is told of.
type Tell = Box<dyn Fn(Compiled) + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<(IpAddr, Box<OpenJob>)>,
    /// Whose job was compiled last: where others wait, they come first.
    last: Option<IpAddr>,
    is_running: bool,
}

/// Compiles operators, one job after another.
#[derive(Clone, Default)]
pub(crate) struct Compiler(Arc<Mutex<State>>);

impl Compiler {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compiles the operators of a job, when it is its turn.
    ///
    /// # Errors
    /// In words, where too many wait already, or there is no thread.
    pub(crate) fn start(&self, open: Box<OpenJob>, tell: impl Fn(Compiled) + Send + 'static) -> Result<(), String> {
        let peer = open.ranks.first().map_or(open.bind, |rank| rank.ip());
        let mut state = self.state();
        let (all, own) = (state.waiting.len(), state.waiting.iter().filter(|(other, _)| *other == peer).count());
        if own >= WAITING_MAX / 2 || all >= WAITING_MAX {
            return Err(format!(
                "no room for job `{}`: operators of {all} jobs wait to be compiled, {own} of these from {peer}, and {WAITING_MAX} may, half of them \
                 from one address: join again later",
                open.name
            ));
        }
        state.waiting.push_back((peer, open));
        if !state.is_running {
            let (compiler, tell): (Compiler, Tell) = (self.clone(), Box::new(tell));
            let thread = thread::Builder::new().name("fanin-compile".into()).spawn(move || compiler.run(&tell));
            if let Err(error) = thread {
                state.waiting.pop_back();
                return Err(format!("no thread to compile its operators: {error}"));
            }
            state.is_running = true;
        }
        Ok(())
    }

    /// A job is not wanted any more.
    pub(crate) fn forget(&self, job_id: u16) {
        self.state().waiting.retain(|(_, open)| open.job_id != job_id);
    }

    /// Nobody is interested any more.
    pub(crate) fn forget_all(&self) {
        self.state().waiting.clear();
    }

    /// Compiles until nothing waits.
    fn run(&self, tell: &Tell) {
        while let Some(open) = self.next() {
            let compile = || open.operators.iter().map(operator).collect();
            let operators = catch_unwind(AssertUnwindSafe(compile)).unwrap_or_else(|_| Err("the compiler has ended by a bug".into()));
            tell(Compiled { open, operators });
        }
    }

    fn next(&self) -> Option<Box<OpenJob>> {
        let mut state = self.state();
        let other = state.waiting.iter().position(|(peer, _)| Some(*peer) != state.last).unwrap_or(0);
        match state.waiting.remove(other) {
            Some((peer, open)) => {
                state.last = Some(peer);
                Some(open)
            }
            None => {
                state.is_running = false;
                None
            }
        }
    }
}

/// One operator, from what rank 0 has sent.
pub(crate) fn operator(wish: &OperatorWish) -> Result<CustomOperator, String> {
    let name = &wish.name;
    let module = wish.bytes().ok_or_else(|| format!("operator `{name}`: module: expected hexadecimal digits, two for each byte"))?;
    let digest = Digest::of(&module).to_string();
    if digest != wish.digest {
        return Err(format!("operator `{name}`: digest = {}: expected {digest}, that of the module which rank 0 has sent", wish.digest));
    }
    CustomOperator::from_wasm(name, &module).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_what_it_says_is_refused_with_its_name() {
        let module = include_bytes!("../../../examples/operators/extremes.wasm");
        let wish = |module: &str, digest: String| OperatorWish { name: "mine".into(), digest, module: Some(module.into()) };
        let digest = Digest::of(module).to_string();
        let error = |wish: OperatorWish| operator(&wish).unwrap_err();
        assert!(error(wish("0", digest.clone())).contains("operator `mine`: module: expected hexadecimal digits"));
        assert!(error(wish("00", digest.clone())).contains("that of the module which rank 0 has sent"));
        assert!(error(wish("00", Digest::of(&[0]).to_string())).contains("operator `mine`: its module is not valid"));
        assert_eq!(operator(&wish(&OperatorWish::digits(module), digest)).unwrap().layout().element_bytes, 12);
    }

    fn open(job_id: u16, peer: [u8; 4]) -> Box<OpenJob> {
        let op = fanin_control::Op::F32_SUM;
        Box::new(OpenJob {
            job_id,
            name: format!("job-{job_id}"),
            instance: u64::from(job_id),
            system: fanin_systems::System::SwitchMl(fanin_systems::SwitchMlParameters { fixed_point: false }),
            op,
            fixed_point: false,
            operators: Vec::new(),
            payload_bytes: 1_024,
            window: 8,
            patience_ms: 1_000,
            seed: 1,
            epoch: 1,
            bind: [127, 0, 0, 1].into(),
            ranks: vec![(peer, 9).into()],
            packets: None,
            pass: None,
            nodes: Vec::new(),
        })
    }

    #[test]
    fn what_waits_is_bounded_by_address_and_in_all_and_takes_turns() {
        let compiler = Compiler::default();
        // As if the thread was busy.
        compiler.state().is_running = true;
        let start = |job_id, peer| compiler.start(open(job_id, peer), |_| ());
        let most = WAITING_MAX as u16;
        for job_id in 1..=most / 2 {
            start(job_id, [10, 0, 0, 1]).unwrap();
        }
        let text = start(99, [10, 0, 0, 1]).unwrap_err();
        assert!(text.contains("16 of these from 10.0.0.1") && text.contains("join again later"), "{text}");
        start(50, [10, 0, 0, 2]).unwrap();
        let turns: Vec<u16> = (0..3).map(|_| compiler.next().unwrap().job_id).collect();
        assert_eq!(turns, [1, 50, 2], "whoever has sent few is not behind whoever has sent many");
        compiler.forget(3);
        assert_eq!(compiler.next().unwrap().job_id, 4);
        compiler.forget_all();
        assert!(compiler.next().is_none() && !compiler.state().is_running, "no thread is kept");
    }
}
