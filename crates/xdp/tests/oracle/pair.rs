//! Both sides of a trace, and how they are compared.

use std::collections::BTreeSet;

use fanin_core::{DropReason, Instant, JobId};
use fanin_systems::AnyHeader;
use fanin_wire::switchml::SwitchMlHeader;
use fanin_xdp::layout::{FRAME_BYTES_MAX, OP_REDUCES, Up};
use fanin_xdp::taken::{Numbers, Taken};
use fanin_xdp::{Kernel, XdpCounts, kept, resume};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::common::{JOB, LOOPBACK, Oracle, Shape, Word, admit, frame, unframe};

/// Ethernet, IP and UDP.
const HEADERS_BYTES: usize = 42;

const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

/// Both sides of a trace.
pub struct Pair<'a> {
    pub kernel: &'a Kernel,
    pub place: u32,
    pub shape: Shape,
    pub oracle: Oracle,
    /// User space has gone on with the job.
    pub resumed: Option<Oracle>,
    pub before: XdpCounts,
    /// When the job came to the kernel, or came back.
    pub at_first: XdpCounts,
    pub seen: &'a mut BTreeSet<String>,
}

impl Pair<'_> {
    fn fails(&self, what: impl Into<String>) -> TestCaseError {
        TestCaseError::fail(what.into())
    }

    /// Gives a frame to both, and compares.
    pub fn on_frame(&mut self, from: u32, datagram: &[u8]) -> Result<(), TestCaseError> {
        let is_stranger = from >= self.shape.ranks;
        let word = if is_stranger { Word::Other } else { admit(&self.shape, datagram) };
        if self.resumed.is_some() {
            return self.on_frame_in_user_space(from, word);
        }
        let run = self.kernel.test(&frame(from, datagram), LOOPBACK, 1).map_err(|error| self.fails(error.to_string()))?;
        let counts = self.kernel.counts(self.place);
        let dropped: Vec<DropReason> =
            DropReason::ALL.iter().copied().filter(|reason| counts.dropped_for(*reason) > self.before.dropped_for(*reason)).collect();
        let up: Vec<Up> = Up::ALL.iter().copied().filter(|up| counts.up_for(*up) > self.before.up_for(*up)).collect();
        let before = std::mem::replace(&mut self.before, counts);
        self.seen.extend(dropped.iter().map(|reason| reason.name().to_owned()));
        self.seen.extend(up.iter().map(|up| format!("up {}", up.name())));
        if run.action == PASS {
            return self.on_passed(from, (word, datagram.len()), &up);
        }
        if !up.is_empty() {
            return Err(self.fails(format!("action {} and counted as gone up: {up:?}", run.action)));
        }
        let (sent, why) = match word {
            Word::Contribution(header, payload) => self.oracle.on_contribution(from, header, &payload),
            Word::Dropped(reason) => (Vec::new(), vec![reason]),
            Word::Other => return Err(self.fails(format!("action {} for what is no contribution", run.action))),
        };
        let got = self.frames_of(&run)?;
        // An answer goes to one rank; of a job of one rank it looks as a result does, but for the count.
        let (last, before) = (&self.before.ranks[from as usize], before.ranks[from as usize].completed);
        let completes = last.completed - before;
        let is_sum = got.len() as u32 == self.shape.ranks && (self.shape.ranks > 1 || completes > 0);
        prop_assert_eq!(completes, u64::from(is_sum), "sums that it completed");
        prop_assert!(last.late[0] <= last.completed && last.late[3] == 0);
        self.seen.extend(sent.iter().map(|(_, bytes)| format!("kind {}{}", bytes[21], if bytes[6..8] == [0, 0] { " empty" } else { "" })));
        prop_assert_eq!(&got, &sent, "the kernel's packets on the left, the state machine's on the right");
        prop_assert_eq!(&dropped, &why, "reasons");
        Ok(())
    }

    /// The packets that leave, by rank.
    fn frames_of(&self, run: &fanin_xdp::kernel::TestRun) -> Result<Vec<(u32, Vec<u8>)>, TestCaseError> {
        let mut frames = match run.action {
            DROP => Vec::new(),
            REDIRECT => {
                let copy = |_| {
                    let copy = self.kernel.test_exit(&run.frame, LOOPBACK).map_err(|error| self.fails(error.to_string()))?;
                    prop_assert_eq!(copy.action, PASS, "a copy does not leave");
                    Ok(unframe(&self.shape, &copy.frame))
                };
                // The program at the exit has nobody left for what is an answer to one rank.
                let first = self.kernel.test_exit(&run.frame, LOOPBACK).map_err(|error| self.fails(error.to_string()))?;
                if first.action == DROP {
                    return Ok(vec![unframe(&self.shape, &run.frame)]);
                }
                prop_assert_eq!(first.action, PASS, "a copy does not leave");
                let frames = std::iter::once(Ok(unframe(&self.shape, &first.frame)))
                    .chain((1..self.shape.ranks).map(copy))
                    .collect::<Result<Vec<_>, _>>()?;
                let another = self.kernel.test_exit(&run.frame, LOOPBACK).map_err(|error| self.fails(error.to_string()))?;
                prop_assert_eq!(another.action, DROP, "a rank was sent a result twice");
                frames
            }
            other => return Err(self.fails(format!("action {other}"))),
        };
        frames.sort();
        Ok(frames)
    }

    /// The program has left a frame to user space.
    fn on_passed(&mut self, from: u32, (word, bytes): (Word, usize), up: &[Up]) -> Result<(), TestCaseError> {
        let [up] = *up else { return Err(self.fails(format!("passed, and counted as {up:?}"))) };
        match (up, word) {
            (Up::Stranger, _) if from >= self.shape.ranks => Ok(()),
            (Up::Foreign | Up::Kind, Word::Other) => Ok(()),
            // What is too long is not looked at: user space does.
            (Up::TooLong, Word::Dropped(_) | Word::Other) => Ok(()),
            (up @ (Up::Operator | Up::TooLong), Word::Contribution(header, payload)) => {
                let is_rightly_so = match (up, &header) {
                    (Up::TooLong, _) => bytes + HEADERS_BYTES > FRAME_BYTES_MAX,
                    (_, AnyHeader::SwitchMl(SwitchMlHeader::Contribution { call, .. })) => {
                        self.shape.ops()[usize::from(call.op)] & OP_REDUCES == 0
                    }
                    _ => false,
                };
                prop_assert!(is_rightly_so, "the program adds these: {:?}", up);
                prop_assert!(!self.before.takes_job(&self.at_first).is_empty());
                self.leave()?;
                self.on_frame_in_user_space(from, Word::Contribution(header, payload))?;
                // Whatever comes now is not the kernel's.
                let run = self.kernel.test(&frame(0, &[0; 60]), LOOPBACK, 1).map_err(|error| self.fails(error.to_string()))?;
                prop_assert_eq!(run.action, PASS);
                Ok(())
            }
            (up, word) => Err(self.fails(format!("gone up as {up:?}: {word:?}"))),
        }
    }

    /// The kernel goes on with a job that has left it.
    pub fn come_back(&mut self) -> Result<(), TestCaseError> {
        let Some(resumed) = self.resumed.take() else { return Ok(()) };
        let Some(versions) = kept(&resumed.node) else { return Err(self.fails("the node gives nothing away")) };
        let numbers = resumed.outlet.next.iter().map(|next| Numbers { next: *next, heard: 0 }).collect();
        let taken = Taken { versions, numbers };
        self.kernel.take_back(self.place, self.shape.system, &taken).map_err(|error| self.fails(error.to_string()))?;
        self.before = self.kernel.counts(self.place);
        self.at_first = self.before.clone();
        self.seen.insert("back".into());
        Ok(())
    }

    /// User space goes on with the job.
    fn leave(&mut self) -> Result<(), TestCaseError> {
        let taken = self.kernel.hand_over(self.place).map_err(|error| self.fails(error.to_string()))?;
        let mut resumed = Oracle::new(&self.shape);
        resume(&mut resumed.node, Instant::ZERO, (self.shape.system, JobId(JOB)), &self.shape.ops(), &taken);
        resumed.outlet.next = taken.numbers.iter().map(|numbers| numbers.next).collect();
        self.resumed = Some(resumed);
        Ok(())
    }

    /// After the job has left the kernel: the state machine that was told, and the one that has seen everything.
    fn on_frame_in_user_space(&mut self, from: u32, word: Word) -> Result<(), TestCaseError> {
        let (Word::Contribution(header, payload), Some(resumed)) = (word, &mut self.resumed) else { return Ok(()) };
        let got = resumed.on_contribution(from, header, &payload);
        prop_assert_eq!(got, self.oracle.on_contribution(from, header, &payload), "resumed on the left");
        self.seen.insert("resumed".into());
        Ok(())
    }
}
