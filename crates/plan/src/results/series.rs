//! Quantities of jobs over time: columns of `series.csv`, and what plots of kind `"time"` show.

use fanin_core::Gauge;
use fanin_sim::series::SeriesRow;

/// What plots of kind `"time"` show of all jobs together: [how evenly they share](crate::results::together::sharing).
pub const FAIRNESS: &str = "fairness";

/// A quantity of a job in an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// Bytes of the vector that became final at a worker, mean over workers, as a rate.
    Goodput,
    /// Packets that reached the job's hosts.
    Packets,
    /// Packets that found their place in a switch's memory taken.
    Collisions,
    /// Packets that reached the job's hosts and had met a queue that marks.
    Marked,
    /// Slots in use at all switches together, mean over the interval.
    Slots,
    /// Their bytes.
    SlotBytes,
    /// A gauge of the job's nodes at the end of the interval.
    Gauge(Gauge),
}

impl Quantity {
    /// Every quantity, in the order of columns.
    pub fn all() -> impl Iterator<Item = Quantity> {
        let own = [Quantity::Goodput, Quantity::Packets, Quantity::Slots, Quantity::SlotBytes, Quantity::Collisions, Quantity::Marked];
        own.into_iter().chain(Gauge::ALL.iter().copied().map(Quantity::Gauge))
    }

    /// The quantity of this name.
    pub fn named(name: &str) -> Option<Quantity> {
        Quantity::all().find(|quantity| quantity.name() == name)
    }

    /// Its name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::Goodput => "goodput_gbps",
            Quantity::Packets => "packets",
            Quantity::Collisions => "collisions",
            Quantity::Marked => "marked",
            Quantity::Slots => "slots",
            Quantity::SlotBytes => "slot_bytes",
            Quantity::Gauge(gauge) => gauge.name(),
        }
    }

    /// For people, with its unit.
    pub fn title(self) -> String {
        match self {
            Quantity::Goodput => "goodput (Gb/s)".into(),
            Quantity::Packets => "packets in an interval".into(),
            Quantity::Collisions => "collisions in an interval".into(),
            Quantity::Marked => "marked packets in an interval".into(),
            Quantity::Slots => "slots in use".into(),
            Quantity::SlotBytes => "memory of switches in use (B)".into(),
            Quantity::Gauge(gauge) => match gauge.unit() {
                "share" => gauge.name().replace('_', " "),
                unit => format!("{} ({unit})", gauge.name().replace('_', " ")),
            },
        }
    }

    /// Its value; `None` for a gauge that nobody has told of.
    pub fn of(self, row: &SeriesRow) -> Option<f64> {
        match self {
            Quantity::Goodput => Some(row.goodput_gbps),
            Quantity::Packets => Some(row.packets as f64),
            Quantity::Collisions => Some(row.collisions as f64),
            Quantity::Marked => Some(row.marked as f64),
            Quantity::Slots => Some(row.slots),
            Quantity::SlotBytes => Some(row.slot_bytes),
            Quantity::Gauge(gauge) => row.gauges[gauge.index()],
        }
    }
}
