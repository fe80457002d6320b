/* train_gpt: a small GPT, trained on the bytes of a real text with Muon, on any number of ranks.
 *
 * The network is in gpt.c, the text in text.c, the options in settings.c, what is printed in
 * report.c; none of them knows of MPI or of libdmuon. This file brings them together; ranks.c has
 * its own communication, results.c collects what comes out. What an existing code adds in order to
 * use libdmuon is replicated.c, attach() below, three lines in main, and what stands between the
 * two marks of step(). With -sharded the parameters live in the library's memory, spread over the
 * ranks: then sharded.c takes the place of replicated.c.
 *
 * Build it against an installed libdmuon, and run it:
 *   mpicc -std=c11 -O2 train_gpt.c replicated.c sharded.c results.c ranks.c gpt.c text.c \
 *         settings.c report.c -o train_gpt $(pkg-config --cflags --libs libdmuon) -lopenblas -lm
 *   OPENBLAS_NUM_THREADS=1 mpirun -n 4 ./train_gpt
 *   OPENBLAS_NUM_THREADS=1 srun -n 4 ./train_gpt -sharded -recompute -dmuon_shard 2
 *
 * The batch of a step is the same whatever the number of ranks: rank d of n takes its n-th part of
 * the sequences, also when they do not divide evenly, and gradients are sums over bytes that the
 * library divides by the total. So the losses do not depend on the number of ranks, but for
 * rounding. A rank takes its part in passes of at most CHUNK sequences, each with a gradient of its
 * own; these add up, in fp32 and in the order of the passes, in the library. So both forms, on any
 * mesh of the same ranks, end with the same bits. */
#define _POSIX_C_SOURCE 200809L
#include <dmuon.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpt.h"
#include "ranks.h"
#include "report.h"
#include "settings.h"
#include "text.h"
#include "train.h"

enum { CHUNK = 8 }; /* sequences in one pass through the network */

/* ---- what every rank needs ------------------------------------------------------------------- */

