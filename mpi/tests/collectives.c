/* Collectives of an MPI program, each checked to the last bit; the program knows nothing of Fanin. scripts/mpi_tests.py runs it with each MPI, and
 * looks at what was served.
 *
 *   collectives [threads] [persistent]
 *
 * With "threads" it asks for MPI_THREAD_MULTIPLE, and each of some threads has a communicator of its own. Values are whole numbers that floats hold,
 * so that sums are exact in any order.
 */
#include <mpi.h>

#ifdef OPEN_MPI
#include <mpi-ext.h>
#define INIT(name) MPIX_##name##_init
/* Left to the MPI, beside others that are not. */
#define IS_ANY MPI_LOR
#else
#define INIT(name) MPI_##name##_init
/* Served as well: MPICH 4.0's own persistent collectives end in a segmentation fault here. */
#define IS_ANY MPI_MAX
#endif

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(what)                                                                                  \
    do {                                                                                              \
        if (!(what)) {                                                                                \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, rank, #what);                 \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                             \
        }                                                                                             \
    } while (0)

enum { COUNT = 3001, THREADS = 3 };
static int rank, size;

static int64_t value(int of, int at)
{
    return (of + 1) * 2 + at % 11 - 5;
}

/* A vector of a type, by numbers. */
static void put(MPI_Datatype type, void *vector, int at, int64_t number)
{
    if (type == MPI_DOUBLE) ((double *)vector)[at] = (double)number;
    else if (type == MPI_FLOAT) ((float *)vector)[at] = (float)number;
    else if (type == MPI_INT || type == MPI_UNSIGNED) ((int32_t *)vector)[at] = (int32_t)number;
    else if (type == MPI_LONG || type == MPI_UINT64_T) ((int64_t *)vector)[at] = number;
    else if (type == MPI_SHORT) ((int16_t *)vector)[at] = (int16_t)number;
    else ((int8_t *)vector)[at] = (int8_t)number;
}

static void expect_at(int line, MPI_Datatype type, const void *vector, int at, int64_t number)
{
    int64_t wanted = 0, found = 0;
    int bytes = 0;

    MPI_Type_size(type, &bytes);
    put(type, &wanted, 0, number);
    memcpy(&found, (const char *)vector + (size_t)at * (size_t)bytes, (size_t)bytes);
    /* A zero may have a sign. */
    if (wanted != found && !(type == MPI_DOUBLE && number == 0 && found == INT64_MIN) && !(type == MPI_FLOAT && number == 0 && found == INT64_C(0x80000000))) {
        fprintf(stderr, "line %d: rank %d: element %d: %llx, expected %llx\n", line, rank, at, (long long)found, (long long)wanted);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static int64_t reduced(MPI_Op op, int ranks, int at)
{
    int64_t result = value(0, at);
    for (int of = 1; of < ranks; of++) {
        const int64_t next = value(of, at);
        if (op == MPI_SUM) result += next;
        else if (op == MPI_PROD) result *= next;
        else if (op == MPI_MIN) result = next < result ? next : result;
        else if (op == MPI_MAX) result = next > result ? next : result;
        else if (op == MPI_BAND) result &= next;
        else if (op == MPI_BOR) result |= next;
        else result ^= next;
    }
    return result;
}

static void reductions(MPI_Comm comm)
{
    const MPI_Datatype types[] = {MPI_DOUBLE, MPI_FLOAT, MPI_INT, MPI_LONG, MPI_SHORT, MPI_SIGNED_CHAR, MPI_UNSIGNED, MPI_UINT64_T, MPI_BYTE};
    const MPI_Op ops[] = {MPI_SUM, MPI_MIN, MPI_MAX, MPI_PROD, MPI_BAND, MPI_BOR, MPI_BXOR};
    int64_t *in = malloc(8 * COUNT), *out = malloc(8 * COUNT);
    int me, ranks;

    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &ranks);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (size_t o = 0; o < 7; o++) {
            const int is_float = t < 2, is_unsigned = t == 6 || t == 7, is_byte = t == 8, is_short = t == 4 || t == 5;
            const int root = (int)(t + o) % ranks;
            /* MPICH 4.0 itself ends here, in shared memory, at other roots. */
            const int in_place = me == root && root == 0;
            /* Signed values stand for unsigned ones but in their order. Open MPI's short integers do not wrap. */
            if ((is_float && o > 3) || (is_short && o == 3) || (is_unsigned && (o == 1 || o == 2)) || (is_byte && o < 4))
                continue;
            for (int i = 0; i < COUNT; i++)
                put(types[t], in, i, value(me, i));
            MPI_Allreduce(in, out, COUNT, types[t], ops[o], comm);
            for (int i = 0; i < COUNT; i++)
                expect_at(__LINE__, types[t], out, i, reduced(ops[o], ranks, i));
            memset(out, 0, 8 * COUNT);
            MPI_Reduce(in_place ? MPI_IN_PLACE : in, me != root ? NULL : in_place ? in : out, COUNT, types[t], ops[o], root, comm);
            for (int i = 0; me == root && i < COUNT; i++)
                expect_at(__LINE__, types[t], in_place ? in : out, i, reduced(ops[o], ranks, i));
            for (int i = 0; i < COUNT; i++)
                put(types[t], in, i, value(me, i));
            MPI_Allreduce(MPI_IN_PLACE, in, COUNT, types[t], ops[o], comm);
            for (int i = 0; i < COUNT; i++)
                expect_at(__LINE__, types[t], in, i, reduced(ops[o], ranks, i));
        }
    }
    free(in);
    free(out);
}

