//! A network interface as a port of a switch: whole Ethernet frames in and out, in batches, large ones before they are cut up.
//!
//! With `PACKET_VNET_HDR` the kernel gives a frame as its sender's TCP made it, up to 64 KiB with an unfinished checksum, and says how it is to
//! be cut; given back with the same words it is cut where it leaves, or never. That is a factor of four in processor time.
//!
//! A port may also be a cable: a UDP socket with an emulated network card at its other end, one datagram a frame, as qemu's `-netdev dgram` has
//! it. That needs no privilege.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::aligned::{Aligned, LINE_BYTES};

/// Length of the words before each frame.
const OFFLOAD_BYTES: usize = 10;
/// The longest frame: the longest IP packet, an Ethernet header and two tags.
const FRAME_BYTES_MAX: usize = 65_535 + 14 + 8;
/// The headers of most frames with many bytes: Ethernet, IPv4, and TCP with timestamps. What follows them begins a cache line ([`Aligned`]).
const HEADERS_BYTES: usize = 14 + 20 + 32;
/// From one frame of a batch to the next.
const STRIDE: usize = (OFFLOAD_BYTES + FRAME_BYTES_MAX).next_multiple_of(LINE_BYTES);
/// Frames per system call.
const BATCH: usize = 32;
/// Length of a virtual LAN's tag, and where it stands in a frame: behind the addresses.
const TAG_BYTES: usize = 4;
const TAG_AT: usize = 12;
/// Room for what the kernel says beside a frame, in words that are aligned as it wants them.
const BESIDE_WORDS: usize = 6;

/// How a frame's checksum is to be finished and how it is to be cut: the kernel's `virtio_net_hdr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// Bit 0: the checksum is not finished.
    pub flags: u8,
    /// How the frame is to be cut; 0: not at all.
    pub gso_type: u8,
    /// Bytes of headers that every part gets.
    pub header_bytes: u16,
    /// Bytes of payload of each part.
    pub gso_bytes: u16,
    /// From where on the checksum is computed.
    pub checksum_start: u16,
    /// Where it is written, from there.
    pub checksum_offset: u16,
}

impl Offload {
    /// Bit of [`Offload::flags`]: the checksum is to be finished.
    pub const NEEDS_CHECKSUM: u8 = 1;

    /// Bit of [`Offload::flags`]: somebody below has found the checksum right, as a network card.
    pub const CHECKSUM_VALID: u8 = 2;

