//! The nodes that live behind one socket: one for each job.

use fanin_core::{Instant, JobId, Node};
use fanin_net::Socket;

use crate::counters::Counters;
use crate::outlet::{Lent, Outlet};
use crate::tensors::Tensors;

/// A job's node.
pub(crate) struct Resident<N> {
    pub(crate) node: N,
    pub(crate) job: JobId,
    pub(crate) system: u8,
    pub(crate) counters: Counters,
}

impl<N> Resident<N> {
    /// The node, and what its handlers are lent.
    #[inline]
    pub(crate) fn lend<'a, 't>(
        &'a mut self,
        socket: &'a Socket,
        outlet: &'a mut Outlet,
        tensors: &'a mut Tensors<'t>,
    ) -> (&'a mut N, Lent<'a, 't>) {
        let Resident { node, job, system, counters } = self;
        (node, Lent { socket, outlet, tensors, counters, job: *job, system: *system })
    }
}

/// All nodes, by job.
pub(crate) struct Residents<N> {
    /// Sorted by job.
    list: Vec<Resident<N>>,
}

impl<N> Residents<N> {
    /// None yet.
    pub(crate) fn none() -> Self {
        Residents { list: Vec::new() }
    }

    /// Where the node of a job is.
    #[inline]
    pub(crate) fn find(&self, job: JobId) -> Option<usize> {
        match &self.list[..] {
            [only] => (only.job == job).then_some(0),
            list => list.binary_search_by_key(&job, |resident| resident.job).ok(),
        }
    }

    /// Adds a node, unless the job has one.
    pub(crate) fn add(&mut self, job: JobId, system: u8, node: N) -> bool {
        match self.list.binary_search_by_key(&job, |resident| resident.job) {
            Ok(_) => false,
            Err(at) => {
                self.list.insert(at, Resident { node, job, system, counters: Counters::default() });
                true
            }
        }
    }

    /// Takes a job's node out.
    pub(crate) fn remove(&mut self, job: JobId) -> Option<Resident<N>> {
        self.find(job).map(|at| self.list.remove(at))
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> &Resident<N> {
        &self.list[at]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: usize) -> &mut Resident<N> {
        &mut self.list[at]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Resident<N>> {
        self.list.iter()
    }

    #[inline]
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Resident<N>> {
        self.list.iter_mut()
    }
}

impl<N: Node<[u8]>> Residents<N> {
    /// When the first of them wants to be called.
    #[inline]
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.list.iter().filter_map(|resident| resident.node.next_timeout()).min()
    }
}