/* What has no counterpart in Fanin goes to the MPI, and to where MPI says. */
static void left(MPI_Comm comm)
{
    struct { double value; int at; } pair = {rank, rank}, most;
    long double wide = rank + 1, sum = 0;
    int truth = rank == 0, any = 0;
    unsigned big = rank == 0 ? 7 : 1, high = 0;
    int error;

    MPI_Allreduce(&pair, &most, 1, MPI_DOUBLE_INT, MPI_MAXLOC, comm);
    EXPECT(most.at == size - 1);
    MPI_Allreduce(&wide, &sum, 1, MPI_LONG_DOUBLE, MPI_SUM, comm);
    EXPECT(sum == (long double)size * (size + 1) / 2);
    MPI_Allreduce(&truth, &any, 1, MPI_INT, MPI_LOR, comm);
    EXPECT(any == 1);
    MPI_Allreduce(&big, &high, 1, MPI_UNSIGNED, MPI_MAX, comm);
    EXPECT(high == 7);
    MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, comm);
    MPI_Bcast(NULL, 0, MPI_INT, 0, comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    error = MPI_Bcast(&any, 1, MPI_INT, size + 5, comm);
    EXPECT(error != MPI_SUCCESS);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
}

static void moves(MPI_Comm comm)
{
    int me, ranks;
    int *part = malloc(COUNT * sizeof *part), *whole;

    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &ranks);
    whole = calloc((size_t)ranks * COUNT, sizeof *whole);
    for (int root = 0; root < ranks; root++) {
        for (int i = 0; i < COUNT; i++)
            part[i] = me == root ? (int)value(root, i) : -1;
        MPI_Bcast(part, COUNT, MPI_INT, root, comm);
        for (int i = 0; i < COUNT; i++)
            EXPECT(part[i] == value(root, i));
        /* Bytes that are no multiple of four. */
        MPI_Bcast((char *)part + 1, 4 * COUNT - 3, MPI_BYTE, root, comm);
    }
    for (int i = 0; i < COUNT; i++)
        part[i] = (int)value(me, i);
    MPI_Allgather(part, COUNT, MPI_INT, whole, COUNT, MPI_INT, comm);
    for (int i = 0; i < ranks * COUNT; i++)
        EXPECT(whole[i] == value(i / COUNT, i % COUNT));
    memset(whole, 0, (size_t)ranks * COUNT * sizeof *whole);
    memcpy(whole + me * COUNT, part, COUNT * sizeof *part);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, COUNT, MPI_INT, comm);
    for (int i = 0; i < ranks * COUNT; i++)
        EXPECT(whole[i] == value(i / COUNT, i % COUNT));
    for (int i = 0; i < ranks * COUNT; i++)
        whole[i] = (int)value(me, i);
    MPI_Reduce_scatter_block(whole, part, COUNT, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < COUNT; i++)
        EXPECT(part[i] == reduced(MPI_SUM, ranks, me * COUNT + i));
    MPI_Reduce_scatter_block(MPI_IN_PLACE, whole, COUNT, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < COUNT; i++)
        EXPECT(whole[i] == reduced(MPI_SUM, ranks, me * COUNT + i));
    for (int i = COUNT; i < ranks * COUNT; i++)
        EXPECT(whole[i] == (int)value(me, i));
    MPI_Barrier(comm);
    free(part);
    free(whole);
}

