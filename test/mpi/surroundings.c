/* What the library leaves alone: a whole life of everything, failures included, prints nothing and
 * changes neither error handlers, threads, signals, environment, rounding, locale nor the sequence
 * of rand. Runs on any number of ranks, and as a singleton without a launcher. */
#include "config.h" /* RTLD_DEFAULT and environ are extensions */

#include <dlfcn.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "step_case.h"
#include "tap_mpi.h"

extern char **environ;

/* ---- a life ---------------------------------------------------------------------------------- */

/* Calls that must fail, each of which would have something to say. */
static int failures(DMuonMesh mesh, step_case *c) {
  DMuonMesh other = NULL;
  DMuonModel model = NULL;
  int failed = 0;
  failed += DMuonMeshCreate(MPI_COMM_NULL, &other) != DMUON_SUCCESS;
  failed += DMuonMeshSetSizes(mesh, 0, -3, 1) != DMUON_SUCCESS;
  failed += DMuonModelCreate(NULL, &model) != DMUON_SUCCESS;
  failed += DMuonOptimizerSetHyper(c->opt, "no.such.*", DMUON_HYPER_LR, 1) != DMUON_SUCCESS;
  failed += DMuonOptimizerGetState(c->opt, c->id[0], "nonsense", NULL, 0) != DMUON_SUCCESS;
  return failed == 5;
}

/* A mesh that cannot be set up: all ranks fail together. */
static DMuonErrorCode refused(MPI_Comm comm, int *good) {
  DMuonMesh mesh;
  DMUON_CALL(DMuonMeshCreate(comm, &mesh));
  DMUON_CALL(DMuonMeshSetSizes(mesh, tap_size + 1, 1, 1));
  *good = DMuonMeshSetUp(mesh) != DMUON_SUCCESS;
  return DMuonMeshDestroy(&mesh);
}

static DMuonErrorCode life(MPI_Comm comm, const char *device, int async, step_case *c,
                           DMuonMesh *mesh, int *good) {
  uint64_t hash;
  char *json = NULL;
  DMuonStepInfo info = {.struct_size = sizeof info};
  DMUON_CALL(DMuonMeshCreate(comm, mesh));
  DMUON_CALL(DMuonMeshSetFromOptions(*mesh, NULL, NULL));
  DMUON_CALL(DMuonMeshSetOption(*mesh, "device", device));
  DMUON_CALL(DMuonMeshSetOption(*mesh, "no_such_option", "1"));
  DMUON_CALL(case_create(*mesh, c));
  DMUON_CALL(DMuonOptimizerSetAsync(c->opt, async));
  DMUON_CALL(DMuonOptimizerSetClip(c->opt, DMUON_CLIP_GLOBAL, .5));
  DMUON_CALL(case_set_up(*mesh, c));
  for (int step = 0; step < 3; step++) {
    case_fill_gradients(c, step, 0);
    if (step == 1) DMUON_CALL(DMuonOptimizerAccumulate(c->opt));
    if (step == 2 && tap_rank == tap_size - 1) ((float *)c->gradient[0])[1] = NAN;
    DMUON_CALL(DMuonOptimizerStep(c->opt));
  }
  DMUON_CALL(DMuonOptimizerWait(c->opt));
  DMUON_CALL(DMuonOptimizerGetStepInfo(c->opt, &info));
  DMUON_CALL(case_state_hash(c, &hash));
  DMUON_CALL(DMuonOptimizerSummary(c->opt, &json));
  DMuonFree(json);
  DMUON_CALL(DMuonMeshSummary(*mesh, &json));
  DMuonFree(json);
  *good = info.skipped == 1 && info.step == 2 && failures(*mesh, c);
  return DMUON_SUCCESS;
}

static DMuonErrorCode lives(MPI_Comm comm, int *good) {
  int lived = 1, was_refused = 0;
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int i = 0; i < 2 && !code; i++) {
    step_case c = {0};
    DMuonMesh mesh = NULL;
    int one = 0;
    code = life(comm, i ? "host:deferred,seed=4" : "host", i, &c, &mesh, &one);
    lived = lived && one;
    case_destroy(&c);
    DMuonMeshDestroy(&mesh);
  }
  DMUON_CALL(code);
  DMUON_CALL(refused(comm, &was_refused));
  *good = lived && was_refused;
  return DMUON_SUCCESS;
}

/* ---- what is looked at ----------------------------------------------------------------------- */

static int handler_calls;
static void on_error(MPI_Comm *comm, int *code, ...) {
  (void)comm, (void)code;
  handler_calls++;
}

enum { COMMS = 3, SIGNALS = 32 };
typedef struct {
  MPI_Errhandler handlers[COMMS];
  int omp_threads, blas_threads, rounding, file_mode;
  struct sigaction signals[SIGNALS];
  uint64_t environment;
  char locale[64], directory[256];
} look;

/* The value of an int function(void) of some library that is loaded, or 0. */
static int ask(const char *function) {
  int (*call)(void);
  *(void **)&call = dlsym(RTLD_DEFAULT, function);
  return call ? call() : 0;
}

static void set_threads(const char *function, int threads) {
  void (*call)(int);
  *(void **)&call = dlsym(RTLD_DEFAULT, function);
  if (call) call(threads);
}

