/* A rank ends without a word in the middle of a job, or another one calls something else: the others get an error in bounded time, by the
 * communicator's error handler, and it names the rank.
 *
 *   broken gone       rank 2 stops, so that no MPI notices
 *   broken mismatch   rank 1 reduces fewer elements
 *   broken abort      rank 1 calls MPI_Abort while the others wait in a collective
 */
#define _GNU_SOURCE
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 100000 };

int main(int count, char **arguments)
{
    static int in[COUNT], out[COUNT];
    const char *what = count > 1 ? arguments[1] : "";
    char text[MPI_MAX_ERROR_STRING] = "";
    int rank, error, length, again;
    MPI_Request request;

    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (strcmp(what, "abort") == 0 && rank == 1) {
        sleep(1);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    if (strcmp(what, "gone") == 0 && rank == 2)
        sleep(1000);
    error = MPI_Allreduce(in, out, COUNT - (strcmp(what, "mismatch") == 0 && rank == 1), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Error_string(error, text, &length);
    again = MPI_Iallreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (again == MPI_SUCCESS)
        again = MPI_Wait(&request, MPI_STATUS_IGNORE);
    printf("rank %d: %s; again: %s\n", rank, error == MPI_SUCCESS ? "no error" : text, again == MPI_SUCCESS ? "no error" : "an error");
    fflush(stdout);
    /* Ranks that cannot go on together leave no other way. */
    sleep(1);
    MPI_Abort(MPI_COMM_WORLD, error != MPI_SUCCESS && again != MPI_SUCCESS ? 0 : 4);
    return 0;
}