static void parts(MPI_Comm comm)
{
    int *counts = malloc((size_t)size * sizeof *counts), total = 0, from = 0;
    int *in = malloc((size_t)size * 64 * sizeof *in), out[64];

    for (int even = 0; even < 2; even++) {
        total = from = 0;
        for (int i = 0; i < size; i++) {
            counts[i] = even ? 32 : 20 + i;
            from += i < rank ? counts[i] : 0;
            total += counts[i];
        }
        for (int i = 0; i < total; i++)
            in[i] = (int)value(rank, i);
        MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, comm);
        for (int i = 0; i < counts[rank]; i++)
            EXPECT(out[i] == reduced(MPI_SUM, size, from + i));
    }
    free(counts);
    free(in);
}

/* Vectors with gaps, and in another order than in memory; at some ranks only. */
static void derived(MPI_Comm comm)
{
    MPI_Datatype strided, row, turned;
    int *vector = calloc(4 * COUNT, sizeof *vector), *flat = calloc(2 * (size_t)size, sizeof *flat);
    const int places[2] = {1, 0};

    MPI_Type_vector(COUNT, 1, 2, MPI_INT, &strided);
    MPI_Type_commit(&strided);
    MPI_Type_contiguous(COUNT, MPI_INT, &row);
    MPI_Type_commit(&row);
    MPI_Type_create_indexed_block(2, 1, places, MPI_INT, &turned);
    MPI_Type_commit(&turned);
    for (int root = 0; root < size; root++) {
        memset(vector, 0, 4 * COUNT * sizeof *vector);
        for (int i = 0; i < COUNT; i++)
            vector[rank % 2 ? 2 * i : i] = rank == root ? 3 * i + root : -1;
        MPI_Bcast(vector, 1, rank % 2 ? strided : row, root, comm);
        for (int i = 0; i < COUNT; i++) {
            EXPECT(vector[rank % 2 ? 2 * i : i] == 3 * i + root);
            EXPECT(rank % 2 == 0 || i == COUNT - 1 || vector[2 * i + 1] == 0);
        }
    }
    vector[0] = 10 * rank;
    vector[1] = 10 * rank + 1;
    MPI_Allgather(vector, 1, turned, flat, 2, MPI_INT, comm);
    for (int i = 0; i < size; i++)
        EXPECT(flat[2 * i] == 10 * i + 1 && flat[2 * i + 1] == 10 * i);
    MPI_Allgather(vector, 2, MPI_INT, flat, 1, turned, comm);
    for (int i = 0; i < size; i++)
        EXPECT(flat[2 * i] == 10 * i + 1 && flat[2 * i + 1] == 10 * i);
    MPI_Type_free(&strided);
    MPI_Type_free(&row);
    MPI_Type_free(&turned);
    free(vector);
    free(flat);
}

