//! Network devices of this host, as NCCL sees them: those that are up, or those that `NCCL_SOCKET_IFNAME` chooses.

use std::ffi::{CString, c_int};
use std::net::IpAddr;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::{fs, io};

use crate::abi::Facts;
use crate::log::{Failure, info};

/// NCCL's own setting: which devices sockets use.
const CHOICE: &str = "NCCL_SOCKET_IFNAME";
/// More are not told of, as in NCCL's own network.
const DEVICES_MAX: usize = 16;
/// Where the kernel does not say how fast a device is: 10 Gb/s, as NCCL's own network has it.
const SPEED: i32 = 10_000;
/// Of a message through the kernel and back, in microseconds.
const LATENCY: f32 = 10.0;
/// Bytes of one transfer: 1 TiB, NCCL's own limit.
const BYTES_MAX: usize = 1 << 40;
/// Connections at once; sockets are the limit.
const COMMS_MAX: c_int = 65_536;

/// A network device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Device {
    /// As the kernel calls it.
    pub(crate) name: CString,
    /// Its own address.
    pub(crate) address: IpAddr,
    /// The card in `/sys`; devices of software have none.
    card: Option<CString>,
    /// In Mb/s.
    speed: i32,
}

impl Device {
    /// What NCCL is told of it.
    pub(crate) fn facts(&self, index: c_int) -> Facts {
        Facts {
            index,
            name: self.name.as_ptr(),
            pci_path: self.card.as_ref().map_or(ptr::null(), |card| card.as_ptr()),
            guid: index as u64,
            speed: self.speed,
            latency: LATENCY,
            comms_max: COMMS_MAX,
            bytes_max: BYTES_MAX,
        }
    }
}

/// A choice of devices by name: `eth,ib` begins so, `=eth0` is so, `^docker` does not begin so, `^=eth0` is not so.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Choice<'a> {
    names: Vec<&'a str>,
    is_exact: bool,
    excludes: bool,
}

impl<'a> Choice<'a> {
    fn of(text: &'a str) -> Self {
        let (excludes, text) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let (is_exact, text) = text.strip_prefix('=').map_or((false, text), |rest| (true, rest));
        Choice { names: text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect(), is_exact, excludes }
    }

    fn takes(&self, device: &str) -> bool {
        let is_named = self.names.iter().any(|name| if self.is_exact { device == *name } else { device.starts_with(name) });
        is_named != self.excludes
    }
}

/// Which of the devices there are. Without a choice neither the loopback device nor those of containers, unless there is nothing else.
fn chosen(there: Vec<(String, IpAddr)>, choice: Option<&str>) -> Vec<(String, IpAddr)> {
    let taken = |choice: Choice<'_>| -> Vec<(String, IpAddr)> {
        let mut taken: Vec<(String, IpAddr)> = Vec::new();
        for (name, address) in &there {
            // A device by its first address, and rather by one of IPv4.
            let is_new = taken.iter().all(|(known, _)| known != name);
            if choice.takes(name) && is_new {
                taken.push((name.clone(), *address));
            }
        }
        taken.truncate(DEVICES_MAX);
        taken
    };
    match choice {
        Some(choice) => taken(Choice::of(choice)),
        None => [
            taken(Choice::of("^lo,docker,virbr,veth")),
            taken(Choice::of("^lo,docker")),
            taken(Choice::of("docker")),
            taken(Choice::of("lo")),
        ]
        .into_iter()
        .find(|taken| !taken.is_empty())
        .unwrap_or_default(),
    }
}

fn addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut there: Vec<(String, IpAddr)> = if_addrs::get_if_addrs()?
        .into_iter()
        .filter(|device| device.is_oper_up() || device.is_loopback())
        .filter(|device| !device.is_link_local())
        .map(|device| (device.name.clone(), device.ip()))
        .collect();
    there.sort_by_key(|(_, address)| address.is_ipv6());
    Ok(there)
}

fn described(name: &str, address: IpAddr) -> Option<Device> {
    let folder = Path::new("/sys/class/net").join(name);
    let speed = fs::read_to_string(folder.join("speed")).ok().and_then(|text| text.trim().parse().ok()).filter(|speed| *speed > 0);
    let card = fs::canonicalize(folder.join("device")).ok().and_then(|path| CString::new(path.to_string_lossy().into_owned()).ok());
    Some(Device { name: CString::new(name).ok()?, address, card, speed: speed.unwrap_or(SPEED) })
}

/// The devices, which are looked for once.
pub(crate) fn devices() -> Result<&'static [Device], Failure> {
    static DEVICES: OnceLock<Result<Vec<Device>, String>> = OnceLock::new();
    let found = DEVICES.get_or_init(|| {
        let there = addresses().map_err(|error| format!("network devices cannot be listed: {error}"))?;
        let choice = std::env::var(CHOICE).ok();
        let devices: Vec<Device> =
            chosen(there, choice.as_deref()).into_iter().filter_map(|(name, address)| described(&name, address)).collect();
        for device in &devices {
            info(format!("device {} at {}, {} Mb/s", device.name.to_string_lossy(), device.address, device.speed));
        }
        if devices.is_empty() {
            return Err(format!("no network device is up that {CHOICE} = {:?} takes", choice.unwrap_or_default()));
        }
        Ok(devices)
    });
    found.as_deref().map_err(|words| Failure::system(words.clone()))
}

/// One of them.
pub(crate) fn device(index: c_int) -> Result<&'static Device, Failure> {
    let devices = devices()?;
    let found = usize::try_from(index).ok().and_then(|index| devices.get(index));
    found.ok_or_else(|| Failure::argument(format!("dev = {index}: expected 0 to {}", devices.len() - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(names: &[&str]) -> Vec<(String, IpAddr)> {
        names.iter().map(|name| ((*name).to_owned(), "10.0.0.1".parse().unwrap())).collect()
    }

    fn names(of: &[&str], choice: Option<&str>) -> Vec<String> {
        chosen(there(of), choice).into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn devices_are_chosen_as_nccl_does() {
        let all = ["lo", "eth0", "eth1", "docker0", "ib0", "eth0"];
        assert_eq!(names(&all, None), ["eth0", "eth1", "ib0"]);
        assert_eq!(names(&all, Some("eth")), ["eth0", "eth1"]);
        assert_eq!(names(&all, Some("=eth1,lo")), ["eth1"].into_iter().chain(["lo"]).rev().collect::<Vec<_>>());
        assert_eq!(names(&all, Some("^docker,lo")), ["eth0", "eth1", "ib0"]);
        assert_eq!(names(&all, Some("^=eth0")), ["lo", "eth1", "docker0", "ib0"]);
        assert_eq!(names(&["lo", "docker0"], None), ["docker0"]);
        assert_eq!(names(&["lo", "veth0"], None), ["veth0"], "a namespace has nothing else");
        assert_eq!(names(&["lo"], None), ["lo"]);
        assert!(names(&all, Some("wlan")).is_empty());
    }

    #[test]
    fn this_host_has_a_device() {
        let devices = devices().unwrap();
        let facts = devices[0].facts(0);
        assert!(facts.speed > 0 && !facts.name.is_null());
        assert!(device(-1).is_err() && device(c_int::try_from(devices.len()).unwrap()).is_err());
    }
}
