/* Persistent collectives. The program has a request of the MPI's, which is never started where Fanin serves the call: a start makes a request of its
 * own, and whatever waits or tests sees that one in its place.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "fanin_mpi.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A call that Fanin serves each time that it is started. */
struct fm_persistent {
    MPI_Request mpi;
    struct fm_call call;
    /* MPI_REQUEST_NULL while it is not under way. */
    MPI_Request active;
    struct fm_persistent *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fm_persistent *list;
/* So that programs without any do not look for them. */
static atomic_int count_of_all;

static struct fm_persistent *find(MPI_Request request)
{
    struct fm_persistent *found = NULL;

    if (request == MPI_REQUEST_NULL || atomic_load_explicit(&count_of_all, memory_order_acquire) == 0)
        return NULL;
    pthread_mutex_lock(&lock);
    for (found = list; found && found->mpi != request; found = found->next)
        ;
    pthread_mutex_unlock(&lock);
    return found;
}

static void forget(MPI_Request request)
{
    struct fm_persistent *gone = NULL;

    if (atomic_load_explicit(&count_of_all, memory_order_acquire) == 0)
        return;
    pthread_mutex_lock(&lock);
    for (struct fm_persistent **at = &list; *at; at = &(*at)->next) {
        if ((*at)->mpi == request) {
            gone = *at;
            *at = gone->next;
            atomic_fetch_sub(&count_of_all, 1);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    free(gone);
}

/* Requests of a call, with what is under way in the place of what started it. */
struct swapped {
    MPI_Request few[16], *requests;
    struct fm_persistent *of_few[16], **of;
};

/* Whether there are any; otherwise the call may go on with its own. */
static bool swap(struct swapped *to, int count, const MPI_Request requests[])
{
    bool any = false;

    if (count <= 0 || atomic_load_explicit(&count_of_all, memory_order_acquire) == 0)
        return false;
    to->requests = to->few;
    to->of = to->of_few;
    if (count > 16) {
        to->requests = malloc(sizeof *to->requests * (size_t)count);
        to->of = malloc(sizeof *to->of * (size_t)count);
        if (!to->requests || !to->of) {
            fm_say("no memory");
            abort();
        }
    }
    for (int i = 0; i < count; i++) {
        struct fm_persistent *found = find(requests[i]);
        /* One that is not under way counts as none, as MPI has it; MPICH 4.0 would wait for its own. */
        to->of[i] = found;
        to->requests[i] = found ? found->active : requests[i];
        any = any || found;
    }
    if (!any && count > 16) {
        free(to->requests);
        free(to->of);
    }
    return any;
}

/* The program's requests after the call: persistent ones stay, and are no longer under way where they have ended. */
static void swap_back(struct swapped *from, int count, MPI_Request requests[])
{
    for (int i = 0; i < count; i++) {
        if (from->of[i])
            from->of[i]->active = from->requests[i];
        else
            requests[i] = from->requests[i];
    }
    if (count > 16) {
        free(from->requests);
        free(from->of);
    }
}

/* A function of an array of requests. */
#define OF_REQUESTS(name, parameters, theirs, count, ...)                                                               \
    BOTH(name, parameters)                                                                                              \
    {                                                                                                                   \
        struct swapped swapped;                                                                                         \
        int error;                                                                                                      \
        if (!swap(&swapped, count, requests))                                                                           \
            return theirs(__VA_ARGS__);                                                                                 \
        {                                                                                                               \
            MPI_Request *const own = requests;                                                                          \
            requests = swapped.requests;                                                                                \
            error = theirs(__VA_ARGS__);                                                                                \
            swap_back(&swapped, count, own);                                                                            \
        }                                                                                                               \
        return error;                                                                                                   \
    }

OF_REQUESTS(Wait, (MPI_Request * requests, MPI_Status *status), fm_wait_one, 1, requests, status)
OF_REQUESTS(Test, (MPI_Request * requests, int *flag, MPI_Status *status), fm_real.Test, 1, requests, flag, status)
OF_REQUESTS(Waitall, (int count, MPI_Request requests[], MPI_Status statuses[]), fm_wait_all, count, count, requests, statuses)
OF_REQUESTS(Testall, (int count, MPI_Request requests[], int *flag, MPI_Status statuses[]), fm_real.Testall, count, count, requests, flag, statuses)
OF_REQUESTS(Waitany, (int count, MPI_Request requests[], int *index, MPI_Status *status), fm_real.Waitany, count, count, requests, index, status)
OF_REQUESTS(Testany, (int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status), fm_real.Testany, count, count, requests, index,
            flag, status)
OF_REQUESTS(Waitsome, (int count, MPI_Request requests[], int *some, int indices[], MPI_Status statuses[]), fm_real.Waitsome, count, count, requests,
            some, indices, statuses)
OF_REQUESTS(Testsome, (int count, MPI_Request requests[], int *some, int indices[], MPI_Status statuses[]), fm_real.Testsome, count, count, requests,
            some, indices, statuses)

BOTH(Request_get_status, (MPI_Request request, int *flag, MPI_Status *status))
{
    struct fm_persistent *found = find(request);
    return fm_real.Request_get_status(found ? found->active : request, flag, status);
}

BOTH(Request_free, (MPI_Request * request))
{
    forget(*request);
    return fm_real.Request_free(request);
}

static int start(MPI_Request *request)
{
    struct fm_persistent *found = find(*request);
    struct fm_plan plan;
    int error;

    if (!found || !fm_plan_call(&found->call, &plan, &error))
        return fm_real.Start(request);
    return error != MPI_SUCCESS ? error : fm_start(&plan, &found->active);
}

BOTH(Start, (MPI_Request * request))
{
    return start(request);
}

BOTH(Startall, (int count, MPI_Request requests[]))
{
    int error = MPI_SUCCESS;

    if (atomic_load_explicit(&count_of_all, memory_order_acquire) == 0)
        return fm_real.Startall(count, requests);
    for (int i = 0; i < count && error == MPI_SUCCESS; i++)
        error = start(&requests[i]);
    return error;
}

#ifdef FM_PERSISTENT_PREFIX
/* Keeps what the MPI has made, if Fanin will serve it. A persistent call may block where it is made. */
static int keep(int error, struct fm_call *call, const MPI_Request *request)
{
    struct fm_persistent *kept;

    call->may_block = true;
    if (error != MPI_SUCCESS || !fm_would_serve(call))
        return error;
    kept = calloc(1, sizeof *kept);
    if (!kept) {
        fm_say("no memory");
        abort();
    }
    *kept = (struct fm_persistent){.mpi = *request, .call = *call, .active = MPI_REQUEST_NULL};
    kept->call.may_block = false;
    pthread_mutex_lock(&lock);
    kept->next = list;
    list = kept;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add_explicit(&count_of_all, 1, memory_order_release);
    return error;
}

/* A function under both of its names, which Open MPI's extensions have another beginning of. */
#if FM_MPI_4
#define BOTH_INIT(name, parameters) BOTH(name, parameters)
#else
#define BOTH_INIT(name, parameters)                                                                                     \
    __attribute__((visibility("default"), alias("PMPIX_" #name))) int MPIX_##name parameters;                           \
    __attribute__((visibility("default"))) int PMPIX_##name parameters
#endif

BOTH_INIT(Allreduce_init, (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request))
{
    struct fm_call call = fm_allreduce("MPI_Allreduce_init", send, recv, count, type, op, comm);
    return keep(fm_real.Allreduce_init(send, recv, count, type, op, comm, info, request), &call, request);
}

BOTH_INIT(Reduce_init, (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, MPI_Info info, MPI_Request *request))
{
    struct fm_call call = fm_reduce("MPI_Reduce_init", send, recv, count, type, op, root, comm);
    return keep(fm_real.Reduce_init(send, recv, count, type, op, root, comm, info, request), &call, request);
}

BOTH_INIT(Bcast_init, (void *vector, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Info info, MPI_Request *request))
{
    struct fm_call call = fm_bcast("MPI_Bcast_init", vector, count, type, root, comm);
    return keep(fm_real.Bcast_init(vector, count, type, root, comm, info, request), &call, request);
}

BOTH_INIT(Reduce_scatter_block_init, (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request))
{
    struct fm_call call = fm_scatter("MPI_Reduce_scatter_block_init", send, recv, count, type, op, comm);
    return keep(fm_real.Reduce_scatter_block_init(send, recv, count, type, op, comm, info, request), &call, request);
}

BOTH_INIT(Allgather_init, (const void *send, int sends, MPI_Datatype send_type, void *recv, int recvs, MPI_Datatype recv_type, MPI_Comm comm, MPI_Info info, MPI_Request *request))
{
    struct fm_call call = fm_gather("MPI_Allgather_init", send, sends, send_type, recv, recvs, recv_type, comm);
    return keep(fm_real.Allgather_init(send, sends, send_type, recv, recvs, recv_type, comm, info, request), &call, request);
}

BOTH_INIT(Reduce_scatter_init, (const void *send, void *recv, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request))
{
    FM_EVEN("MPI_Reduce_scatter_init", counts);
    return keep(fm_real.Reduce_scatter_init(send, recv, counts, type, op, comm, info, request), &call, request);
}

BOTH_INIT(Barrier_init, (MPI_Comm comm, MPI_Info info, MPI_Request *request))
{
    struct fm_call call = fm_barrier("MPI_Barrier_init", comm);
    return keep(fm_real.Barrier_init(comm, info, request), &call, request);
}
#endif
