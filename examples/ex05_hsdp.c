/* ex05_hsdp: parameters in the library's memory, on a mesh of two levels.
 *
 *   mpicc ex05_hsdp.c -o ex05_hsdp $(pkg-config --cflags --libs libdmuon) -lm
 *   mpirun -n 4 ./ex05_hsdp -dmuon_replicate 2 -dmuon_shard 2
 *   mpirun -n 8 ./ex05_hsdp -dmuon_replicate 2 -dmuon_shard 4 -dmuon_replicate_async 0
 *   srun -n 16 ./ex05_hsdp                            # nodes become replicas of each other
 *
 * Hybrid sharding: the ranks of a shard group (a node, say) keep a model between them, each matrix
 * whole with one rank; the groups are replicas of each other. What every layer needs in every pass,
 * its values on all ranks and then its gradients on one, travels inside the group. Between the
 * groups go, once a step, the group's sums to the one owner of the matrix, and the owner's new
 * value back; this last way is asynchronous, behind the next forward pass.
 *
 * The program sees none of this: it runs its layers between brackets. Each layer is a group by
 * itself, as the default group key is the numbered block of the name ("layers.2"); what is read and
 * written is asked for inside the brackets, and belongs to the library outside of them.
 *
 * The network is a small perceptron that learns a function of its input; each rank draws data of
 * its own. On any mesh of the same ranks, powers of two, the losses are the same to the last bit.
 */
#include <dmuon.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 4, WIDTH = 32, BATCH = 16, STEPS = 60 };
typedef float Rows[BATCH][WIDTH];

/* ---- the application: it knows nothing of the library -------------------------------------- */

static float uniform(uint64_t *state) { /* (-1/2, 1/2) */
  *state ^= *state >> 12;
  *state ^= *state << 25;
  *state ^= *state >> 27;
  return (float)((*state * 2685821657736338717u) >> 40) / (1 << 24) - .5f;
}

static void draw(uint64_t *state, Rows x, Rows y) {
  for (int i = 0; i < BATCH; i++) {
    for (int k = 0; k < WIDTH; k++) x[i][k] = 2 * uniform(state);
    for (int k = 0; k < WIDTH; k++) y[i][k] = .5f * sinf(3 * x[i][k]) + .25f * x[i][WIDTH - 1 - k];
  }
}

/* out = in w^T + b, and tanh of it but for the last layer. */
static void layer_forward(const float *w, const float *b, Rows in, Rows out, int last) {
  for (int i = 0; i < BATCH; i++) {
    for (int o = 0; o < WIDTH; o++) {
      float sum = b[o];
      for (int k = 0; k < WIDTH; k++) sum += w[o * WIDTH + k] * in[i][k];
      out[i][o] = last ? sum : tanhf(sum);
    }
  }
}

/* Adds to dw and db; grad: of out, becomes that of in. */
static void layer_backward(const float *w, float *dw, float *db, Rows in, Rows out, Rows grad,
                           int last) {
  Rows before;
  memset(before, 0, sizeof before);
  for (int i = 0; i < BATCH; i++) {
    for (int o = 0; o < WIDTH; o++) {
      const float g = last ? grad[i][o] : grad[i][o] * (1 - out[i][o] * out[i][o]);
      db[o] += g;
      for (int k = 0; k < WIDTH; k++) {
        dw[o * WIDTH + k] += g * in[i][k];
        before[i][k] += g * w[o * WIDTH + k];
      }
    }
  }
  memcpy(grad, before, sizeof before);
}

/* Mean squared error, and its gradient. */
static double loss_of(Rows out, Rows y, Rows grad) {
  double sum = 0;
  for (int i = 0; i < BATCH; i++) {
    for (int k = 0; k < WIDTH; k++) {
      const float error = out[i][k] - y[i][k];
      sum += (double)error * error;
      grad[i][k] = 2 * error / (BATCH * WIDTH);
    }
  }
  return sum / (BATCH * WIDTH);
}

/* ---- with the library ---------------------------------------------------------------------- */

typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
  DMuonGroup group[LAYERS];
  uint64_t data; /* where this rank is in its data */
  int rank, ranks;
} Run;

static DMuonErrorCode set_up(Run *run) {
  const int64_t matrix[] = {WIDTH, WIDTH}, vector[] = {WIDTH};
  float value[WIDTH * WIDTH];
  uint64_t state = 42;
  int w, b, part;
  DMUON_CALL(DMuonModelCreate(run->mesh, &run->model));
  DMUON_CALL(
      DMuonModelAddStack(run->model, "layers.%d.weight", 0, LAYERS, DMUON_FLOAT32, 2, matrix, &w));
  DMUON_CALL(
      DMuonModelAddStack(run->model, "layers.%d.bias", 0, LAYERS, DMUON_FLOAT32, 1, vector, &b));
  DMUON_CALL(DMuonOptimizerCreate(run->model, &run->opt));
  DMUON_CALL(DMuonOptimizerSetMuon(run->opt, 0.01, 0.95, 0));
  DMUON_CALL(DMuonOptimizerSetAdamW(run->opt, 0.003, 0.9, 0.95, 1e-8, 0));
  DMUON_CALL(DMuonOptimizerSetAsync(run->opt, 1)); /* new values travel behind the next forward */
  DMUON_CALL(DMuonOptimizerSetUp(run->opt));
  /* Initial values, one tensor in memory at a time; biases start as zeros, as all does. */
  for (int l = 0; l < LAYERS; l++) {
    for (int k = 0; k < WIDTH * WIDTH; k++) value[k] = uniform(&state) / 2;
    DMUON_CALL(DMuonOptimizerSetParam(run->opt, w + l, value, 0)); /* rank 0's are taken */
  }
  for (int l = 0; l < LAYERS; l++) DMUON_CALL(DMuonOptimizerGetGroup(run->opt, l, &run->group[l]));
  DMUON_CALL(DMuonMeshGetDataRank(run->mesh, &part, NULL));
  run->data = 1234567 + 977 * (uint64_t)part;
  return DMUON_SUCCESS;
}

