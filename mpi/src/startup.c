/* Beginning and end: what rank 0's environment wants, agreed on by all ranks; what was served and what was left to the MPI.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "fanin_mpi.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

struct fm_real_functions fm_real;
struct fm_policy fm_policy;
bool fm_is_on;
int fm_world_rank;

static const char *const kind_names[FM_KINDS] = {"allreduce", "reduce", "bcast", "barrier", "reduce_scatter", "allgather"};

/* From how many bytes of the whole vector on Fanin was faster than both MPIs, in all measurements of docs/mpi.md: over a network, and in memory. */
static const uint64_t defaults[2][FM_KINDS] = {
    {[FM_ALLREDUCE] = 256 << 10, [FM_REDUCE] = 256 << 10, [FM_BCAST] = 1 << 20, [FM_BARRIER] = SIZE_MAX, [FM_REDUCE_SCATTER] = SIZE_MAX,
     [FM_ALLGATHER] = SIZE_MAX},
    {[FM_ALLREDUCE] = 16 << 20, [FM_REDUCE] = 16 << 20, [FM_BCAST] = 64 << 20, [FM_BARRIER] = SIZE_MAX, [FM_REDUCE_SCATTER] = 64 << 20,
     [FM_ALLGATHER] = SIZE_MAX},
};

static atomic_uint noted[FM_KINDS];
static atomic_ullong served[FM_KINDS], served_bytes[FM_KINDS], left[FM_KINDS];

void fm_say(const char *format, ...)
{
    char line[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fprintf(stderr, "fanin-mpi: %s\n", line);
}

static const char *reason_words(fm_reason reason)
{
    switch (reason) {
    case FM_NOT_WANTED: return "by default, or by FANIN_MPI_SERVE, Fanin does not serve it on this path";
    case FM_SMALL: return "of fewer bytes than from where on Fanin serves it (FANIN_MPI_SERVE)";
    case FM_TYPE: return "Fanin has no such element type, or not with this operator";
    case FM_OPERATOR: return "Fanin has no such operator";
    case FM_UNEVEN: return "parts of different sizes";
    case FM_INTER: return "it is between two groups";
    case FM_ALONE: return "there is only one rank";
    case FM_STRANGERS: return "some of its ranks are not of this MPI_COMM_WORLD";
    case FM_NOT_JOINED: return "Fanin could not be joined";
    case FM_EARLY: return "its communicator has had no blocking call yet that Fanin serves, and joining would block";
    case FM_HUGE: return "it has more bytes than there are addresses";
    default: return "";
    }
}

/* Once for each kind and reason, by rank 0 of the communicator. */
void fm_note(fm_reason reason, const struct fm_call *call, const struct fm_comm *comm)
{
    const unsigned bit = 1u << reason;
    int rank = comm ? comm->rank : -1;

    if (!fm_policy.verbose || (atomic_fetch_or(&noted[call->kind], bit) & bit))
        return;
    if (rank < 0 && fm_real.Comm_rank(call->comm, &rank) != MPI_SUCCESS)
        return;
    if (rank == 0)
        fm_say("%s is left to the MPI: %s", call->name, reason_words(reason));
}

void fm_count(fm_kind kind, bool is_served, uint64_t bytes)
{
    if (is_served) {
        atomic_fetch_add_explicit(&served[kind], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&served_bytes[kind], bytes, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&left[kind], 1, memory_order_relaxed);
    }
}

static void report(void)
{
    char line[512] = "";

    if (fm_policy.verbose < 1 || (fm_world_rank != 0 && fm_policy.verbose < 2))
        return;
    for (int kind = 0; kind < FM_KINDS; kind++) {
        const size_t at = strlen(line);
        const unsigned long long ours = atomic_load(&served[kind]), theirs = atomic_load(&left[kind]);
        if (ours || theirs)
            snprintf(line + at, sizeof line - at, "%s%s %llu (%llu bytes) and %llu", at ? "; " : "", kind_names[kind], ours,
                     (unsigned long long)atomic_load(&served_bytes[kind]), theirs);
    }
    fm_say("rank %d: served and left: %s", fm_world_rank, *line ? line : "nothing");
}

/* A number of bytes, with a unit or without. */
static bool read_size(const char *text, uint64_t *bytes)
{
    static const struct { const char *name; uint64_t bytes; } units[] = {
        {"", 1}, {"B", 1}, {"kB", 1000}, {"MB", 1000000}, {"GB", 1000000000}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
    };
    char *end;
    const unsigned long long number = strtoull(text, &end, 10);

    if (end == text || *text == '-')
        return false;
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].name) == 0 && number < UINT64_MAX / units[i].bytes) {
            *bytes = number * units[i].bytes;
            return true;
        }
    }
    return false;
}

/* One part of FANIN_MPI_SERVE: `all`, `none`, `KIND` or `KIND:SIZE`. */
static bool read_part(char *part)
{
    char *size = strchr(part, ':');
    uint64_t bytes = 0;
    bool found = false;

    if (size)
        *size++ = 0;
    if (size && !read_size(size, &bytes))
        return false;
    if (strcmp(part, "none") == 0)
        return size == NULL;
    for (int kind = 0; kind < FM_KINDS; kind++) {
        if (strcmp(part, "all") == 0 || strcmp(part, kind_names[kind]) == 0) {
            fm_policy.from_bytes[0][kind] = fm_policy.from_bytes[1][kind] = bytes;
            found = true;
        }
    }
    return found;
}

