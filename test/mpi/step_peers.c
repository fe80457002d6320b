/* Whom a rank talks to during a step, counted at MPI's profiling interface: gradients and values
 * travel along the axes alone, so to at most G - 1 + R - 1 ranks; what all ranks decide together
 * travels in short messages along a tree, so to at most log2 P; and nothing else is called that
 * communicates. The program is linked with the library's objects: its MPI calls come here. */
#include <stdlib.h>
#include <string.h>

#include "step_case.h"
#include "tap_mpi.h"

enum { MAX_RANKS = 64, SHORT_BYTES = 2048 };

/* Told apart by the communicator's size: the meshes tried have R, G and P all different. */
typedef enum { OF_SHARD, OF_REPLICATE, OF_ALL, OF_OTHER, KINDS } kind;

static struct {
  int on, replicate, shard;
  unsigned char met[KINDS][MAX_RANKS]; /* ranks of MPI_COMM_WORLD */
  int longest[KINDS];                  /* bytes of a message */
  int messages[KINDS], others;
} seen;

static void note(MPI_Comm comm, int peer, int count, MPI_Datatype type) {
  int size, bytes, rank, world;
  MPI_Group group, all;
  if (!seen.on) return;
  PMPI_Comm_size(comm, &size);
  PMPI_Comm_rank(comm, &rank);
  PMPI_Type_size(type, &bytes);
  PMPI_Comm_group(comm, &group);
  PMPI_Comm_group(MPI_COMM_WORLD, &all);
  PMPI_Group_translate_ranks(group, 1, &peer, all, &world);
  PMPI_Group_free(&group);
  PMPI_Group_free(&all);
  const kind k = size == seen.shard       ? OF_SHARD
                 : size == seen.replicate ? OF_REPLICATE
                 : size == tap_size       ? OF_ALL
                                          : OF_OTHER;
  seen.met[k][world] = 1;
  seen.messages[k]++;
  if (count * bytes > seen.longest[k]) seen.longest[k] = count * bytes;
}

int MPI_Isend(const void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request) {
  note(comm, peer, count, type);
  return PMPI_Isend(data, count, type, peer, tag, comm, request);
}
int MPI_Irecv(void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request *request) {
  if (peer == MPI_ANY_SOURCE)
    seen.others += seen.on;
  else
    note(comm, peer, count, type);
  return PMPI_Irecv(data, count, type, peer, tag, comm, request);
}

/* Other ways to communicate, that a step has no use for. */
#define OTHER(name, parameters, arguments) \
  int name parameters {                    \
    seen.others += seen.on;                \
    return P##name arguments;              \
  }
OTHER(MPI_Send, (const void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm),
      (data, count, type, peer, tag, comm))
OTHER(MPI_Recv,
      (void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
       MPI_Status *status),
      (data, count, type, peer, tag, comm, status))
OTHER(MPI_Issend,
      (const void *data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
       MPI_Request *request),
      (data, count, type, peer, tag, comm, request))
OTHER(MPI_Start, (MPI_Request * request), (request))
OTHER(MPI_Startall, (int count, MPI_Request requests[]), (count, requests))
OTHER(MPI_Barrier, (MPI_Comm comm), (comm))
OTHER(MPI_Bcast, (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm),
      (data, count, type, root, comm))
OTHER(MPI_Ibcast,
      (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request),
      (data, count, type, root, comm, request))
OTHER(MPI_Allreduce,
      (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
      (in, out, count, type, op, comm))
OTHER(MPI_Iallreduce,
      (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
       MPI_Request *request),
      (in, out, count, type, op, comm, request))
OTHER(MPI_Ireduce,
      (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
       MPI_Request *request),
      (in, out, count, type, op, root, comm, request))
OTHER(MPI_Ibarrier, (MPI_Comm comm, MPI_Request *request), (comm, request))
OTHER(MPI_Comm_dup, (MPI_Comm comm, MPI_Comm *made), (comm, made))
OTHER(MPI_Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *made), (comm, color, key, made))

