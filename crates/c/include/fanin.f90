! Fanin: collectives between processes, summed by switches on the way. See docs/c.md.
! SPDX-License-Identifier: Apache-2.0
!
! The functions of fanin.h for Fortran 2008 and later, under the same names. Communicators, settings and requests are of
! type(c_ptr); vectors are c_loc(vector), of vectors with the attribute target.
module fanin
    use, intrinsic :: iso_c_binding, only: c_char, c_double, c_f_pointer, c_int, c_int32_t, c_int64_t, c_null_char, c_ptr, c_size_t
    implicit none
    private :: c_char, c_double, c_f_pointer, c_int, c_int32_t, c_int64_t, c_null_char, c_ptr, c_size_t

    integer(c_int32_t), parameter :: fanin_ok = 0, fanin_err_argument = 1, fanin_err_setting = 2, fanin_err_unreachable = 3
    integer(c_int32_t), parameter :: fanin_err_refused = 4, fanin_err_failed = 5, fanin_err_system = 6, fanin_err_closed = 7
    integer(c_int32_t), parameter :: fanin_err_internal = 8

    integer(c_int32_t), parameter :: fanin_f32 = 0, fanin_f64 = 1, fanin_i32 = 2, fanin_i64 = 3, fanin_f16 = 4, fanin_bf16 = 5
    integer(c_int32_t), parameter :: fanin_i8 = 6, fanin_i16 = 7, fanin_u8 = 8

    integer(c_int32_t), parameter :: fanin_sum = 0, fanin_prod = 1, fanin_min = 2, fanin_max = 3, fanin_avg = 4, fanin_and = 5
    integer(c_int32_t), parameter :: fanin_or = 6, fanin_xor = 7, fanin_minimum = 8, fanin_maximum = 9

    interface
        integer(c_int32_t) function fanin_init(comm) bind(c)
            import :: c_int32_t, c_ptr
            type(c_ptr), intent(out) :: comm
        end function
        integer(c_int32_t) function fanin_init_with(settings, environment, comm) bind(c)
            import :: c_int, c_int32_t, c_ptr
            type(c_ptr), value :: settings
            integer(c_int), value :: environment
            type(c_ptr), intent(out) :: comm
        end function
        type(c_ptr) function fanin_settings_new() bind(c)
            import :: c_ptr
        end function
        subroutine fanin_settings_free(settings) bind(c)
            import :: c_ptr
            type(c_ptr), value :: settings
        end subroutine
        integer(c_int32_t) function fanin_settings_set_c(settings, name, text) bind(c, name="fanin_settings_set")
            import :: c_char, c_int32_t, c_ptr
            type(c_ptr), value :: settings
            character(kind=c_char), intent(in) :: name(*), text(*)
        end function
        integer(c_int32_t) function fanin_split(comm, color, key, group) bind(c)
            import :: c_int32_t, c_int64_t, c_ptr
            type(c_ptr), value :: comm
            integer(c_int64_t), value :: color, key
            type(c_ptr), intent(out) :: group
        end function
        integer(c_int32_t) function fanin_finalize(comm) bind(c)
            import :: c_int32_t, c_ptr
            type(c_ptr), intent(inout) :: comm
        end function
        integer(c_int32_t) function fanin_abort_c(comm, why) bind(c, name="fanin_abort")
            import :: c_char, c_int32_t, c_ptr
            type(c_ptr), value :: comm
            character(kind=c_char), intent(in) :: why(*)
        end function
        integer(c_int64_t) function fanin_rank(comm) bind(c)
            import :: c_int64_t, c_ptr
            type(c_ptr), value :: comm
        end function
        integer(c_int64_t) function fanin_world(comm) bind(c)
            import :: c_int64_t, c_ptr
            type(c_ptr), value :: comm
        end function
        integer(c_int32_t) function fanin_set_timeout(comm, seconds) bind(c)
            import :: c_double, c_int32_t, c_ptr
            type(c_ptr), value :: comm
            real(c_double), value :: seconds
        end function
        integer(c_int64_t) function fanin_error_rank() bind(c)
            import :: c_int64_t
        end function
        type(c_ptr) function fanin_error_c() bind(c, name="fanin_error")
            import :: c_ptr
        end function
        integer(c_size_t) function fanin_type_bytes(of) bind(c)
            import :: c_int32_t, c_size_t
            integer(c_int32_t), value :: of
        end function
        integer(c_int32_t) function fanin_allreduce(comm, input, output, elements, of, operator) bind(c)
            import :: c_int32_t, c_ptr, c_size_t
            type(c_ptr), value :: comm, input, output
            integer(c_size_t), value :: elements
            integer(c_int32_t), value :: of, operator
        end function
        integer(c_int32_t) function fanin_allreduce_start(comm, input, output, elements, of, operator, request) bind(c)
            import :: c_int32_t, c_ptr, c_size_t
            type(c_ptr), value :: comm, input, output
            integer(c_size_t), value :: elements
            integer(c_int32_t), value :: of, operator
            type(c_ptr), intent(out) :: request
        end function
        integer(c_int32_t) function fanin_reduce(comm, input, output, elements, of, operator, root) bind(c)
            import :: c_int32_t, c_ptr, c_size_t
            type(c_ptr), value :: comm, input, output
            integer(c_size_t), value :: elements
            integer(c_int32_t), value :: of, operator, root
        end function
        integer(c_int32_t) function fanin_reduce_start(comm, input, output, elements, of, operator, root, request) bind(c)
            import :: c_int32_t, c_ptr, c_size_t
            type(c_ptr), value :: comm, input, output
            integer(c_size_t), value :: elements
            integer(c_int32_t), value :: of, operator, root
            type(c_ptr), intent(out) :: request
        end function
        integer(c_int32_t) function fanin_broadcast(comm, vector, elements, of, root) bind(c)
            import :: c_int32_t, c_ptr, c_size_t
            type(c_ptr), value :: comm, vector
            integer(c_size_t), value :: elements
            integer(c_int32_t), value :: of, root
        end function
        integer(c_int32_t) function fanin_broadcast_start(comm, vector, elements, of, root, request) bind(c)
            import :: c_int32_t, c_ptr, c_size_t
            type(c_ptr), value :: comm, vector
            integer(c_size_t), value :: elements
            integer(c_int32_t), value :: of, root
            type(c_ptr), intent(out) :: request
        end function
        integer(c_int32_t) function fanin_reduce_scatter(comm, input, output, elements, of, operator) bind(c)
            import :: c_int32_t, c_ptr, c_size_t
            type(c_ptr), value :: comm, input, output
            integer(c_size_t), value :: elements
            integer(c_int32_t), value :: of, operator
        end function
        integer(c_int32_t) function fanin_reduce_scatter_start(comm, input, output, elements, of, operator, request) bind(c)
            import :: c_int32_t, c_ptr, c_size_t
            type(c_ptr), value :: comm, input, output
            integer(c_size_t), value :: elements
            integer(c_int32_t), value :: of, operator
            type(c_ptr), intent(out) :: request
        end function
        integer(c_int32_t) function fanin_all_gather(comm, input, output, elements, of) bind(c)
            import :: c_int32_t, c_ptr, c_size_t
            type(c_ptr), value :: comm, input, output
            integer(c_size_t), value :: elements
            integer(c_int32_t), value :: of
        end function
        integer(c_int32_t) function fanin_all_gather_start(comm, input, output, elements, of, request) bind(c)
            import :: c_int32_t, c_ptr, c_size_t
            type(c_ptr), value :: comm, input, output
            integer(c_size_t), value :: elements
            integer(c_int32_t), value :: of
            type(c_ptr), intent(out) :: request
        end function
        integer(c_int32_t) function fanin_barrier(comm) bind(c)
            import :: c_int32_t, c_ptr
            type(c_ptr), value :: comm
        end function
        integer(c_int32_t) function fanin_barrier_start(comm, request) bind(c)
            import :: c_int32_t, c_ptr
            type(c_ptr), value :: comm
            type(c_ptr), intent(out) :: request
        end function
        integer(c_int32_t) function fanin_wait(request) bind(c)
            import :: c_int32_t, c_ptr
            type(c_ptr), intent(inout) :: request
        end function
        integer(c_int32_t) function fanin_test(request, done) bind(c)
            import :: c_int, c_int32_t, c_ptr
            type(c_ptr), intent(inout) :: request
            integer(c_int), intent(out) :: done
        end function
        integer(c_int32_t) function fanin_wait_all(count, requests) bind(c)
            import :: c_int32_t, c_ptr, c_size_t
            integer(c_size_t), value :: count
            type(c_ptr), intent(inout) :: requests(*)
        end function
        integer(c_size_t) function fanin_path_c(comm, to, bytes) bind(c, name="fanin_path")
            import :: c_char, c_ptr, c_size_t
            type(c_ptr), value :: comm
            character(kind=c_char), intent(out) :: to(*)
            integer(c_size_t), value :: bytes
        end function
    end interface

