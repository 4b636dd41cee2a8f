/* The same from C++, whose templates choose types. */
#include <mpi.h>

#include <complex>
#include <iostream>
#include <vector>

namespace {

template <typename T> bool sums_are_right(MPI_Datatype type, int rank, int size)
{
    std::vector<T> in(5000, T(rank + 1)), out(5000);
    MPI_Allreduce(in.data(), out.data(), static_cast<int>(in.size()), type, MPI_SUM, MPI_COMM_WORLD);
    for (const T &sum : out) {
        if (sum != T(size * (size + 1) / 2))
            return false;
    }
    return true;
}

}  // namespace

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    bool right = sums_are_right<double>(MPI_DOUBLE, rank, size) && sums_are_right<float>(MPI_FLOAT, rank, size);
    right = right && sums_are_right<unsigned long>(MPI_UNSIGNED_LONG, rank, size);
    right = right && sums_are_right<std::complex<double>>(MPI_C_DOUBLE_COMPLEX, rank, size);
    right = right && sums_are_right<std::complex<float>>(MPI_CXX_FLOAT_COMPLEX, rank, size);
    if (!right)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    if (rank == 0)
        std::cout << "all collectives are right\n";
    return 0;
}
