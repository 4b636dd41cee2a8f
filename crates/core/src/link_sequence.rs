//! What is believed of the other end of a link: in which epoch it lives, and where its numbers are.
//!
//! A packet's epoch and number are words of whoever sent it. Were they believed at once, one stray, damaged or forged packet would make
//! everything that the real neighbour sends too old for ever. So:
//!
//! - A number within the [window](crate::ReplayWindow) is believed. The window moves no further than packets have come.
//! - A number beyond it is held against others: [`LinkSequence::EVIDENCE`] packets in a row that ascend by small steps, with nothing in
//!   between of what is believed, begin another *track*. The numbers of the one before stay with it and are still accepted, so a jump
//!   that was none does no harm. Tracks share the numbers out among them: each number belongs to one track at most, and a track begins
//!   where the one that had its numbers has not come to, so each number comes once.
//! - An epoch is believed when it was [agreed](LinkSequence::agree) elsewhere: over the control connection, or by a hello that repeats
//!   what only the other end can know. Where there is nobody to agree with, as many packets in a row as for a jump show that the
//!   neighbour has restarted.
//! - An epoch that another one has followed is over.
//!
//! Packets that are held against others are dropped: the protocols above send them again. None is ever taken twice, whatever comes.

use crate::event::DropReason;
use crate::replay::ReplayWindow;

/// How many earlier lives of a neighbour are remembered, so that a late packet of one of them is not taken for a restart.
const RETIRED: usize = 4;
/// Tracks at once: that which is used, and others.
const TRACKS: usize = 4;
/// How many numbers may be jumped over in an epoch. Half of a number travels; were more jumped over than that can tell apart, a number
/// that has been seen could be taken for one of the next turn.
const SKIPPED_MAX: u64 = 1 << 30;
/// Packets of one sender that ascend by no more than this agree with each other.
const STEP_MAX: u32 = 256;

/// Whose word an epoch needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EpochRule {
    /// [`LinkSequence::agree`] alone says which epoch it is.
    Agreed,
    /// The first packet's is believed, and another one when several packets in a row say so.
    Shown,
}

/// Whether a packet is the first of a neighbour's new life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restarted(pub bool);

/// A range of numbers, and the window that goes through it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Track {
    /// The first number. Those that the window has left behind are still this track's, and too old.
    from: u64,
    /// One past the last number.
    until: u64,
    window: ReplayWindow,
}

impl Track {
    #[inline]
    fn has(&self, sequence: u64) -> bool {
        (self.from..self.until).contains(&sequence)
    }
}

/// Packets that agree with each other, and not with what is believed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Claim {
    epoch: u32,
    newest: u32,
    packets: u32,
}

/// What is believed of the other end of a link.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LinkSequence {
    rule: EpochRule,
    epoch: Option<u32>,
    /// The track of the packet that came last.
    track: Track,
    claim: Claim,
    /// The other tracks, the one that was used last behind. None but on links on which numbers have jumped.
    others: Vec<Track>,
    /// How many numbers were jumped over in this epoch.
    skipped: u64,
    retired: [Option<u32>; RETIRED],
}

impl LinkSequence {
    /// So many packets in a row must agree before a jump or a new epoch is believed.
    pub const EVIDENCE: u32 = 8;

    /// Nothing is known yet.
    pub const fn new(rule: EpochRule) -> Self {
        LinkSequence {
            rule,
            epoch: None,
            track: Track { from: 0, until: u64::MAX, window: ReplayWindow::new() },
            claim: Claim { epoch: 0, newest: 0, packets: 0 },
            others: Vec::new(),
            skipped: 0,
            retired: [None; RETIRED],
        }
    }

    /// The epoch that is believed.
    pub const fn epoch(&self) -> Option<u32> {
        self.epoch
    }

    /// The number of which only the low half travelled: of those that end in it, the one nearest to those that came last
    /// ([`ReplayWindow::whole`]).
    #[inline]
    pub fn whole(&self, low: u32) -> u64 {
        self.track.window.whole(low)
    }

    /// The low half of a number near those that came last: for [`LinkSequence::agree`], by who goes on with the link.
    pub const fn near(&self) -> u32 {
        self.track.window.middle() as u32
    }

    /// The low half of a number that all numbers are below that have come, in whole words of the window; `None` where numbers have jumped, so that
    /// no number is known that is past all of them and not past those that are still to come.
    pub fn past(&self) -> Option<u32> {
        let past = self.track.window.past().next_multiple_of(u64::from(u64::BITS));
        self.others.is_empty().then_some(past as u32)
    }

    /// The other end lives in this epoch from now on, which is known for sure. `low` is the low half of a number that it has used, or 0
    /// at the beginning. False where it has long left that epoch.
    pub fn agree(&mut self, epoch: u32, low: u32) -> bool {
        if self.epoch == Some(epoch) {
            return true;
        }
        if self.retired.contains(&Some(epoch)) {
            return false;
        }
        self.begin(epoch, low);
        true
    }

