/* Waiting for Fanin by the MPI's means. A blocking call looks after the MPI's own messages meanwhile, as every call of an MPI does. A call in the
 * background is a generalized request, so that whatever waits or tests, in C or Fortran, for one request or arrays of all kinds, knows it. It is
 * looked at whenever the MPI makes progress, in a thread of the program: no thread of this library ever calls the MPI, which may not allow threads.
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "fanin_mpi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A blocking call only yields for so long, and then sleeps for a part of the time that it has taken so far, so that it ends not much later. */
#define YIELD_NS 100000
#define SLEEP_PART 32
#define SLEEP_MOST_NS 500000

/* A call in the background. */
struct fm_request {
    struct fm_plan plan;
    fanin_request *fanin;
    MPI_Request mpi;
    int error;
    bool is_told;
    struct fm_request *next;
};

static int64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int call_handler(struct fm_comm *comm, int error)
{
    if (error != MPI_SUCCESS)
        fm_real.Comm_call_errhandler(comm->mpi, error);
    return error;
}

/* Lets the MPI make progress. Where a message were found it would not: nobody sends any on this communicator, of all ranks, since MPICH does not look
 * after others for one of this rank alone. */
static void look_after_messages(void)
{
    int unused = 0;
    fm_real.Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, fm_quiet, &unused, MPI_STATUS_IGNORE);
}

/* A moment in a wait that has begun then: others may run, and the MPI's own messages go on. */
static void pause_since(int64_t begin)
{
    const int64_t passed = now_ns() - begin;

    look_after_messages();
    if (passed < YIELD_NS) {
        sched_yield();
    } else {
        const int64_t sleep = passed / SLEEP_PART < SLEEP_MOST_NS ? passed / SLEEP_PART : SLEEP_MOST_NS;
        nanosleep(&(struct timespec){.tv_nsec = sleep}, NULL);
    }
}

/* Runs a call to its end. */
int fm_run(struct fm_plan *plan)
{
    fanin_request *request = NULL;
    fanin_status status = fm_plan_start(plan, &request);
    const int64_t begin = now_ns();
    int done = status != FANIN_OK;

    while (!done) {
        status = fanin_test(&request, &done);
        if (!done)
            pause_since(begin);
    }
    return call_handler(plan->comm, fm_plan_end(plan, status));
}

/* Requests that the program has; those that have ended are not in it with Open MPI. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fm_request *_Atomic list;

static void keep(struct fm_request *request)
{
    pthread_mutex_lock(&list_lock);
    request->next = list;
    atomic_store_explicit(&list, request, memory_order_release);
    pthread_mutex_unlock(&list_lock);
}

static struct fm_request *find(MPI_Request mpi)
{
    struct fm_request *found;

    pthread_mutex_lock(&list_lock);
    for (found = list; found && found->mpi != mpi; found = found->next)
        ;
    pthread_mutex_unlock(&list_lock);
    return found;
}

/* Whether a call has ended; its result is where the program wants it then, and the MPI is still to be told. */
static bool has_ended(struct fm_request *request)
{
    int done = 0;
    const fanin_status status = fanin_test(&request->fanin, &done);

    if (done)
        request->error = fm_plan_end(&request->plan, status);
    return done;
}

static int query(void *state, MPI_Status *status)
{
    struct fm_request *request = state;

    fm_real.Status_set_elements(status, MPI_BYTE, 0);
    fm_real.Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return call_handler(request->plan.comm, request->error);
}

#ifndef OPEN_MPI
static void forget(struct fm_request *request);
#endif

static int release(void *state)
{
    struct fm_request *request = state;

#ifndef OPEN_MPI
    forget(request);
#endif
    fm_comm_done(request->plan.comm);
    free(request);
    return MPI_SUCCESS;
}

/* Collectives cannot be cancelled. */
static int cancel(void *state, int complete)
{
    (void)state, (void)complete;
    return MPI_SUCCESS;
}

#ifdef OPEN_MPI
/* What Open MPI calls whenever it makes progress. It is no part of its mpi.h, but of its library of support, since version 1. */
typedef int (*fm_progress)(void);

