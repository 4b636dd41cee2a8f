//! Messages of protocol buffers as Chakra's files hold them.

/// A number of variable length.
pub fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field that is a number.
pub fn number(tag: u64, value: u64) -> Vec<u8> {
    [varint(tag << 3), varint(value)].concat()
}

/// A field with bytes.
pub fn part(tag: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(tag << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

/// An attribute of a node: a number in the field of its type.
pub fn attribute(name: &str, tag: u64, value: u64) -> Vec<u8> {
    part(10, &[part(1, name.as_bytes()), number(tag, value)].concat())
}

/// A file: each message behind its length.
pub fn file(messages: &[Vec<u8>]) -> Vec<u8> {
    messages.iter().flat_map(|message| [varint(message.len() as u64), message.clone()].concat()).collect()
}
