/* Communicators: each of the MPI's that is served has one of Fanin, kept as an attribute, made by its first blocking call that is served.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "fanin_mpi.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long a call waits for other ranks where FANIN_TIMEOUT does not say: an MPI would wait for ever, a switch does not by default. */
#define PATIENCE_S 3600.0

MPI_Comm fm_quiet = MPI_COMM_NULL;

static int keyval = MPI_KEYVAL_INVALID;
static MPI_Group world_group = MPI_GROUP_NULL;
/* A number for each rank's host. */
static uint64_t *hosts;
static atomic_uint joins;
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fm_comm *list;

/* The host that this process is on: its name, and since when it has been up. */
static uint64_t own_host(void)
{
    char words[256] = "";
    uint64_t hash = 0xcbf29ce484222325u;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

    gethostname(words, 128);
    if (file) {
        const size_t at = strlen(words);
        words[at + fread(words + at, 1, sizeof words - at - 1, file)] = 0;
        fclose(file);
    }
    for (const char *at = words; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    return hash;
}

/* An address of this host where nobody listens. */
static bool free_address(char *to, size_t bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    const int held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool found = held >= 0 && bind(held, (struct sockaddr *)&address, length) == 0
                       && getsockname(held, (struct sockaddr *)&address, &length) == 0;

    if (held >= 0)
        close(held);
    if (found)
        snprintf(to, bytes, "127.0.0.1:%d", ntohs(address.sin_port));
    return found;
}

static void set(fanin_settings *settings, const char *name, const char *value)
{
    if (value && *value)
        fanin_settings_set(settings, name, value);
}

/* Joins; NULL with words at `fanin_error` where that fails. */
static fanin_comm *join(int rank, int size, const char *job)
{
    const bool in_world = strcmp(job, fm_policy.job) == 0;
    fanin_settings *settings = fanin_settings_new();
    fanin_comm *comm = NULL;
    char number[16];

    snprintf(number, sizeof number, "%d", rank);
    set(settings, "rank", number);
    snprintf(number, sizeof number, "%d", size);
    set(settings, "world", number);
    set(settings, "job", job);
    set(settings, "switch", fm_policy.switch_at);
    set(settings, "fabric", fm_policy.fabric);
    /* The switch of rank 0 of the world is there for groups, too. */
    if (!*fm_policy.switch_at && !*fm_policy.fabric)
        set(settings, in_world ? "rendezvous" : "switch", fm_policy.rendezvous);
    /* Programs let ranks wait for one another for longer than a job of tensors does. */
    if (!getenv("FANIN_STALL_NOTICE"))
        set(settings, "stall_notice", "60s");
    if (fanin_init_with(settings, 1, &comm) != FANIN_OK)
        comm = NULL;
    else if (!getenv("FANIN_TIMEOUT"))
        fanin_set_timeout(comm, PATIENCE_S);
    fanin_settings_free(settings);
    return comm;
}

/* Leaves, once the last call has ended. */
static void release(struct fm_comm *comm)
{
    if (atomic_fetch_sub(&comm->users, 1) == 1)
        fanin_finalize(&comm->fanin);
}

void fm_comm_done(struct fm_comm *comm)
{
    release(comm);
}

static void forget(struct fm_comm *comm)
{
    pthread_mutex_lock(&list_lock);
    for (struct fm_comm **at = &list; *at; at = &(*at)->next) {
        if (*at == comm) {
            *at = comm->next;
            break;
        }
    }
    pthread_mutex_unlock(&list_lock);
}

/* The MPI frees the communicator. What is left of a call in the background still reads its attribute, which therefore stays: some bytes. */
static int freed(MPI_Comm mpi, int key, void *value, void *extra)
{
    struct fm_comm *comm = value;

    (void)mpi, (void)key, (void)extra;
    if (fm_is_on) {
        forget(comm);
        release(comm);
    }
    return MPI_SUCCESS;
}

/* Whether all ranks of a communicator are of this world; then also whether they are on one host. */
static bool is_of_world(MPI_Comm mpi, int size, int *one_host)
{
    MPI_Group group = MPI_GROUP_NULL;
    int *ranks = malloc(2 * sizeof *ranks * (size_t)size);
    bool all = ranks && fm_real.Comm_group(mpi, &group) == MPI_SUCCESS;

    *one_host = 1;
    for (int i = 0; all && i < size; i++)
        ranks[i] = i;
    all = all && fm_real.Group_translate_ranks(group, size, ranks, world_group, ranks + size) == MPI_SUCCESS;
    for (int i = 0; all && i < size; i++) {
        all = ranks[size + i] != MPI_UNDEFINED;
        if (all && hosts[ranks[size + i]] != hosts[ranks[size]])
            *one_host = 0;
    }
    if (group != MPI_GROUP_NULL)
        fm_real.Group_free(&group);
    free(ranks);
    return all;
}

/* All ranks join, or none of them does. */
static void join_together(struct fm_comm *comm, const char *job)
{
    int joined, all = 0;

    comm->fanin = join(comm->rank, comm->size, job);
    joined = comm->fanin != NULL;
    if (!joined)
        fm_say("rank %d: %s", fm_world_rank, fanin_error());
    if (fm_real.Allreduce(&joined, &all, 1, MPI_INT, MPI_MIN, comm->mpi) != MPI_SUCCESS)
        all = 0;
    if (!all)
        fanin_finalize(&comm->fanin);
    comm->left = all ? FM_SERVED : FM_NOT_JOINED;
    if (all && comm->rank == 0 && fm_policy.verbose) {
        char path[400] = "";
        fanin_path(comm->fanin, path, sizeof path);
        fm_say("%s, %d ranks: %s", job, comm->size, path);
    }
}

/* What is known of a communicator without asking its other ranks. */
static struct fm_comm *met(MPI_Comm mpi)
{
    struct fm_comm *comm = calloc(1, sizeof *comm);
    int is_inter = 0;

    if (!comm) {
        fm_say("no memory");
        abort();
    }
    comm->mpi = mpi;
    fm_real.Comm_test_inter(mpi, &is_inter);
    fm_real.Comm_rank(mpi, &comm->rank);
    fm_real.Comm_size(mpi, &comm->size);
    if (is_inter)
        comm->left = FM_INTER;
    else if (comm->size < 2)
        comm->left = FM_ALONE;
    else
        comm->left = is_of_world(mpi, comm->size, &comm->in_memory) ? FM_EARLY : FM_STRANGERS;
    if (fm_policy.network_only)
        comm->in_memory = 0;
    atomic_store(&comm->users, 1);
    pthread_mutex_lock(&list_lock);
    comm->next = list;
    list = comm;
    pthread_mutex_unlock(&list_lock);
    fm_real.Comm_set_attr(mpi, keyval, comm);
    return comm;
}

/* The communicator's, or NULL where the MPI does not know it: the MPI says so then. */
struct fm_comm *fm_comm_of(MPI_Comm mpi)
{
    void *value = NULL;
    int found = 0;

    if (mpi == MPI_COMM_NULL || fm_real.Comm_get_attr(mpi, keyval, &value, &found) != MPI_SUCCESS)
        return NULL;
    return found ? value : met(mpi);
}

/* Joins a communicator, in a blocking call that all of its ranks have begun and want to have served. */
void fm_comm_join(struct fm_comm *comm)
{
    char job[192] = "";

    if (comm->rank == 0)
        snprintf(job, sizeof job, "%s/%d.%u", fm_policy.job, fm_world_rank, atomic_fetch_add(&joins, 1));
    if (fm_real.Bcast(job, sizeof job, MPI_CHAR, 0, comm->mpi) == MPI_SUCCESS)
        join_together(comm, job);
    else
        comm->left = FM_NOT_JOINED;
}

/* A call in the background has begun; `fm_comm_done` ends it. */
void fm_comm_use(struct fm_comm *comm)
{
    atomic_fetch_add(&comm->users, 1);
}

void fm_comms_abort(const char *why)
{
    pthread_mutex_lock(&list_lock);
    for (struct fm_comm *comm = list; comm; comm = comm->next) {
        if (comm->fanin)
            fanin_abort(comm->fanin, why);
    }
    pthread_mutex_unlock(&list_lock);
}

/* Whether any call may be served; groups of a world on one host are there as well. */
static bool is_wanted(bool in_memory)
{
    bool any = false;

    for (int kind = 0; kind < FM_KINDS; kind++)
        any = any || fm_policy.from_bytes[1][kind] != SIZE_MAX || (!in_memory && fm_policy.from_bytes[0][kind] != SIZE_MAX);
    return any;
}

/* The world joins. */
bool fm_comms_begin(void)
{
    const uint64_t own = own_host();
    struct fm_comm *world;
    int size = 0;

    fm_real.Comm_size(MPI_COMM_WORLD, &size);
    hosts = malloc(sizeof *hosts * (size_t)size);
    if (!hosts || fm_real.Comm_create_keyval(MPI_COMM_NULL_COPY_FN, freed, &keyval, NULL) != MPI_SUCCESS) {
        fm_say("no memory");
        abort();
    }
    fm_real.Allgather(&own, sizeof own, MPI_BYTE, hosts, sizeof own, MPI_BYTE, MPI_COMM_WORLD);
    fm_real.Comm_group(MPI_COMM_WORLD, &world_group);
    fm_real.Comm_dup(MPI_COMM_WORLD, &fm_quiet);
    world = fm_comm_of(MPI_COMM_WORLD);
    if (!is_wanted(world->in_memory)) {
        if (fm_world_rank == 0 && fm_policy.verbose)
            fm_say("all is left to the MPI: FANIN_MPI_SERVE has nothing for ranks on %s", world->in_memory ? "one host" : "several hosts");
        return false;
    }
    if (!*fm_policy.switch_at && !*fm_policy.fabric && !*fm_policy.rendezvous) {
        if (!world->in_memory) {
            if (fm_world_rank == 0 && fm_policy.verbose)
                fm_say("all is left to the MPI: none of FANIN_SWITCH, FANIN_FABRIC and FANIN_RENDEZVOUS says where ranks of several hosts meet");
            return false;
        }
        if (fm_world_rank == 0)
            free_address(fm_policy.rendezvous, sizeof fm_policy.rendezvous);
        fm_real.Bcast(fm_policy.rendezvous, sizeof fm_policy.rendezvous, MPI_BYTE, 0, MPI_COMM_WORLD);
    }
    join_together(world, fm_policy.job);
    if (world->left != FM_SERVED && fm_world_rank == 0)
        fm_say("all is left to the MPI: not all ranks have joined Fanin");
    return world->left == FM_SERVED;
}

/* Leaves all jobs; all ranks their groups first, whose switch may be rank 0's of the world. */
void fm_comms_end(void)
{
    struct fm_comm *world = fm_comm_of(MPI_COMM_WORLD);

    for (struct fm_comm *comm = list; comm; comm = comm->next) {
        if (comm != world)
            fanin_finalize(&comm->fanin);
    }
    fm_real.Barrier(fm_quiet);
    fanin_finalize(&world->fanin);
    fm_real.Comm_free(&fm_quiet);
    fm_real.Group_free(&world_group);
    fm_real.Comm_free_keyval(&keyval);
}
