/* How packed buffers are cut, on meshes without ranks that are gone through one after another in
 * this process: segments cover the buffer, shares make up the tensors, and new values of those who
 * update, moved and published as the tables say, reach every home and every fetched buffer once.
 * For all residencies, with empty parameters, more ranks than elements, sizes that do not divide.
 * And the groups made of them. */
#include <dmuon.h>
#include <string.h>

#include "base/dtype.h"
#include "engine/groups.h"
#include "engine/packing.h"
#include "mesh/mesh.h"
#include "model/model.h"
#include "tap.h"

enum { PARAMS = 14, RANKS = 16 };

static const struct {
  const char *name;
  DMuonDType dtype;
  int64_t dims[2];
  DMuonRoute route;
} params[PARAMS] = {{"layers.0.a", DMUON_FLOAT32, {12, 8}, DMUON_ROUTE_MUON},
                    {"layers.0.b", DMUON_FLOAT32, {7, 9}, DMUON_ROUTE_MUON},
                    {"layers.0.one", DMUON_FLOAT32, {1, 1}, DMUON_ROUTE_ADAMW_SHARDED},
                    {"layers.0.norm", DMUON_FLOAT32, {1, 5}, DMUON_ROUTE_ADAMW},
                    {"layers.1.a", DMUON_BFLOAT16, {12, 8}, DMUON_ROUTE_MUON},
                    {"layers.1.big", DMUON_BFLOAT16, {50, 41}, DMUON_ROUTE_MUON},
                    {"layers.1.empty", DMUON_BFLOAT16, {0, 8}, DMUON_ROUTE_MUON},
                    {"layers.1.flat", DMUON_BFLOAT16, {33, 65}, DMUON_ROUTE_ADAMW_SHARDED},
                    {"layers.1.flat_empty", DMUON_BFLOAT16, {0, 3}, DMUON_ROUTE_ADAMW_SHARDED},
                    {"layers.1.flat2", DMUON_BFLOAT16, {3, 3}, DMUON_ROUTE_ADAMW_SHARDED},
                    {"layers.1.fixed", DMUON_BFLOAT16, {4, 4}, DMUON_ROUTE_FROZEN},
                    {"layers.1.fixed2", DMUON_BFLOAT16, {11, 4}, DMUON_ROUTE_FROZEN},
                    {"layers.0.c", DMUON_FLOAT32, {8, 8}, DMUON_ROUTE_MUON},
                    {"layers.0.d", DMUON_FLOAT32, {3, 8}, DMUON_ROUTE_MUON}};

/* One of the ranks. */
typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  dmuon_packing packing;
} place;

typedef struct {
  int R, G;
  place at[RANKS]; /* s*R + r */
  dmuon_memory memory;
  int owners[PARAMS][3];
} world;

static DMuonErrorCode make_place(world *w, int r, int s, const dmuon_packing_options *options) {
  place *p = &w->at[s * w->R + r];
  DMUON_CALL(DMuonMeshCreatePlan(w->R, w->G, 1, &p->mesh));
  DMUON_CALL(DMuonMeshSetCoords(p->mesh, r, s, 0));
  DMUON_CALL(DMuonModelCreate(p->mesh, &p->model));
  for (int i = 0; i < PARAMS; i++) {
    DMUON_CALL(
        DMuonModelAddParam(p->model, params[i].name, params[i].dtype, 2, params[i].dims, NULL));
    DMUON_CALL(DMuonModelSetRoute(p->model, params[i].name, params[i].route));
  }
  DMUON_CALL(
      DMuonModelSetDTypes(p->model, "layers.1.*", DMUON_FLOAT32, DMUON_FLOAT32, DMUON_FLOAT32));
  DMUON_CALL(DMuonModelSetReshard(p->model, "layers.1", DMUON_Z2));
  DMUON_CALL(DMuonModelSetUp(p->model));
  return dmuon_packing_make(&w->memory, &p->model->registry, w->owners, options, &p->packing);
}

