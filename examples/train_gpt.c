/* train_gpt: a small GPT, trained on the bytes of a real text with Muon, on any number of ranks.
 *
 * The network is in gpt.c, the text in text.c, what is printed in report.c; none of them knows of
 * MPI or of libdmuon. This file brings them together. What an existing code adds in order to use
 * libdmuon is attach() below, three lines in main, and what stands between the two marks of step().
 *
 * Build it against an installed libdmuon, and run it:
 *   mpicc -std=c11 -O2 train_gpt.c gpt.c text.c report.c -o train_gpt \
 *         $(pkg-config --cflags --libs libdmuon) -lopenblas -lm
 *   OPENBLAS_NUM_THREADS=1 mpirun -n 4 ./train_gpt
 *   OPENBLAS_NUM_THREADS=1 srun -n 4 ./train_gpt -optimizer adamw -dmuon_shard 2
 *
 * The batch of a step is the same whatever the number of ranks: rank d of n takes its n-th part of
 * the sequences, also when they do not divide evenly, and gradients are sums over bytes that the
 * library divides by the total. So the losses do not depend on the number of ranks, but for
 * rounding. */
#define _POSIX_C_SOURCE 200809L
#include <dmuon.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpt.h"
#include "report.h"
#include "text.h"

enum { CHUNK = 8 }; /* sequences in one pass through the network */

static const char USAGE[] =
    "usage: train_gpt [options] [any -dmuon_... option]\n"
    "  -text FILE             train on its bytes (default: the texts in " TEXT_DIRECTORY
    ")\n"
    "  -steps N               steps to make (default 240)\n"
    "  -layers L -width D     size of the network (4, 128)\n"
    "  -heads H -context T    attention heads, bytes a sequence (4, 64)\n"
    "  -batch B               sequences a step, of all ranks together (64)\n"
    "  -optimizer muon|adamw  what updates the layers' matrices (muon)\n"
    "  -lr X -adamw_lr X      learning rates of Muon, of AdamW (0.01, 0.003)\n"
    "  -seed S                of initial weights and batches (1)\n"
    "  -json FILE             write the results there too\n"
    "  -progress bar|lines    how to show progress (a bar where standard output is a terminal)\n";

typedef struct {
  const char *text, *json, *optimizer, *progress;
  long steps, layers, width, heads, context, batch, seed;
  double lr, adamw_lr;
} Settings;

/* All that a step needs. */
typedef struct {
  const Settings *settings;
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
  Gpt *gpt;
  unsigned char *text, *sequences; /* (text_size), (CHUNK, T + 1) */
  size_t text_size;
  Report report;
} Training;

static int is_adamw(const Settings *s) {
  return strcmp(s->optimizer, "adamw") == 0;
}

