/* Whether Fanin serves a call, and how. What decides is the same at all ranks: counts and types by the bytes that they stand for, operators, and
 * what has happened on the communicator before.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "fanin_mpi.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of one rank's share. Types may differ between ranks where the bytes do not. */
static uint64_t share_bytes(const struct fm_call *call)
{
    switch (call->kind) {
    case FM_BARRIER: return 0;
    case FM_REDUCE_SCATTER:
    case FM_ALLGATHER: return (uint64_t)call->recvs * fm_type_bytes(call->recv_type);
    default: return (uint64_t)call->sends * fm_type_bytes(call->send_type);
    }
}

/* Arguments that the MPI refuses, or that leave nothing to do, are the MPI's. */
static bool is_sound(const struct fm_call *call)
{
    if (call->kind == FM_BARRIER)
        return true;
    if (call->sends < 0 || call->recvs < 0 || call->send_type == MPI_DATATYPE_NULL || call->recv_type == MPI_DATATYPE_NULL)
        return false;
    return share_bytes(call) > 0;
}

static void *memory(size_t bytes)
{
    return malloc(bytes ? bytes : 1);
}

/* Bytes that are only moved, as elements that every path has. */
static void as_words(struct fm_plan *plan, uint64_t bytes)
{
    plan->of = bytes % 4 ? FANIN_U8 : FANIN_I32;
    plan->elements = bytes % 4 ? bytes : bytes / 4;
}

static bool plan_broadcast(const struct fm_call *call, struct fm_plan *plan, uint64_t bytes)
{
    as_words(plan, bytes);
    plan->in = plan->out = call->recv;
    if (fm_is_contiguous(call->send_type))
        return true;
    plan->in = plan->out = plan->packed_out = memory(bytes);
    if (!plan->packed_out)
        return false;
    if (plan->comm->rank == call->root)
        return fm_pack(call->recv, call->sends, call->send_type, plan->packed_out, call->comm);
    plan->unpack_to = call->recv;
    plan->unpack_count = call->sends;
    plan->unpack_type = call->send_type;
    return true;
}

static bool plan_gather(const struct fm_call *call, struct fm_plan *plan, uint64_t bytes)
{
    const bool in_place = call->send == MPI_IN_PLACE;
    const MPI_Datatype type = in_place ? call->recv_type : call->send_type;
    const MPI_Count count = in_place ? call->recvs : call->sends;
    const void *own = in_place ? (const char *)call->recv + plan->comm->rank * call->recvs * fm_type_extent(call->recv_type) : call->send;

    as_words(plan, bytes);
    plan->in = own;
    plan->out = call->recv;
    if (!fm_is_contiguous(type)) {
        plan->in = plan->packed_in = memory(bytes);
        if (!plan->packed_in || !fm_pack(own, count, type, plan->packed_in, call->comm))
            return false;
    }
    if (!fm_is_contiguous(call->recv_type)) {
        plan->out = plan->packed_out = memory(bytes * (uint64_t)plan->comm->size);
        if (!plan->packed_out)
            return false;
        plan->unpack_to = call->recv;
        plan->unpack_count = call->recvs * plan->comm->size;
        plan->unpack_type = call->recv_type;
    }
    return true;
}

/* In place, the result goes to the beginning of the vector, and programs expect the rest to be as it was. */
static bool plan_scatter(const struct fm_call *call, struct fm_plan *plan, uint64_t bytes)
{
    if (call->send != MPI_IN_PLACE)
        return true;
    plan->out = plan->packed_out = memory(bytes);
    plan->move_to = call->recv;
    plan->move_bytes = bytes;
    return plan->packed_out != NULL;
}

static bool fill(const struct fm_call *call, struct fm_plan *plan, uint64_t bytes, size_t each)
{
    const bool in_place = call->send == MPI_IN_PLACE;

    plan->root = (uint32_t)call->root;
    switch (call->kind) {
    case FM_BARRIER: return true;
    case FM_BCAST: return plan_broadcast(call, plan, bytes);
    case FM_ALLGATHER: return plan_gather(call, plan, bytes);
    default: break;
    }
    plan->elements = (size_t)(call->kind == FM_REDUCE_SCATTER ? call->recvs : call->sends) * each;
    plan->in = in_place ? call->recv : call->send;
    plan->out = call->recv;
    if (call->kind == FM_REDUCE && plan->comm->rank != call->root)
        plan->out = NULL;
    return call->kind != FM_REDUCE_SCATTER || plan_scatter(call, plan, bytes);
}

