//! Who is next door, and at which device: the kernel's table of IPv4 neighbours.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

/// A device and its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// As `ip link` shows it.
    pub name: String,
    /// The kernel's number of it.
    pub ifindex: u32,
    /// Its Ethernet address.
    pub ethernet: [u8; 6],
}

/// An Ethernet address as the kernel writes it; zeros where it is none.
fn ethernet(text: &str) -> [u8; 6] {
    let mut bytes = text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16));
    std::array::from_fn(|_| bytes.next().and_then(Result::ok).unwrap_or_default())
}

/// The address that this host has on its way to a socket.
///
/// # Errors
/// What the system says.
pub fn own_address(to: SocketAddrV4) -> std::io::Result<Ipv4Addr> {
    let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    probe.connect(to)?;
    match probe.local_addr()? {
        SocketAddr::V4(own) => Ok(*own.ip()),
        SocketAddr::V6(_) => Err(std::io::ErrorKind::AddrNotAvailable.into()),
    }
}

/// A device of this network namespace by its name.
///
/// # Errors
/// In words, where there is none.
pub fn device(name: &str) -> Result<Device, String> {
    // Names have no slashes: what has one is another file.
    let is_name = !name.is_empty() && name.len() < 16 && !name.contains('/') && name != "." && name != "..";
    let text = is_name.then(|| std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok()).flatten();
    let ifindex = text.and_then(|text| text.trim().parse().ok());
    let ifindex = ifindex.ok_or_else(|| format!("there is no network device {name}: `ip link` lists them"))?;
    let address = std::fs::read_to_string(format!("/sys/class/net/{name}/address")).unwrap_or_default();
    Ok(Device { name: name.to_owned(), ifindex, ethernet: ethernet(&address) })
}

/// The table as it is now.
///
/// # Errors
/// What the system says.
pub fn table() -> std::io::Result<String> {
    std::fs::read_to_string("/proc/thread-self/net/arp")
}

/// The name of the device at which an address is a neighbour, if it is one, and its Ethernet address: a line of the table has the address first, then type, flags,
/// Ethernet address, mask, and the device last. Flag 2 says that the Ethernet address is known.
pub fn device_of(table: &str, ip: Ipv4Addr) -> Option<(&str, [u8; 6])> {
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let is_it = words.next()?.parse() == Ok(ip);
        let flags = u32::from_str_radix(words.nth(1)?.strip_prefix("0x")?, 16).ok()?;
        let address = ethernet(words.next()?);
        let device = words.nth(1)?;
        (is_it && flags & 2 != 0).then_some((device, address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
IP address       HW type     Flags       HW address            Mask     Device
10.0.1.2         0x1         0x2         02:00:00:00:00:01     *        veth1
10.0.2.2         0x1         0x0         00:00:00:00:00:00     *        veth2
10.0.2.2         0x1         0x6         02:00:00:00:00:02     *        veth3
damaged line
10.0.3.2         0x1
";

    #[test]
    fn neighbours_are_found_where_their_address_is_known() {
        let at = |last| device_of(TABLE, Ipv4Addr::new(10, 0, last, 2));
        assert_eq!((at(1), at(2)), (Some(("veth1", [2, 0, 0, 0, 0, 1])), Some(("veth3", [2, 0, 0, 0, 0, 2]))));
        assert_eq!((at(3), at(4), device_of("", Ipv4Addr::LOCALHOST)), (None, None, None));
        assert_eq!(own_address(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9)).unwrap(), Ipv4Addr::LOCALHOST);
    }

    #[test]
    fn devices_are_found_by_name_and_nothing_else_is_read() {
        assert_eq!(device("lo").unwrap(), Device { name: "lo".into(), ifindex: 1, ethernet: [0; 6] });
        for name in ["", ".", "..", "lo/../lo", "a-name-that-is-too-long", "nosuchdevice"] {
            assert!(device(name).unwrap_err().contains("no network device"), "{name}");
        }
    }
}
