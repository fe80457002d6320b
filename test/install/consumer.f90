! The same from Fortran, through iso_c_binding: a real(8) array of the program, column by column.
program consumer
  use, intrinsic :: iso_c_binding
  use mpi
  implicit none
  interface
    integer(c_int) function mesh_create(comm, mesh) bind(c, name="DMuonMeshCreateFortran")
      import; integer(c_int), value :: comm; type(c_ptr) :: mesh
    end function
    integer(c_int) function model_create(mesh, model) bind(c, name="DMuonModelCreate")
      import; type(c_ptr), value :: mesh; type(c_ptr) :: model
    end function
    integer(c_int) function add_array(model, name, dtype, ndim, dims, w, g, id) bind(c, name="DMuonModelAddParamArray")
      import; type(c_ptr), value :: model, w, g, id; character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: dtype, ndim; integer(c_int64_t), intent(in) :: dims(*)
    end function
    integer(c_int) function optimizer_create(model, opt) bind(c, name="DMuonOptimizerCreate")
      import; type(c_ptr), value :: model; type(c_ptr) :: opt
    end function
    integer(c_int) function optimizer_step(opt) bind(c, name="DMuonOptimizerStep")
      import; type(c_ptr), value :: opt
    end function
    integer(c_int) function optimizer_setup(opt) bind(c, name="DMuonOptimizerSetUp")
      import; type(c_ptr), value :: opt
    end function
    integer(c_int) function optimizer_destroy(opt) bind(c, name="DMuonOptimizerDestroy")
      import; type(c_ptr) :: opt
    end function
    integer(c_int) function model_destroy(model) bind(c, name="DMuonModelDestroy")
      import; type(c_ptr) :: model
    end function
    integer(c_int) function mesh_destroy(mesh) bind(c, name="DMuonMeshDestroy")
      import; type(c_ptr) :: mesh
    end function
  end interface
  integer(c_int), parameter :: DMUON_FLOAT64 = 1
  type(c_ptr) :: mesh = c_null_ptr, model = c_null_ptr, opt = c_null_ptr
  real(c_double), target :: w(4, 6) = 0, g(4, 6)
  real(c_double) :: mine, lowest, highest
  integer :: ierr, rank, nranks, i, j, step

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks, ierr)
  call check(mesh_create(int(MPI_COMM_WORLD, c_int), mesh), "mesh_create")
  call check(model_create(mesh, model), "model_create")
  call check(add_array(model, "layers.0.w"//c_null_char, DMUON_FLOAT64, 2_c_int, [6_c_int64_t, 4_c_int64_t], &
    c_loc(w), c_loc(g), c_null_ptr), "add_array")
  call check(optimizer_create(model, opt), "optimizer_create")
  call check(optimizer_setup(opt), "optimizer_setup")
  do step = 1, 3
    do j = 1, 6
      do i = 1, 4
        g(i, j) = mod(i * 3 + j * 5 + rank * 2 + step, 7) - 3
      end do
    end do
    call check(optimizer_step(opt), "optimizer_step")
  end do
  mine = 0
  do j = 1, 6
    do i = 1, 4
      mine = mine + w(i, j) * (i + 4 * j)
    end do
  end do
  call MPI_Allreduce(mine, lowest, 1, MPI_DOUBLE_PRECISION, MPI_MIN, MPI_COMM_WORLD, ierr)
  call MPI_Allreduce(mine, highest, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, ierr)
  call check(optimizer_destroy(opt), "optimizer_destroy")
  call check(model_destroy(model), "model_destroy")
  call check(mesh_destroy(mesh), "mesh_destroy")
  if (rank == 0) then
    if (lowest /= highest .or. lowest == 0) then
      print '(a,2es24.16)', "consumer: ranks differ or nothing was trained:", lowest, highest
    else
      print '(a,i0,a)', "consumer: ", nranks, " ranks agree"
    end if
  end if
  call MPI_Finalize(ierr)
contains
  subroutine check(code, what)
    integer(c_int), intent(in) :: code
    character(*), intent(in) :: what
    integer :: ignored
    if (code == 0) return
    print *, "consumer: ", what, " returned ", code
    call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
  end subroutine
end program