    fn parse(bytes: &[u8; OFFLOAD_BYTES]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Offload {
            flags: bytes[0],
            gso_type: bytes[1],
            header_bytes: word(2),
            gso_bytes: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    fn emit(&self) -> [u8; OFFLOAD_BYTES] {
        let mut bytes = [self.flags, self.gso_type, 0, 0, 0, 0, 0, 0, 0, 0];
        let words = [self.header_bytes, self.gso_bytes, self.checksum_start, self.checksum_offset];
        for (place, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// Why an interface could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// There is no such interface.
    #[error("there is no network interface {name:?}; `ip link` lists them")]
    NoInterface {
        /// The name asked for.
        name: String,
    },
    /// The kernel refused.
    #[error("cannot {what} on interface {name}: {source}{}", hint(source))]
    Refused {
        /// The interface.
        name: String,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A cable has two ends.
    #[error(
        "{name:?} is no cable: `udp:` and the addresses of its two ends are expected, this one first, as udp:127.0.0.1:5001/127.0.0.1:5002"
    )]
    NoCable {
        /// What was asked for.
        name: String,
    },
}

fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied { " (frames of an interface need root or CAP_NET_RAW)" } else { "" }
}

/// What the name of a cable begins with.
const CABLE: &str = "udp:";

/// An interface, opened for all frames that arrive there, or a cable.
#[derive(Debug)]
pub struct PacketPort {
    name: String,
    fd: OwnedFd,
    /// Of the interface; 0 for a cable.
    index: libc::c_uint,
    is_cable: bool,
}

impl PacketPort {
    /// Opens an interface, or a cable (`udp:OWN/OTHER`, IP addresses and ports). `buffer_bytes` is what may wait in each direction: the port's
    /// buffer.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn open(name: &str, buffer_bytes: usize) -> Result<Self, PortError> {
        if let Some(ends) = name.strip_prefix(CABLE) {
            return Self::open_cable(name, ends, buffer_bytes);
        }
        let no_interface = || PortError::NoInterface { name: name.to_owned() };
        let index = index_of(name);
        if index == 0 {
            return Err(no_interface());
        }
        let refused = |what, source| PortError::Refused { name: name.to_owned(), what, source };
        // The protocol comes with `bind`: before that no frame of another interface may slip in.
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 {
            return Err(refused("open a packet socket", io::Error::last_os_error()));
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let port = PacketPort { name: name.to_owned(), fd, index, is_cable: false };
        let set = |what, level, option, value: libc::c_int| port.set(level, option, &value).map_err(|source| refused(what, source));
        set("ask for frames before they are cut", libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        set("ask for tags of virtual LANs", libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        set("leave out what this process sends", libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        let bytes = libc::c_int::try_from(buffer_bytes).unwrap_or(libc::c_int::MAX);
        set("set the receive buffer", libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)?;
        set("set the send buffer", libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)?;
        // SAFETY: all of these are plain data for which zero bytes are a value.
        let (mut address, mut promiscuous): (libc::sockaddr_ll, libc::packet_mreq) = unsafe { (zeroed(), zeroed()) };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as libc::c_int;
        // SAFETY: an address of that length, which the call only reads.
        let bound = unsafe { libc::bind(port.fd.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32) };
        if bound < 0 {
            return Err(refused("listen", io::Error::last_os_error()));
        }
        promiscuous.mr_ifindex = index as libc::c_int;
        promiscuous.mr_type = libc::PACKET_MR_PROMISC as u16;
        port.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)
            .map_err(|source| refused("receive what is for others", source))?;
        Ok(port)
    }

    fn open_cable(name: &str, ends: &str, buffer_bytes: usize) -> Result<Self, PortError> {
        let ends = ends.split_once('/').and_then(|(own, other)| Some((own.parse().ok()?, other.parse().ok()?)));
        let Some((own, other)): Option<(SocketAddr, SocketAddr)> = ends else { return Err(PortError::NoCable { name: name.to_owned() }) };
        let refused = |what, source| PortError::Refused { name: name.to_owned(), what, source };
        let socket = UdpSocket::bind(own).map_err(|source| refused("listen", source))?;
        socket.connect(other).and_then(|()| socket.set_nonblocking(true)).map_err(|source| refused("plug in", source))?;
        let port = PacketPort { name: name.to_owned(), fd: socket.into(), index: 0, is_cable: true };
        let bytes = libc::c_int::try_from(buffer_bytes).unwrap_or(libc::c_int::MAX);
        // As much as the system allows; more takes a privilege.
        for option in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
            port.set(libc::SOL_SOCKET, option, &bytes).map_err(|source| refused("set the buffers", source))?;
        }
        Ok(port)
    }

    /// Whether it is a cable: frames there are as they are, finished and not to be cut.
    pub fn is_cable(&self) -> bool {
        self.is_cable
    }

    /// Whether the interface is there and up: one that is removed and made again by the same name is another one. A cable always is.
    pub fn is_there(&self) -> bool {
        self.is_cable || (index_of(&self.name) == self.index && self.is_up())
    }

    fn is_up(&self) -> bool {
        // SAFETY: plain data for which zero bytes are a value.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (place, byte) in request.ifr_name.iter_mut().zip(self.name.bytes().take(libc::IFNAMSIZ - 1)) {
            *place = byte as libc::c_char;
        }
        // SAFETY: a request with a name that ends with a zero byte; the call writes the flags into it, which are read only then.
        unsafe {
            libc::ioctl(self.fd.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut request) == 0
                && libc::c_int::from(request.ifr_ifru.ifru_flags) & libc::IFF_UP != 0
        }
    }

    /// Bytes of [`Offload`] before each frame.
    fn words(&self) -> usize {
        if self.is_cable { 0 } else { OFFLOAD_BYTES }
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        // SAFETY: a value of that length, which the call only reads.
        let done = unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), size_of::<T>() as u32) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The number of an interface; 0 where there is none.
fn index_of(name: &str) -> libc::c_uint {
    // SAFETY: a string that ends with a zero byte, which the function only reads.
    CString::new(name).map_or(0, |name| unsafe { libc::if_nametoindex(name.as_ptr()) })
}

impl AsFd for PacketPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Frames on their way in: memory for a batch.
#[derive(Debug)]
pub struct FrameBatch {
    memory: Aligned,
    lengths: [usize; BATCH],
}

impl Default for FrameBatch {
    fn default() -> Self {
        FrameBatch { memory: Aligned::new(BATCH * STRIDE, OFFLOAD_BYTES + HEADERS_BYTES), lengths: [0; BATCH] }
    }
}

impl FrameBatch {
    /// Takes frames that have arrived at a port, as many as there is room for; gives their number, 0 where there are none.
    ///
    /// # Errors
    /// What the kernel says, as where the interface is gone.
    pub fn receive(&mut self, port: &PacketPort) -> io::Result<usize> {
        // SAFETY: all of these are plain data for which zero bytes are a value.
        let (mut parts, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) = unsafe { (zeroed(), zeroed()) };
        let mut beside = [[0u64; BESIDE_WORDS]; BATCH];
        let memories = self.memory.bytes_mut().chunks_exact_mut(STRIDE);
        for (((part, message), beside), memory) in parts.iter_mut().zip(&mut messages).zip(&mut beside).zip(memories) {
            // Where no words come, the frame stands where it would stand behind them.
            let (words, frame) = memory.split_at_mut(OFFLOAD_BYTES - port.words());
            words.fill(0);
            *part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = beside.as_mut_ptr().cast();
            // C libraries differ in the types of such fields and flags.
            message.msg_hdr.msg_controllen = size_of_val(beside) as _;
        }
        // SAFETY: each message names one part and one place for what is said beside it, all memory of their own that lives as long as this call.
        let count = unsafe {
            libc::recvmmsg(port.fd.as_raw_fd(), messages.as_mut_ptr(), BATCH as u32, libc::MSG_DONTWAIT as _, std::ptr::null_mut())
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            // At the other end of a cable there may be nobody yet, or nobody any more.
            let unplugged = port.is_cable && error.kind() == io::ErrorKind::ConnectionRefused;
            let none = unplugged || matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            return if none { Ok(0) } else { Err(error) };
        }
        let memories = self.memory.bytes_mut().chunks_exact_mut(STRIDE);
        for ((length, message), memory) in self.lengths.iter_mut().zip(&messages[..count as usize]).zip(memories) {
            let truncated = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            *length = if truncated { 0 } else { OFFLOAD_BYTES - port.words() + message.msg_len as usize };
            if let Some(tag) = tag_of(&message.msg_hdr) {
                *length = insert_tag(memory, *length, tag);
            }
        }
        Ok(count as usize)
    }

    /// Frame `index` of the last batch, with how it is to be finished; `None` where it was longer than any that there is room for.
    pub fn frame(&mut self, index: usize) -> Option<(Offload, &mut [u8])> {
        let length = self.lengths[index];
        let memory = &mut self.memory.bytes_mut()[index * STRIDE..][..length];
        let (words, frame) = memory.split_first_chunk_mut::<OFFLOAD_BYTES>()?;
        Some((Offload::parse(words), frame))
    }
}

/// The tag of a virtual LAN that the kernel has taken out of a frame.
fn tag_of(message: &libc::msghdr) -> Option<[u8; TAG_BYTES]> {
    // SAFETY: the kernel has written the list that the header names, or left it empty, and its memory is still there.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(message);
        while !head.is_null() {
            if ((*head).cmsg_level, (*head).cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
                let said: libc::tpacket_auxdata = libc::CMSG_DATA(head).cast::<libc::tpacket_auxdata>().read_unaligned();
                if said.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                    let known = said.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
                    let [kind, tag] = [if known { said.tp_vlan_tpid } else { 0x8100 }, said.tp_vlan_tci].map(u16::to_be_bytes);
                    return Some([kind[0], kind[1], tag[0], tag[1]]);
                }
            }
            head = libc::CMSG_NXTHDR(message, head);
        }
    }
    None
}