contains

    !> What went wrong in this thread last, in words.
    function fanin_error() result(words)
        character(:), allocatable :: words
        character(kind=c_char), pointer :: text(:)
        integer :: length
        call c_f_pointer(fanin_error_c(), text, [65536])
        length = 0
        do while (text(length + 1) /= c_null_char)
            length = length + 1
        end do
        allocate (character(length) :: words)
        words = transfer(text(1:length), words)
    end function

    !> Gives a setting: see fanin_settings_set of fanin.h.
    integer(c_int32_t) function fanin_settings_set(settings, name, text)
        type(c_ptr), intent(in) :: settings
        character(*), intent(in) :: name, text
        fanin_settings_set = fanin_settings_set_c(settings, trim(name)//c_null_char, trim(text)//c_null_char)
    end function

    !> Ends the job at all ranks, with these words as the reason.
    integer(c_int32_t) function fanin_abort(comm, why)
        type(c_ptr), intent(in) :: comm
        character(*), intent(in) :: why
        fanin_abort = fanin_abort_c(comm, trim(why)//c_null_char)
    end function

    !> How vectors travel and why so, in words.
    function fanin_path(comm) result(words)
        type(c_ptr), intent(in) :: comm
        character(:), allocatable :: words
        character(kind=c_char) :: text(4096)
        integer(c_size_t) :: length
        length = min(fanin_path_c(comm, text, int(size(text), c_size_t)), int(size(text) - 1, c_size_t))
        allocate (character(length) :: words)
        words = transfer(text(1:length), words)
    end function
end module