static void free_world(world *w) {
  for (int k = 0; k < w->R * w->G; k++) {
    dmuon_packing_free(&w->at[k].packing);
    DMuonModelDestroy(&w->at[k].model);
    DMuonMeshDestroy(&w->at[k].mesh);
  }
}

static const dmuon_bundle *bundle_at(const world *w, int b, int r, int s) {
  return &w->at[s * w->R + r].packing.bundles[b];
}

static int64_t numel_of(const world *w, const dmuon_bundle_param *p) {
  return w->at[0].model->registry.params[p->param].numel;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int covers(const dmuon_segment *segments, int count, int64_t total, int64_t *payload) {
  int64_t at = 0;
  for (int i = 0; i < count; i++) {
    if (segments[i].offset != at || segments[i].count < 0 ||
        segments[i].payload > segments[i].count)
      return 0;
    at += segments[i].count;
    *payload += segments[i].payload;
  }
  return at == total;
}

/* Parameters lie apart, aligned, in the same places on all ranks. */
static int params_lie_apart(const world *w, int b) {
  const dmuon_bundle *first = bundle_at(w, b, 0, 0);
  const int64_t narrow = (int64_t)dmuon_dtype_bytes(first->dtype); /* gradients are not narrower */
  int64_t end = 0;
  for (int i = 0; i < first->count; i++) {
    if (first->params[i].offset < end || first->params[i].offset * narrow % 128) return 0;
    end = first->params[i].offset + numel_of(w, &first->params[i]);
    for (int k = 0; k < w->R * w->G; k++) {
      const dmuon_bundle *other = &w->at[k].packing.bundles[b];
      if (other->params[i].param != first->params[i].param ||
          other->params[i].offset != first->params[i].offset)
        return 0;
    }
  }
  return end <= first->packed_count;
}

static int64_t payload_of(const world *w, const dmuon_bundle *bundle) {
  int64_t sum = 0;
  for (int i = 0; i < bundle->count; i++) sum += numel_of(w, &bundle->params[i]);
  return sum;
}

/* Stage 1 and 2 bring each rank just what it updates. */
static int stages_fit(const world *w, int b, int r, int s) {
  const dmuon_bundle *bundle = bundle_at(w, b, r, s);
  int64_t column = 0, mine = 0, payload = 0, in_column = 0;
  if (!covers(bundle->shard_segments, bundle->shard_segment_count, bundle->packed_count, &payload))
    return 0;
  if (payload != payload_of(w, bundle)) return 0;
  for (int i = 0; i < bundle->shard_segment_count; i++)
    if (bundle->shard_segments[i].root == s) {
      if (column++ == 0 && bundle->shard_segments[i].offset != bundle->column_offset) return 0;
      in_column += bundle->shard_segments[i].count;
    }
  if (column > 1 || in_column != bundle->column_count) return 0;
  if (!covers(bundle->column_segments, bundle->column_segment_count, bundle->column_count,
              &payload))
    return 0;
  for (int i = 0; i < bundle->column_segment_count; i++) {
    const dmuon_segment *segment = &bundle->column_segments[i];
    if (segment->root != r || bundle->residency == DMUON_RESIDENCY_FROZEN) continue;
    if (mine++ || segment->offset + bundle->column_offset != bundle->mine_offset ||
        segment->count != bundle->mine_count)
      return 0;
  }
  return mine > 0 || bundle->mine_count == 0;
}

/* Every element of every parameter is of one rank, which knows it. */
static int shares_add_up(const world *w, int b) {
  const dmuon_bundle *first = bundle_at(w, b, 0, 0);
  for (int i = 0; i < first->count; i++) {
    const int64_t numel = numel_of(w, &first->params[i]);
    static unsigned char owned[4096];
    int64_t sum = 0;
    memset(owned, 0, sizeof owned);
    for (int s = 0; s < w->G; s++)
      for (int r = 0; r < w->R; r++) {
        const dmuon_bundle_param *p = &bundle_at(w, b, r, s)->params[i];
        int64_t share_first, share_count;
        dmuon_bundle_share(first, i, numel, w->R, r, s, &share_first, &share_count);
        if (share_count != p->mine_count || (share_count && share_first != p->mine_first)) return 0;
        for (int64_t e = 0; e < share_count; e++) sum += !owned[share_first + e]++;
        const dmuon_bundle *bundle = bundle_at(w, b, r, s);
        if (p->is_mine &&
            (p->offset + p->mine_first < bundle->mine_offset ||
             p->offset + p->mine_first + p->mine_count > bundle->mine_offset + bundle->mine_count))
          return 0;
      }
    if (sum != numel) return 0;
  }
  return 1;
}

static int homes_fit(const world *w, int b, int r, int s) {
  const dmuon_bundle *bundle = bundle_at(w, b, r, s);
  int64_t payload = 0, home = 0, published = 0;
  if (!covers(bundle->unshard_segments, bundle->unshard_segment_count, bundle->packed_count,
              &payload) ||
      payload != payload_of(w, bundle))
    return 0;
  for (int i = 0; i < bundle->unshard_segment_count; i++)
    if (bundle->unshard_segments[i].root == s) {
      home += bundle->unshard_segments[i].count;
      if (bundle->unshard_segments[i].offset != bundle->home_offset) return 0;
    }
  return home == bundle->home_count &&
         covers(bundle->publish_segments, bundle->publish_segment_count, bundle->home_count,
                &published);
}

static int buckets_fit(const dmuon_bundle *bundle, int64_t bucket_bytes) {
  const int64_t element = (int64_t)dmuon_dtype_bytes(bundle->dtype);
  int first = 0;
  for (int k = 0; k < bundle->bucket_count; k++) {
    int64_t bytes = 0;
    for (int i = first; i < bundle->bucket_end[k]; i++)
      bytes += bundle->publish_segments[i].count * element;
    if (bundle->bucket_end[k] <= first) return 0;
    if (bucket_bytes && bytes > bucket_bytes && bundle->bucket_end[k] - first > 1) return 0;
    first = bundle->bucket_end[k];
  }
  return first == bundle->publish_segment_count && (bucket_bytes || bundle->bucket_count <= 1);
}

/* ---- carried out ----------------------------------------------------------------------------- */

enum { ROOM = 16384 };
static int home[RANKS][ROOM], staged[RANKS][ROOM], writes[RANKS][ROOM], buffer[RANKS][ROOM];

/* Element e of parameter i. */
static int number(int i, int64_t e) {
  return 1 + i * 100000 + (int)e;
}

/* Every rank puts new values of its share where the update writes. */
static void update(const world *w, int b) {
  for (int k = 0; k < w->R * w->G; k++) {
    const dmuon_bundle *bundle = &w->at[k].packing.bundles[b];
    const int is_gathered = bundle->residency == DMUON_RESIDENCY_GATHERED;
    for (int i = 0; i < bundle->count; i++) {
      const dmuon_bundle_param *p = &bundle->params[i];
      for (int64_t e = p->mine_first; e < p->mine_first + p->mine_count; e++) {
        const int64_t at = p->offset + e;
        if (is_gathered)
          staged[k][at - bundle->mine_offset] = number(i, e);
        else
          home[k][at - bundle->home_offset] = number(i, e);
      }
    }
  }
}

/* Along the shard axis of each row; the table must be the same on all its ranks. */
static int move(const world *w, int b) {
  for (int r = 0; r < w->R; r++) {
    const dmuon_bundle *first = bundle_at(w, b, r, 0);
    for (int s = 0; s < w->G; s++) {
      const dmuon_bundle *bundle = bundle_at(w, b, r, s);
      if (bundle->move_count != first->move_count ||
          (first->move_count > 0 && memcmp(bundle->moves, first->moves,
                                           (size_t)first->move_count * sizeof *first->moves) != 0))
        return 0;
    }
    for (int m = 0; m < first->move_count; m++) {
      const dmuon_move *move = &first->moves[m];
      const int from = move->from * w->R + r, to = move->to * w->R + r;
      for (int64_t e = 0; e < move->count; e++) {
        home[to][move->out_offset + e] = staged[from][move->in_offset + e];
        writes[to][move->out_offset + e]++;
      }
    }
  }
  return 1;
}

static void publish(const world *w, int b) {
  for (int s = 0; s < w->G; s++)
    for (int r = 0; r < w->R; r++) {
      const dmuon_bundle *bundle = bundle_at(w, b, r, s);
      for (int i = 0; i < bundle->publish_segment_count; i++) {
        const dmuon_segment *segment = &bundle->publish_segments[i];
        memcpy(&buffer[s * w->R + r][segment->offset],
               &home[s * w->R + segment->root][segment->offset],
               (size_t)segment->count * sizeof(int));
      }
    }
  memcpy(home, buffer, sizeof home);
}

static void unshard(const world *w, int b) {
  memset(buffer, 0, sizeof buffer);
  for (int s = 0; s < w->G; s++)
    for (int r = 0; r < w->R; r++) {
      const dmuon_bundle *bundle = bundle_at(w, b, r, s);
      for (int i = 0; i < bundle->unshard_segment_count; i++) {
        const dmuon_segment *segment = &bundle->unshard_segments[i];
        const int root = segment->root * w->R + r;
        const int64_t begin = w->at[root].packing.bundles[b].home_offset;
        memcpy(&buffer[s * w->R + r][segment->offset], &home[root][segment->offset - begin],
               (size_t)segment->count * sizeof(int));
      }
    }
}

static int arrives(const world *w, int b) {
  const dmuon_bundle *first = bundle_at(w, b, 0, 0);
  memset(home, 0, sizeof home);
  memset(staged, 0, sizeof staged);
  memset(writes, 0, sizeof writes);
  memset(buffer, 0, sizeof buffer);
  if (first->packed_count > ROOM) return 0;
  update(w, b);
  if (!move(w, b)) return 0;
  for (int k = 0; k < w->R * w->G; k++)
    for (int e = 0; e < ROOM; e++)
      if (writes[k][e] > 1) return 0;
  publish(w, b);
  unshard(w, b);
  for (int k = 0; k < w->R * w->G; k++)
    for (int i = 0; i < first->count; i++)
      for (int64_t e = 0; e < numel_of(w, &first->params[i]); e++)
        if (buffer[k][first->params[i].offset + e] != number(i, e)) return 0;
  return 1;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int groups_fit(const world *w, int all_z2) {
  dmuon_groups groups = {0};
  dmuon_memory memory = {0};
  const dmuon_packing *packing = &w->at[0].packing;
  if (dmuon_groups_make(&memory, &w->at[0].model->registry, packing, all_z2, &groups)) return 0;
  int right = groups.count == 2 && groups.lent_count == 2 &&
              strcmp(groups.groups[0].key, "layers.0") == 0 &&
              strcmp(groups.groups[1].key, "layers.1") == 0 &&
              dmuon_groups_find(&groups, "x") < 0 && dmuon_groups_find(&groups, "layers.1") == 1;
  int seen = 0;
  for (int g = 0; g < groups.count && right; g++) {
    const dmuon_group_plan *group = &groups.groups[g];
    int64_t value_end = 0, grad_end = 0;
    right &= group->is_lent && !group->has_arrays && group->is_z2 == (all_z2 || g == 1);
    for (int k = 0; k < group->part_count; k++) {
      const dmuon_group_bundle *part = &group->parts[k];
      const dmuon_bundle *bundle = &packing->bundles[part->bundle];
      right &=
          strcmp(bundle->group, group->key) == 0 && part->value_offset >= value_end &&
          part->grad_offset >= grad_end && part->value_offset % 128 == 0 &&
          part->value_bytes == bundle->packed_count * (int64_t)dmuon_dtype_bytes(bundle->dtype) &&
          (part->grad_bytes > 0 || bundle->residency == DMUON_RESIDENCY_FROZEN);
      value_end = part->value_offset + part->value_bytes;
      grad_end = part->grad_offset + part->grad_bytes;
    }
    right &= value_end <= group->value_bytes && grad_end <= group->grad_bytes;
    for (int i = 0; i < group->param_count; i++) {
      const dmuon_group_param *p = &group->params[i];
      seen++;
      right &= group->ids[i] == p->id && (i == 0 || p->id > p[-1].id) && p->part >= 0 &&
               packing->bundles[group->parts[p->part].bundle].params[p->index].id == p->id &&
               p->is_frozen == (params[p->id].route == DMUON_ROUTE_FROZEN);
    }
  }
  right &= seen == PARAMS;
  const int64_t bytes[] = {groups.groups[0].value_bytes, groups.groups[1].value_bytes};
  right &= groups.largest_value_bytes == (all_z2 ? 0 : bytes[0]) &&
           groups.z2_value_bytes == (all_z2 ? bytes[0] + bytes[1] : bytes[1]);
  dmuon_groups_free(&groups);
  return right && memory.bytes == 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void check(int R, int G, int gathers, int64_t bucket_bytes) {
  const dmuon_packing_options options = {gathers, bucket_bytes};
  static world w;
  DMuonErrorCode code = DMUON_SUCCESS;
  int residencies[5] = {0}, apart = 1, stages = 1, shares = 1, homes = 1, buckets = 1, values = 1;
  memset(&w, 0, sizeof w);
  w.R = R, w.G = G;
  for (int i = 0; i < PARAMS; i++) {
    w.owners[i][DMUON_AXIS_REPLICATE] = (7 * i + i / 3) % R;
    w.owners[i][DMUON_AXIS_SHARD] = (5 * i + 1 + i / 4) % G;
  }
  for (int s = 0; s < G && !code; s++)
    for (int r = 0; r < R && !code; r++) code = make_place(&w, r, s, &options);
  if (!tap_ok(!code, "%d x %d, gathered %d, buckets of %lld bytes", R, G, gathers,
              (long long)bucket_bytes)) {
    tap_diag("%s", DMuonErrorGetMessage());
    free_world(&w);
    return;
  }
  for (int b = 0; b < w.at[0].packing.bundle_count; b++) {
    residencies[w.at[0].packing.bundles[b].residency]++;
    apart &= params_lie_apart(&w, b);
    shares &= shares_add_up(&w, b);
    values &= arrives(&w, b);
    for (int s = 0; s < G; s++)
      for (int r = 0; r < R; r++) {
        stages &= stages_fit(&w, b, r, s);
        homes &= homes_fit(&w, b, r, s);
        buckets &= buckets_fit(bundle_at(&w, b, r, s), bucket_bytes);
      }
  }
  tap_ok(residencies[DMUON_RESIDENCY_DEDICATED] && residencies[DMUON_RESIDENCY_FLAT] &&
             residencies[DMUON_RESIDENCY_FROZEN] &&
             !residencies[DMUON_RESIDENCY_GATHERED] == !gathers,
         "bundles of every residency");
  tap_ok(apart, "parameters lie apart, aligned, alike on all ranks");
  tap_ok(stages, "both stages of the mean bring each rank what it updates");
  tap_ok(shares, "the shares of all ranks make up the tensors");
  tap_ok(homes, "homes make up the buffer, publishing covers them");
  tap_ok(buckets, "buckets are in order, and no larger than said");
  tap_ok(values, "new values reach every buffer, each moved once");
  tap_ok(groups_fit(&w, 0) && groups_fit(&w, 1), "groups hold their parameters in order, apart");
  free_world(&w);
  if (w.memory.bytes) tap_ok(0, "%lld bytes are left", (long long)w.memory.bytes);
}

int main(void) {
  static const int sizes[][2] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {2, 3},  {3, 2},
                                 {1, 7}, {5, 1}, {2, 8}, {4, 4}, {16, 1}, {1, 16}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    check(sizes[i][0], sizes[i][1], 0, i % 2 ? 0 : 1000);
    check(sizes[i][0], sizes[i][1], 1, i % 2 ? 1 : 0);
  }
  return tap_done();
}