/// Puts a tag back into a frame of `length` bytes with the words before it; gives the new length, 0 where there is no room.
fn insert_tag(memory: &mut [u8], length: usize, tag: [u8; TAG_BYTES]) -> usize {
    let at = OFFLOAD_BYTES + TAG_AT;
    if length < at || length + TAG_BYTES > memory.len() {
        return 0;
    }
    memory.copy_within(at..length, at + TAG_BYTES);
    memory[at..at + TAG_BYTES].copy_from_slice(&tag);
    if let Some(words) = memory.first_chunk_mut::<OFFLOAD_BYTES>() {
        let mut offload = Offload::parse(words);
        if offload.flags & Offload::NEEDS_CHECKSUM != 0 {
            offload.checksum_start += TAG_BYTES as u16;
        }
        if offload.header_bytes > 0 {
            offload.header_bytes += TAG_BYTES as u16;
        }
        *words = offload.emit();
    }
    length + TAG_BYTES
}

/// What became of frames that were to leave.
#[derive(Debug, Default)]
pub struct Flushed {
    /// How many found no room in the port's buffer, or were refused.
    pub lost: u64,
    /// The kernel says that there is no such interface any more, or that it is down.
    pub gone: Option<io::Error>,
}

/// Frames on their way out of one port.
#[derive(Debug, Default)]
pub struct FrameQueue {
    memory: Vec<u8>,
    ends: Vec<usize>,
}

