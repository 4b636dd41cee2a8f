//! One header and one node type for all systems, by enum dispatch. Both are made from the list of systems: nothing here names one.

use derive_where::derive_where;
use fanin_core::{
    Collective, Duration, Event, Gauge, Ingress, Instant, JobId, Malformed, Node, OperationId, Outcome, PacketKind, Payload, Tx, Wire,
    Worker,
};

/// The number of packets that are of no system.
pub(crate) const BACKGROUND: u8 = 0;

/// The longer of two lengths.
const fn longer(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

/// Headers of all systems that have packets of their own.
macro_rules! headers {
    ($($system:ident($Parameters:ident) = $number:literal $name:literal in $module:ident,
        packets $packets:ident $(($Header:ident))?, workers [$($worker:ident),*], others [$($other:ident),*];)*) => {
        /// A header of any system.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub enum AnyHeader {
            /// Of no system: background traffic.
            #[default]
            Background,
            $($(
                #[doc = concat!("Of `", $name, "`, and of systems whose packets are the same.")]
                $system(crate::$module::$Header),
            )?)*
        }

        /// On the wire: one byte for the system, then the system's header.
        impl Wire for AnyHeader {
            const MAX_LEN: usize = {
                let mut longest = 0;
                $($( longest = longer(longest, crate::$module::$Header::MAX_LEN); )?)*
                1 + longest
            };

            fn wire_len(&self) -> usize {
                1 + match self {
                    AnyHeader::Background => 0,
                    $($( AnyHeader::$system(header) => crate::$module::$Header::wire_len(header), )?)*
                }
            }

            fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
                let (&system, rest) = bytes.split_first().ok_or(Malformed::Truncated { needed: 1, got: 0 })?;
                match system {
                    BACKGROUND => Ok((AnyHeader::Background, 1)),
                    $($( $number => crate::$module::$Header::parse(rest).map(|(header, length)| (AnyHeader::$system(header), 1 + length)), )?)*
                    _ => Err(Malformed::Field { name: "system", value: u64::from(system) }),
                }
            }

            fn emit(&self, out: &mut [u8]) -> usize {
                let (first, rest) = out.split_first_mut().expect("room for the header");
                let (system, length) = match self {
                    AnyHeader::Background => (BACKGROUND, 0),
                    $($( AnyHeader::$system(header) => ($number, crate::$module::$Header::emit(header, rest)), )?)*
                };
                *first = system;
                1 + length
            }

            #[inline]
            fn kind(&self) -> PacketKind {
                match self {
                    AnyHeader::Background => PacketKind::Background,
                    $($( AnyHeader::$system(header) => crate::$module::$Header::kind(header), )?)*
                }
            }

            fn pairs(&self) -> Option<u16> {
                match self {
                    AnyHeader::Background => None,
                    $($( AnyHeader::$system(header) => crate::$module::$Header::pairs(header), )?)*
                }
            }
        }

        $($(
            impl From<crate::$module::$Header> for AnyHeader {
                #[inline(always)]
                fn from(header: crate::$module::$Header) -> Self {
                    AnyHeader::$system(header)
                }
            }
        )?)*
    };
}

systems!(headers with own);

/// Wraps the headers of one system on their way out.
pub(crate) type Wrapped<'a, T> = fanin_protocols::shared::inner::Wrapped<'a, T, AnyHeader>;

/// Nodes of all systems.
macro_rules! nodes {
    ($($system:ident($Parameters:ident) = $number:literal $name:literal in $module:ident,
        packets $packets:ident $(($Header:ident))?, workers [$($worker:ident),*], others [$($other:ident),*];)*) => {
        /// A node of any system.
        #[derive_where(Clone, PartialEq, Eq, Hash, Debug)]
        #[allow(clippy::large_enum_variant, reason = "nodes are made once and live in place; a box would cost a cache miss per packet")]
        pub enum AnyNode<P: Payload + ?Sized> {
            $(
                $(
                    #[doc = concat!("A worker of `", $name, "`.")]
                    $worker(crate::$module::$worker<P>),
                )*
                $(
                    #[doc = concat!("A switch or server of `", $name, "`.")]
                    $other(crate::$module::$other<P>),
                )*
            )*
        }

        /// Calls a handler of the node inside.
        macro_rules! dispatch {
            ($self:expr, $node:ident => $call:expr) => {
                match $self {
                    $($( AnyNode::$worker($node) => $call, )* $( AnyNode::$other($node) => $call, )*)*
                }
            };
        }

        /// Calls a handler of the worker inside; another node has `$fallback`.
        macro_rules! dispatch_worker {
            ($self:expr, $node:ident => $call:expr, else $fallback:expr) => {
                match $self {
                    $($( AnyNode::$worker($node) => $call, )*)*
                    _ => $fallback,
                }
            };
        }

        impl<P: Payload + ?Sized> AnyNode<P> {
            /// Hands a packet to the node inside, if it is one of its system.
            #[inline(always)]
            fn receive_own<T: Tx<AnyHeader, P>>(
                &mut self,
                now: Instant,
                from: Ingress,
                header: &AnyHeader,
                payload: &P,
                tx: &mut T,
            ) -> Option<Instant> {
                match (self, header) {
                    $(
                        $( (AnyNode::$worker(node), AnyHeader::$packets(header)) => {
                            node.receive(now, from, header, payload, &mut Wrapped::new(tx))
                        } )*
                        $( (AnyNode::$other(node), AnyHeader::$packets(header)) => {
                            node.receive(now, from, header, payload, &mut Wrapped::new(tx))
                        } )*
                    )*
                    // A packet of another system is not of this job.
                    (node, _) => {
                        tx.note(Event::Dropped(fanin_core::DropReason::Mismatch));
                        node.next_timeout()
                    }
                }
            }
        }
    };
}

