/* The functions of the MPI that stand before its own.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "fanin_mpi.h"

/* The call runs to its end, or is the MPI's. */
#define RUN(call, theirs)                                                                                               \
    do {                                                                                                                \
        struct fm_plan plan;                                                                                            \
        int error;                                                                                                      \
        (call).may_block = true;                                                                                        \
        if (!fm_plan_call(&(call), &plan, &error))                                                                      \
            return theirs;                                                                                              \
        return error != MPI_SUCCESS ? error : fm_run(&plan);                                                            \
    } while (0)

/* The call begins, or is the MPI's. */
#define START(call, theirs)                                                                                             \
    do {                                                                                                                \
        struct fm_plan plan;                                                                                            \
        int error;                                                                                                      \
        if (!fm_plan_call(&(call), &plan, &error))                                                                      \
            return theirs;                                                                                              \
        return error != MPI_SUCCESS ? error : fm_start(&plan, request);                                                 \
    } while (0)

BOTH(Allreduce, (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm))
{
    struct fm_call call = fm_allreduce("MPI_Allreduce", send, recv, count, type, op, comm);
    RUN(call, fm_real.Allreduce(send, recv, count, type, op, comm));
}

BOTH(Iallreduce, (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request))
{
    struct fm_call call = fm_allreduce("MPI_Iallreduce", send, recv, count, type, op, comm);
    START(call, fm_real.Iallreduce(send, recv, count, type, op, comm, request));
}

BOTH(Reduce, (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm))
{
    struct fm_call call = fm_reduce("MPI_Reduce", send, recv, count, type, op, root, comm);
    RUN(call, fm_real.Reduce(send, recv, count, type, op, root, comm));
}

BOTH(Ireduce, (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, MPI_Request *request))
{
    struct fm_call call = fm_reduce("MPI_Ireduce", send, recv, count, type, op, root, comm);
    START(call, fm_real.Ireduce(send, recv, count, type, op, root, comm, request));
}

BOTH(Bcast, (void *vector, int count, MPI_Datatype type, int root, MPI_Comm comm))
{
    struct fm_call call = fm_bcast("MPI_Bcast", vector, count, type, root, comm);
    RUN(call, fm_real.Bcast(vector, count, type, root, comm));
}

BOTH(Ibcast, (void *vector, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request))
{
    struct fm_call call = fm_bcast("MPI_Ibcast", vector, count, type, root, comm);
    START(call, fm_real.Ibcast(vector, count, type, root, comm, request));
}

BOTH(Reduce_scatter_block, (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm))
{
    struct fm_call call = fm_scatter("MPI_Reduce_scatter_block", send, recv, count, type, op, comm);
    RUN(call, fm_real.Reduce_scatter_block(send, recv, count, type, op, comm));
}

BOTH(Ireduce_scatter_block, (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request))
{
    struct fm_call call = fm_scatter("MPI_Ireduce_scatter_block", send, recv, count, type, op, comm);
    START(call, fm_real.Ireduce_scatter_block(send, recv, count, type, op, comm, request));
}

BOTH(Allgather, (const void *send, int sends, MPI_Datatype send_type, void *recv, int recvs, MPI_Datatype recv_type, MPI_Comm comm))
{
    struct fm_call call = fm_gather("MPI_Allgather", send, sends, send_type, recv, recvs, recv_type, comm);
    RUN(call, fm_real.Allgather(send, sends, send_type, recv, recvs, recv_type, comm));
}

BOTH(Iallgather, (const void *send, int sends, MPI_Datatype send_type, void *recv, int recvs, MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request))
{
    struct fm_call call = fm_gather("MPI_Iallgather", send, sends, send_type, recv, recvs, recv_type, comm);
    START(call, fm_real.Iallgather(send, sends, send_type, recv, recvs, recv_type, comm, request));
}

BOTH(Reduce_scatter, (const void *send, void *recv, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm))
{
    FM_EVEN("MPI_Reduce_scatter", counts);
    RUN(call, fm_real.Reduce_scatter(send, recv, counts, type, op, comm));
}

