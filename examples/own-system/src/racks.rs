//! Hierarchical parameter servers at racks, as PHub exchanges parameters within racks and across them (Luo et al., "Parameter Hub: a Rack-Scale
//! Parameter Server for Distributed Deep Neural Network Training", SoCC 2018): every rack sums what its workers push, and only sums of racks cross
//! the network's core. Each block has a home among the racks, which adds up the racks' sums and gives the result back the same way.

use derive_where::derive_where;
use fanin_core::{Address, Body, DropReason, Egress, Event, FlowLabel, Ingress, Instant, JobNodes, NetworkMap, Node, NodeId, Payload};
use fanin_core::{RetransmitReason, Route, Tx};
use fanin_protocols::shared::blocks::{BlockWorker, Push};
use fanin_protocols::shared::sums::{Slots, Sum};
use fanin_systems::{BuildError, Facts, JobSize, JobSpec, Load, OwnNode, OwnSystem, Rack};
use serde::{Deserialize, Serialize};

fanin_systems::header! {
    /// The packets: what it is, the block, and the sender's place.
    pub enum Header {
        /// A worker's part of a block, to its rack.
        Push { block: u32, place: u16 } = 1 Contribution,
        /// A rack's sum of a block, to the block's home.
        RackSum { block: u32, place: u16 } = 2 Contribution,
        /// The sum of all, from the home to racks and on to workers.
        Sum { block: u32 } = 3 Aggregate,
    }
}

/// What a worker pushes, and to whom.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct ToRack {
    rack: Address,
    place: u16,
}

impl Push for ToRack {
    type Header = Header;

    fn push(&self, block: u32) -> (Address, Header) {
        (self.rack, Header::Push { block, place: self.place })
    }

    fn sum_of(&self, from: Address, header: &Header) -> Option<u32> {
        if let Header::Sum { block } = *header { (from == self.rack).then_some(block) } else { None }
    }
}

/// A rack's switch. A slot has the sums of the rack and of all. What is lost is asked for by the workers, who push again.
#[derive_where(Clone, Debug)]
struct RackSwitch<P: Payload + ?Sized> {
    place: u16,
    members: Vec<Address>,
    racks: Vec<Address>,
    home: Home,
    workers: u32,
    op: P::Op,
    flow: FlowLabel,
    slots: Slots<[Sum<P>; 2]>,
}

fn send<P: Payload + ?Sized>(flow: FlowLabel, to: Address, header: Header, sum: &Sum<P>, tx: &mut impl Tx<Header, P>) {
    tx.send(Egress::Route(Route::direct(to, flow)), &header, Body::Acc(sum.acc()));
}

impl<P: Payload + ?Sized> RackSwitch<P> {
    fn home(&self, block: u32) -> u16 {
        if self.home == Home::Spread { (block as usize % self.racks.len()) as u16 } else { 0 }
    }