    /// Whether a packet with this epoch and this low half of a number is new; says also whether it shows that the neighbour has restarted.
    ///
    /// # Errors
    /// [`DropReason::Repeated`], [`DropReason::TooOld`], or [`DropReason::Unproven`] for one that is not believed, or not yet.
    #[inline]
    pub fn accept(&mut self, epoch: u32, low: u32) -> Result<Restarted, DropReason> {
        if self.epoch == Some(epoch) {
            let sequence = self.track.window.whole(low);
            if self.track.has(sequence) && sequence < self.track.window.end() {
                self.claim.packets = 0;
                return self.track.window.accept(sequence).map(|()| Restarted(false));
            }
            return self.accept_elsewhere(sequence).map(|()| Restarted(false));
        }
        self.hear_of(epoch, low)
    }

    /// A number that the present track does not have.
    #[cold]
    fn accept_elsewhere(&mut self, sequence: u64) -> Result<(), DropReason> {
        if let Some(at) = self.others.iter().position(|track| track.has(sequence)) {
            let accepted = self.others[at].window.accept(sequence);
            if accepted.is_ok() {
                let track = self.others.remove(at);
                let before = std::mem::replace(&mut self.track, track);
                self.others.push(before);
                self.claim.packets = 0;
            }
            if accepted != Err(DropReason::Unproven) {
                return accepted;
            }
        } else if !self.track.has(sequence) {
            return Err(DropReason::TooOld);
        }
        // Beyond the window of the track that has the number.
        if !self.is_shown(self.epoch.unwrap_or_default(), sequence as u32) {
            return Err(DropReason::Unproven);
        }
        self.jump(sequence)
    }

    /// Begins a track at a number that another one has and has not come to.
    fn jump(&mut self, sequence: u64) -> Result<(), DropReason> {
        if self.others.len() == TRACKS - 1 {
            // Numbers ascend: the track that was used least recently is over if it is the lowest as well. Else others claim to be this
            // neighbour, and there is no room for more of them. Nobody has the numbers of the track that goes: they are too old.
            let first = self.others[0].from;
            if self.others[1..].iter().chain([&self.track]).any(|track| track.from < first) {
                return Err(DropReason::Unproven);
            }
            self.others.remove(0);
        }
        let owner = std::iter::once(&mut self.track).chain(&mut self.others).find(|track| track.has(sequence));
        let Some(owner) = owner else { return Err(DropReason::TooOld) };
        // Of those that the evidence overtook some may still come.
        let from = owner.window.end().max(whole_words(sequence.saturating_sub(ReplayWindow::SPAN)));
        let skipped = self.skipped.saturating_add(from - owner.window.end());
        if skipped > SKIPPED_MAX {
            return Err(DropReason::Unproven);
        }
        self.skipped = skipped;
        let mut track = Track { from, until: std::mem::replace(&mut owner.until, from), window: ReplayWindow::from(from) };
        let accepted = track.window.accept(sequence);
        self.others.push(std::mem::replace(&mut self.track, track));
        accepted
    }

    /// An epoch that is not believed.
    #[cold]
    fn hear_of(&mut self, epoch: u32, low: u32) -> Result<Restarted, DropReason> {
        if self.retired.contains(&Some(epoch)) {
            return Err(DropReason::TooOld);
        }
        if self.rule == EpochRule::Agreed {
            return Err(DropReason::Unproven);
        }
        if self.epoch.is_some() && !self.is_shown(epoch, low) {
            return Err(DropReason::Unproven);
        }
        let before = self.epoch;
        self.begin(epoch, low);
        self.track.window.accept(self.track.window.whole(low)).map(|()| Restarted(before.is_some()))
    }

    /// Whether this packet and those before it show that what they say is so.
    fn is_shown(&mut self, epoch: u32, low: u32) -> bool {
        let Claim { epoch: claimed, newest, packets } = self.claim;
        let agrees = packets > 0 && claimed == epoch && (1..=STEP_MAX).contains(&low.wrapping_sub(newest));
        self.claim = Claim { epoch, newest: low, packets: if agrees { packets + 1 } else { 1 } };
        let is_shown = self.claim.packets >= Self::EVIDENCE;
        if is_shown {
            self.claim.packets = 0;
        }
        is_shown
    }

    fn begin(&mut self, epoch: u32, low: u32) {
        if let Some(before) = self.epoch.replace(epoch) {
            self.retired.rotate_right(1);
            self.retired[0] = Some(before);
        }
        let window = ReplayWindow::from(u64::from(low).saturating_sub(ReplayWindow::SPAN));
        self.track = Track { from: 0, until: u64::MAX, window };
        self.others.clear();
        self.skipped = 0;
        self.claim.packets = 0;
    }
}

/// Windows begin at whole words.
const fn whole_words(number: u64) -> u64 {
    number - number % u64::BITS as u64
}

#[cfg(test)]
mod tests;
