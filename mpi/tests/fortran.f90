! The same from Fortran: by mpif.h's names through the module mpi, in place, in the background, and in groups.
program collectives
  use mpi
  implicit none
  integer, parameter :: count = 2000
  integer :: rank, size, i, group, members, request, requests(2), error
  double precision :: vector(count), sums(count)
  integer :: whole(count), own(count)
  logical :: done

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, size, error)
  do i = 1, count
    vector(i) = rank + i
    own(i) = rank * i
  end do
  call MPI_Allreduce(vector, sums, count, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  call expect(all(sums == [(dble(size * i + size * (size - 1) / 2), i = 1, count)]), 'allreduce')
  call MPI_Allreduce(MPI_IN_PLACE, vector, count, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  call expect(all(sums == vector), 'allreduce in place')
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, group, error)
  call MPI_Comm_size(group, members, error)
  sums = 1
  call MPI_Allreduce(MPI_IN_PLACE, sums, count, MPI_DOUBLE_PRECISION, MPI_SUM, group, error)
  call expect(all(sums == members), 'allreduce of a group')
  call MPI_Comm_free(group, error)
  whole = own
  call MPI_Iallreduce(own, whole, count, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, requests(1), error)
  call MPI_Ibcast(vector, count, MPI_DOUBLE_PRECISION, size - 1, MPI_COMM_WORLD, requests(2), error)
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, error)
  call expect(all(whole == [((size - 1) * i, i = 1, count)]), 'iallreduce')
  call MPI_Ibarrier(MPI_COMM_WORLD, request, error)
  done = .false.
  do while (.not. done)
    call MPI_Test(request, done, MPI_STATUS_IGNORE, error)
  end do
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call MPI_Finalize(error)
  if (rank == 0) print '(a)', 'all collectives are right'

contains

  subroutine expect(fine, what)
    logical, intent(in) :: fine
    character(*), intent(in) :: what
    if (.not. fine) then
      print '(2a)', 'wrong: ', what
      call MPI_Abort(MPI_COMM_WORLD, 1, error)
    end if
  end subroutine
end program
