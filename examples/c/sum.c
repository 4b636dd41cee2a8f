/* Every process contributes a vector, and gets the sum of all: in place, in the background, and in two groups.
 *
 *     cc sum.c $(pkg-config --cflags --libs fanin) -o sum
 *     for rank in 0 1 2 3; do FANIN_RANK=$rank FANIN_WORLD=4 FANIN_RENDEZVOUS=127.0.0.1:7801 ./sum & done; wait
 */
#include <stdio.h>
#include <stdlib.h>

#include <fanin.h>

#define ELEMENTS 100000

/* Ends the program where a call has failed: all ranks learn of it. */
static void check(fanin_status status, const char *what)
{
    if (status != FANIN_OK) {
        fprintf(stderr, "%s: %s\n", what, fanin_error());
        exit(1);
    }
}

int main(void)
{
    fanin_comm *comm = NULL, *group = NULL;
    fanin_request *request = NULL;
    char path[200];
    static float gradients[ELEMENTS];
    double losses[2] = {0, 0};

    check(fanin_init(&comm), "fanin_init");
    long rank = (long)fanin_rank(comm), world = (long)fanin_world(comm);
    for (size_t i = 0; i < ELEMENTS; i++)
        gradients[i] = (float)(rank + 1);

    /* In the background: the vector is the library's until the call is done. */
    check(fanin_allreduce_start(comm, gradients, gradients, ELEMENTS, FANIN_F32, FANIN_AVG, &request), "fanin_allreduce_start");
    losses[0] = 0.5 * (double)rank; /* something else meanwhile */
    check(fanin_wait(&request), "fanin_wait");
    for (size_t i = 0; i < ELEMENTS; i++)
        if (gradients[i] != (float)(world + 1) / 2)
            return fprintf(stderr, "gradients[%zu] = %g\n", i, gradients[i]), 1;

    /* Among the even and the odd ranks. */
    check(fanin_split(comm, rank % 2, rank, &group), "fanin_split");
    check(fanin_allreduce(group, losses, losses, 2, FANIN_F64, FANIN_MAX), "fanin_allreduce");
    check(fanin_finalize(&group), "fanin_finalize");
    check(fanin_barrier(comm), "fanin_barrier");

    fanin_path(comm, path, sizeof path);
    printf("rank %ld of %ld: mean %g, largest loss of its group %g, by %s\n", rank, world, gradients[0], losses[0], path);
    check(fanin_finalize(&comm), "fanin_finalize");
    return 0;
}
