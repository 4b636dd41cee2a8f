//! Files of captured packets, the classic format with microseconds, as bmv2 reads and writes them.

/// One packet of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// When it came, in microseconds.
    pub at_us: u64,
    /// From the Ethernet header on.
    pub frame: Vec<u8>,
}

const MAGIC: u32 = 0xa1b2_c3d4;
const LENGTH_MAX: u32 = 65_535;
const LINK_ETHERNET: u32 = 1;
const HEADER: usize = 24;
const RECORD: usize = 16;

/// The bytes of a file.
pub fn write(packets: &[Packet]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(MAGIC.to_le_bytes());
    bytes.extend([2, 0, 4, 0]);
    for word in [0, 0, LENGTH_MAX, LINK_ETHERNET] {
        bytes.extend(word.to_le_bytes());
    }
    for packet in packets {
        let length = packet.frame.len() as u32;
        for word in [(packet.at_us / 1_000_000) as u32, (packet.at_us % 1_000_000) as u32, length, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(&packet.frame);
    }
    bytes
}

/// The packets of a file that [`write()`] has made.
///
/// # Errors
/// What is wrong with it.
pub fn read(bytes: &[u8]) -> Result<Vec<Packet>, String> {
    let word = |at: usize| {
        let bytes =
            bytes.get(at..at + 4).and_then(|bytes| bytes.first_chunk()).ok_or_else(|| format!("it ends within a word at byte {at}"));
        bytes.map(|bytes| u32::from_le_bytes(*bytes))
    };
    if word(0)? != MAGIC || word(20)? != LINK_ETHERNET {
        return Err("it is no little-endian file of Ethernet frames with microseconds".into());
    }
    let (mut packets, mut at) = (Vec::new(), HEADER);
    while at < bytes.len() {
        let (seconds, microseconds) = (word(at)?, word(at + 4)?);
        if microseconds >= 1_000_000 {
            return Err(format!("the packet at byte {at} has {microseconds} microseconds beside its seconds: expected less than 1000000"));
        }
        let at_us = u64::from(seconds) * 1_000_000 + u64::from(microseconds);
        let (captured, length) = (word(at + 8)? as usize, word(at + 12)? as usize);
        if captured != length {
            return Err(format!("the packet at byte {at} was cut from {length} to {captured} bytes"));
        }
        let frame = bytes.get(at + RECORD..at + RECORD + length).ok_or_else(|| format!("it ends within the packet at byte {at}"))?;
        packets.push(Packet { at_us, frame: frame.to_vec() });
        at += RECORD + length;
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let packets = vec![
            Packet { at_us: 5, frame: vec![1, 2, 3] },
            Packet { at_us: 2_000_001, frame: vec![] },
            Packet { at_us: 9, frame: vec![7; 99] },
        ];
        let bytes = write(&packets);
        assert_eq!(bytes[..8], [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]);
        assert_eq!(read(&bytes), Ok(packets));
        assert_eq!(read(&write(&[])), Ok(vec![]));
        let mut later = bytes.clone();
        later[HEADER + 4..HEADER + 8].copy_from_slice(&1_000_000u32.to_le_bytes());
        assert!(read(&later).unwrap_err().contains("1000000 microseconds beside its seconds"));
        let ends = [HEADER, HEADER + RECORD + 3, HEADER + 2 * RECORD + 3];
        for length in (0..bytes.len()).filter(|length| !ends.contains(length)) {
            assert!(read(&bytes[..length]).is_err(), "{length}");
        }
    }
}