static void take(MPI_Comm user, look *l) {
  MPI_Comm comms[COMMS] = {user, MPI_COMM_WORLD, MPI_COMM_SELF};
  memset(l, 0, sizeof *l);
  for (int i = 0; i < COMMS; i++) MPI_Comm_get_errhandler(comms[i], &l->handlers[i]);
  l->omp_threads = ask("omp_get_max_threads");
  l->blas_threads = ask("openblas_get_num_threads");
  l->rounding = fegetround();
  l->file_mode = (int)umask(022);
  umask((mode_t)l->file_mode);
  for (int s = 1; s < SIGNALS; s++) sigaction(s, NULL, &l->signals[s]);
  l->environment = 0xcbf29ce484222325u;
  for (char **e = environ; *e; e++)
    for (const char *at = *e; *at; at++)
      l->environment = (l->environment ^ (unsigned char)*at) * 0x100000001b3u;
  snprintf(l->locale, sizeof l->locale, "%s", setlocale(LC_ALL, NULL));
  if (!getcwd(l->directory, sizeof l->directory)) l->directory[0] = 0;
}

static void release(look *l) {
  for (int i = 0; i < COMMS; i++)
    if (l->handlers[i] != MPI_ERRORS_ARE_FATAL && l->handlers[i] != MPI_ERRORS_RETURN)
      MPI_Errhandler_free(&l->handlers[i]);
}

static int signals_equal(const look *a, const look *b) {
  for (int s = 1; s < SIGNALS; s++)
    if (a->signals[s].sa_handler != b->signals[s].sa_handler ||
        a->signals[s].sa_flags != b->signals[s].sa_flags)
      return 0;
  return 1;
}

/* ---- standard output and error in a file ----------------------------------------------------- */

typedef struct {
  int file, out, err;
} captured;

static int capture(captured *c) {
  char path[] = "/tmp/dmuon-surroundings.XXXXXX";
  c->file = mkstemp(path);
  if (c->file < 0) return 0;
  unlink(path);
  fflush(NULL);
  c->out = dup(1), c->err = dup(2);
  return dup2(c->file, 1) == 1 && dup2(c->file, 2) == 2;
}

/* Bytes that were written; some of them in text. */
static long release_output(captured *c, char *text, size_t room) {
  struct stat info = {0};
  fflush(NULL);
  dup2(c->out, 1), dup2(c->err, 2);
  close(c->out), close(c->err);
  fstat(c->file, &info);
  const ssize_t got = pread(c->file, text, room - 1, 0);
  text[got > 0 ? got : 0] = 0;
  close(c->file);
  return (long)info.st_size;
}

int main(int argc, char **argv) {
  MPI_Comm user;
  MPI_Errhandler mine;
  look before, after;
  captured output = {-1, -1, -1};
  char text[400];
  int good = 0;
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  unsetenv("DMUON_OPTIONS_FILE");
  MPI_Comm_dup(MPI_COMM_WORLD, &user);
  MPI_Comm_create_errhandler(on_error, &mine);
  MPI_Comm_set_errhandler(user, mine);
  set_threads("openblas_set_num_threads", 2);
  set_threads("omp_set_num_threads", 3);
  fesetround(FE_TONEAREST);

  /* rand, with nothing in between and with a life in between. */
  srand(5);
  const int first = rand(), second = rand();
  srand(5);
  const int again = rand();
  take(user, &before);
  const int is_captured = capture(&output);
  const DMuonErrorCode code = lives(user, &good);
  const long bytes = release_output(&output, text, sizeof text);
  take(user, &after);
  const int next = rand();

  if (!tap_ok(!code && good, "a whole life, with a skipped step and calls that fail") && code)
    tap_diag("%s", DMuonErrorGetMessage());
  tap_ok(is_captured, "output went to a file");
  if (!tap_ok(bytes == 0, "nothing is printed")) tap_diag("%ld bytes: %s", bytes, text);
  for (int i = 0; i < COMMS; i++) {
    static const char *const names[] = {"the communicator", "MPI_COMM_WORLD", "MPI_COMM_SELF"};
    tap_ok(before.handlers[i] == after.handlers[i], "the error handler of %s stays", names[i]);
  }
  tap_ok(after.handlers[0] == mine && handler_calls == 0, "it is the caller's and was not called");
  tap_ok(before.omp_threads == after.omp_threads, "OpenMP threads stay");
  tap_ok(before.blas_threads == after.blas_threads, "the BLAS's threads stay");
  tap_diag("OpenMP %d, OpenBLAS %d threads (0: not there)", after.omp_threads, after.blas_threads);
  tap_ok(signals_equal(&before, &after), "signal handlers stay");
  tap_ok(before.environment == after.environment, "the environment stays");
  tap_ok(before.rounding == after.rounding, "the rounding mode stays");
  tap_ok(before.file_mode == after.file_mode && !strcmp(before.locale, after.locale) &&
             !strcmp(before.directory, after.directory),
         "umask, locale and directory stay");
  tap_ok(again == first && next == second, "the sequence of rand is the caller's");
  release(&before);
  release(&after);
  MPI_Errhandler_free(&mine);
  MPI_Comm_free(&user);
  return tap_mpi_done();
}
