//! Keys of a fabric's cables: every packet between neighbours is made and taken with keys that only the two of them have.
//!
//! All keys come from one secret, the fabric's. Switches and the manager read it from a file; a rank is told those of its own cable when it is admitted.
//! A cable has the same secret for ever, so what one process makes has keys of its own: they are derived for the sender's epoch too, the random number
//! by which neighbours know a process that was restarted. A *hello*, the first that is heard of a process, stays readable and carries the high half of
//! its number, which nobody who has not heard the process before could know:
//!
//! ```text
//! hello   header | hello | high half of the number (u32, little-endian) | tag
//! others  header | rest | tag                                             as between a rank and its switch, see `packet`
//! ```

use std::fmt;

use crate::packet::{DOWN, Opener, PacketKeys, Protection, Sealer, TAG_BYTES, UP};
use crate::secret::Secret;

/// What a hello gets longer by beside its tag, in bytes.
pub const TURNS_BYTES: usize = 4;

/// The secret of a fabric.
#[derive(Clone, PartialEq, Eq)]
pub struct FabricKey(Secret);

impl FabricKey {
    /// This one.
    pub const fn new(secret: Secret) -> Self {
        FabricKey(secret)
    }

    /// The one in a file of this name: 64 hexadecimal digits, as `fanin token secret` makes them.
    ///
    /// # Errors
    /// In words, with the name of the file and what was expected.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let secret = Secret::try_from(text.trim().to_owned());
        secret.map(FabricKey).map_err(|_| format!("{name}: expected 64 hexadecimal digits, as `fanin token secret` makes them"))
    }

    /// Which key this is, for comparison: eight hexadecimal digits, from which nobody learns it.
    pub fn check_value(&self) -> String {
        self.0.derive("check", &[]).bytes()[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The keys of the cable between two nodes, by their numbers.
    pub fn cable(&self, protection: Protection, one: u32, other: u32) -> PacketKeys {
        PacketKeys { protection, secret: self.0.derive("cable", &[u64::from(one.min(other)), u64::from(one.max(other))]) }
    }
}

impl fmt::Debug for FabricKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FabricKey").field(&self.check_value()).finish()
    }
}

/// What opens the packets of one life of the process at the other end.
struct Life {
    epoch: u32,
    /// The high half of the number with which it was first heard.
    turns: u32,
    opener: Opener,
}

/// One end of a cable.
pub struct CableKeys {
    keys: PacketKeys,
    /// The direction in which the other end sends.
    incoming: u64,
    sealer: Sealer,
    /// The life that is believed.
    known: Option<Life>,
    /// One that has made a hello, and of which it is not known yet whether it is over.
    claimed: Option<Life>,
}

/// The keys of one life.
fn of_life(keys: &PacketKeys, epoch: u32) -> PacketKeys {
    PacketKeys { protection: keys.protection, secret: keys.secret.derive("life", &[u64::from(epoch)]) }
}

impl CableKeys {
    /// Those of the end at the node with the lower number, `is_first`, or of the other end; `epoch` is that of this process.
    pub fn new(keys: PacketKeys, is_first: bool, epoch: u32) -> Self {
        let (outgoing, incoming) = if is_first { (UP, DOWN) } else { (DOWN, UP) };
        let sealer = Sealer::new(&of_life(&keys, epoch), outgoing);
        CableKeys { keys, incoming, sealer, known: None, claimed: None }
    }

    /// Whether these keys are those of the end.
    pub fn is_of(&self, keys: &PacketKeys) -> bool {
        self.keys == *keys
    }

    /// Completes a packet: see [`Sealer::seal`].
    #[inline]
    pub fn seal(&mut self, low: u32, header_bytes: usize, packet: &mut [u8]) {
        self.sealer.seal(low, header_bytes, packet);
    }

    /// Completes a hello, whose last [`TURNS_BYTES`] + [`TAG_BYTES`] bytes are free.
    ///
    /// # Panics
    /// Where it is shorter than these.
    pub fn seal_hello(&mut self, low: u32, packet: &mut [u8]) {
        let (end, turns) = (packet.len() - TAG_BYTES, self.sealer.turns_at(low));
        packet[end - TURNS_BYTES..end].copy_from_slice(&turns.to_le_bytes());
        self.sealer.seal(low, end, packet);
    }

    /// Takes a packet apart that is no hello, of the life that is believed; `whole` is what its number is since that life was first heard. As
    /// [`Opener::open`].
    #[inline]
    pub fn open<'a>(
        &mut self,
        epoch: u32,
        whole: u64,
        header_bytes: usize,
        packet: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        let life = self.known.as_mut().filter(|life| life.epoch == epoch)?;
        life.opener.open(whole + (u64::from(life.turns) << 32), header_bytes, packet, scratch)
    }

    /// Takes a hello apart, of whatever life; gives it without its tag. `None` where nobody with these keys has made it.
    pub fn open_hello<'a>(&mut self, epoch: u32, low: u32, packet: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let end = packet.len().checked_sub(TAG_BYTES)?;
        let turns = u32::from_le_bytes(*packet[..end].last_chunk::<TURNS_BYTES>()?);
        let number = u64::from(turns) << 32 | u64::from(low);
        if let Some(life) = [&mut self.known, &mut self.claimed].into_iter().flatten().find(|life| life.epoch == epoch) {
            return life.opener.open(number, end, packet, scratch);
        }
        let mut opener = Opener::at(&of_life(&self.keys, epoch), self.incoming, number);
        opener.open(number, end, packet, scratch)?;
        self.claimed = Some(Life { epoch, turns, opener });
        Some(&packet[..end])
    }

    /// The process at the other end is known to live in this epoch, of which a hello was taken apart.
    pub fn believe(&mut self, epoch: u32) {
        if let Some(life) = self.claimed.take_if(|life| life.epoch == epoch) {
            self.known = Some(life);
        }
    }
}

