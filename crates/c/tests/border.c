/* What crosses the border between C and Rust: every collective exact, every misuse an error with words and none with consequences.
 *
 * As one of several ranks (FANIN_RANK, FANIN_WORLD) it takes one word: "collectives"; "mismatch", where rank 1 calls something else; or "killed",
 * where rank 2 ends without leaving. scripts/c_tests.py runs all of them.
 */
#define _POSIX_C_SOURCE 200809L
#include <fanin.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPECT(what)                                                                                              \
    do {                                                                                                          \
        if (!(what)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s; the last error: %s\n", __FILE__, __LINE__, #what, fanin_error());         \
            exit(1);                                                                                              \
        }                                                                                                         \
    } while (0)

/* An argument that does not fit, and words that say so. */
#define REFUSED(call, words) EXPECT((call) == FANIN_ERR_ARGUMENT && strstr(fanin_error(), words) != NULL)

enum { SHARE = 1000, RANKS_MAX = 8 };

static void arguments(fanin_comm *comm)
{
    int32_t a[16] = {0}, b[16] = {0};
    fanin_request *request = NULL, *none[2] = {NULL, NULL};
    fanin_comm *nothing = NULL;
    int done = 0;

    REFUSED(fanin_allreduce(NULL, a, b, 16, FANIN_I32, FANIN_SUM), "comm is NULL");
    REFUSED(fanin_allreduce(comm, a, b, 16, 99, FANIN_SUM), "type = 99");
    REFUSED(fanin_allreduce(comm, a, b, 16, FANIN_I32, 4096), "operator = 4096");
    REFUSED(fanin_allreduce(comm, a, b, 16, FANIN_I32, FANIN_AVG), "avg");
    REFUSED(fanin_allreduce(comm, NULL, b, 16, FANIN_I32, FANIN_SUM), "the input of 64 bytes has no address");
    REFUSED(fanin_allreduce(comm, a, NULL, 16, FANIN_I32, FANIN_SUM), "the output of 64 bytes has no address");
    REFUSED(fanin_allreduce(comm, a, a + 4, 8, FANIN_I32, FANIN_SUM), "overlap");
    REFUSED(fanin_allreduce(comm, a, b, SIZE_MAX / 2, FANIN_I32, FANIN_SUM), "elements");
    REFUSED(fanin_all_gather(comm, a, b, SIZE_MAX / 8, FANIN_F64), "beyond the end of memory");
    REFUSED(fanin_reduce(comm, a, b, 16, FANIN_I32, FANIN_SUM, 12345), "root = 12345");
    REFUSED(fanin_broadcast(comm, a, 16, FANIN_I32, 12345), "root = 12345");
    REFUSED(fanin_allreduce_start(comm, a, b, 16, FANIN_I32, FANIN_SUM, NULL), "no place for the request");
    REFUSED(fanin_allreduce_start(comm, a, b, 16, 77, FANIN_SUM, &request), "type = 77");
    EXPECT(request == NULL);
    REFUSED(fanin_wait(NULL), "request is NULL");
    REFUSED(fanin_test(&request, NULL), "done is NULL");
    EXPECT(fanin_wait(&request) == FANIN_OK && fanin_test(&request, &done) == FANIN_OK && done == 1);
    EXPECT(fanin_wait_all(2, none) == FANIN_OK && fanin_wait_all(0, NULL) == FANIN_OK);
    REFUSED(fanin_wait_all(1, NULL), "requests is NULL");
    REFUSED(fanin_init(NULL), "no place for the communicator");
    REFUSED(fanin_split(comm, (int64_t)1 << 40, 0, &nothing), "color = 1099511627776");
    REFUSED(fanin_finalize(NULL), "comm is NULL");
    EXPECT(fanin_finalize(&nothing) == FANIN_OK);
    REFUSED(fanin_abort(comm, NULL), "why is NULL");
    REFUSED(fanin_abort(comm, "\xff"), "no UTF-8");
    REFUSED(fanin_set_timeout(comm, -1.0), "seconds = -1");
    EXPECT(fanin_set_timeout(comm, 0.0) == FANIN_ERR_SETTING);
    EXPECT(fanin_rank(NULL) == -1 && fanin_world(NULL) == -1 && fanin_path(NULL, NULL, 0) == 0);
    EXPECT(fanin_type_bytes(FANIN_BF16) == 2 && fanin_type_bytes(9) == 0);
    EXPECT(strcmp(fanin_version(), "0.") > 0);
}

static void settings(void)
{
    fanin_settings *settings = fanin_settings_new();
    fanin_comm *comm = NULL;

    REFUSED(fanin_settings_set(NULL, "rank", "0"), "settings is NULL");
    REFUSED(fanin_settings_set(settings, NULL, "0"), "name is NULL");
    REFUSED(fanin_settings_set(settings, "swich", "h:1"), "expected one of rank, world, switch");
    REFUSED(fanin_init_with(NULL, 0, &comm), "settings is NULL");
    EXPECT(fanin_settings_set(settings, "rank", "0") == FANIN_OK && fanin_settings_set(settings, "world", "two") == FANIN_OK);
    EXPECT(fanin_init_with(settings, 0, &comm) == FANIN_ERR_SETTING && strstr(fanin_error(), "FANIN_WORLD") != NULL);
    EXPECT(fanin_settings_set(settings, "world", "2") == FANIN_OK);
    EXPECT(fanin_init_with(settings, 0, &comm) == FANIN_ERR_SETTING && comm == NULL);
    EXPECT(fanin_settings_set(settings, "world", "1") == FANIN_OK && fanin_settings_set(settings, "job", "alone") == FANIN_OK);
    EXPECT(fanin_init_with(settings, 0, &comm) == FANIN_OK && fanin_rank(comm) == 0 && fanin_world(comm) == 1);
    fanin_settings_free(settings);
    fanin_settings_free(NULL);
    arguments(comm);
    EXPECT(fanin_finalize(&comm) == FANIN_OK && comm == NULL && fanin_finalize(&comm) == FANIN_OK);
}

static double sum_of(long world, size_t i)
{
    return (double)(world * (long)i) + (double)(world * (world - 1) / 2);
}

static void in_background(fanin_comm *comm, long rank, long world)
{
    static double vectors[4][SHARE];
    fanin_request *requests[5] = {NULL};
    int done = 0;

    for (int v = 0; v < 4; v++)
        for (size_t i = 0; i < SHARE; i++)
            vectors[v][i] = (double)((long)i + rank + v);
    for (int v = 0; v < 4; v++)
        EXPECT(fanin_allreduce_start(comm, vectors[v], vectors[v], SHARE, FANIN_F64, FANIN_SUM, &requests[v]) == FANIN_OK && requests[v]);
    EXPECT(fanin_barrier_start(comm, &requests[4]) == FANIN_OK);
    while (!done)
        EXPECT(fanin_test(&requests[1], &done) == FANIN_OK);
    EXPECT(requests[1] == NULL && fanin_wait_all(5, requests) == FANIN_OK);
    for (int v = 0; v < 4; v++) {
        EXPECT(requests[v] == NULL);
        for (size_t i = 0; i < SHARE; i++)
            EXPECT(vectors[v][i] == sum_of(world, i) + (double)(world * v));
    }
}

/* A communicator is not left while calls use its program's memory. */
static void left_too_early(fanin_comm **comm, long rank)
{
    static float vector[SHARE];
    fanin_request *request = NULL;

    if (rank == 0) {
        EXPECT(fanin_allreduce_start(*comm, vector, vector, SHARE, FANIN_F32, FANIN_SUM, &request) == FANIN_OK);
        REFUSED(fanin_finalize(comm), "1 calls in the background have not ended");
        EXPECT(*comm != NULL && fanin_wait(&request) == FANIN_OK);
    } else {
        struct timespec pause = {0, 300000000};
        nanosleep(&pause, NULL);
        EXPECT(fanin_allreduce(*comm, vector, vector, SHARE, FANIN_F32, FANIN_SUM) == FANIN_OK);
    }
}

static void collectives(fanin_comm *comm, long rank, long world)
{
    static int64_t whole[RANKS_MAX * SHARE], share[SHARE], copy[SHARE];
    uint32_t last = (uint32_t)world - 1;

    for (size_t i = 0; i < SHARE; i++)
        share[i] = (int64_t)i + rank;
    EXPECT(fanin_allreduce(comm, share, copy, SHARE, FANIN_I64, FANIN_SUM) == FANIN_OK);
    for (size_t i = 0; i < SHARE; i++)
        EXPECT((double)copy[i] == sum_of(world, i) && share[i] == (int64_t)i + rank);
    memset(copy, 0, sizeof copy);
    EXPECT(fanin_reduce(comm, share, rank == last ? copy : NULL, SHARE, FANIN_I64, FANIN_MAX, last) == FANIN_OK);
    for (size_t i = 0; i < SHARE; i++)
        EXPECT(copy[i] == (rank == last ? (int64_t)i + last : 0));
    memcpy(copy, share, sizeof copy);
    EXPECT(fanin_broadcast(comm, copy, SHARE, FANIN_I64, last) == FANIN_OK);
    for (size_t i = 0; i < SHARE; i++)
        EXPECT(copy[i] == (int64_t)i + last);
    EXPECT(fanin_all_gather(comm, share, whole, SHARE, FANIN_I64) == FANIN_OK);
    for (long r = 0; r < world; r++)
        for (size_t i = 0; i < SHARE; i++)
            EXPECT(whole[(size_t)r * SHARE + i] == (int64_t)i + r);
    EXPECT(fanin_reduce_scatter(comm, whole, copy, SHARE, FANIN_I64, FANIN_SUM) == FANIN_OK);
    for (size_t i = 0; i < SHARE; i++)
        EXPECT(copy[i] == world * ((int64_t)i + rank));
    /* In its own place. */
    memcpy(whole + rank * SHARE, share, sizeof share);
    EXPECT(fanin_all_gather(comm, whole + rank * SHARE, whole, SHARE, FANIN_I64) == FANIN_OK && whole[last * SHARE] == last);
    EXPECT(fanin_allreduce(comm, NULL, NULL, 0, FANIN_F16, FANIN_AVG) == FANIN_OK);
    EXPECT(fanin_barrier(comm) == FANIN_OK);
}

static void groups(fanin_comm *comm, long rank, long world)
{
    fanin_comm *group = NULL;
    float sum = (float)rank;

    EXPECT(fanin_split(comm, rank == 0 ? -1 : 7, -rank, &group) == FANIN_OK && (group == NULL) == (rank == 0));
    if (group != NULL) {
        EXPECT(fanin_rank(group) == world - 1 - rank && fanin_world(group) == world - 1);
        EXPECT(fanin_allreduce(group, &sum, &sum, 1, FANIN_F32, FANIN_SUM) == FANIN_OK && sum == (float)(world * (world - 1) / 2));
        EXPECT(fanin_finalize(&group) == FANIN_OK);
    }
}

/* What a forked child has is no communicator of its own. */
static void forked(fanin_comm *comm)
{
    int status = 0;
    pid_t child = fork();

    EXPECT(child >= 0);
    if (child == 0) {
        float one = 1;
        int closed = fanin_allreduce(comm, &one, &one, 1, FANIN_F32, FANIN_SUM) == FANIN_ERR_CLOSED && fanin_rank(comm) == -1;
        _exit(closed && fanin_finalize(&comm) == FANIN_OK ? 0 : 1);
    }
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void on_notice(const char *text, void *context)
{
    if (text[0] != 0)
        ++*(int *)context;
}

static fanin_comm *joined(int *notices)
{
    fanin_settings *settings = fanin_settings_new();
    fanin_comm *comm = NULL;

    EXPECT(fanin_settings_notices(settings, on_notice, notices) == FANIN_OK);
    EXPECT(fanin_settings_set(settings, "timeout", "20s") == FANIN_OK);
    EXPECT(fanin_init_with(settings, 1, &comm) == FANIN_OK);
    fanin_settings_free(settings);
    return comm;
}

/* The job has failed at all ranks, by name; and it can be left. */
static void fails(fanin_comm *comm, size_t elements, int64_t blamed)
{
    static float vector[2 * SHARE];
    fanin_status status = FANIN_OK;

    for (int call = 0; call < 1000 && status == FANIN_OK; call++)
        status = fanin_allreduce(comm, vector, vector, elements, FANIN_F32, FANIN_SUM);
    EXPECT(status == FANIN_ERR_FAILED && strlen(fanin_error()) > 10);
    EXPECT(blamed < 0 || fanin_error_rank() == blamed);
    printf("%s\n", fanin_error());
    EXPECT(fanin_allreduce(comm, vector, vector, 1, FANIN_F32, FANIN_SUM) == FANIN_ERR_FAILED);
}

int main(int count, char **words)
{
    int notices = 0;

    if (count == 1) {
        settings();
        printf("settings and arguments\n");
        return 0;
    }
    fanin_comm *comm = joined(&notices);
    long rank = (long)fanin_rank(comm), world = (long)fanin_world(comm);
    if (strcmp(words[1], "collectives") == 0) {
        char path[8];
        size_t length = fanin_path(comm, path, sizeof path);
        EXPECT(length > sizeof path && strlen(path) == sizeof path - 1);
        collectives(comm, rank, world);
        in_background(comm, rank, world);
        groups(comm, rank, world);
        left_too_early(&comm, rank);
        forked(comm);
        collectives(comm, rank, world);
    } else if (strcmp(words[1], "mismatch") == 0) {
        fails(comm, rank == 1 ? 2 * SHARE : SHARE, -1);
    } else {
        if (rank == 2)
            _exit(0);
        fails(comm, SHARE, 2);
    }
    EXPECT(fanin_finalize(&comm) == FANIN_OK && comm == NULL);
    return 0;
}
