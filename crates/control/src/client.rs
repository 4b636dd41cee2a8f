//! The client's side of a connection: greets, checks who answers, and sees to it that messages come in an order that makes sense. Moves
//! no bytes itself.

use crate::frame::{Decoder, FrameError, encode};
use crate::message::{Failed, Hello, Refused, SwitchHello, SwitchMessage};
use crate::{MAGIC, VERSION};

/// Why a connection to a switch is of no use.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ClientError {
    /// What came is not the protocol.
    #[error("whoever answers there is not a Fanin switch: {0}")]
    Frame(#[from] FrameError),
    /// The other side does not begin as a switch does.
    #[error("whoever answers there is not a Fanin switch: its first message is not a greeting")]
    NotASwitch,
    /// The versions differ.
    #[error(
        "the switch ({software}) speaks version {theirs} of the control protocol and this program version {VERSION}: use the same release of Fanin on both sides"
    )]
    Version {
        /// The switch's version.
        theirs: u32,
        /// The switch's program.
        software: String,
    },
    /// Not admitted.
    #[error("the switch refuses: {}", .0.text)]
    Refused(Refused),
    /// The job has failed.
    #[error("{}", .0.text)]
    Failed(Failed),
    /// A message came when it made no sense.
    #[error("the switch said `{got}` when it should have said {expected}")]
    OutOfOrder {
        /// What it said.
        got: &'static str,
        /// What would have made sense.
        expected: &'static str,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Greeting,
    Joining,
    Admitted,
    Started,
}

/// One connection to a switch.
///
/// Send [`ClientSession::greeting`] and a [`Join`](crate::ClientMessage::Join) at once, then hand over what is received and take out
/// the messages.
#[derive(Clone, Debug)]
pub struct ClientSession {
    decoder: Decoder,
    stage: Stage,
    hello: Option<SwitchHello>,
}

impl ClientSession {
    /// A connection on which nothing has been said yet.
    pub fn new() -> Self {
        ClientSession { decoder: Decoder::new(), stage: Stage::Greeting, hello: None }
    }

    /// The first bytes to send. `software` is the name and version of this program, for people.
    pub fn greeting(software: &str) -> Vec<u8> {
        encode(&crate::ClientMessage::Hello(Hello::new(software)))
    }

    /// Adds what was received; call [`ClientSession::next`] until it gives nothing before adding more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.decoder.push(bytes);
    }

    /// The next message, once it is complete. The greeting itself is not given out: see [`ClientSession::switch`].
    ///
    /// # Errors
    /// [`ClientError`]; the connection is of no use then.
    #[allow(clippy::should_implement_trait, reason = "an iterator ends, this one goes on when there are more bytes")]
    pub fn next(&mut self) -> Result<Option<SwitchMessage>, ClientError> {
        while let Some(message) = self.decoder.next::<SwitchMessage>()? {
            match message {
                SwitchMessage::Hello(hello) => self.on_hello(hello)?,
                // Also before the greeting: a switch of another version says so without waiting.
                SwitchMessage::Refused(refused) => return Err(ClientError::Refused(refused)),
                _ if self.stage == Stage::Greeting => return Err(ClientError::NotASwitch),
                SwitchMessage::Failed(failed) => return Err(ClientError::Failed(failed)),
                message => {
                    self.check_order(&message)?;
                    return Ok(Some(message));
                }
            }
        }
        Ok(None)
    }

    /// Who answered; `None` until its greeting has come.
    pub fn switch(&self) -> Option<&SwitchHello> {
        self.hello.as_ref()
    }

    fn on_hello(&mut self, hello: SwitchHello) -> Result<(), ClientError> {
        if self.stage != Stage::Greeting {
            return Err(ClientError::OutOfOrder { got: "hello", expected: "anything else" });
        }
        if hello.magic != MAGIC {
            return Err(ClientError::NotASwitch);
        }
        if hello.version != VERSION {
            return Err(ClientError::Version { theirs: hello.version, software: hello.software });
        }
        self.stage = Stage::Joining;
        self.hello = Some(hello);
        Ok(())
    }

    fn check_order(&mut self, message: &SwitchMessage) -> Result<(), ClientError> {
        let wrong = |got, expected| Err(ClientError::OutOfOrder { got, expected });
        match (message, self.stage) {
            (SwitchMessage::Admitted(_), Stage::Joining) => self.stage = Stage::Admitted,
            (SwitchMessage::Admitted(_), _) => return wrong("admitted", "it once"),
            (SwitchMessage::Start, Stage::Admitted) => self.stage = Stage::Started,
            (SwitchMessage::Start, _) => return wrong("start", "it once, after `admitted`"),
            (SwitchMessage::Resume { .. }, Stage::Joining | Stage::Started) => return wrong("resume", "it between `admitted` and `start`"),
            (SwitchMessage::Shared { .. }, Stage::Joining) => return wrong("shared", "`admitted` first"),
            _ => {}
        }
        Ok(())
    }
}

impl Default for ClientSession {
    fn default() -> Self {
        ClientSession::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Refusal;

    fn hello(version: u32) -> SwitchMessage {
        SwitchMessage::Hello(SwitchHello {
            magic: MAGIC.into(),
            version,
            software: "fanin 9.9".into(),
            switch_instance: 4,
            fabric: None,
            wants_token: false,
            packets: Default::default(),
            fabric_key: None,
        })
    }

    fn session(messages: &[SwitchMessage]) -> ClientSession {
        let mut session = ClientSession::new();
        messages.iter().for_each(|message| session.push(&encode(message)));
        session
    }

    #[test]
    fn a_switch_of_another_version_is_an_error_that_names_both() {
        let error = session(&[hello(77)]).next().unwrap_err().to_string();
        assert!(error.contains("version 77") && error.contains(&format!("version {VERSION}")) && error.contains("fanin 9.9"), "{error}");
    }

    #[test]
    fn a_refusal_is_an_error_in_the_switchs_words_even_before_its_greeting() {
        let refused = Refused { code: Refusal::Full, text: "no room for a 65th job".into() };
        for messages in [vec![SwitchMessage::Refused(refused.clone())], vec![hello(VERSION), SwitchMessage::Refused(refused.clone())]] {
            assert_eq!(session(&messages).next(), Err(ClientError::Refused(refused.clone())));
        }
    }

    #[test]
    fn messages_are_given_out_in_order_and_nonsense_is_refused() {
        let mut good = session(&[hello(VERSION), SwitchMessage::Waiting { missing: vec![1], missing_count: 1 }, SwitchMessage::Describe]);
        assert!(matches!(good.next(), Ok(Some(SwitchMessage::Waiting { .. }))));
        assert_eq!(good.switch().unwrap().switch_instance, 4);
        assert_eq!(good.next(), Ok(Some(SwitchMessage::Describe)));
        assert_eq!(good.next(), Ok(None));
        assert_eq!(session(&[SwitchMessage::Start]).next(), Err(ClientError::NotASwitch));
        assert!(matches!(session(&[hello(VERSION), SwitchMessage::Start]).next(), Err(ClientError::OutOfOrder { got: "start", .. })));
        assert!(matches!(session(&[hello(VERSION), hello(VERSION)]).next(), Err(ClientError::OutOfOrder { got: "hello", .. })));
    }
}
