//! A switch's memory of the last two questions of a job.

use fanin_core::{Instant, Suspect};
use fanin_wire::sharp::Want;

use crate::shared::rtt::rebased;
use crate::shared::serial::newer;

/// Where a question stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Standing {
    /// Nobody has asked.
    Idle,
    /// Some children have.
    Gathering,
    /// All have, and the parent was asked.
    Sent,
    /// It is answered.
    Answered,
}

/// A question as a switch knows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Question {
    pub number: u32,
    pub standing: Standing,
    pub want: Want,
    pub refused: bool,
    /// Children that have not asked.
    pub missing: u32,
    /// Which children have, 64 to a word.
    arrived: Box<[u64]>,
    /// When the parent was last asked.
    pub asked_at: Instant,
    /// The parent was asked again.
    pub repeated: bool,
    /// The parent has said that others are missing, so it is there.
    pub parent_heard: bool,
    /// What a child that has not asked said last of who is missing below it.
    pub word: Option<(u16, Suspect)>,
}

impl Question {
    fn new(children: usize) -> Self {
        Question {
            number: 0,
            standing: Standing::Idle,
            want: Want::Take,
            refused: false,
            missing: 0,
            arrived: vec![0; children.div_ceil(64)].into(),
            asked_at: Instant::ZERO,
            repeated: false,
            parent_heard: false,
            word: None,
        }
    }

    pub fn has_asked(&self, child: u16) -> bool {
        self.arrived[usize::from(child) / 64] >> (child % 64) & 1 == 1
    }

    /// A child asks, for the first time. Gives the number of children that have not.
    pub fn mark(&mut self, child: u16) -> u32 {
        self.arrived[usize::from(child) / 64] |= 1 << (child % 64);
        self.missing -= 1;
        self.missing
    }

    /// The first child that has not asked.
    pub fn first_missing(&self, children: usize) -> Option<usize> {
        (0..children).find(|child| !self.has_asked(*child as u16))
    }
}

/// What a question's number says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// The question is there.
    Same,
    /// It is new, and its place was free.
    Begun,
    /// It is over for all.
    Stale,
    /// No worker may be that far ahead.
    TooNew,
}

/// The last two questions of a job at one switch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Questions {
    children: u32,
    places: [Question; 2],
}

impl Questions {
    pub fn new(children: usize) -> Self {
        Questions { children: children as u32, places: [Question::new(children), Question::new(children)] }
    }

    pub fn at(&mut self, number: u32) -> &mut Question {
        &mut self.places[number as usize & 1]
    }

    /// Whether a question is later than what its place holds, and could begin there.
    pub fn is_to_come(&mut self, number: u32) -> bool {
        let question = self.at(number);
        match question.standing {
            Standing::Idle => true,
            Standing::Answered => newer(number, question.number),
            Standing::Gathering | Standing::Sent => false,
        }
    }

    /// Finds a question, or begins it where it is new.
    pub fn find(&mut self, number: u32, want: Want) -> Known {
        let children = self.children;
        let question = self.at(number);
        if question.standing != Standing::Idle && question.number == number {
            return Known::Same;
        }
        if question.standing != Standing::Idle && !newer(number, question.number) {
            return Known::Stale;
        }
        if !matches!(question.standing, Standing::Idle | Standing::Answered) {
            return Known::TooNew;
        }
        (question.number, question.standing, question.want) = (number, Standing::Gathering, want);
        (question.refused, question.missing, question.asked_at) = (false, children, Instant::ZERO);
        (question.repeated, question.parent_heard, question.word) = (false, false, None);
        question.arrived.fill(0);
        Known::Begun
    }

    /// Makes times relative to `now`.
    pub fn rebase(&mut self, now: Instant) {
        for question in &mut self.places {
            question.asked_at = rebased(question.asked_at, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_questions_are_kept_and_older_ones_are_known_as_such() {
        let mut questions = Questions::new(70);
        assert_eq!(questions.find(0, Want::Take), Known::Begun);
        assert_eq!(questions.find(0, Want::Take), Known::Same);
        assert_eq!(questions.find(2, Want::Take), Known::TooNew, "0 is not answered");
        assert_eq!((0..70).map(|child| questions.at(0).mark(child)).last(), Some(0));
        assert!(questions.at(0).has_asked(69) && questions.at(0).first_missing(70).is_none());
        questions.at(0).standing = Standing::Answered;
        assert_eq!(questions.find(1, Want::GiveBack), Known::Begun);
        assert_eq!(questions.at(1).first_missing(70), Some(0));
        assert_eq!(questions.find(2, Want::Take), Known::Begun);
        assert_eq!((questions.find(0, Want::Take), questions.at(2).missing), (Known::Stale, 70));
    }
}
