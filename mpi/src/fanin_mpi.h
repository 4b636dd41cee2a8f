/* Collectives of MPI programs by Fanin: what the parts of the preloaded library share. See docs/mpi.md.
 *
 * Compiled once with each MPI's own mpi.h. The library stands in front of MPI_* and PMPI_*: Fortran of Open MPI calls the latter. What it calls
 * itself are the MPI's own functions, by `fm_real`.
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FANIN_MPI_H
#define FANIN_MPI_H

#include <fanin.h>
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FM_HIDDEN __attribute__((visibility("hidden")))

/* A function of the MPI's under both of its names. */
#define BOTH(name, parameters)                                                                                          \
    __attribute__((visibility("default"), alias("PMPI_" #name))) int MPI_##name parameters;                             \
    __attribute__((visibility("default"))) int PMPI_##name parameters

/* The MPI's functions that are called, without their prefix. */
#define FM_REAL_FUNCTIONS(F)                                                                                            \
    F(Abort) F(Add_error_class) F(Add_error_code) F(Add_error_string) F(Allgather) F(Allreduce) F(Barrier) F(Bcast)     \
    F(Comm_call_errhandler) F(Comm_create_keyval) F(Comm_dup) F(Comm_free) F(Comm_free_keyval) F(Comm_get_attr) F(Comm_group) F(Comm_rank)       \
    F(Comm_set_attr) F(Comm_size) F(Comm_test_inter) F(Finalize) F(Get_library_version) F(Grequest_complete)            \
    F(Grequest_start) F(Group_free) F(Group_size) F(Group_translate_ranks) F(Iallgather) F(Iallreduce) F(Ibarrier)      \
    F(Ibcast) F(Init) F(Init_thread) F(Iprobe) F(Ireduce) F(Ireduce_scatter) F(Ireduce_scatter_block) F(Pack) F(Reduce) \
    F(Reduce_scatter) F(Reduce_scatter_block) F(Request_free) F(Request_get_status) F(Start) F(Startall)                \
    F(Status_set_cancelled) F(Status_set_elements) F(Test) F(Testall) F(Testany) F(Testsome) F(Type_free)               \
    F(Type_get_contents) F(Type_get_envelope) F(Type_get_extent) F(Type_size) F(Unpack) F(Wait) F(Waitall) F(Waitany)   \
    F(Waitsome)

#if MPI_VERSION >= 4
/* MPI 4: large counts and persistent collectives. */
#define FM_MPI_4 1
#define FM_REAL_FUNCTIONS_4(F)                                                                                          \
    F(Allgather_c) F(Allreduce_c) F(Bcast_c) F(Iallgather_c) F(Iallreduce_c) F(Ibcast_c) F(Ireduce_c)                   \
    F(Ireduce_scatter_block_c) F(Ireduce_scatter_c) F(Reduce_c) F(Reduce_scatter_block_c) F(Reduce_scatter_c)           \
    F(Type_size_c)
#else
#define FM_MPI_4 0
#define FM_REAL_FUNCTIONS_4(F)
#endif

/* Persistent collectives: of MPI 4, and an extension of Open MPI 4.1. */
#if FM_MPI_4
#define FM_PERSISTENT_PREFIX PMPI_
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ) && OMPI_HAVE_MPI_EXT_PCOLLREQ
#define FM_PERSISTENT_PREFIX PMPIX_
#endif
#ifdef FM_PERSISTENT_PREFIX
#define FM_REAL_FUNCTIONS_PERSISTENT(F)                                                                                 \
    F(Allgather_init) F(Allreduce_init) F(Barrier_init) F(Bcast_init) F(Reduce_init) F(Reduce_scatter_block_init)       \
    F(Reduce_scatter_init)
#else
#define FM_REAL_FUNCTIONS_PERSISTENT(F)
#endif
#define FM_JOIN(prefix, name) FM_JOINED(prefix, name)
#define FM_JOINED(prefix, name) prefix##name

struct fm_real_functions {
#define F(name) __typeof__(PMPI_##name) *name;
    FM_REAL_FUNCTIONS(F) FM_REAL_FUNCTIONS_4(F)
#undef F
#define F(name) __typeof__(FM_JOIN(FM_PERSISTENT_PREFIX, name)) *name;
    FM_REAL_FUNCTIONS_PERSISTENT(F)
#undef F
};
extern FM_HIDDEN struct fm_real_functions fm_real;

/* What is served. */
typedef enum {
    FM_ALLREDUCE,
    FM_REDUCE,
    FM_BCAST,
    FM_BARRIER,
    FM_REDUCE_SCATTER,
    FM_ALLGATHER,
    FM_KINDS,
} fm_kind;

/* Why a call is left to the MPI. */
typedef enum {
    FM_SERVED,
    FM_NOT_WANTED,
    FM_SMALL,
    FM_TYPE,
    FM_OPERATOR,
    FM_UNEVEN,
    FM_INTER,
    FM_ALONE,
    FM_STRANGERS,
    FM_NOT_JOINED,
    FM_EARLY,
    FM_HUGE,
    FM_REASONS,
} fm_reason;

/* What all ranks have agreed on: rank 0's word. */
struct fm_policy {
    /* From how many bytes on (of the whole vector) a kind is served, over the network and in shared memory; SIZE_MAX: never. */
    uint64_t from_bytes[2][FM_KINDS];
    int verbose;
    /* Floats have no product then. */
    int reproducible;
    /* All of the job is on one host, as far as Fanin may use that. */
    int network_only;
    char job[128];
    char switch_at[256];
    char fabric[256];
    char rendezvous[256];
};
extern FM_HIDDEN struct fm_policy fm_policy;

/* A communicator of the MPI, as its attribute. */
struct fm_comm {
    MPI_Comm mpi;
    fanin_comm *fanin;
    /* Why it has no communicator of Fanin; FM_SERVED where it has one. */
    fm_reason left;
    int rank, size;
    /* Whether all of its ranks are on one host: 1 or 0, an index of from_bytes. */
    int in_memory;
    /* Calls in the background that have not ended; one more while the communicator is not freed. */
    atomic_int users;
    struct fm_comm *next;
};

/* A call of the program. */
struct fm_call {
    fm_kind kind;
    const char *name;
    const void *send;
    void *recv;
    /* Elements of a rank's share; of `send` and of `recv`. */
    MPI_Count sends, recvs;
    MPI_Datatype send_type, recv_type;
    MPI_Op op;
    int root;
    MPI_Comm comm;
    bool may_block;
};

/* A call of Fanin in its place. */
struct fm_plan {
    struct fm_comm *comm;
    fm_kind kind;
    const void *in;
    void *out;
    /* Of a share. */
    size_t elements;
    fanin_type of;
    fanin_operator op;
    uint32_t root;
    /* Vectors that are not contiguous travel packed; some results do not have a place of their own. */
    void *packed_in, *packed_out;
    /* At the end: unpack `packed_out` to these. */
    void *unpack_to;
    MPI_Count unpack_count;
    MPI_Datatype unpack_type;
    /* At the end: `out` goes to where MPI wants it. */
    void *move_to;
    size_t move_bytes;
};

/* startup.c */
FM_HIDDEN extern bool fm_is_on;
FM_HIDDEN extern int fm_world_rank;
/* Of all ranks, for this library alone. */
FM_HIDDEN extern MPI_Comm fm_quiet;
FM_HIDDEN void fm_note(fm_reason reason, const struct fm_call *call, const struct fm_comm *comm);
FM_HIDDEN void fm_count(fm_kind kind, bool served, uint64_t bytes);
FM_HIDDEN void fm_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* comms.c */
FM_HIDDEN bool fm_comms_begin(void);
FM_HIDDEN void fm_comms_end(void);
FM_HIDDEN struct fm_comm *fm_comm_of(MPI_Comm mpi);
FM_HIDDEN void fm_comm_join(struct fm_comm *comm);
FM_HIDDEN void fm_comm_use(struct fm_comm *comm);
FM_HIDDEN void fm_comm_done(struct fm_comm *comm);
FM_HIDDEN void fm_comms_abort(const char *why);

/* types.c */
FM_HIDDEN bool fm_reduction(MPI_Datatype type, MPI_Op op, fanin_type *of, fanin_operator *by, size_t *each, fm_reason *why);
FM_HIDDEN bool fm_is_contiguous(MPI_Datatype type);
FM_HIDDEN uint64_t fm_type_bytes(MPI_Datatype type);
FM_HIDDEN MPI_Aint fm_type_extent(MPI_Datatype type);
FM_HIDDEN bool fm_pack(const void *from, MPI_Count count, MPI_Datatype type, void *to, MPI_Comm comm);
FM_HIDDEN bool fm_unpack(const void *from, void *to, MPI_Count count, MPI_Datatype type, MPI_Comm comm);

/* plan.c: true where Fanin serves the call; then `*error` says whether its plan could be made. */
FM_HIDDEN bool fm_plan_call(const struct fm_call *call, struct fm_plan *plan, int *error);
FM_HIDDEN bool fm_would_serve(const struct fm_call *call);
FM_HIDDEN fanin_status fm_plan_start(const struct fm_plan *plan, fanin_request **request);
FM_HIDDEN int fm_plan_end(struct fm_plan *plan, fanin_status status);
FM_HIDDEN int fm_error(struct fm_comm *comm, const char *words);
FM_HIDDEN int fm_last_error(struct fm_comm *comm);

/* requests.c */
FM_HIDDEN bool fm_requests_begin(void);
FM_HIDDEN int fm_run(struct fm_plan *plan);
FM_HIDDEN int fm_start(struct fm_plan *plan, MPI_Request *request);
/* `MPI_Wait` and `MPI_Waitall` of requests that are the MPI's. */
FM_HIDDEN int fm_wait_one(MPI_Request *request, MPI_Status *status);
FM_HIDDEN int fm_wait_all(int count, MPI_Request requests[], MPI_Status statuses[]);

/* What the entries make of their arguments. */
static inline struct fm_call fm_allreduce(const char *name, const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return (struct fm_call){.kind = FM_ALLREDUCE, .name = name, .send = send, .recv = recv, .sends = count, .recvs = count, .send_type = type,
                            .recv_type = type, .op = op, .comm = comm};
}

static inline struct fm_call fm_reduce(const char *name, const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
    struct fm_call call = fm_allreduce(name, send, recv, count, type, op, comm);
    call.kind = FM_REDUCE;
    call.root = root;
    return call;
}

static inline struct fm_call fm_bcast(const char *name, void *vector, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm)
{
    struct fm_call call = fm_allreduce(name, vector, vector, count, type, MPI_OP_NULL, comm);
    call.kind = FM_BCAST;
    call.root = root;
    return call;
}

static inline struct fm_call fm_barrier(const char *name, MPI_Comm comm)
{
    return (struct fm_call){.kind = FM_BARRIER, .name = name, .comm = comm};
}

static inline struct fm_call fm_scatter(const char *name, const void *send, void *recv, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    struct fm_call call = fm_allreduce(name, send, recv, count, type, op, comm);
    call.kind = FM_REDUCE_SCATTER;
    return call;
}

static inline struct fm_call fm_gather(const char *name, const void *send, MPI_Count sends, MPI_Datatype send_type, void *recv, MPI_Count recvs,
                             MPI_Datatype recv_type, MPI_Comm comm)
{
    const bool in_place = send == MPI_IN_PLACE;
    return (struct fm_call){.kind = FM_ALLGATHER, .name = name, .send = send, .recv = recv, .sends = in_place ? recvs : sends, .recvs = recvs,
                            .send_type = in_place ? recv_type : send_type, .recv_type = recv_type, .comm = comm};
}

/* The size of all parts where they have one, or -1: such a call is the MPI's. */
#define FM_EVEN(name, counts)                                                                                              \
    int size = 0;                                                                                                       \
    MPI_Count part = -1;                                                                                                \
    if (fm_is_on && comm != MPI_COMM_NULL && counts && fm_real.Comm_size(comm, &size) == MPI_SUCCESS && size > 0) {     \
        part = counts[0];                                                                                               \
        for (int i = 1; i < size; i++) {                                                                                \
            if (counts[i] != counts[0])                                                                                 \
                part = -1;                                                                                              \
        }                                                                                                               \
    }                                                                                                                   \
    struct fm_call call = fm_scatter(name, send, recv, part, type, op, comm);                                        \
    if (fm_is_on && part < 0)                                                                                           \
        fm_note(FM_UNEVEN, &call, NULL)

#endif
