/* Times of collectives by Fanin and by the MPI itself, in turns, call by call, in the same processes and on the same vectors.
 *
 *   turns ROUNDS COLLECTIVE... BYTES...
 *
 * With libfanin_mpi loaded before it. The MPI's own functions are looked up in its library. A round is a call of each; its time is that of the
 * slowest rank. One line of JSON for each collective and size: medians in seconds, the median of the ratios within a round (the MPI's time by
 * Fanin's), quartiles of these, the least times, and how many elements differ between both results, which are sums of whole numbers.
 */
#define _GNU_SOURCE
#include <mpi.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OPEN_MPI
#define LIBRARY "libmpi.so.40"
#else
#define LIBRARY "libmpich.so.12"
#endif

static struct {
    __typeof__(MPI_Allreduce) *allreduce;
    __typeof__(MPI_Reduce) *reduce;
    __typeof__(MPI_Bcast) *bcast;
    __typeof__(MPI_Barrier) *barrier;
    __typeof__(MPI_Reduce_scatter_block) *reduce_scatter;
    __typeof__(MPI_Allgather) *allgather;
} own, both[2];

static int rank, size;

static void call(int which, const char *name, const float *in, float *out, int count)
{
    if (strcmp(name, "allreduce") == 0)
        both[which].allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else if (strcmp(name, "reduce") == 0)
        both[which].reduce(in, out, count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    else if (strcmp(name, "bcast") == 0)
        both[which].bcast(out, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    else if (strcmp(name, "barrier") == 0)
        both[which].barrier(MPI_COMM_WORLD);
    else if (strcmp(name, "reduce_scatter") == 0)
        both[which].reduce_scatter(in, out, count / size, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
        both[which].allgather(in, count / size, MPI_FLOAT, out, count / size, MPI_FLOAT, MPI_COMM_WORLD);
}

static int by_size(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double quantile(double *values, int count, double part)
{
    return values[(int)(part * (count - 1) + 0.5)];
}

static void measure(const char *name, long bytes, int rounds)
{
    const int count = (int)(bytes / (long)sizeof(float));
    float *in = malloc((size_t)bytes + 8), *out[2];
    double *times[2], *ratios = malloc(sizeof *ratios * (size_t)rounds);
    long wrong = 0, all_wrong = 0;

    for (int which = 0; which < 2; which++) {
        out[which] = malloc((size_t)bytes + 8);
        times[which] = malloc(sizeof *ratios * (size_t)rounds);
        for (int i = 0; i < count; i++)
            out[which][i] = (float)(rank == 0 ? i % 977 : 0);
    }
    for (int i = 0; i < count; i++)
        in[i] = (float)(i % 1009 + rank);
    /* The first round is not counted. */
    for (int round = -1; round < rounds; round++) {
        for (int turn = 0; turn < 2; turn++) {
            const int which = (turn + round) & 1;
            double took, most;
            own.barrier(MPI_COMM_WORLD);
            own.barrier(MPI_COMM_WORLD);
            took = MPI_Wtime();
            call(which, name, in, out[which], count);
            took = MPI_Wtime() - took;
            own.allreduce(&took, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            if (round >= 0)
                times[which][round] = most;
        }
        if (round >= 0)
            ratios[round] = times[1][round] / times[0][round];
    }
    for (int i = 0; i < count; i++)
        wrong += (strcmp(name, "reduce") != 0 || rank == 0) && out[0][i] != out[1][i];
    own.allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        for (int which = 0; which < 2; which++)
            qsort(times[which], (size_t)rounds, sizeof **times, by_size);
        qsort(ratios, (size_t)rounds, sizeof *ratios, by_size);
        printf("{\"collective\": \"%s\", \"bytes\": %ld, \"rounds\": %d, \"fanin_s\": %.9f, \"mpi_s\": %.9f, \"ratio\": %.4f, \"low\": %.4f, "
               "\"high\": %.4f, \"fanin_least_s\": %.9f, \"mpi_least_s\": %.9f, \"wrong\": %ld}\n",
               name, bytes, rounds, quantile(times[0], rounds, 0.5), quantile(times[1], rounds, 0.5), quantile(ratios, rounds, 0.5),
               quantile(ratios, rounds, 0.25), quantile(ratios, rounds, 0.75), times[0][0], times[1][0], all_wrong);
        fflush(stdout);
    }
    for (int which = 0; which < 2; which++) {
        free(out[which]);
        free(times[which]);
    }
    free(in);
    free(ratios);
}

int main(int arguments, char **words)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD);

    if (!library || arguments < 4) {
        fprintf(stderr, "usage: turns ROUNDS COLLECTIVE... BYTES...\n");
        return 2;
    }
    own.allreduce = dlsym(library, "PMPI_Allreduce");
    own.reduce = dlsym(library, "PMPI_Reduce");
    own.bcast = dlsym(library, "PMPI_Bcast");
    own.barrier = dlsym(library, "PMPI_Barrier");
    own.reduce_scatter = dlsym(library, "PMPI_Reduce_scatter_block");
    own.allgather = dlsym(library, "PMPI_Allgather");
    both[0].allreduce = MPI_Allreduce;
    both[0].reduce = MPI_Reduce;
    both[0].bcast = MPI_Bcast;
    both[0].barrier = MPI_Barrier;
    both[0].reduce_scatter = MPI_Reduce_scatter_block;
    both[0].allgather = MPI_Allgather;
    both[1] = own;
    MPI_Init(&arguments, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (own.allreduce == MPI_Allreduce) {
        fprintf(stderr, "libfanin_mpi is not loaded\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int c = 2; c < arguments; c++) {
        for (int b = 2; b < arguments && (words[c][0] < '0' || words[c][0] > '9'); b++) {
            const long bytes = words[b][0] >= '0' && words[b][0] <= '9' ? atol(words[b]) : 0;
            /* Long ones take their time. */
            if (bytes > 0)
                measure(words[c], bytes, bytes >= 16 << 20 ? (atoi(words[1]) + 4) / 5 : atoi(words[1]));
            if (strcmp(words[c], "barrier") == 0 && bytes > 0)
                break;
        }
    }
    MPI_Finalize();
    return 0;
}