/* 0, or -1 with the trouble described. */
static int settings_read(Settings *s, int argc, char **argv, char *why, size_t room) {
  *s = (Settings){.optimizer = "muon",
                  .steps = 240,
                  .layers = 4,
                  .width = 128,
                  .heads = 4,
                  .context = 64,
                  .batch = 64,
                  .seed = 1,
                  .lr = 0.01,
                  .adamw_lr = 0.003};
  const struct {
    const char *name;
    const char **word;
    long *count;
    double *real;
  } table[] = {{"-text", &s->text, 0, 0},           {"-json", &s->json, 0, 0},
               {"-optimizer", &s->optimizer, 0, 0}, {"-progress", &s->progress, 0, 0},
               {"-steps", 0, &s->steps, 0},         {"-layers", 0, &s->layers, 0},
               {"-width", 0, &s->width, 0},         {"-heads", 0, &s->heads, 0},
               {"-context", 0, &s->context, 0},     {"-batch", 0, &s->batch, 0},
               {"-seed", 0, &s->seed, 0},           {"-lr", 0, 0, &s->lr},
               {"-adamw_lr", 0, 0, &s->adamw_lr}};
  const size_t known = sizeof table / sizeof table[0];
  for (int i = 1; i < argc; i += 2) {
    size_t k = 0;
    while (k < known && strcmp(argv[i], table[k].name)) k++;
    if (k == known || i + 1 == argc) {
      snprintf(why, room, "%s %s\n%s", argv[i], k == known ? "is no option" : "wants a value",
               USAGE);
      return -1;
    }
    char *end = argv[i] + strlen(argv[i]);
    if (table[k].word) *table[k].word = argv[i + 1];
    if (table[k].count) *table[k].count = strtol(argv[i + 1], &end, 10);
    if (table[k].real) *table[k].real = strtod(argv[i + 1], &end);
    const int bad = *end || end == argv[i + 1];
    if (bad || (table[k].count && table[k].count != &s->seed &&
                (*table[k].count < 1 || *table[k].count > 1 << 24))) {
      snprintf(why, room, "%s %s: not a number that makes sense there\n", argv[i], argv[i + 1]);
      return -1;
    }
  }
  if (s->width % s->heads) {
    snprintf(why, room, "-width %ld cannot be divided among -heads %ld\n", s->width, s->heads);
    return -1;
  }
  if (!is_adamw(s) && strcmp(s->optimizer, "muon")) {
    snprintf(why, room, "-optimizer %s: muon or adamw\n", s->optimizer);
    return -1;
  }
  return 0;
}

/* ---- this program's own communication ------------------------------------------------------ */

/* Waits without keeping the processor from the other ranks: there may be more ranks than cores. */
static void await(MPI_Request *request) {
  for (int done = 0; !done;) {
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    if (!done) sched_yield();
  }
}

static void sum_over_ranks(double *values, int count) {
  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
  await(&request);
}

