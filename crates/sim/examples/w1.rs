//! Runs workload W1 once, for profilers: `cargo run --release --example w1 -- census`.
use fanin_core::*;
use fanin_sim::vectors::Simulated;
use fanin_sim::*;

/// W1 has no jobs, so no node is ever called.
#[derive(Clone)]
struct Nobody;

#[derive(Clone, Copy, Debug, Default)]
struct NoHeader([u32; 3]);

impl Wire for NoHeader {
    const MAX_LEN: usize = 0;
    fn wire_len(&self) -> usize {
        0
    }
    fn parse(_: &[u8]) -> Result<(Self, usize), Malformed> {
        Ok((NoHeader([0; 3]), 0))
    }
    fn emit(&self, _: &mut [u8]) -> usize {
        0
    }
    fn kind(&self) -> PacketKind {
        PacketKind::Background
    }
}

impl<P: Payload + ?Sized> Node<P> for Nobody {
    type Header = NoHeader;
    fn on_packet<T: Tx<NoHeader, P>>(&mut self, _: Instant, _: Ingress, _: &NoHeader, _: &P, _: &mut T) {}
    fn on_timeout<T: Tx<NoHeader, P>>(&mut self, _: Instant, _: &mut T) {}
    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

impl<P: Payload + ?Sized> Worker<P> for Nobody {
    fn submit<T: Tx<NoHeader, P>>(&mut self, _: Instant, _: Collective, _: &mut T) {}
    fn poll(&mut self) -> Option<Outcome> {
        None
    }
    fn cancel<T: Tx<NoHeader, P>>(&mut self, _: Instant, _: OperationId, _: &mut T) {}
}

fn run<P: Simulated + ?Sized>() -> RunResult {
    let scenario = workloads::w1(1);
    let topology = Topology::new(&scenario.network.shape).unwrap();
    Simulation::<Nobody, P>::new(topology, scenario, Vec::new(), &[]).unwrap().run()
}

fn main() {
    let census = std::env::args().nth(1).as_deref() == Some("census");
    for _ in 0..std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(3) {
        let start = std::time::Instant::now();
        let result = if census { run::<Census>() } else { run::<Length>() };
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{:?} hops {} events {} drops {} {:.2} s {:.2} M hops/s wrong {}",
            result.ended,
            result.packet_hops,
            result.events,
            result.counters.dropped_total(),
            seconds,
            result.packet_hops as f64 / seconds / 1e6,
            result.verdict.wrong
        );
    }
}