impl fmt::Debug for CableKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = |life: &Option<Life>| life.as_ref().map(|life| life.epoch);
        f.debug_struct("CableKeys").field("known", &epoch(&self.known)).field("claimed", &epoch(&self.claimed)).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: usize = 16;

    fn key(byte: u8) -> FabricKey {
        FabricKey::new(Secret::new([byte; 32]))
    }

    fn hello(from: &mut CableKeys, low: u32) -> Vec<u8> {
        let mut packet = vec![5; HEADER + 9 + TURNS_BYTES + TAG_BYTES];
        from.seal_hello(low, &mut packet);
        packet
    }

    fn data(from: &mut CableKeys, low: u32) -> Vec<u8> {
        let mut packet = [vec![6; HEADER + 100], vec![0; TAG_BYTES]].concat();
        from.seal(low, HEADER, &mut packet);
        packet
    }

    #[test]
    fn neighbours_take_what_the_other_one_makes_in_the_life_that_is_believed() {
        for protection in [Protection::Mac, Protection::Seal] {
            let keys = key(1).cable(protection, 7, 3);
            assert_eq!(keys, key(1).cable(protection, 3, 7));
            let (mut low, mut high) = (CableKeys::new(keys.clone(), true, 10), CableKeys::new(keys.clone(), false, 20));
            let mut scratch = Vec::new();
            // Nothing but a hello is heard of who is not known.
            let early = data(&mut low, 0);
            assert_eq!(high.open(10, 0, HEADER, &early, &mut scratch), None);
            let first = hello(&mut low, 1);
            assert_eq!(high.open_hello(10, 1, &first, &mut scratch).map(<[u8]>::len), Some(HEADER + 9 + TURNS_BYTES));
            let packet = data(&mut low, 2);
            assert_eq!(high.open(10, 2, HEADER, &packet, &mut scratch), None, "a claim is no life");
            high.believe(10);
            assert_eq!(high.open(10, 2, HEADER, &packet, &mut scratch), Some(&[6; HEADER + 100][..]));
            assert_eq!(high.open(11, 2, HEADER, &packet, &mut scratch), None);
            assert_eq!(high.open(10, 3, HEADER, &packet, &mut scratch), None, "the number is part of it");
            // Nobody takes its own packets for the other one's, and each cable has keys of its own.
            assert_eq!(low.open_hello(10, 1, &first, &mut scratch), None);
            let mut elsewhere = CableKeys::new(key(1).cable(protection, 3, 8), false, 20);
            assert_eq!(elsewhere.open_hello(10, 1, &first, &mut scratch), None);
            let mut other = CableKeys::new(key(2).cable(protection, 3, 7), false, 20);
            assert_eq!(other.open_hello(10, 1, &first, &mut scratch), None);
            // Each bit counts, also of the epoch and the number that go in the clear.
            for at in 0..first.len() {
                let mut changed = first.clone();
                changed[at] ^= 1;
                assert_eq!(high.open_hello(10, 1, &changed, &mut scratch), None, "byte {at}");
            }
            assert_eq!(high.open_hello(12, 1, &first, &mut scratch), None);
        }
    }

    #[test]
    fn lives_of_a_process_have_different_keys_for_the_same_numbers() {
        let keys = key(1).cable(Protection::Seal, 0, 1);
        let packet = |epoch: u32| data(&mut CableKeys::new(keys.clone(), true, epoch), 0);
        assert_ne!(packet(1), packet(2));
        let mut high = CableKeys::new(keys.clone(), false, 9);
        let mut scratch = Vec::new();
        for epoch in [1, 2] {
            let mut low = CableKeys::new(keys.clone(), true, epoch);
            let first = hello(&mut low, 0);
            assert!(high.open_hello(epoch, 0, &first, &mut scratch).is_some());
            high.believe(epoch);
            let next = data(&mut low, 1);
            assert!(high.open(epoch, 1, HEADER, &next, &mut scratch).is_some());
        }
        assert!(high.open(1, 0, HEADER, &packet(1), &mut scratch).is_none(), "that life is over");
    }

    #[test]
    fn who_comes_late_learns_the_high_half_of_numbers_from_a_hello() {
        let keys = key(1).cable(Protection::Mac, 0, 1);
        let mut low = CableKeys::new(keys.clone(), true, 4);
        // Numbers that have gone round three times.
        for turn in 0..3 {
            data(&mut low, u32::MAX - turn);
            data(&mut low, turn);
        }
        let (first, mut scratch) = (hello(&mut low, 50), Vec::new());
        let mut high = CableKeys::new(keys, false, 9);
        assert!(high.open_hello(4, 50, &first, &mut scratch).is_some());
        high.believe(4);
        let next = data(&mut low, 51);
        assert!(high.open(4, 51, HEADER, &next, &mut scratch).is_some());
        let round = data(&mut low, 49);
        assert!(
            high.open(4, (1 << 32) + 49, HEADER, &round, &mut scratch).is_none(),
            "a whole turn later is another period than the next one"
        );
    }

    #[test]
    fn a_key_is_read_and_what_is_none_is_refused_by_name() {
        assert_eq!(FabricKey::parse("fabric.key", &format!("{}\n", "ab".repeat(32))), Ok(key(0xab)));
        let error = FabricKey::parse("fabric.key", "ab").unwrap_err();
        assert_eq!(error, "fabric.key: expected 64 hexadecimal digits, as `fanin token secret` makes them");
        assert_ne!(key(1).check_value(), key(2).check_value());
        assert_eq!(format!("{:?}", key(1)), format!("FabricKey({:?})", key(1).check_value()));
    }
}
