/* Who would own what: reads the shapes of a model from a file and prints the owners on any mesh, on
 * one process and without MPI_Init; and, with -plan RANK, what that data rank would communicate and
 * the memory it would need with the parameters in the library's memory, before anything runs.
 *
 *   cc ex02_partition.c -o ex02_partition $(pkg-config --cflags --libs libdmuon)
 *   ./ex02_partition FILE [-replicate R] [-shard S] [-plan RANK]
 *                    [-dmuon_owner_strategy round_robin] [-dmuon_reshard z2] ...
 *
 * FILE: a line a tensor, "name dtype dims", dims separated by commas; '#' begins a comment. */
#include <dmuon.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIMS = 8 };

static int read_dtype(const char *word, DMuonDType *dtype) {
  static const char *const names[] = {"fp32", "fp64", "bf16", "fp16"};
  for (int i = 0; i < 4; i++)
    if (strcmp(word, names[i]) == 0) {
      *dtype = (DMuonDType)i;
      return 1;
    }
  return 0;
}

static int read_dims(const char *word, int64_t dims[MAX_DIMS]) {
  int ndim = 0;
  while (ndim < MAX_DIMS) {
    char *end;
    errno = 0;
    dims[ndim++] = strtoll(word, &end, 10);
    if (end == word || errno || dims[ndim - 1] < 0) return 0;
    if (*end == 0) return ndim;
    if (*end != ',') return 0;
    word = end + 1;
  }
  return 0;
}

/* Registers every tensor of the file; says which line is wrong. */
static DMuonErrorCode read_shapes(FILE *file, DMuonModel model, int *bad_line) {
  char line[1024];
  for (int number = 1; fgets(line, sizeof line, file); number++) {
    char name[512], dtype_word[16], dims_word[256], rest[2];
    int64_t dims[MAX_DIMS];
    DMuonDType dtype;
    line[strcspn(line, "#\r\n")] = 0;
    int words = sscanf(line, "%511s %15s %255s %1s", name, dtype_word, dims_word, rest);
    if (words <= 0) continue;
    int ndim = words == 3 && read_dtype(dtype_word, &dtype) ? read_dims(dims_word, dims) : 0;
    if (!ndim) {
      *bad_line = number;
      return DMUON_SUCCESS;
    }
    DMUON_CALL(DMuonModelAddParam(model, name, dtype, ndim, dims, NULL));
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode print_owners(DMuonModel model, DMuonPartition partition) {
  int count;
  DMuonPartitionInfo info = {.struct_size = sizeof info};
  DMUON_CALL(DMuonModelGetCount(model, &count));
  DMUON_CALL(DMuonPartitionGetInfo(partition, &info));
  printf("%-56s %-7s %-28s %9s %6s\n", "parameter", "route", "group", "replicate", "shard");
  for (int id = 0; id < count; id++) {
    DMuonParamInfo param = {.struct_size = sizeof param};
    int replicate, shard;
    DMUON_CALL(DMuonModelGetParam(model, id, &param));
    DMUON_CALL(DMuonPartitionGetOwner(partition, id, &replicate, &shard, NULL));
    printf("%-56s %-7s %-28s %9d %6d\n", param.name,
           param.route == DMUON_ROUTE_MUON ? "muon" : "adamw", param.group, replicate, shard);
  }
  printf("slots        %d, of which %d own nothing\n", info.slots, info.idle_slots);
  printf("cost         %.6g at most, %.6g on average\n", info.max_cost, info.mean_cost);
  printf("lower bound  %.6g, ratio %.4f\n", info.lower_bound,
         info.lower_bound > 0 ? info.max_cost / info.lower_bound : 1.0);
  printf("memory       %.3f to %.3f MB of masters and state a slot\n", (double)info.min_bytes / 1e6,
         (double)info.max_bytes / 1e6);
  return DMUON_SUCCESS;
}

/* Sets the optimizer up on the plan, as the rank that the mesh was told to play. */
static DMuonErrorCode print_plan(DMuonModel model, DMuonPartition partition) {
  DMuonOptimizer opt = NULL;
  DMuonErrorCode code = DMuonOptimizerCreate(model, &opt);
  if (!code) code = DMuonOptimizerSetPartition(opt, partition);
  if (!code) code = DMuonOptimizerSetUp(opt);
  if (!code) code = DMuonOptimizerView(opt, NULL);
  DMuonOptimizerDestroy(&opt);
  return code;
}

static DMuonErrorCode run(FILE *file, const char *path, int replicate, int shard, int rank,
                          int *argc, char **argv, int *status) {
  DMuonMesh mesh = NULL;
  DMuonModel model = NULL;
  DMuonPartition partition = NULL;
  int bad_line = 0;
  DMuonErrorCode code = DMuonMeshCreatePlan(replicate, shard, 1, &mesh);
  if (!code && rank >= 0) code = DMuonMeshSetDevice(mesh, DMUON_DEVICE_TRACE, DMUON_DECIDE);
  if (!code && rank >= 0) code = DMuonMeshSetCoords(mesh, rank / shard, rank % shard, 0);
  if (!code) code = DMuonMeshSetFromOptions(mesh, argc, argv);
  if (!code && *argc > 1) {
    fprintf(stderr, "ex02_partition: what is %s?\n", argv[1]);
    *status = 2;
  }
  if (!code) code = DMuonModelCreate(mesh, &model);
  if (!code) code = read_shapes(file, model, &bad_line);
  if (bad_line) {
    fprintf(stderr, "%s, line %d: expected \"name dtype dims\"\n", path, bad_line);
    *status = 2;
  }
  if (!code) code = DMuonPartitionCreate(model, &partition);
  if (!code && !*status) code = DMuonPartitionSetUp(partition);
  if (!code && !*status)
    code = rank < 0 ? print_owners(model, partition) : print_plan(model, partition);
  DMuonPartitionDestroy(&partition);
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
  return code;
}

/* Takes "-name N" out of the arguments; value stays when it is not there. */
static int take_int(int *argc, char **argv, const char *name, int least, int *value) {
  for (int i = 1; i < *argc; i++) {
    if (strcmp(argv[i], name)) continue;
    char *end = NULL;
    long number = i + 1 < *argc ? strtol(argv[i + 1], &end, 10) : 0;
    if (!end || *end || number < least || number > INT32_MAX) {
      fprintf(stderr, "ex02_partition: %s wants a number from %d\n", name, least);
      return 0;
    }
    *value = (int)number;
    for (int k = i; k + 2 <= *argc; k++) argv[k] = argv[k + 2];
    *argc -= 2;
    return 1;
  }
  return 1;
}

int main(int argc, char **argv) {
  int replicate = 1, shard = 4, rank = -1, status = 0;
  if (!take_int(&argc, argv, "-replicate", 1, &replicate) ||
      !take_int(&argc, argv, "-shard", 1, &shard) || !take_int(&argc, argv, "-plan", 0, &rank))
    return 2;
  if (argc < 2 || argv[1][0] == '-') {
    fprintf(stderr,
            "usage: ex02_partition FILE [-replicate R] [-shard S] [-plan RANK] [-dmuon_...]\n");
    return 2;
  }
  const char *path = argv[1];
  FILE *file = fopen(path, "r");
  if (!file) {
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return 2;
  }
  for (int k = 1; k < argc; k++) argv[k] = argv[k + 1];
  argc--;
  DMuonErrorCode code = run(file, path, replicate, shard, rank, &argc, argv, &status);
  fclose(file);
  if (code) {
    fprintf(stderr, "%s: %s\n", DMuonErrorGetName(code), DMuonErrorGetMessage());
    return 1;
  }
  return status;
}