/* Ends what has ended; how many. */
static int progress(void)
{
    struct fm_request *ended = NULL, *rest = NULL;
    int count = 0;

    if (!atomic_load_explicit(&list, memory_order_acquire) || pthread_mutex_trylock(&list_lock) != 0)
        return 0;
    for (struct fm_request *request = list, *next; request; request = next) {
        struct fm_request **to = has_ended(request) ? &ended : &rest;
        next = request->next;
        request->next = *to;
        *to = request;
    }
    atomic_store_explicit(&list, rest, memory_order_release);
    pthread_mutex_unlock(&list_lock);
    for (struct fm_request *next; ended; ended = next, count++) {
        /* Whoever waits for it may free it at once. */
        next = ended->next;
        fm_real.Grequest_complete(ended->mpi);
    }
    return count;
}

/* The MPI's progress ends it. */
static void settle_one(MPI_Request mpi, int64_t begin)
{
    while (find(mpi))
        pause_since(begin);
}

bool fm_requests_begin(void)
{
    int (*add)(fm_progress) = (int (*)(fm_progress))dlsym(RTLD_DEFAULT, "opal_progress_register");

    if (!add)
        fm_say("rank %d: this Open MPI has no opal_progress_register", fm_world_rank);
    return add && add(progress) == 0;
}

static int hand_back(struct fm_request *request, MPI_Request *to)
{
    const int error = fm_real.Grequest_start(query, release, cancel, request, &request->mpi);

    if (error != MPI_SUCCESS)
        return error;
    *to = request->mpi;
    keep(request);
    return MPI_SUCCESS;
}
#else
/* MPICH asks whenever somebody waits for this request, or tests it; that is one thread at a time. While somebody waits, it asks again and again and
 * does nothing else. */
static int poll(void *state, MPI_Status *status)
{
    struct fm_request *request = state;

    (void)status;
    if (!request->is_told && has_ended(request)) {
        request->is_told = true;
        fm_real.Grequest_complete(request->mpi);
    } else if (!request->is_told) {
        look_after_messages();
        sched_yield();
    }
    return MPI_SUCCESS;
}

static int wait(int count, void **states, double timeout, MPI_Status *status)
{
    (void)timeout;
    for (int i = 0; i < count; i++)
        poll(states[i], status);
    return MPI_SUCCESS;
}

static void forget(struct fm_request *request)
{
    pthread_mutex_lock(&list_lock);
    if (list == request) {
        list = request->next;
    } else {
        struct fm_request *before = list;
        while (before && before->next != request)
            before = before->next;
        if (before)
            before->next = request->next;
    }
    pthread_mutex_unlock(&list_lock);
}

static void settle_one(MPI_Request mpi, int64_t begin)
{
    struct fm_request *request = find(mpi);

    while (request && !request->is_told) {
        poll(request, MPI_STATUS_IGNORE);
        pause_since(begin);
    }
}

bool fm_requests_begin(void)
{
    return true;
}

static int hand_back(struct fm_request *request, MPI_Request *to)
{
    const int error = PMPIX_Grequest_start(query, release, cancel, poll, wait, request, &request->mpi);

    if (error == MPI_SUCCESS) {
        *to = request->mpi;
        keep(request);
    }
    return error;
}
#endif

/* Waits for those of some requests that are Fanin's. The MPIs would spin, which takes the time of the threads that move the data; and MPICH would keep
 * other threads of the program out meanwhile. */
static void settle(int count, const MPI_Request requests[])
{
    const int64_t begin = now_ns();

    for (int i = 0; i < count && atomic_load_explicit(&list, memory_order_acquire); i++) {
        if (requests[i] != MPI_REQUEST_NULL)
            settle_one(requests[i], begin);
    }
}

int fm_wait_all(int count, MPI_Request requests[], MPI_Status statuses[])
{
    settle(count, requests);
    return fm_real.Waitall(count, requests, statuses);
}

int fm_wait_one(MPI_Request *request, MPI_Status *status)
{
    settle(1, request);
    return fm_real.Wait(request, status);
}

/* Begins a call in the background. */
int fm_start(struct fm_plan *plan, MPI_Request *to)
{
    struct fm_request *request = calloc(1, sizeof *request);
    fanin_status status;
    int error;

    if (!request)
        return call_handler(plan->comm, fm_error(plan->comm, "no memory"));
    request->plan = *plan;
    status = fm_plan_start(&request->plan, &request->fanin);
    if (status != FANIN_OK) {
        error = fm_plan_end(&request->plan, status);
        free(request);
        return call_handler(plan->comm, error);
    }
    fm_comm_use(plan->comm);
    error = hand_back(request, to);
    if (error != MPI_SUCCESS) {
        /* The call goes on with the program's memory, which must therefore not be given back before it ends. */
        fanin_wait(&request->fanin);
        release(request);
    }
    return error;
}