BOTH(Ireduce_scatter, (const void *send, void *recv, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request))
{
    FM_EVEN("MPI_Ireduce_scatter", counts);
    START(call, fm_real.Ireduce_scatter(send, recv, counts, type, op, comm, request));
}

BOTH(Barrier, (MPI_Comm comm))
{
    struct fm_call call = fm_barrier("MPI_Barrier", comm);
    RUN(call, fm_real.Barrier(comm));
}

BOTH(Ibarrier, (MPI_Comm comm, MPI_Request *request))
{
    struct fm_call call = fm_barrier("MPI_Ibarrier", comm);
    START(call, fm_real.Ibarrier(comm, request));
}

#if FM_MPI_4
BOTH(Allreduce_c, (const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm))
{
    struct fm_call call = fm_allreduce("MPI_Allreduce_c", send, recv, count, type, op, comm);
    RUN(call, fm_real.Allreduce_c(send, recv, count, type, op, comm));
}

BOTH(Iallreduce_c, (const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request))
{
    struct fm_call call = fm_allreduce("MPI_Iallreduce_c", send, recv, count, type, op, comm);
    START(call, fm_real.Iallreduce_c(send, recv, count, type, op, comm, request));
}

BOTH(Reduce_c, (const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm))
{
    struct fm_call call = fm_reduce("MPI_Reduce_c", send, recv, count, type, op, root, comm);
    RUN(call, fm_real.Reduce_c(send, recv, count, type, op, root, comm));
}

BOTH(Ireduce_c, (const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, MPI_Request *request))
{
    struct fm_call call = fm_reduce("MPI_Ireduce_c", send, recv, count, type, op, root, comm);
    START(call, fm_real.Ireduce_c(send, recv, count, type, op, root, comm, request));
}

BOTH(Bcast_c, (void *vector, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm))
{
    struct fm_call call = fm_bcast("MPI_Bcast_c", vector, count, type, root, comm);
    RUN(call, fm_real.Bcast_c(vector, count, type, root, comm));
}

BOTH(Ibcast_c, (void *vector, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request))
{
    struct fm_call call = fm_bcast("MPI_Ibcast_c", vector, count, type, root, comm);
    START(call, fm_real.Ibcast_c(vector, count, type, root, comm, request));
}

BOTH(Reduce_scatter_block_c, (const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm))
{
    struct fm_call call = fm_scatter("MPI_Reduce_scatter_block_c", send, recv, count, type, op, comm);
    RUN(call, fm_real.Reduce_scatter_block_c(send, recv, count, type, op, comm));
}

BOTH(Ireduce_scatter_block_c, (const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request))
{
    struct fm_call call = fm_scatter("MPI_Ireduce_scatter_block_c", send, recv, count, type, op, comm);
    START(call, fm_real.Ireduce_scatter_block_c(send, recv, count, type, op, comm, request));
}

BOTH(Allgather_c, (const void *send, MPI_Count sends, MPI_Datatype send_type, void *recv, MPI_Count recvs, MPI_Datatype recv_type, MPI_Comm comm))
{
    struct fm_call call = fm_gather("MPI_Allgather_c", send, sends, send_type, recv, recvs, recv_type, comm);
    RUN(call, fm_real.Allgather_c(send, sends, send_type, recv, recvs, recv_type, comm));
}

BOTH(Iallgather_c, (const void *send, MPI_Count sends, MPI_Datatype send_type, void *recv, MPI_Count recvs, MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request))
{
    struct fm_call call = fm_gather("MPI_Iallgather_c", send, sends, send_type, recv, recvs, recv_type, comm);
    START(call, fm_real.Iallgather_c(send, sends, send_type, recv, recvs, recv_type, comm, request));
}

BOTH(Reduce_scatter_c, (const void *send, void *recv, const MPI_Count counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm))
{
    FM_EVEN("MPI_Reduce_scatter_c", counts);
    RUN(call, fm_real.Reduce_scatter_c(send, recv, counts, type, op, comm));
}

BOTH(Ireduce_scatter_c, (const void *send, void *recv, const MPI_Count counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request))
{
    FM_EVEN("MPI_Ireduce_scatter_c", counts);
    START(call, fm_real.Ireduce_scatter_c(send, recv, counts, type, op, comm, request));
}

#endif