void train_abort(const Training *run) {
  fprintf(stderr, "train_gpt: rank %d: not enough memory\n", run->rank);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* What rank 0 writes at the end. */
typedef struct {
  FILE *json, *save;
} Files;

/* 1, or 0 with the trouble told. path NULL: nobody wants it. */
static int open_result(const char *path, FILE **file) {
  if (path && !(*file = fopen(path, "wb"))) fprintf(stderr, "train_gpt: cannot write %s\n", path);
  return !path || *file;
}

/* Rank 0 reads the text and opens the results; the others get the bytes. -1: it has said why. */
static int share_text(Training *run, Files *results) {
  const Settings *s = run->settings;
  int files = 0, good = 0;
  char why[512];
  if (run->rank == 0) {
    if (text_load(s->text, &run->text, &run->text_size, &files, why, sizeof why)) {
      fprintf(stderr, "train_gpt: %s\n", why);
    } else if (run->text_size <= (size_t)s->context) {
      fprintf(stderr, "train_gpt: a text of %zu bytes is too short for -context %ld\n",
              run->text_size, s->context);
    } else if (open_result(s->json, &results->json) && open_result(s->save, &results->save)) {
      good = 1;
      printf("text: %zu bytes from %s (%d file%s)\n", run->text_size,
             s->text ? s->text : TEXT_DIRECTORY, files, files == 1 ? "" : "s");
    }
  }
  ranks_broadcast(&good, sizeof good);
  if (!good) return -1;
  ranks_broadcast(&run->text_size, sizeof run->text_size);
  if (run->rank) run->text = malloc(run->text_size);
  if (!run->text) train_abort(run);
  ranks_broadcast(run->text, run->text_size);
  return 0;
}

/* ---- what libdmuon is told ----------------------------------------------------------------- */

/* The library itself prints nothing: what it has to say once a run (an option that nobody knows) is
 * shown by rank 0. */
static void show_line(void *context, int level, const char *line) {
  if (level <= 1 && *(const int *)context == 0) fprintf(stderr, "train_gpt: %s\n", line);
}

static DMuonErrorCode attach(Training *run) {
  const Settings *s = run->settings;
  const int64_t D = s->width, qkv[] = {D, D, D};
  const char *device;
  DMUON_CALL(DMuonMeshSetUp(run->mesh));
  DMUON_CALL(DMuonMeshGetOption(run->mesh, "device", &device, NULL));
  run->remote = strncmp(device, "cuda", 4) == 0;
  DMUON_CALL(DMuonModelCreate(run->mesh, &run->model));
  DMUON_CALL(run->form->add(run));
  DMUON_CALL(DMuonModelSetBlocks(run->model, "h.*.attn.qkv.weight", 3, qkv, 1)); /* 3 matrices */
  if (settings_is(s->optimizer, "adamw")) {
    DMUON_CALL(DMuonModelSetRoute(run->model, "*", DMUON_ROUTE_ADAMW));
  }
  if (settings_is(s->adamw, "sharded")) { /* all that Muon does not update */
    DMUON_CALL(DMuonModelSetRoute(
        run->model, settings_is(s->optimizer, "adamw") ? "*" : "wte.*|wpe.*|*ln_*|*.bias|head.*",
        DMUON_ROUTE_ADAMW_SHARDED));
  }
  DMUON_CALL(DMuonOptimizerCreate(run->model, &run->opt));
  DMUON_CALL(DMuonOptimizerSetMuon(run->opt, s->lr, 0.95, 0));
  DMUON_CALL(DMuonOptimizerSetAdamW(run->opt, s->adamw_lr, 0.9, 0.95, 1e-8, 0));
  if (settings_is(s->order, "program")) {
    DMUON_CALL(DMuonOptimizerSetOrder(run->opt, DMUON_ORDER_PROGRAM));
  }
  DMUON_CALL(DMuonOptimizerSetUp(run->opt));
  return run->form->start(run); /* rank 0's initial values are everyone's */
}

DMuonErrorCode train_count(Training *run, int n) {
  return DMuonOptimizerSetSampleCount(run->opt, (double)n * (double)run->settings->context);
}

/* One step: this rank's share of the batch, forward and backward, then the library's step. All
 * ranks make as many passes as the one with the largest share. */
static DMuonErrorCode step(Training *run) {
  const Settings *s = run->settings;
  Report *report = &run->report;
  double loss = 0;
  int part, parts;
  DMUON_CALL(DMuonMeshGetDataRank(run->mesh, &part, &parts));
  const int64_t first = s->batch * part / parts, last = s->batch * (part + 1) / parts;
  report->passes = ((s->batch + parts - 1) / parts + CHUNK - 1) / CHUNK;

  for (int64_t pass = 0; pass < report->passes; pass++) {
    const int64_t at = first + pass * CHUNK, left = last - at;
    const int n = (int)(left < 0 ? 0 : left < CHUNK ? left : CHUNK);
    for (int i = 0; i < n; i++) {
      text_sequence(run->text, run->text_size, (uint64_t)s->seed, report->done, at + i,
                    run->sequences + i * (s->context + 1), (size_t)s->context + 1);
    }
    DMUON_CALL(run->form->pass(run, n, pass == report->passes - 1, &loss));
  }

  /* ---- the library's part ---- */
  DMuonStepInfo info = {.struct_size = sizeof info};
  double t0 = MPI_Wtime();
  DMUON_CALL(DMuonOptimizerSetLearningRateFactor(
      run->opt,
      DMuonScheduleFactor(DMUON_SCHEDULE_COSINE, report->done, s->steps / 20, s->steps, 0.1)));
  DMUON_CALL(DMuonOptimizerStep(run->opt));
  report->in_step += MPI_Wtime() - t0;
  ranks_sum(&loss, 1);
  t0 = MPI_Wtime();
  if (!s->sharded) { /* with -dmuon_replicate_async 1 weights have been on their way until here */
    DMUON_CALL(DMuonOptimizerWait(run->opt));
  }
  DMUON_CALL(DMuonOptimizerGetStepInfo(run->opt, &info));
  /* ---- */
  report->in_step += MPI_Wtime() - t0;
  report->seconds[PHASE_REDUCE] += info.seconds_reduce;
  report->seconds[PHASE_NEWTON_SCHULZ] += info.seconds_newton_schulz;
  report->seconds[PHASE_UPDATE] += info.seconds_update - info.seconds_newton_schulz;
  report->seconds[PHASE_PUBLISH] += info.seconds_publish;
  report->newton_schulz_calls += info.newton_schulz_calls;
  report->skipped += info.skipped != 0;
  report->loss[report->done++] = loss / (double)report->step_tokens;
  return DMUON_SUCCESS;
}

void train_widen(float *wide, const uint16_t *half, int64_t count) {
  for (int64_t k = 0; k < count; k++) {
    const uint32_t bits = (uint32_t)half[k] << 16;
    memcpy(&wide[k], &bits, sizeof bits);
  }
}

void train_narrow(uint16_t *half, const float *wide, int64_t count) {
  for (int64_t k = 0; k < count; k++) {
    uint32_t bits;
    memcpy(&bits, &wide[k], sizeof bits);
    const int nan = (bits & 0x7fffffff) > 0x7f800000;
    half[k] = (uint16_t)((nan ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

/* ---- the program --------------------------------------------------------------------------- */

static DMuonErrorCode make_steps(Training *run) {
  Report *report = &run->report;
  int64_t before[3], operations[3];
  /* Open MPI gives every rank a terminal: there only -progress can tell. */
  const char *progress = run->settings->progress;
  const int terminal = progress ? strcmp(progress, "bar") == 0
                                : isatty(STDOUT_FILENO) && !getenv("OMPI_COMM_WORLD_SIZE");
  DMUON_CALL(results_traffic(run, before, operations));
  const double start = MPI_Wtime();
  while (report->done < report->steps) {
    DMUON_CALL(step(run));
    if (run->rank == 0) report_progress(report, MPI_Wtime() - start, terminal);
  }
  DMUON_CALL(DMuonOptimizerWait(run->opt));
  report->total = MPI_Wtime() - start;
  DMUON_CALL(results_traffic(run, report->bytes, report->operations));
  for (int a = 0; a < 3; a++) report->bytes_steps[a] = report->bytes[a] - before[a];
  return DMUON_SUCCESS;
}

static DMuonErrorCode train(Training *run, Files *files, int *status) {
  const Settings *s = run->settings;
  Report *report = &run->report;
  DMUON_CALL(attach(run));
  DMUON_CALL(DMuonMeshGetSizes(run->mesh, &report->mesh[0], &report->mesh[1], &report->mesh[2]));
  fflush(stdout);
  DMUON_CALL(DMuonMeshView(run->mesh, NULL));
  if (run->rank == 0) {
    DMUON_CALL(results_show_owners(run));
    printf("network: %ld layers, width %ld, %lld parameters; %ld steps of %ld x %ld bytes\n",
           s->layers, s->width, (long long)gpt_parameter_count(run->gpt), s->steps, s->batch,
           s->context);
    fflush(stdout);
  }
  DMUON_CALL(make_steps(run));
  DMUON_CALL(results_gather(run, files->save, status));
  if (run->rank == 0) {
    report_summary(report);
    printf(
        "next: other meshes (-dmuon_shard 2), -sharded, -dmuon_replicate_async 1;\n"
        "      what it took to use the library: replicated.c, attach() and step() in "
        "train_gpt.c\n");
    if (*status) fprintf(stderr, "train_gpt: the ranks ended with different parameters\n");
    if (files->save && ferror(files->save)) {
      fprintf(stderr, "train_gpt: cannot write %s\n", s->save);
      *status = 1;
    }
    if (files->json && report_json(report, files->json)) {
      fprintf(stderr, "train_gpt: cannot write %s\n", s->json);
      *status = 1;
    }
  }
  return DMUON_SUCCESS;
}

/* Memory for the network and what surrounds it. */
static int allocate(Training *run) {
  const Settings *s = run->settings;
  const GptConfig config = {.layers = (int)s->layers,
                            .width = (int)s->width,
                            .heads = (int)s->heads,
                            .context = (int)s->context,
                            .recompute = (int)s->recompute};
  run->form = s->sharded ? &SHARDED : &REPLICATED;
  run->dtype = settings_is(s->dtype, "bf16") ? DMUON_BFLOAT16 : DMUON_FLOAT32;
  run->gpt = gpt_create(config, s->batch < CHUNK ? (int)s->batch : CHUNK);
  run->sequences = malloc(CHUNK * (size_t)(s->context + 1));
  run->report.loss = calloc((size_t)s->steps, sizeof *run->report.loss);
  run->report.optimizer = s->optimizer;
  run->report.form = s->sharded ? "sharded" : "replicated";
  run->report.steps = s->steps;
  run->report.step_tokens = (int64_t)s->batch * s->context;
  if (!run->gpt || !run->sequences || !run->report.loss) return -1;
  return run->form->allocate(run);
}

/* Says what went wrong. Codes from 100 to 199 are the same on every rank: the program can end in
 * good order. With any other the ranks are no longer together. */
static int report_error(DMuonErrorCode code, int rank) {
  const int everywhere = code >= 100 && !DMuonErrorIsFatal(code);
  if (rank == 0 || !everywhere) {
    fprintf(stderr, "train_gpt: rank %d: %s\n", rank, DMuonErrorGetMessage());
  }
  if (!everywhere) MPI_Abort(MPI_COMM_WORLD, 1);
  return 1;
}

static void release(Training *run) {
  free(run->report.loss);
  free(run->sequences);
  free(run->text);
  free(run->group);
  free(run->weights);
  free(run->gradients);
  free(run->weights16);
  free(run->gradients16);
  gpt_destroy(run->gpt);
}

int main(int argc, char **argv) {
  Settings settings;
  Training run = {.settings = &settings};
  Files files = {NULL, NULL};
  char why[4096];
  int status = 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &run.report.ranks);
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshCreate(MPI_COMM_WORLD, &run.mesh));
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshSetSizes(run.mesh, DMUON_DECIDE, DMUON_DECIDE, 1));
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshSetFromOptions(run.mesh, &argc, argv));
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshSetLogger(run.mesh, show_line, &run.rank));

  if (argc > 1 && (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))) {
    if (run.rank == 0) fputs(SETTINGS_USAGE, stdout);
    status = 0;
  } else if (settings_read(&settings, argc, argv, why, sizeof why)) {
    if (run.rank == 0) fprintf(stderr, "train_gpt: %s", why);
  } else if (share_text(&run, &files)) {
    status = 1;
  } else if (allocate(&run)) {
    train_abort(&run);
  } else {
    const DMuonErrorCode code = train(&run, &files, &status);
    if (code) status = report_error(code, run.rank);
  }
  DMuonOptimizerDestroy(&run.opt);
  DMuonModelDestroy(&run.model);
  if (run.form) run.form->leave(&run);
  if (files.json) fclose(files.json);
  if (files.save) fclose(files.save);
  release(&run);
  DMuonMeshDestroy(&run.mesh);
  MPI_Finalize();
  return status;
}
