//! The nodes that live behind one socket, and the jobs that each of them serves: one, or several that share the node.

use fanin_core::{Instant, JobId, Node, Role};
use fanin_net::Socket;

use crate::member::Member;
use crate::outlet::{Lent, Outlet};
use crate::tensors::Tensors;

/// A node, and how many jobs it serves.
struct Resident<N> {
    node: N,
    jobs: u32,
}

/// All nodes, and all jobs by number and role.
pub(crate) struct Residents<N> {
    nodes: Vec<Resident<N>>,
    /// Sorted by job and role.
    members: Vec<Member>,
}

impl<N> Residents<N> {
    /// None yet.
    pub(crate) fn none() -> Self {
        Residents { nodes: Vec::new(), members: Vec::new() }
    }

    /// Where a job is that has a node with this role.
    #[inline]
    pub(crate) fn find(&self, job: JobId, role: Role) -> Option<usize> {
        match &self.members[..] {
            [only] => (only.job == job && only.role == role).then_some(0),
            members => Self::search(members, job, role).ok(),
        }
    }

    #[inline]
    fn search(members: &[Member], job: JobId, role: Role) -> Result<usize, usize> {
        members.binary_search_by(|member| member.job.cmp(&job).then((member.role as u8).cmp(&(role as u8))))
    }

    /// The first job that has a node with this role.
    pub(crate) fn first(&self, role: Role) -> Option<usize> {
        self.members.iter().position(|member| member.role == role)
    }

    /// Adds a node, unless the job has one with this role.
    pub(crate) fn add(&mut self, job: JobId, role: Role, system: u8, node: N) -> bool {
        let Err(at) = Self::search(&self.members, job, role) else { return false };
        self.nodes.push(Resident { node, jobs: 1 });
        let resident = self.nodes.len() - 1;
        self.members.insert(at, Member::new((job, role, system), resident));
        true
    }

    /// Adds a job to the first node that takes it, or else with a node of its own; false where the job has one with this role.
    ///
    /// # Errors
    /// Why the node that it would share does not take it.
    pub(crate) fn share(
        &mut self,
        (job, role, system): (JobId, Role, u8),
        node: N,
        mut join: impl FnMut(&mut N) -> Result<bool, String>,
    ) -> Result<bool, String> {
        let Err(at) = Self::search(&self.members, job, role) else { return Ok(false) };
        for (resident, shared) in self.nodes.iter_mut().enumerate() {
            if join(&mut shared.node)? {
                shared.jobs += 1;
                self.members.insert(at, Member::new((job, role, system), resident));
                return Ok(true);
            }
        }
        Ok(self.add(job, role, system, node))
    }

    /// Takes a job out, and its node where no other job shares it.
    pub(crate) fn remove(&mut self, at: usize) -> Member {
        let member = self.members.remove(at);
        let resident = &mut self.nodes[member.resident];
        resident.jobs -= 1;
        if resident.jobs == 0 {
            self.nodes.remove(member.resident);
            self.members.iter_mut().filter(|other| other.resident > member.resident).for_each(|other| other.resident -= 1);
        }
        member
    }

    #[inline]
    pub(crate) fn member(&self, at: usize) -> &Member {
        &self.members[at]
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    #[inline]
    pub(crate) fn member_mut(&mut self, at: usize) -> &mut Member {
        &mut self.members[at]
    }

    #[inline]
    pub(crate) fn node(&self, at: usize) -> &N {
        &self.nodes[self.members[at].resident].node
    }

    pub(crate) fn node_mut(&mut self, at: usize) -> &mut N {
        &mut self.nodes[self.members[at].resident].node
    }

    /// A job's node, and what its handlers are lent.
    #[inline]
    pub(crate) fn lend<'a, 't>(
        &'a mut self,
        at: usize,
        socket: &'a Socket,
        outlet: &'a mut Outlet,
        tensors: &'a mut Tensors<'t>,
    ) -> (&'a mut N, Lent<'a, 't>) {
        let Member { job, role, system, resident, .. } = self.members[at];
        let node = &mut self.nodes[resident].node;
        (node, Lent { socket, outlet, tensors, members: &mut self.members, at, job, role, system })
    }

    /// Each node's first job: timers and room are of the node, not of a job.
    #[inline]
    pub(crate) fn is_first_of_node(&self, at: usize) -> bool {
        let resident = self.members[at].resident;
        self.nodes[resident].jobs == 1 || self.members[..at].iter().all(|other| other.resident != resident)
    }

    /// How many jobs there are.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.members.len()
    }
}

impl<N: Node<[u8]>> Residents<N> {
    /// When the first of them wants to be called.
    #[inline]
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.nodes.iter().filter_map(|resident| resident.node.next_timeout()).min()
    }
}