/* Parameters whose values make messages longer than those of a decision. */
enum { BULKS = 9, BULK = 4096 };
static float bulk_weight[BULKS][BULK], bulk_gradient[BULKS][BULK];

static DMuonErrorCode steps(int replicate, int shard, const char *fanin, int clip, DMuonMesh *mesh,
                            step_case *c) {
  static const int64_t dims[] = {64, 64};
  DMUON_CALL(DMuonMeshCreate(MPI_COMM_WORLD, mesh));
  DMUON_CALL(DMuonMeshSetSizes(*mesh, replicate, shard, 1));
  DMUON_CALL(DMuonMeshSetOption(*mesh, "reduce_fanin", fanin));
  DMUON_CALL(case_create(*mesh, c));
  DMUON_CALL(DMuonModelAddStackArray(c->model, "layers.%d.bulk", 10, BULKS, DMUON_FLOAT32, 2, dims,
                                     bulk_weight, bulk_gradient, NULL));
  if (clip) DMUON_CALL(DMuonOptimizerSetClip(c->opt, DMUON_CLIP_GLOBAL, .5));
  DMUON_CALL(case_set_up(*mesh, c));
  memset(&seen, 0, sizeof seen);
  seen.replicate = replicate;
  seen.shard = shard;
  for (int step = 0; step < 2; step++) {
    case_fill_gradients(c, step, 0);
    seen.on = 1;
    const DMuonErrorCode code = DMuonOptimizerStep(c->opt);
    seen.on = 0;
    DMUON_CALL(code);
  }
  return DMUON_SUCCESS;
}

static int peers(kind k) {
  int count = 0;
  for (int r = 0; r < tap_size; r++) count += seen.met[k][r];
  return count;
}

static void count(int replicate, int shard, const char *fanin, int clip) {
  DMuonMesh mesh = NULL;
  step_case c = {0};
  int log2 = 0, distinct = 0;
  char label[80];
  while (1 << log2 < tap_size) log2++;
  snprintf(label, sizeof label, "%d x %d, fanin %s%s", replicate, shard, fanin,
           clip ? ", clipped" : "");
  const DMuonErrorCode code = steps(replicate, shard, fanin, clip, &mesh, &c);
  if (!tap_ok(!code, "%s: two steps", label)) tap_diag("%s", DMuonErrorGetMessage());
  for (int r = 0; r < tap_size; r++) distinct += seen.met[OF_SHARD][r] || seen.met[OF_REPLICATE][r];
  tap_ok(seen.messages[OF_SHARD] > 0 && seen.messages[OF_REPLICATE] > 0,
         "%s: both axes are used by every rank", label);
  tap_ok(seen.longest[OF_SHARD] > SHORT_BYTES || seen.longest[OF_REPLICATE] > SHORT_BYTES,
         "%s: gradients and values travel there", label);
  tap_ok(peers(OF_SHARD) <= shard - 1 && peers(OF_REPLICATE) <= replicate - 1 &&
             distinct <= shard - 1 + replicate - 1,
         "%s: at most %d peers along the axes", label, shard - 1 + replicate - 1);
  tap_ok(seen.messages[OF_ALL] > 0 && peers(OF_ALL) <= log2,
         "%s: decisions go to at most %d neighbours of a tree", label, log2);
  tap_ok(seen.longest[OF_ALL] <= SHORT_BYTES, "%s: and are short", label);
  if (seen.longest[OF_ALL] > SHORT_BYTES) tap_diag("%d bytes", seen.longest[OF_ALL]);
  tap_ok(seen.messages[OF_OTHER] == 0 && seen.others == 0, "%s: no other traffic", label);
  case_destroy(&c);
  DMuonMeshDestroy(&mesh);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  if (tap_size != 8) {
    tap_skip_all("wants 8 ranks");
    return tap_mpi_done();
  }
  tap_plan(0);
  count(2, 4, "32", 0);
  count(4, 2, "32", 1);
  count(2, 4, "1", 1);
  count(4, 2, "1", 0);
  return tap_mpi_done();
}