impl FrameQueue {
    /// Adds a frame.
    pub fn push(&mut self, offload: &Offload, frame: &[u8]) {
        self.memory.extend_from_slice(&offload.emit());
        self.memory.extend_from_slice(frame);
        self.ends.push(self.memory.len());
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Throws away what waits, for which there is no port; gives how many frames that were.
    pub fn discard(&mut self) -> u64 {
        let lost = self.ends.len() as u64;
        self.memory.clear();
        self.ends.clear();
        lost
    }

    /// Sends all that the port takes.
    pub fn flush(&mut self, port: &PacketPort) -> Flushed {
        let (mut sent, mut flushed) = (0, Flushed::default());
        while sent < self.ends.len() {
            // SAFETY: all of these are plain data for which zero bytes are a value.
            let (mut parts, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) = unsafe { (zeroed(), zeroed()) };
            let count = (self.ends.len() - sent).min(BATCH);
            for (index, (part, message)) in parts.iter_mut().zip(&mut messages).take(count).enumerate() {
                let start = if sent + index == 0 { 0 } else { self.ends[sent + index - 1] };
                let mut memory = &mut self.memory[start..self.ends[sent + index]];
                if port.is_cable {
                    memory = finished(memory);
                }
                *part = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
            }
            // SAFETY: each message names one part, each part memory that lives as long as `self` and is only read.
            let done = unsafe { libc::sendmmsg(port.fd.as_raw_fd(), messages.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT as _) };
            if done > 0 {
                sent += done as usize;
                continue;
            }
            let error = io::Error::last_os_error();
            if matches!(error.raw_os_error(), Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV)) {
                flushed.lost += (self.ends.len() - sent) as u64;
                flushed.gone = Some(error);
                break;
            }
            if error.kind() != io::ErrorKind::Interrupted {
                // The first one of the rest is what could not be sent.
                flushed.lost += 1;
                sent += 1;
            }
        }
        self.discard();
        flushed
    }
}