/* Requests of all kinds in one array. */
static void background(MPI_Comm comm)
{
    enum { REQUESTS = 8 };
    MPI_Request requests[REQUESTS];
    MPI_Status statuses[REQUESTS];
    int *in = malloc(COUNT * sizeof *in), *out[4], token = rank, got = -1, done = 0, index, some, indices[REQUESTS], ended = 0, flag;
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;

    for (int i = 0; i < 4; i++)
        out[i] = malloc((size_t)size * COUNT * sizeof *in);
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < COUNT; i++) {
            in[i] = (int)value(rank, i);
            out[2][i] = rank == 0 ? i : -1;
        }
        MPI_Irecv(&got, 1, MPI_INT, before, round, comm, &requests[0]);
        MPI_Iallreduce(in, out[0], COUNT, MPI_INT, MPI_SUM, comm, &requests[1]);
        MPI_Iallgather(in, COUNT, MPI_INT, out[1], COUNT, MPI_INT, comm, &requests[2]);
        MPI_Ibcast(out[2], COUNT, MPI_INT, 0, comm, &requests[3]);
        MPI_Ireduce(in, out[3], COUNT, MPI_INT, MPI_MAX, size - 1, comm, &requests[4]);
        MPI_Ibarrier(comm, &requests[5]);
        requests[6] = MPI_REQUEST_NULL;
        MPI_Isend(&token, 1, MPI_INT, next, round, comm, &requests[7]);
        ended = 0;
        switch (round) {
        case 0: MPI_Waitall(REQUESTS, requests, statuses); break;
        case 1:
            while (MPI_Waitany(REQUESTS, requests, &index, &statuses[0]), index != MPI_UNDEFINED)
                ended++;
            EXPECT(ended == 7);
            break;
        case 2:
            while (MPI_Waitsome(REQUESTS, requests, &some, indices, statuses), some != MPI_UNDEFINED)
                ended += some;
            EXPECT(ended == 7);
            break;
        case 3:
            for (done = 0; !done;)
                MPI_Testall(REQUESTS, requests, &done, statuses);
            break;
        case 4:
            while (MPI_Testany(REQUESTS, requests, &index, &flag, &statuses[0]), !flag || index != MPI_UNDEFINED)
                ended += flag;
            EXPECT(ended == 7);
            break;
        default:
            for (int i = REQUESTS - 1; i >= 0; i--) {
                for (done = 0; !done && i % 2;)
                    MPI_Test(&requests[i], &done, &statuses[0]);
                if (i == 4)
                    MPI_Request_get_status(requests[i], &flag, MPI_STATUS_IGNORE);
                MPI_Wait(&requests[i], &statuses[0]);
            }
        }
        for (int i = 0; i < REQUESTS; i++)
            EXPECT(requests[i] == MPI_REQUEST_NULL);
        EXPECT(got == before);
        for (int i = 0; i < COUNT; i++) {
            EXPECT(out[0][i] == reduced(MPI_SUM, size, i));
            EXPECT(out[2][i] == i);
            EXPECT(rank != size - 1 || out[3][i] == reduced(MPI_MAX, size, i));
        }
        for (int i = 0; i < size * COUNT; i++)
            EXPECT(out[1][i] == value(i / COUNT, i % COUNT));
        got = -1;
    }
    for (int i = 0; i < 4; i++)
        free(out[i]);
    free(in);
}

/* Persistent calls, beside a persistent receive, started again and again. */
static void persistent(MPI_Comm comm)
{
    enum { REQUESTS = 5 };
    MPI_Request requests[REQUESTS], send;
    MPI_Status statuses[REQUESTS];
    int in[64], sums[64], all[256], token, got, index, done, ended, indices[REQUESTS];

    EXPECT(size <= 4);
    INIT(Allreduce)(in, sums, 64, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[0]);
    MPI_Recv_init(&got, 1, MPI_INT, (rank + 1) % size, 77, comm, &requests[1]);
    INIT(Allgather)(in, 64, MPI_INT, all, 64, MPI_INT, comm, MPI_INFO_NULL, &requests[2]);
    INIT(Barrier)(comm, MPI_INFO_NULL, &requests[3]);
    INIT(Allreduce)(&token, &done, 1, MPI_INT, IS_ANY, comm, MPI_INFO_NULL, &requests[4]);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 64; i++)
            in[i] = rank + i + round;
        token = round;
        MPI_Startall(3, requests);
        MPI_Start(&requests[3]);
        MPI_Start(&requests[4]);
        MPI_Isend(&round, 1, MPI_INT, (rank + size - 1) % size, 77, comm, &send);
        ended = 0;
        if (round == 0)
            MPI_Waitall(REQUESTS, requests, statuses);
#ifdef OPEN_MPI
        /* MPICH 4.0 itself has errors here. */
        for (int flag = 0; round == 1 && !flag;)
            MPI_Testall(REQUESTS, requests, &flag, statuses);
#else
        if (round == 1)
            MPI_Waitall(REQUESTS, requests, statuses);
#endif
        for (index = 0; round == 2 && (MPI_Waitany(REQUESTS, requests, &index, statuses), index != MPI_UNDEFINED);)
            ended++;
        for (int some = 0; round == 3 && (MPI_Waitsome(REQUESTS, requests, &some, indices, statuses), some != MPI_UNDEFINED);)
            ended += some;
        EXPECT(ended == (round == 2 || round == 3 ? REQUESTS : 0));
        for (int i = 0; round == 4 && i < REQUESTS; i++) {
            int flag = 0;
            while (!flag)
                MPI_Test(&requests[i], &flag, statuses);
        }
        MPI_Wait(&send, statuses);
