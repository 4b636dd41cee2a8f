//! The thread that reads orders. What does not concern the job is carried out at once, also while an operation runs.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use fanin_core::NodeId;
use fanin_fabric::Fabric;
use fanin_net::Waker;
use fanin_runtime::fabric::{FabricRemote, TrafficConfig};
use fanin_systems::AnyNode;

use super::messages::{Event, Order, Stream};
use super::{Voice, host_status};

/// How long a host whose testbed has gone may take to leave its loop.
const ORPHAN_LIMIT: Duration = Duration::from_secs(2);

/// There will be no more orders.
pub(super) struct Ended;

/// Orders that wait for the driver's thread.
pub(super) struct Orders {
    orders: Receiver<Order>,
    /// There are orders, or there will be none any more.
    pub(super) waiting: Arc<AtomicBool>,
    /// There will be none any more.
    pub(super) orphaned: Arc<AtomicBool>,
}

impl Orders {
    /// Reads standard input from now on.
    pub(super) fn listen(fabric: Arc<Fabric>, node: NodeId, voice: Voice, remote: FabricRemote<AnyNode<[u8]>>, waker: Waker) -> Self {
        let (tell, orders) = channel();
        let these = Orders { orders, waiting: Arc::default(), orphaned: Arc::default() };
        let (waiting, orphaned) = (these.waiting.clone(), these.orphaned.clone());
        thread::spawn(move || {
            let notify = || {
                waiting.store(true, Ordering::Relaxed);
                waker.wake();
            };
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                match serde_json::from_str(&line) {
                    Ok(Order::Traffic(stream)) => start(&fabric, node, voice, &remote, &stream),
                    Ok(Order::StopTraffic { id }) => stop(voice, &remote, id),
                    Ok(Order::Status) => {
                        let fabric = fabric.clone();
                        remote.look(Box::new(move |status| voice.say(&Event::Status(Box::new(host_status(&fabric, node, &status))))));
                    }
                    Ok(order) => {
                        if tell.send(order).is_err() {
                            return;
                        }
                        notify();
                    }
                    Err(error) => voice.say(&Event::Refused { order: line, text: error.to_string() }),
                }
            }
            orphaned.store(true, Ordering::Relaxed);
            drop(tell);
            notify();
            thread::sleep(ORPHAN_LIMIT);
            voice.leave();
        });
        these
    }

    /// The next order, if there is one; clears the flag when there is none.
    pub(super) fn take(&self) -> Option<Result<Order, Ended>> {
        self.waiting.store(false, Ordering::Relaxed);
        match self.orders.try_recv() {
            Ok(order) => {
                // There may be more behind it.
                self.waiting.store(true, Ordering::Relaxed);
                Some(Ok(order))
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Ended)),
        }
    }
}

fn start(fabric: &Fabric, node: NodeId, voice: Voice, remote: &FabricRemote<AnyNode<[u8]>>, stream: &Stream) {
    match traffic_config(fabric, node, stream) {
        Ok(config) => remote.start_traffic(config),
        Err(text) => voice.say(&Event::Refused { order: "traffic".into(), text }),
    }
}

fn stop(voice: Voice, remote: &FabricRemote<AnyNode<[u8]>>, id: u32) {
    let answer = move |sent: Option<fanin_runtime::fabric::TrafficCount>| match sent {
        Some(sent) => voice.say(&Event::TrafficStopped { id, packets: sent.packets, bytes: sent.bytes }),
        None => voice.say(&Event::Refused { order: "stop_traffic".into(), text: format!("there is no stream {id}") }),
    };
    remote.stop_traffic(id, Box::new(answer));
}

fn traffic_config(fabric: &Fabric, node: NodeId, stream: &Stream) -> Result<TrafficConfig, String> {
    let to = fabric.node_named(&stream.to).filter(|to| fabric.map.is_host(*to) && *to != node);
    let to = to.ok_or_else(|| format!("to = {:?}: expected another host", stream.to))?;
    let is_above = |via: &NodeId| fabric.map.leaf_of(node).is_some_and(|leaf| fabric.link(leaf.node, *via).is_some() && *via != node);
    let named = |name: &String| {
        let via = fabric.node_named(name).filter(|via| !fabric.map.is_host(*via)).filter(is_above);
        via.ok_or_else(|| format!("via = {name:?}: expected a switch next to this host's leaf"))
    };
    let via = stream.via.as_ref().map(named).transpose()?;
    if stream.bits_per_second == 0 {
        return Err("bits_per_second = 0: expected a rate".into());
    }
    if stream.payload_bytes > 65_000 {
        return Err(format!("payload_bytes = {}: expected at most 65000", stream.payload_bytes));
    }
    Ok(TrafficConfig { id: stream.id, to, via, bits_per_second: stream.bits_per_second, payload_bytes: stream.payload_bytes })
}