/// A frame without the words before it, its checksum finished as they say: nobody does it later.
fn finished(memory: &mut [u8]) -> &mut [u8] {
    let Some((words, frame)) = memory.split_first_chunk_mut::<OFFLOAD_BYTES>() else { return &mut [] };
    let offload = Offload::parse(words);
    let (start, at) = (usize::from(offload.checksum_start), usize::from(offload.checksum_start) + usize::from(offload.checksum_offset));
    if offload.flags & Offload::NEEDS_CHECKSUM != 0 && at + 2 <= frame.len() {
        let mut sum: u64 = frame[start..].chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        frame[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cable_carries_frames_both_ways_and_finishes_their_checksums() {
        // Free ports, as the system gives them.
        let ends = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap()).map(|socket| socket.local_addr().unwrap());
        let open = |own: SocketAddr, other: SocketAddr| PacketPort::open(&format!("udp:{own}/{other}"), 1 << 20).unwrap();
        let near = open(ends[0], ends[1]);
        let mut queue = FrameQueue::default();
        queue.push(&Offload::default(), b"nobody is there");
        queue.flush(&near);
        let mut batch = FrameBatch::default();
        assert_eq!(batch.receive(&near).unwrap(), 0, "that nobody is there is no error");
        let far = open(ends[1], ends[0]);
        // The checksum's own place holds the sum of a pseudo-header.
        let offload = Offload { flags: Offload::NEEDS_CHECKSUM, checksum_start: 4, checksum_offset: 2, ..Offload::default() };
        queue.push(&offload, &[9, 9, 9, 9, 0x12, 0x34, 0x00, 0x01, 0xff]);
        queue.push(&Offload::default(), b"second");
        assert_eq!(queue.flush(&near).lost, 0);
        assert!(near.is_there());
        let mut got = Vec::new();
        while got.len() < 2 {
            let count = batch.receive(&far).unwrap();
            got.extend((0..count).map(|index| {
                let (offload, frame) = batch.frame(index).unwrap();
                assert_eq!(offload, Offload::default());
                frame.to_vec()
            }));
        }
        // 0x1234 + 0x0001 + 0xff00, the carry added, all bits turned.
        let sum = 0xeec9u16;
        assert_eq!(got, [[&[9, 9, 9, 9, 0x12, 0x34][..], &sum.to_be_bytes(), &[0xff]].concat(), b"second".to_vec()]);
    }

    #[test]
    fn what_is_no_cable_is_named() {
        let error = PacketPort::open("udp:127.0.0.1", 1 << 20).unwrap_err().to_string();
        assert!(error.starts_with("\"udp:127.0.0.1\" is no cable: "), "{error}");
    }

    #[test]
    fn words_before_a_frame_lead_back() {
        let offload = Offload { flags: 1, gso_type: 1, header_bytes: 66, gso_bytes: 1_448, checksum_start: 34, checksum_offset: 16 };
        assert_eq!(Offload::parse(&offload.emit()), offload);
    }

    #[test]
    fn a_tag_that_was_taken_out_is_put_back() {
        let offload = Offload { flags: 1, gso_type: 1, header_bytes: 66, gso_bytes: 1_448, checksum_start: 34, checksum_offset: 16 };
        let mut memory = [&offload.emit()[..], b"to....from..", &[8, 0], b"payload", &[0; 4]].concat();
        let length = memory.len() - 4;
        assert_eq!(insert_tag(&mut memory, length, [0x81, 0, 0x20, 5]), length + 4);
        assert_eq!(memory[10..], [&b"to....from.."[..], &[0x81, 0, 0x20, 5, 8, 0], b"payload"].concat());
        let moved = Offload { header_bytes: 70, checksum_start: 38, ..offload };
        assert_eq!(Offload::parse(memory.first_chunk().unwrap()), moved);
        assert_eq!(insert_tag(&mut memory, length + 4, [0x81, 0, 0, 6]), 0, "there is no room");
        assert_eq!(insert_tag(&mut memory, 20, [0x81, 0, 0, 6]), 0, "there are no addresses");
    }

    #[test]
    fn an_interface_that_does_not_exist_is_named() {
        let error = PacketPort::open("no-such-port", 1 << 20).unwrap_err();
        assert_eq!(error.to_string(), "there is no network interface \"no-such-port\"; `ip link` lists them");
    }
}