static DMuonErrorCode step(Run *run, double *loss) {
  static Rows x[LAYERS + 1], y, grad; /* x[l]: what layer l reads */
  const void *value[2];               /* weight and bias of a layer, in order of registration */
  void *gradient[2];
  draw(&run->data, x[0], y);
  for (int l = 0; l < LAYERS; l++) {
    DMUON_CALL(DMuonGroupForwardBegin(run->group[l])); /* now the layer is readable here */
    DMUON_CALL(DMuonGroupGetArrays(run->group[l], value, NULL));
    layer_forward(value[0], value[1], x[l], x[l + 1], l == LAYERS - 1);
    DMUON_CALL(DMuonGroupForwardEnd(run->group[l])); /* and now with its owner alone */
  }
  *loss = loss_of(x[LAYERS], y, grad);
  for (int l = LAYERS; l-- > 0;) {
    DMUON_CALL(DMuonGroupBackwardBegin(run->group[l]));
    DMUON_CALL(DMuonGroupGetArrays(run->group[l], value, gradient)); /* gradients come zeroed */
    layer_backward(value[0], gradient[0], gradient[1], x[l], x[l + 1], grad, l == LAYERS - 1);
    DMUON_CALL(DMuonGroupBackwardEnd(run->group[l])); /* the sum is on its way to the owner */
  }
  return DMuonOptimizerStep(run->opt);
}

static DMuonErrorCode show_owners(const Run *run) {
  int count;
  DMUON_CALL(DMuonModelGetCount(run->model, &count));
  for (int id = 0; id < count && run->rank == 0; id++) {
    DMuonParamInfo p = {.struct_size = sizeof p};
    DMUON_CALL(DMuonModelGetParam(run->model, id, &p));
    printf("%-16s group %-9s by %-5s owner (replicate %d, shard %d)\n", p.name, p.group,
           p.route == DMUON_ROUTE_MUON ? "muon" : "adamw", p.owner_replicate, p.owner_shard);
  }
  fflush(stdout);
  return DMUON_SUCCESS;
}

/* Payload bytes along both axes since SetUp, of this rank. */
static DMuonErrorCode traffic(const Run *run, double bytes[2]) {
  for (int a = 0; a < 2; a++) {
    DMuonCommInfo info = {.struct_size = sizeof info};
    const DMuonAxis axis = a ? DMUON_AXIS_SHARD : DMUON_AXIS_REPLICATE;
    DMUON_CALL(DMuonMeshGetCommInfo(run->mesh, axis, &info));
    bytes[a] = (double)info.bytes_sent;
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode train(Run *run) {
  double before[2], bytes[2], loss;
  DMUON_CALL(set_up(run));
  DMUON_CALL(DMuonMeshView(run->mesh, NULL));
  DMUON_CALL(show_owners(run));
  DMUON_CALL(traffic(run, before));
  for (int k = 1; k <= STEPS; k++) {
    DMUON_CALL(step(run, &loss));
    if (k > 1 && k % 10) continue;
    MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (run->rank == 0) printf("step %2d  loss %.9f\n", k, loss / run->ranks);
  }
  DMUON_CALL(DMuonOptimizerWait(run->opt)); /* the last values have arrived */
  DMUON_CALL(traffic(run, bytes));
  for (int a = 0; a < 2; a++) bytes[a] -= before[a];
  MPI_Allreduce(MPI_IN_PLACE, bytes, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (run->rank == 0) {
    printf(
        "bytes a step, all ranks: %.0f inside the shard groups, %.0f "
        "between them\n",
        bytes[1] / STEPS, bytes[0] / STEPS);
  }
  return DMUON_SUCCESS;
}

int main(int argc, char **argv) {
  Run run = {.mesh = NULL};
  const char *device;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &run.ranks);
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshCreate(MPI_COMM_WORLD, &run.mesh));
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshSetFromOptions(run.mesh, &argc, argv));
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshSetUp(run.mesh));
  DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, DMuonMeshGetOption(run.mesh, "device", &device, NULL));
  /* What is lent lies where the mesh computes; this network works on it in place. */
  const int on_host = strncmp(device, "cuda", 4) != 0;
  if (on_host) DMUON_CALL_OR_ABORT(MPI_COMM_WORLD, train(&run));
  if (!on_host && run.rank == 0)
    fprintf(stderr, "ex05_hsdp: computes on the host; for a GPU see train_gpt, which copies\n");
  DMuonOptimizerDestroy(&run.opt);
  DMuonModelDestroy(&run.model);
  DMuonMeshDestroy(&run.mesh);
  MPI_Finalize();
  return on_host ? 0 : 2;
}