systems!(nodes with own);

impl<P: Payload + ?Sized> Node<P> for AnyNode<P> {
    type Header = AnyHeader;

    #[inline]
    fn on_packet<T: Tx<AnyHeader, P>>(&mut self, now: Instant, from: Ingress, header: &AnyHeader, payload: &P, tx: &mut T) {
        self.receive(now, from, header, payload, tx);
    }

    #[inline(always)]
    fn receive<T: Tx<AnyHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        header: &AnyHeader,
        payload: &P,
        tx: &mut T,
    ) -> Option<Instant> {
        self.receive_own(now, from, header, payload, tx)
    }

    fn on_timeout<T: Tx<AnyHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        dispatch!(self, node => node.on_timeout(now, &mut Wrapped::new(tx)));
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        dispatch!(self, node => node.next_timeout())
    }

    fn expire<T: Tx<AnyHeader, P>>(&mut self, now: Instant, tx: &mut T) -> Option<Instant> {
        dispatch!(self, node => node.expire(now, &mut Wrapped::new(tx)))
    }

    fn on_tx_ready<T: Tx<AnyHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        dispatch!(self, node => node.on_tx_ready(now, &mut Wrapped::new(tx)));
    }

    fn on_job_end<T: Tx<AnyHeader, P>>(&mut self, now: Instant, job: JobId, tx: &mut T) {
        dispatch!(self, node => node.on_job_end(now, job, &mut Wrapped::new(tx)));
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        dispatch!(self, node => node.gauges(report));
    }
}

impl<P: Payload + ?Sized> Worker<P> for AnyNode<P> {
    fn submit<T: Tx<AnyHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        dispatch_worker!(self, node => node.submit(now, collective, &mut Wrapped::new(tx)),
            else tx.note(Event::Broken("a node without a vector was asked to submit")));
    }

    #[inline]
    fn remaining(&self) -> Option<u32> {
        dispatch_worker!(self, node => node.remaining(), else None)
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<Outcome> {
        dispatch_worker!(self, node => node.poll(), else None)
    }

    fn cancel<T: Tx<AnyHeader, P>>(&mut self, now: Instant, operation: OperationId, tx: &mut T) {
        dispatch_worker!(self, node => node.cancel(now, operation, &mut Wrapped::new(tx)),
            else tx.note(Event::Broken("a node without a vector was asked to cancel")));
    }
}

impl<P: Payload + ?Sized> AnyNode<P> {
    /// Makes stored times relative to `now`, so that equal situations at different times are equal states (model checking).
    pub fn rebase(&mut self, now: Instant) {
        dispatch!(self, node => node.rebase(now));
    }
}

/// Less than the workers' shortest retransmission timeout, so that each round of repetitions goes up once.
pub(crate) const fn resend_gap(rto_min: Duration) -> Duration {
    rto_min.divided(2)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A packet begins with its system's number, and is the same when it is read again.
    pub(crate) fn comes_back(number: u8, header: impl Into<AnyHeader>) {
        let (header, mut bytes) = (header.into(), [0; AnyHeader::MAX_LEN]);
        let length = header.emit(&mut bytes);
        assert_eq!((length, bytes[0]), (header.wire_len(), number));
        assert_eq!(AnyHeader::parse(&bytes[..length]), Ok((header, length)));
    }

    #[test]
    fn background_comes_back_from_the_wire_and_unknown_systems_do_not() {
        let mut bytes = [0; AnyHeader::MAX_LEN];
        assert_eq!(AnyHeader::Background.emit(&mut bytes), 1);
        assert_eq!(AnyHeader::parse(&bytes[..1]), Ok((AnyHeader::Background, 1)));
        assert_eq!(AnyHeader::parse(&[7, 0, 0]), Err(Malformed::Field { name: "system", value: 7 }));
        assert_eq!(AnyHeader::parse(&[]), Err(Malformed::Truncated { needed: 1, got: 0 }));
    }

    #[test]
    fn a_header_is_small_enough_for_a_packet_record() {
        assert!(size_of::<AnyHeader>() <= 28, "{}", size_of::<AnyHeader>());
    }
}