/* Why the call is the MPI's; FM_SERVED where it is not. */
static fm_reason decide(const struct fm_call *call, struct fm_plan *plan, uint64_t bytes, size_t *each)
{
    struct fm_comm *comm = plan->comm;
    const bool has_shares = call->kind == FM_REDUCE_SCATTER || call->kind == FM_ALLGATHER;
    const uint64_t shares = has_shares ? (uint64_t)comm->size : 1, from = fm_policy.from_bytes[comm->in_memory][call->kind];
    fm_reason why = FM_SERVED;

    if (comm->left != FM_SERVED && comm->left != FM_EARLY)
        return comm->left;
    if (from == SIZE_MAX)
        return FM_NOT_WANTED;
    if (bytes > (uint64_t)PTRDIFF_MAX / shares)
        return FM_HUGE;
    if (bytes * shares < from)
        return FM_SMALL;
    if (call->kind == FM_ALLREDUCE || call->kind == FM_REDUCE || call->kind == FM_REDUCE_SCATTER) {
        if (!fm_reduction(call->send_type, call->op, &plan->of, &plan->op, each, &why))
            return why;
    }
    if (comm->left == FM_EARLY && call->may_block)
        fm_comm_join(comm);
    return comm->left;
}

bool fm_plan_call(const struct fm_call *call, struct fm_plan *plan, int *error)
{
    size_t each = 1;
    uint64_t bytes;
    fm_reason why;

    *plan = (struct fm_plan){.kind = call->kind};
    if (!fm_is_on || !is_sound(call) || !(plan->comm = fm_comm_of(call->comm)))
        return false;
    if ((call->kind == FM_BCAST || call->kind == FM_REDUCE) && (call->root < 0 || call->root >= plan->comm->size))
        return false;
    bytes = share_bytes(call);
    why = decide(call, plan, bytes, &each);
    if (why != FM_ALONE)
        fm_count(call->kind, why == FM_SERVED, bytes);
    if (why != FM_SERVED) {
        if (why != FM_ALONE)
            fm_note(why, call, plan->comm);
        return false;
    }
    *error = MPI_SUCCESS;
    if (!fill(call, plan, bytes, each)) {
        free(plan->packed_in);
        free(plan->packed_out);
        *error = fm_error(plan->comm, "no memory for a copy of the vector, or elements of more than 2 GiB that are not contiguous");
    }
    return true;
}

/* Whether Fanin will serve a persistent call; its communicator joins if so. */
bool fm_would_serve(const struct fm_call *call)
{
    struct fm_plan plan = {.kind = call->kind};
    size_t each = 1;
    fm_reason why;

    if (!fm_is_on || !is_sound(call) || !(plan.comm = fm_comm_of(call->comm)))
        return false;
    why = decide(call, &plan, share_bytes(call), &each);
    if (why != FM_SERVED && why != FM_ALONE)
        fm_note(why, call, plan.comm);
    return why == FM_SERVED;
}

fanin_status fm_plan_start(const struct fm_plan *plan, fanin_request **request)
{
    const fanin_comm *comm = plan->comm->fanin;

    switch (plan->kind) {
    case FM_ALLREDUCE: return fanin_allreduce_start(comm, plan->in, plan->out, plan->elements, plan->of, plan->op, request);
    case FM_REDUCE: return fanin_reduce_start(comm, plan->in, plan->out, plan->elements, plan->of, plan->op, plan->root, request);
    case FM_BCAST: return fanin_broadcast_start(comm, plan->out, plan->elements, plan->of, plan->root, request);
    case FM_REDUCE_SCATTER: return fanin_reduce_scatter_start(comm, plan->in, plan->out, plan->elements, plan->of, plan->op, request);
    case FM_ALLGATHER: return fanin_all_gather_start(comm, plan->in, plan->out, plan->elements, plan->of, request);
    default: return fanin_barrier_start(comm, request);
    }
}

/* Puts results where the program wants them; the MPI's error code. */
int fm_plan_end(struct fm_plan *plan, fanin_status status)
{
    int error = status == FANIN_OK ? MPI_SUCCESS : fm_last_error(plan->comm);

    if (status == FANIN_OK && plan->move_to)
        memcpy(plan->move_to, plan->out, plan->move_bytes);
    if (status == FANIN_OK && plan->unpack_to
        && !fm_unpack(plan->packed_out, plan->unpack_to, plan->unpack_count, plan->unpack_type, plan->comm->mpi))
        error = fm_error(plan->comm, "a vector that is not contiguous could not be unpacked");
    free(plan->packed_in);
    free(plan->packed_out);
    plan->packed_in = plan->packed_out = NULL;
    return error;
}

/* A code of the MPI's that has these words. There is no end of a communicator but by its first error, so that codes are few. */
int fm_error(struct fm_comm *comm, const char *words)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int class = MPI_SUCCESS;
    static char last[MPI_MAX_ERROR_STRING];
    static int last_code = MPI_ERR_OTHER;
    char text[MPI_MAX_ERROR_STRING];
    int code;

    (void)comm;
    snprintf(text, sizeof text, "Fanin: %.*s", (int)sizeof text - 8, words);
    pthread_mutex_lock(&lock);
    if (class == MPI_SUCCESS && fm_real.Add_error_class(&class) != MPI_SUCCESS)
        class = MPI_ERR_OTHER;
    code = last_code;
    if (strcmp(text, last) != 0 && fm_real.Add_error_code(class, &code) == MPI_SUCCESS) {
        fm_real.Add_error_string(code, text);
        strcpy(last, text);
        last_code = code;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

int fm_last_error(struct fm_comm *comm)
{
    return fm_error(comm, fanin_error());
}
