// The header is C++ as well: calls link by their C names.
#include <fanin.h>

int main()
{
    fanin_comm *comm = nullptr;
    double one = 1;
    bool right = fanin_init(&comm) == FANIN_OK && fanin_allreduce(comm, &one, &one, 1, FANIN_F64, FANIN_SUM) == FANIN_OK && one == 1;
    return right && fanin_finalize(&comm) == FANIN_OK ? 0 : 1;
}