static bool read_serve(const char *text)
{
    char copy[512];
    char *rest = NULL;

    if (strlen(text) >= sizeof copy)
        return false;
    strcpy(copy, text);
    for (int path = 0; path < 2; path++) {
        for (int kind = 0; kind < FM_KINDS; kind++)
            fm_policy.from_bytes[path][kind] = SIZE_MAX;
    }
    for (char *part = strtok_r(copy, ", ", &rest); part; part = strtok_r(NULL, ", ", &rest)) {
        if (!read_part(part))
            return false;
    }
    return true;
}

static void copy_variable(const char *name, char *to, size_t bytes)
{
    const char *value = getenv(name);
    if (value && snprintf(to, bytes, "%s", value) >= (int)bytes) {
        fm_say("%s is longer than %zu letters", name, bytes - 1);
        fm_real.Abort(MPI_COMM_WORLD, 1);
    }
}

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value && strcmp(value, "0") != 0;
}

/* Rank 0's environment; a value that makes no sense ends the job. */
static void read_environment(void)
{
    const char *serve = getenv("FANIN_MPI_SERVE"), *verbose = getenv("FANIN_MPI_VERBOSE"), *transport = getenv("FANIN_TRANSPORT");
    char host[64] = "host";

    memcpy(fm_policy.from_bytes, defaults, sizeof defaults);
    if (serve && !read_serve(serve)) {
        fm_say("FANIN_MPI_SERVE = \"%s\": expected all, none, or some of allreduce, reduce, bcast, barrier, reduce_scatter, allgather, each with "
               ":SIZE from which on it is served", serve);
        fm_real.Abort(MPI_COMM_WORLD, 1);
    }
    if (verbose && (strlen(verbose) != 1 || *verbose < '0' || *verbose > '2')) {
        fm_say("FANIN_MPI_VERBOSE = \"%s\": expected 0, 1 or 2", verbose);
        fm_real.Abort(MPI_COMM_WORLD, 1);
    }
    fm_policy.verbose = verbose ? *verbose - '0' : 0;
    fm_policy.reproducible = is_set("FANIN_REPRODUCIBLE");
    fm_policy.network_only = transport && strcmp(transport, "udp") == 0;
    copy_variable("FANIN_SWITCH", fm_policy.switch_at, sizeof fm_policy.switch_at);
    copy_variable("FANIN_FABRIC", fm_policy.fabric, sizeof fm_policy.fabric);
    copy_variable("FANIN_RENDEZVOUS", fm_policy.rendezvous, sizeof fm_policy.rendezvous);
    gethostname(host, sizeof host - 1);
    snprintf(fm_policy.job, sizeof fm_policy.job, "mpi-%s-%d-%llx", host, (int)getpid(), (unsigned long long)time(NULL));
    copy_variable("FANIN_JOB", fm_policy.job, sizeof fm_policy.job);
}

/* This library is of one MPI: another one's handles are something else. */
static void check_library(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
#ifdef OPEN_MPI
    static const char expected[] = "Open MPI v4.";
#else
    static const char expected[] = "MPICH Version";
#endif
    fm_real.Get_library_version(text, &length);
    if (!strstr(text, expected)) {
        fm_say("this library is for \"%s\", and the program runs with \"%.60s\": preload the other one", expected, text);
        exit(1);
    }
}

static void begin(void)
{
    int size = 1;

    check_library();
    fm_real.Comm_rank(MPI_COMM_WORLD, &fm_world_rank);
    fm_real.Comm_size(MPI_COMM_WORLD, &size);
    if (size < 2)
        return;
    if (fm_world_rank == 0)
        read_environment();
    fm_real.Bcast(&fm_policy, sizeof fm_policy, MPI_BYTE, 0, MPI_COMM_WORLD);
    fm_is_on = fm_requests_begin() && fm_comms_begin();
}

static void look_up(void)
{
    bool found = true;
#define F(name) found &= (fm_real.name = (__typeof__(fm_real.name))dlsym(RTLD_NEXT, "PMPI_" #name)) != NULL;
    FM_REAL_FUNCTIONS(F) FM_REAL_FUNCTIONS_4(F)
#undef F
#define TEXT(name) TEXT_OF(name)
#define TEXT_OF(name) #name
#define F(name) found &= (fm_real.name = (__typeof__(fm_real.name))dlsym(RTLD_NEXT, TEXT(FM_JOIN(FM_PERSISTENT_PREFIX, name)))) != NULL;
    FM_REAL_FUNCTIONS_PERSISTENT(F)
#undef F
    if (!found) {
        fm_say("the MPI lacks functions: %s", dlerror());
        exit(1);
    }
}

__attribute__((constructor)) static void loaded(void)
{
    look_up();
}

BOTH(Init, (int *count, char ***arguments))
{
    const int error = fm_real.Init(count, arguments);
    if (error == MPI_SUCCESS)
        begin();
    return error;
}

BOTH(Init_thread, (int *count, char ***arguments, int required, int *provided))
{
    const int error = fm_real.Init_thread(count, arguments, required, provided);
    if (error == MPI_SUCCESS)
        begin();
    return error;
}

BOTH(Finalize, (void))
{
    if (fm_is_on) {
        fm_is_on = false;
        report();
        fm_comms_end();
    }
    return fm_real.Finalize();
}

BOTH(Abort, (MPI_Comm comm, int code))
{
    char why[64];
    if (fm_is_on) {
        snprintf(why, sizeof why, "MPI_Abort(%d)", code);
        fm_comms_abort(why);
    }
    return fm_real.Abort(comm, code);
}
