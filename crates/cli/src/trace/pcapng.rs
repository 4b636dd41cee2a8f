//! Frames as files that Wireshark, tshark and scapy read: pcapng with an interface for each link or port, and times in nanoseconds.

use std::borrow::Cow;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};

/// Times count billionths of a second.
const NANOSECONDS: u8 = 9;

/// In which direction a frame passed its interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// It arrived there.
    In = 1,
    /// It left there.
    Out = 2,
}

/// A file that is being written.
pub struct PcapNg {
    writer: PcapNgWriter<BufWriter<File>>,
}

impl PcapNg {
    /// Begins a file with these interfaces.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path, interfaces: &[String]) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("{}: expected a file that can be written", path.display()))?;
        let mut writer = PcapNgWriter::new(BufWriter::new(file))?;
        for name in interfaces {
            let options = vec![InterfaceDescriptionOption::IfName(Cow::Borrowed(name)), InterfaceDescriptionOption::IfTsResol(NANOSECONDS)];
            writer.write_pcapng_block(InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options })?;
        }
        Ok(PcapNg { writer })
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// What the system says.
    pub fn add(&mut self, interface: usize, at_ns: u64, direction: Direction, frame: &[u8]) -> Result<()> {
        self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: interface as u32,
            timestamp: Duration::from_nanos(at_ns),
            original_len: frame.len() as u32,
            data: Cow::Borrowed(frame),
            options: vec![EnhancedPacketOption::Flags(direction as u32)],
        })?;
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// What the system says.
    pub fn finish(self) -> Result<()> {
        self.writer.into_inner().into_inner().map(drop).map_err(|error| error.into_error().into())
    }
}