    /// A worker's part, or its question for what it has not got.
    fn on_push(&mut self, block: u32, from: u16, payload: &P, tx: &mut impl Tx<Header, P>) {
        let (home, place) = (self.home(block), self.place);
        let Some([rack, total]) = self.slots.at(block, tx) else { return };
        let added = rack.add(from, payload, &mut self.op);
        match added {
            Ok(()) => {}
            Err(DropReason::Mismatch) => return tx.note(Event::Dropped(DropReason::Mismatch)),
            Err(reason) => tx.note(Event::Dropped(reason)),
        }
        let (complete, again) = (rack.count() == self.members.len(), added.is_err());
        if again && (total.is_final() || complete && home != place) {
            tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block });
        }
        if total.is_final() {
            send(self.flow, self.members[usize::from(from)], Header::Sum { block }, total, tx);
        } else if complete && home != place {
            send(self.flow, self.racks[usize::from(home)], Header::RackSum { block, place }, rack, tx);
        } else if complete && !again {
            let own = rack.clone();
            self.on_rack_sum(block, place, own.view(), tx);
        }
    }

    /// At a block's home: a rack's sum.
    fn on_rack_sum(&mut self, block: u32, from: u16, payload: &P, tx: &mut impl Tx<Header, P>) {
        let Some([_, total]) = self.slots.at(block, tx) else { return };
        if total.is_final() {
            send(self.flow, self.racks[usize::from(from)], Header::Sum { block }, total, tx);
        } else if let Err(reason) = total.add(from, payload, &mut self.op) {
            tx.note(Event::Dropped(reason));
        } else if total.count() == self.racks.len() {
            total.finish(&self.op, self.workers);
            self.give(block, tx);
        }
    }

    /// Elsewhere: the sum of all.
    fn on_sum(&mut self, block: u32, payload: &P, tx: &mut impl Tx<Header, P>) {
        let Some([_, total]) = self.slots.at(block, tx) else { return };
        match total.put(payload, &mut self.op) {
            Ok(()) => self.give(block, tx),
            Err(reason) => tx.note(Event::Dropped(reason)),
        }
    }

    /// The sum of all is here: from the home to the other racks, and to the workers.
    fn give(&mut self, block: u32, tx: &mut impl Tx<Header, P>) {
        self.slots.done(tx);
        let is_home = self.home(block) == self.place;
        let Some([_, total]) = self.slots.at(block, tx) else { return };
        let others = self.racks.iter().zip(0..).filter(|(_, rack)| is_home && *rack != self.place);
        for to in others.map(|(rack, _)| rack).chain(&self.members) {
            send(self.flow, *to, Header::Sum { block }, total, tx);
        }
    }
}

impl<P: Payload + ?Sized> Node<P> for RackSwitch<P> {
    type Header = Header;

    fn on_packet<T: Tx<Header, P>>(&mut self, _now: Instant, from: Ingress, header: &Header, payload: &P, tx: &mut T) {
        let is = |list: &[Address], place: u16| list.get(usize::from(place)) == Some(&from.source);
        match *header {
            Header::Push { block, place } if is(&self.members, place) => self.on_push(block, place, payload, tx),
            Header::RackSum { block, place } if is(&self.racks, place) && self.home(block) == self.place => {
                self.on_rack_sum(block, place, payload, tx);
            }
            Header::Sum { block } if is(&self.racks, self.home(block)) => self.on_sum(block, payload, tx),
            _ => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }
}

/// At which racks blocks have their homes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Home {
    /// At all of them in turn.
    #[default]
    Spread,
    /// At that of rank 0.
    First,
}

/// The parameters: keys of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Racks {
    /// Where blocks have their homes.
    pub home: Home,
}

impl Facts for Racks {
    // A block's sum of the rack, and that of all.
    fn slot_bytes(&self, job: &JobSpec<'_, ()>, _map: &NetworkMap, _switch: NodeId) -> u64 {
        2 * u64::from(job.payload_bytes)
    }

    // A worker suspects its rack, whoever is missing.
    fn finds_the_dead(&self) -> bool {
        false
    }

    // All racks' sums of a block meet at its home.
    fn load(&self, job: &JobSize) -> Load {
        Load::of(job, job.workers)
    }
}

impl OwnSystem for Racks {
    const NAME: &'static str = "racks";

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<OwnNode<P>>, BuildError> {
        spec.check_window(1 << 15)?;
        let racks = spec.racks(map, Sum::<P>::MOST)?;
        let worker = |rack: &Rack, place| BlockWorker::new(spec.blocks(), ToRack { rack: rack.address(), place });
        let switch = |rack: &Rack, place| RackSwitch::<P> {
            place,
            members: rack.workers.clone(),
            racks: racks.iter().map(Rack::address).collect(),
            home: self.home,
            workers: spec.workers(),
            op: spec.op.clone(),
            flow: spec.flow(),
            slots: Slots::new(spec.window, 2 * spec.payload_bytes, || [(); 2].map(|()| Sum::new(&spec.op, spec.payload_bytes))),
        };
        Ok(spec.place(&racks, worker, switch))
    }
}
