/* An allreduce of float32 by MPI_Allreduce, measured as `fanin bench allreduce --format json` does. Rank 0 prints an array with an object
 * for each size: the slowest rank's mean time, the processor time of all ranks, and how many elements were wrong.
 *
 * Usage: allreduce BYTES[,BYTES...] [ITERATIONS]     (without iterations: as many as take half a second, at least 5)
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Zeros and ones, so that every order of summands gives the same bits. */
static float element(long rank, long index)
{
    return (index * 7 + rank * 3) % 11 == 0 ? 1.0f : 0.0f;
}

/* Processor time of this process, all threads together. */
static double cpu_s(void)
{
    struct timespec spent;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return (double)spent.tv_sec + (double)spent.tv_nsec / 1e9;
}

static void *vector(size_t elements)
{
    /* At least one, so that no length gives a null pointer. */
    void *memory = calloc(elements + 1, sizeof(float));
    if (memory == NULL) {
        fprintf(stderr, "error: no memory for %zu elements\n", elements);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

static int decide_iterations(const float *in, float *out, int elements)
{
    double begin = MPI_Wtime();
    for (int call = 0; call < 3; call++) {
        MPI_Allreduce(in, out, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    double wanted = 0.5 / ((MPI_Wtime() - begin) / 3);
    int iterations = wanted < 5 ? 5 : wanted > 5000 ? 5000 : (int)wanted;
    MPI_Bcast(&iterations, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return iterations;
}

/* Measures one size and, at rank 0, prints it. Returns how many elements were wrong at all ranks together. */
static long measure(long bytes, int iterations, int rank, int world, const char *separator)
{
    long elements = bytes / (long)sizeof(float);
    float *in = vector((size_t)elements), *out = vector((size_t)elements);
    for (long index = 0; index < elements; index++) {
        in[index] = element(rank, index);
    }
    MPI_Allreduce(in, out, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (iterations == 0) {
        iterations = decide_iterations(in, out, (int)elements);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime(), cpu = cpu_s();
    for (int call = 0; call < iterations; call++) {
        MPI_Allreduce(in, out, (int)elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    double seconds = (MPI_Wtime() - begin) / iterations;
    cpu = cpu_s() - cpu;
    long wrong = 0;
    for (long index = 0; index < elements; index++) {
        float expected = 0;
        for (int peer = 0; peer < world; peer++) {
            expected += element(peer, index);
        }
        wrong += out[index] != expected;
    }
    free(in);
    free(out);
    double slowest, all_cpu;
    long all_wrong;
    MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&cpu, &all_cpu, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        double size = (double)elements * sizeof(float), algbw = size / slowest / 1e6;
        printf("%s{\"size_bytes\": %.0f, \"iterations\": %d, \"time_us\": %.3f, \"algbw_mb_s\": %.3f, \"busbw_mb_s\": %.3f, "
               "\"wrong\": %ld, \"cpu_s_per_gib\": %.6f}",
               separator, size, iterations, slowest * 1e6, algbw, algbw * 2 * (world - 1) / world, all_wrong,
               all_cpu / iterations / (size / (1 << 30)));
    }
    return all_wrong;
}

int main(int count, char **words)
{
    int rank, world;
    long wrong = 0;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    if (count < 2) {
        fprintf(stderr, "usage: allreduce BYTES[,BYTES...] [ITERATIONS]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int iterations = count > 2 ? atoi(words[2]) : 0;
    const char *separator = "[";
    for (char *next = words[1]; *next != '\0';) {
        char *end;
        long bytes = strtol(next, &end, 10);
        if (end == next || bytes < (long)sizeof(float) || bytes > 1L << 32) {
            fprintf(stderr, "error: %s: expected sizes of 4 B to 4 GiB\n", words[1]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        wrong += measure(bytes, iterations, rank, world, separator);
        separator = ", ";
        next = *end == ',' ? end + 1 : end;
    }
    if (rank == 0) {
        printf("]\n");
    }
    MPI_Finalize();
    return wrong == 0 ? 0 : 1;
}