#ifdef OPEN_MPI
        /* It is not under way any more; MPICH 4.0 itself waits for ever. */
        MPI_Wait(&requests[0], statuses);
#endif
        for (int i = 0; i < REQUESTS; i++)
            EXPECT(requests[i] != MPI_REQUEST_NULL);
        for (int i = 0; i < 64; i++)
            EXPECT(sums[i] == size * (i + round) + size * (size - 1) / 2);
        for (int i = 0; i < 64 * size; i++)
            EXPECT(all[i] == i / 64 + i % 64 + round);
        EXPECT(got == round && !done == !round);
    }
    for (int i = 0; i < REQUESTS; i++)
        MPI_Request_free(&requests[i]);
}

/* A rank that waits in a collective must let its large messages go on. */
static void messages_go_on(MPI_Comm comm)
{
    const int bytes = 8 << 20;
    char *message = malloc((size_t)bytes);
    MPI_Request request = MPI_REQUEST_NULL;
    int one = 1, sum = 0;

    memset(message, rank, (size_t)bytes);
    if (rank == 0)
        MPI_Isend(message, bytes, MPI_BYTE, 1, 5, comm, &request);
    if (rank == 1)
        MPI_Recv(message, bytes, MPI_BYTE, 0, 5, comm, MPI_STATUS_IGNORE);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    EXPECT(sum == size);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT(rank != 1 || message[bytes - 1] == 0);
    free(message);
}

static void groups(void)
{
    MPI_Comm half, copy, world, between;
    int sum, one = 1, members;

    for (int round = 0; round < 3; round++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        MPI_Comm_split(copy, rank % 2, -rank, &half);
        MPI_Comm_size(half, &members);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, half);
        EXPECT(sum == members);
        reductions(half);
        moves(half);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, copy);
        EXPECT(sum == size * (size - 1) / 2);
        MPI_Comm_free(&half);
        MPI_Comm_split(copy, rank == 0 ? MPI_UNDEFINED : 0, 0, &half);
        if (half != MPI_COMM_NULL) {
            MPI_Barrier(half);
            MPI_Comm_free(&half);
        }
        MPI_Comm_free(&copy);
    }
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 9, &between);
    MPI_Comm_remote_size(between, &members);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, between);
    EXPECT(sum == members);
    MPI_Intercomm_merge(between, rank % 2, &world);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, world);
    EXPECT(sum == size);
    MPI_Comm_free(&world);
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}

static void *in_thread(void *given)
{
    MPI_Comm comm = *(MPI_Comm *)given;
    int in[64], out[64];

    for (int round = 0; round < 50; round++) {
        MPI_Request request;
        for (int i = 0; i < 64; i++)
            in[i] = round + rank;
        MPI_Allreduce(in, out, 64, MPI_INT, MPI_SUM, comm);
        EXPECT(out[63] == size * round + size * (size - 1) / 2);
        MPI_Iallreduce(in, out, 64, MPI_INT, MPI_MAX, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        EXPECT(out[0] == round + size - 1);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t ids[THREADS];
    MPI_Comm comms[THREADS];

    for (int i = 0; i < THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&ids[i], NULL, in_thread, &comms[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        MPI_Comm_free(&comms[i]);
    }
}

int main(int count, char **arguments)
{
    const int with_threads = count > 1 && strcmp(arguments[1], "threads") == 0;
    const int with_persistent = count > 1 && strcmp(arguments[count - 1], "persistent") == 0;
    int provided = MPI_THREAD_SINGLE;

    if (with_threads)
        MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &provided);
    else
        MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    EXPECT(size > 2);
    if (with_threads && provided == MPI_THREAD_MULTIPLE)
        threads();
    reductions(MPI_COMM_WORLD);
    left(MPI_COMM_WORLD);
    moves(MPI_COMM_WORLD);
    parts(MPI_COMM_WORLD);
    derived(MPI_COMM_WORLD);
    background(MPI_COMM_WORLD);
    if (with_persistent)
        persistent(MPI_COMM_WORLD);
    messages_go_on(MPI_COMM_WORLD);
    groups();
    MPI_Finalize();
    if (rank == 0)
        puts("all collectives are right");
    return 0;
}