static void broadcast(void *data, size_t size) {
  while (size > 0) {
    const int part = size > 1 << 30 ? 1 << 30 : (int)size;
    MPI_Request request;
    MPI_Ibcast(data, part, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
    await(&request);
    data = (char *)data + part;
    size -= (size_t)part;
  }
}

/* Rank 0 reads the text and opens the results; the others get the bytes. -1: it has said why. */
static int share_text(Training *run, int rank, FILE **json) {
  const Settings *s = run->settings;
  int files = 0, good = 0;
  char why[512];
  if (rank == 0) {
    if (text_load(s->text, &run->text, &run->text_size, &files, why, sizeof why)) {
      fprintf(stderr, "train_gpt: %s\n", why);
    } else if (run->text_size <= (size_t)s->context) {
      fprintf(stderr, "train_gpt: a text of %zu bytes is too short for -context %ld\n",
              run->text_size, s->context);
    } else if (s->json && !(*json = fopen(s->json, "w"))) {
      fprintf(stderr, "train_gpt: cannot write %s\n", s->json);
    } else {
      good = 1;
      printf("text: %zu bytes from %s (%d file%s)\n", run->text_size,
             s->text ? s->text : TEXT_DIRECTORY, files, files == 1 ? "" : "s");
    }
  }
  broadcast(&good, sizeof good);
  if (!good) return -1;
  broadcast(&run->text_size, sizeof run->text_size);
  if (rank) run->text = malloc(run->text_size);
  if (!run->text) {
    fprintf(stderr, "train_gpt: rank %d: not enough memory\n", rank);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  broadcast(run->text, run->text_size);
  return 0;
}

/* ---- what libdmuon is told ------------------------------------------------------------------ */

/* The library itself prints nothing: what it has to say once a run (an option that nobody knows) is
 * shown by rank 0. */
static void show_line(void *context, int level, const char *line) {
  if (level <= 1 && *(const int *)context == 0) fprintf(stderr, "train_gpt: %s\n", line);
}

static DMuonErrorCode attach(Training *run) {
  const Settings *s = run->settings;
  const int64_t D = s->width, qkv[] = {D, D, D};
  DMUON_CALL(DMuonModelCreate(run->mesh, &run->model));
  for (int i = 0; i < GPT_TENSORS; i++) {
    const GptTensor *t = &run->gpt->tensor[i];
    if (t->layers) {
      DMUON_CALL(DMuonModelAddStackArray(run->model, t->name, 0, t->layers, DMUON_FLOAT32, t->ndim,
                                         t->dims, t->weights, t->gradients, NULL));
    } else {
      DMUON_CALL(DMuonModelAddParamArray(run->model, t->name, DMUON_FLOAT32, t->ndim, t->dims,
                                         t->weights, t->gradients, NULL));
    }
  }
  DMUON_CALL(DMuonModelSetBlocks(run->model, "h.*.attn.qkv.weight", 3, qkv, 1)); /* 3 matrices */
  if (is_adamw(s)) DMUON_CALL(DMuonModelSetRoute(run->model, "*", DMUON_ROUTE_ADAMW));
  DMUON_CALL(DMuonOptimizerCreate(run->model, &run->opt));
  DMUON_CALL(DMuonOptimizerSetMuon(run->opt, s->lr, 0.95, 0));
  DMUON_CALL(DMuonOptimizerSetAdamW(run->opt, s->adamw_lr, 0.9, 0.95, 1e-8, 0));
  DMUON_CALL(DMuonOptimizerSetUp(run->opt)); /* everyone now has rank 0's weights */
  return DMUON_SUCCESS;
}

/* One step: this rank's share of the batch, forward and backward, then the library's step. */
static DMuonErrorCode step(Training *run) {
  const Settings *s = run->settings;
  Report *report = &run->report;
  double loss = 0, t0, t1;
  int part, parts;
  DMUON_CALL(DMuonMeshGetDataRank(run->mesh, &part, &parts));
  const int64_t first = s->batch * part / parts, last = s->batch * (part + 1) / parts;
  const int64_t length = s->context + 1;

  gpt_zero_gradients(run->gpt);
  for (int64_t at = first; at < last; at += CHUNK) {
    const int n = (int)(last - at < CHUNK ? last - at : CHUNK);
    for (int i = 0; i < n; i++) {
      text_sequence(run->text, run->text_size, (uint64_t)s->seed, report->done, at + i,
                    run->sequences + i * length, (size_t)length);
    }
    t0 = MPI_Wtime();
    loss += gpt_forward(run->gpt, run->sequences, n);
    t1 = MPI_Wtime();
    gpt_backward(run->gpt);
    report->seconds[PHASE_FORWARD] += t1 - t0;
    report->seconds[PHASE_BACKWARD] += MPI_Wtime() - t1;
  }

  /* ---- the library's part ---- */
  DMuonStepInfo info = {.struct_size = sizeof info};
  t0 = MPI_Wtime();
  DMUON_CALL(DMuonOptimizerSetSampleCount(run->opt, (double)((last - first) * s->context)));
  DMUON_CALL(DMuonOptimizerSetLearningRateFactor(
      run->opt,
      DMuonScheduleFactor(DMUON_SCHEDULE_COSINE, report->done, s->steps / 20, s->steps, 0.1)));
  DMUON_CALL(DMuonOptimizerStep(run->opt));
  report->in_step += MPI_Wtime() - t0;
  sum_over_ranks(&loss, 1);
  t0 = MPI_Wtime(); /* with -dmuon_replicate_async 1 weights have been on their way until here */
  DMUON_CALL(DMuonOptimizerWait(run->opt));
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

/* ---- what is shown -------------------------------------------------------------------------- */

/* A line for each place of the mesh: how many tensors and elements it owns. */
static DMuonErrorCode show_owners(const Training *run) {
  enum { SHOWN = 16 };
  const int *mesh = run->report.mesh, slots = mesh[0] * mesh[1] * mesh[2];
  long long tensors[SHOWN][2] = {{0}}, elements[SHOWN][2] = {{0}}; /* muon, all else */
  int count;
  DMUON_CALL(DMuonModelGetCount(run->model, &count));
  for (int id = 0; id < count; id++) {
    DMuonParamInfo p = {.struct_size = sizeof p};
    DMUON_CALL(DMuonModelGetParam(run->model, id, &p));
    const int slot = (p.owner_replicate * mesh[1] + p.owner_shard) * mesh[2] + p.owner_tp;
    if (slot < 0 || slot >= SHOWN) continue;
    tensors[slot][p.route != DMUON_ROUTE_MUON]++;
    elements[slot][p.route != DMUON_ROUTE_MUON] += p.numel;
  }
  printf("owners (replicate,shard): tensors and elements with muon, with adamw\n");
  for (int i = 0; i < slots && i < SHOWN; i++) {
    printf("  (%d,%d)  %5lld %10lld    %5lld %10lld\n", i / mesh[2] / mesh[1],
           i / mesh[2] % mesh[1], tensors[i][0], elements[i][0], tensors[i][1], elements[i][1]);
  }
  if (slots > SHOWN) printf("  and %d more\n", slots - SHOWN);
  return DMUON_SUCCESS;
}

/* FNV-1a over name and bytes of each parameter, summed: no order of theirs matters. */
static uint64_t parameter_hash(const Gpt *gpt) {
  uint64_t sum = 0;
  for (int i = 0; i < GPT_TENSORS; i++) {
    const GptTensor *t = &gpt->tensor[i];
    for (int l = 0; l < (t->layers ? t->layers : 1); l++) {
      char name[GPT_NAME];
      uint64_t h = 0xcbf29ce484222325u;
      gpt_tensor_name(t, l, name);
      const unsigned char *bytes = (const unsigned char *)(t->weights + l * t->numel);
      for (const char *c = name; *c; c++) h = (h ^ (unsigned char)*c) * 0x100000001b3u;
      for (size_t b = 0; b < (size_t)t->numel * sizeof(float); b++) {
        h = (h ^ bytes[b]) * 0x100000001b3u;
      }
      sum += h;
    }
  }
  return sum;
}

/* Times become means over the ranks, bytes sums. differ: not all ranks hold the same parameters. */
static DMuonErrorCode gather(Training *run, int *differ) {
  Report *r = &run->report;
  double sums[PHASES + 9];
  int n = 0;
  for (int p = 0; p < PHASES; p++) sums[n++] = r->seconds[p];
  for (int a = 0; a < 3; a++) {
    DMuonCommInfo info = {.struct_size = sizeof info};
    DMUON_CALL(DMuonMeshGetCommInfo(run->mesh, (DMuonAxis)(DMUON_AXIS_REPLICATE + a), &info));
    sums[n++] = (double)info.bytes_sent;
    sums[n++] = (double)info.operations;
  }
  sums[n++] = r->total;
  sums[n++] = r->in_step;
  uint64_t root = r->parameter_hash = parameter_hash(run->gpt);
  broadcast(&root, sizeof root);
  sums[n++] = root != r->parameter_hash;
  sum_over_ranks(sums, n);

  for (int p = 0; p < PHASES; p++) r->seconds[p] = sums[p] / r->ranks;
  for (int a = 0; a < 3; a++) {
    r->bytes[a] = (int64_t)sums[PHASES + 2 * a];
    r->operations[a] = (int64_t)sums[PHASES + 2 * a + 1];
  }
  r->total = sums[n - 3] / r->ranks;
  r->in_step = sums[n - 2] / r->ranks;
  *differ = sums[n - 1] > 0;
  r->seconds[PHASE_OTHER] = r->total;
  for (int p = 0; p < PHASE_OTHER; p++) r->seconds[PHASE_OTHER] -= r->seconds[p];
  if (r->seconds[PHASE_OTHER] < 0) r->seconds[PHASE_OTHER] = 0; /* phases overlap */
  return DMUON_SUCCESS;
}

/* ---- the program ---------------------------------------------------------------------------- */

static DMuonErrorCode train(Training *run, int rank, FILE *json, int *status) {
  const Settings *s = run->settings;
  Report *report = &run->report;
  /* Open MPI gives every rank a terminal: there only -progress can tell. */
  const int terminal = s->progress ? strcmp(s->progress, "bar") == 0
                                   : isatty(STDOUT_FILENO) && !getenv("OMPI_COMM_WORLD_SIZE");
  DMUON_CALL(attach(run));
  DMUON_CALL(DMuonMeshGetSizes(run->mesh, &report->mesh[0], &report->mesh[1], &report->mesh[2]));
  fflush(stdout);
  DMUON_CALL(DMuonMeshView(run->mesh, NULL));
  if (rank == 0) {
    DMUON_CALL(show_owners(run));
    printf("network: %ld layers, width %ld, %lld parameters; %ld steps of %ld x %ld bytes\n",
           s->layers, s->width, (long long)gpt_parameter_count(run->gpt), s->steps, s->batch,
           s->context);
    fflush(stdout);
  }
  const double start = MPI_Wtime();
  while (report->done < report->steps) {
    DMUON_CALL(step(run));
    if (rank == 0) report_progress(report, MPI_Wtime() - start, terminal);
  }
  report->total = MPI_Wtime() - start;

  DMUON_CALL(gather(run, status));
  if (rank == 0) {
    report_summary(report);
    printf(
        "next: other meshes (-dmuon_shard 2), -optimizer adamw, -dmuon_replicate_async 1;\n"
        "      what it took to use the library: attach() and step() in train_gpt.c\n");
    if (*status) fprintf(stderr, "train_gpt: the ranks ended with different parameters\n");
    if (json && report_json(report, json)) {
      fprintf(stderr, "train_gpt: cannot write %s\n", s->json);
      *status = 1;
    }
  }
  return DMUON_SUCCESS;
}

/* Memory for the network and what surrounds it. */
static int allocate(Training *run) {
  const Settings *s = run->settings;
  const GptConfig config = {(int)s->layers, (int)s->width, (int)s->heads, (int)s->context};
  const int capacity = s->batch < CHUNK ? (int)s->batch : CHUNK;
  run->gpt = gpt_create(config, capacity, (uint64_t)s->seed);
  run->sequences = malloc(CHUNK * (size_t)(s->context + 1));
  run->report.loss = calloc((size_t)s->steps, sizeof *run->report.loss);
  run->report.optimizer = s->optimizer;
  run->report.steps = s->steps;
  run->report.step_tokens = (int64_t)s->batch * s->context;
  return run->gpt && run->sequences && run->report.loss ? 0 : -1;
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

int main(int argc, char **argv) {
  Settings settings;
  Training run = {.settings = &settings};
  FILE *json = NULL;
  char why[2048];
  int rank, status = 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &run.report.ranks);
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshCreate(MPI_COMM_WORLD, &run.mesh));
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshSetSizes(run.mesh, DMUON_DECIDE, DMUON_DECIDE, 1));
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshSetFromOptions(run.mesh, &argc, argv));
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshSetLogger(run.mesh, show_line, &rank));

  if (argc > 1 && (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))) {
    if (rank == 0) fputs(USAGE, stdout);
    status = 0;
  } else if (settings_read(&settings, argc, argv, why, sizeof why)) {
    if (rank == 0) fprintf(stderr, "train_gpt: %s", why);
  } else if (share_text(&run, rank, &json)) {
    status = 1;
  } else if (allocate(&run)) {
    fprintf(stderr, "train_gpt: rank %d: not enough memory\n", rank);
    MPI_Abort(MPI_COMM_WORLD, 1);
  } else {
    const DMuonErrorCode code = train(&run, rank, json, &status);
    if (code) status = report_error(code, rank);
  }
  DMuonOptimizerDestroy(&run.opt);
  DMuonModelDestroy(&run.model);
  if (json) fclose(json);
  free(run.report.loss);
  free(run.sequences);
  free(run.text);
  gpt_destroy(run.gpt);
  DMuonMeshDestroy(&run.mesh);
  MPI_Finalize();
  return status;
}
