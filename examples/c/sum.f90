! Every process contributes a vector, and gets the sum of all.
!
!     gfortran $(pkg-config --variable=includedir fanin)/fanin.f90 sum.f90 $(pkg-config --libs fanin) -o sum
!     for rank in 0 1 2 3; do FANIN_RANK=$rank FANIN_WORLD=4 FANIN_RENDEZVOUS=127.0.0.1:7801 ./sum & done; wait
program sum_of_all
    use, intrinsic :: iso_c_binding
    use fanin
    implicit none
    type(c_ptr) :: comm, request
    real(c_double), target :: field(1000), gathered(2, 64)
    real(c_double), target :: own(2)
    integer :: rank, world

    call check(fanin_init(comm), "fanin_init")
    rank = int(fanin_rank(comm))
    world = int(fanin_world(comm))

    field = rank + 1
    call check(fanin_allreduce(comm, c_loc(field), c_loc(field), size(field, kind=c_size_t), fanin_f64, fanin_sum), &
               "fanin_allreduce")
    if (any(abs(field - world * (world + 1) / 2) > 0)) error stop "a sum is wrong"

    own = [real(rank, c_double), -real(rank, c_double)]
    call check(fanin_all_gather_start(comm, c_loc(own), c_loc(gathered), 2_c_size_t, fanin_f64, request), &
               "fanin_all_gather_start")
    call check(fanin_wait(request), "fanin_wait")
    if (any(abs(gathered(1, 1:world) + gathered(2, 1:world)) > 0)) error stop "a vector is wrong"

    print '(a,i0,a,i0,a,f6.1,2a)', "rank ", rank, " of ", world, ": sum ", field(1), ", by ", fanin_path(comm)
    call check(fanin_finalize(comm), "fanin_finalize")

contains

    subroutine check(status, what)
        integer(c_int32_t), intent(in) :: status
        character(*), intent(in) :: what
        if (status == fanin_ok) return
        print '(3a)', what, ": ", fanin_error()
        error stop 1
    end subroutine
end program
