/* How the packed buffer of a bundle is cut: by owners, or into equal parts. It decides which rank
 * holds, sums and sends which elements; what is in the bundle is packing.c's. */
#include "engine/packing.h"

#include <string.h>

#include "base/dtype.h"

enum { ALIGN_BYTES = 128 };

static int64_t lower(int64_t a, int64_t b) {
  return a < b ? a : b;
}
static int64_t higher(int64_t a, int64_t b) {
  return a > b ? a : b;
}
static int64_t rounded_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

/* What a range of the packed buffer holds of a parameter. */
static int64_t overlap(const dmuon_registry *registry, const dmuon_bundle_param *p, int64_t begin,
                       int64_t end) {
  const int64_t numel = registry->params[p->param].numel;
  return higher(0, lower(end, p->offset + numel) - higher(begin, p->offset));
}

static int64_t payload(const dmuon_registry *registry, const dmuon_bundle *bundle, int64_t begin,
                       int64_t end) {
  int64_t sum = 0;
  for (int i = 0; i < bundle->count; i++) sum += overlap(registry, &bundle->params[i], begin, end);
  return sum;
}

static DMuonErrorCode new_segments(dmuon_memory *memory, int64_t room, dmuon_segment **segments) {
  return dmuon_memory_alloc(memory, room, sizeof **segments, segments);
}

/* Appends a piece: to the last segment when that has the same root and ends where it begins. */
static void append(dmuon_segment *segments, int *count, int root, int64_t offset, int64_t elements,
                   int64_t meaning) {
  dmuon_segment *last = *count ? &segments[*count - 1] : NULL;
  if (!last || last->root != root || last->offset + last->count != offset) {
    last = &segments[(*count)++];
    *last = (dmuon_segment){.root = root, .offset = offset};
  }
  last->count += elements;
  last->payload += meaning;
}

/* ---- by owners ------------------------------------------------------------------------------ */

static int64_t room_of(const dmuon_registry *registry, const dmuon_bundle *bundle, int i,
                       int64_t align) {
  return rounded_up(registry->params[bundle->params[i].param].numel, align);
}

/* Segments of gradients: one an owner's shard coordinate, and in this rank's column one an owner's
 * replicate coordinate. Offsets are set. */
static DMuonErrorCode cut_by_owner(dmuon_memory *memory, const dmuon_registry *registry, int r,
                                   int s, int64_t align, dmuon_bundle *bundle) {
  DMUON_TRY(new_segments(memory, bundle->count, &bundle->shard_segments));
  DMUON_TRY(new_segments(memory, bundle->count, &bundle->column_segments));
  bundle->column_offset = bundle->mine_offset = -1;
  for (int i = 0; i < bundle->count; i++) {
    dmuon_bundle_param *p = &bundle->params[i];
    const int64_t numel = registry->params[p->param].numel;
    const int64_t room = room_of(registry, bundle, i, align);
    const int p_shard = p->owner[DMUON_AXIS_SHARD], p_replicate = p->owner[DMUON_AXIS_REPLICATE];
    append(bundle->shard_segments, &bundle->shard_segment_count, p_shard, p->offset, room, numel);
    if (p_shard != s) continue;
    if (bundle->column_offset < 0) bundle->column_offset = p->offset;
    append(bundle->column_segments, &bundle->column_segment_count, p_replicate,
           p->offset - bundle->column_offset, room, numel);
    bundle->column_count += room;
    if (p_replicate != r) continue;
    p->mine_count = numel;
    if (bundle->residency == DMUON_RESIDENCY_FROZEN) continue;
    p->is_mine = 1;
    if (bundle->mine_offset < 0) bundle->mine_offset = p->offset;
    bundle->mine_count += room;
  }
  if (bundle->column_offset < 0) bundle->column_offset = 0;
  if (bundle->mine_offset < 0) bundle->mine_offset = 0;
  return DMUON_SUCCESS;
}

/* ---- into equal parts ------------------------------------------------------------------------ */

/* [*begin, *end) = part k of parts of `unit` elements each. */
static void part_of(const dmuon_bundle *bundle, int64_t unit, int64_t k, int64_t *begin,
                    int64_t *end) {
  *begin = lower(k * unit, bundle->packed_count);
  *end = lower((k + 1) * unit, bundle->packed_count);
}

static DMuonErrorCode cut_shards(dmuon_memory *memory, const dmuon_registry *registry, int G,
                                 int64_t unit, const dmuon_bundle *bundle, int *count,
                                 dmuon_segment **segments) {
  DMUON_TRY(new_segments(memory, G, segments));
  for (int i = 0; i < G; i++) {
    int64_t begin, end;
    part_of(bundle, unit, i, &begin, &end);
    if (end > begin)
      (*segments)[(*count)++] =
          (dmuon_segment){i, begin, end - begin, payload(registry, bundle, begin, end)};
  }
  return DMUON_SUCCESS;
}

/* R x G equal parts, part s*R + r is of (r, s). */
static DMuonErrorCode cut_flat(dmuon_memory *memory, const dmuon_registry *registry, int R, int G,
                               int r, int s, int64_t align, dmuon_bundle *bundle) {
  const int64_t parts = (int64_t)R * G;
  const int64_t unit = rounded_up((bundle->packed_count + parts - 1) / parts, align);
  int64_t begin, end;
  DMUON_TRY(cut_shards(memory, registry, G, R * unit, bundle, &bundle->shard_segment_count,
                       &bundle->shard_segments));
  part_of(bundle, R * unit, s, &begin, &end);
  bundle->column_offset = begin;
  bundle->column_count = end - begin;
  DMUON_TRY(new_segments(memory, R, &bundle->column_segments));
  for (int i = 0; i < R; i++) {
    part_of(bundle, unit, (int64_t)s * R + i, &begin, &end);
    if (end > begin)
      bundle->column_segments[bundle->column_segment_count++] = (dmuon_segment){
          i, begin - bundle->column_offset, end - begin, payload(registry, bundle, begin, end)};
  }
  part_of(bundle, unit, (int64_t)s * R + r, &begin, &end);
  bundle->mine_offset = begin;
  bundle->mine_count = end - begin;
  bundle->flat_unit = unit;
  for (int i = 0; i < bundle->count; i++) {
    dmuon_bundle_param *p = &bundle->params[i];
    dmuon_bundle_share(bundle, i, registry->params[p->param].numel, R, r, s, &p->mine_first,
                       &p->mine_count);
    p->is_mine = p->mine_count > 0;
  }
  return DMUON_SUCCESS;
}

/* ---- values ---------------------------------------------------------------------------------- */

static DMuonErrorCode copy_segments(dmuon_memory *memory, int count, const dmuon_segment *from,
                                    int *to_count, dmuon_segment **to) {
  DMUON_TRY(new_segments(memory, count, to));
  if (count) memcpy(*to, from, (size_t)count * sizeof *from);
  *to_count = count;
  return DMUON_SUCCESS;
}

/* Replicated: the same segments with offsets of the packed buffer. */
static DMuonErrorCode place_values(dmuon_memory *memory, dmuon_bundle *bundle) {
  int count = 0;
  DMUON_TRY(copy_segments(memory, bundle->column_segment_count, bundle->column_segments, &count,
                          &bundle->value_segments));
  for (int i = 0; i < count; i++) bundle->value_segments[i].offset += bundle->column_offset;
  return DMUON_SUCCESS;
}

/* The pieces of one bundle's publish before they are put into buckets: at most one a parameter
 * (dedicated, gathered), or one a replicate row (flat). */
static DMuonErrorCode cut_home(dmuon_memory *memory, const dmuon_registry *registry, int64_t align,
                               dmuon_bundle *bundle) {
  const int64_t home_end = bundle->home_offset + bundle->home_count;
  if (bundle->residency == DMUON_RESIDENCY_FLAT)
    return copy_segments(memory, bundle->column_segment_count, bundle->column_segments,
                         &bundle->publish_segment_count, &bundle->publish_segments);
  DMUON_TRY(new_segments(memory, bundle->count, &bundle->publish_segments));
  for (int i = 0; i < bundle->count; i++) {
    const dmuon_bundle_param *p = &bundle->params[i];
    const int64_t begin = higher(p->offset, bundle->home_offset);
    const int64_t end = lower(p->offset + room_of(registry, bundle, i, align), home_end);
    if (end <= begin) continue;
    bundle->publish_segments[bundle->publish_segment_count++] =
        (dmuon_segment){p->owner[DMUON_AXIS_REPLICATE], begin - bundle->home_offset, end - begin,
                        overlap(registry, p, begin, end)};
  }
  return DMUON_SUCCESS;
}

/* Greedily, in order: a bucket takes pieces until the next would make it too large; in a bucket,
 * neighbours with one root become one segment. */
static DMuonErrorCode fill_buckets(dmuon_memory *memory, int64_t bucket_bytes,
                                   dmuon_bundle *bundle) {
  const int64_t element = (int64_t)dmuon_dtype_bytes(bundle->dtype);
  dmuon_segment *segments = bundle->publish_segments;
  int used = 0, bucket_first = 0;
  int64_t bytes = 0;
  DMUON_TRY(dmuon_memory_alloc(memory, higher(1, bundle->publish_segment_count),
                               sizeof *bundle->bucket_end, &bundle->bucket_end));
  for (int i = 0; i < bundle->publish_segment_count; i++) {
    const dmuon_segment piece = segments[i];
    if (bucket_bytes > 0 && used > bucket_first && bytes + piece.count * element > bucket_bytes) {
      bundle->bucket_end[bundle->bucket_count++] = used;
      bucket_first = used;
      bytes = 0;
    }
    int in_bucket = used - bucket_first;
    append(segments + bucket_first, &in_bucket, piece.root, piece.offset, piece.count,
           piece.payload);
    used = bucket_first + in_bucket;
    bytes += piece.count * element;
  }
  if (used > bucket_first) bundle->bucket_end[bundle->bucket_count++] = used;
  bundle->publish_segment_count = used;
  return DMUON_SUCCESS;
}

/* Gathered: the owners of row r send the new values of what they own to the flat homes. An owner's
 * parameters are contiguous; what it sends begins at the first of them. */
static DMuonErrorCode plan_moves(dmuon_memory *memory, const dmuon_registry *registry, int G, int r,
                                 int64_t unit, dmuon_bundle *bundle) {
  DMUON_TRY(dmuon_memory_alloc(memory, bundle->count + (int64_t)G, sizeof *bundle->moves,
                               &bundle->moves));
  int64_t first = 0; /* where the owner's parameters begin */
  for (int i = 0; i < bundle->count; i++) {
    const dmuon_bundle_param *p = &bundle->params[i];
    const int shard = p->owner[DMUON_AXIS_SHARD], replicate = p->owner[DMUON_AXIS_REPLICATE];
    const int64_t numel = registry->params[p->param].numel;
    if (i == 0 || shard != p[-1].owner[DMUON_AXIS_SHARD] ||
        replicate != p[-1].owner[DMUON_AXIS_REPLICATE])
      first = p->offset;
    if (replicate != r) continue;
    for (int64_t at = p->offset, end = p->offset + numel; at < end;) {
      const int64_t home = at / unit, count = lower(end, (home + 1) * unit) - at;
      bundle->moves[bundle->move_count++] = (dmuon_move){.from = shard,
                                                         .to = (int)home,
                                                         .in_offset = at - first,
                                                         .out_offset = at - home * unit,
                                                         .count = count,
                                                         .payload = count};
      at += count;
    }
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode place_home(dmuon_memory *memory, const dmuon_registry *registry, int G, int r,
                                 int s, int64_t align, int64_t bucket_bytes, dmuon_bundle *bundle) {
  if (bundle->residency == DMUON_RESIDENCY_GATHERED) {
    const int64_t unit = higher(align, rounded_up((bundle->packed_count + G - 1) / G, align));
    int64_t begin, end;
    part_of(bundle, unit, s, &begin, &end);
    bundle->home_offset = begin;
    bundle->home_count = end - begin;
    DMUON_TRY(cut_shards(memory, registry, G, unit, bundle, &bundle->unshard_segment_count,
                         &bundle->unshard_segments));
    DMUON_TRY(plan_moves(memory, registry, G, r, unit, bundle));
  } else {
    bundle->home_offset = bundle->column_offset;
    bundle->home_count = bundle->column_count;
    DMUON_TRY(copy_segments(memory, bundle->shard_segment_count, bundle->shard_segments,
                            &bundle->unshard_segment_count, &bundle->unshard_segments));
  }
  DMUON_TRY(cut_home(memory, registry, align, bundle));
  return fill_buckets(memory, bucket_bytes, bundle);
}

DMuonErrorCode dmuon_bundle_lay_out(dmuon_memory *memory, const dmuon_registry *registry, int R,
                                    int G, int r, int s, int64_t bucket_bytes,
                                    dmuon_bundle *bundle) {
  const int64_t align =
      ALIGN_BYTES / (int64_t)lower((int64_t)dmuon_dtype_bytes(bundle->dtype),
                                   (int64_t)dmuon_dtype_bytes(bundle->grad_dtype));
  for (int i = 0; i < bundle->count; i++) {
    bundle->params[i].offset = bundle->packed_count;
    bundle->packed_count += room_of(registry, bundle, i, align);
  }
  if (bundle->residency == DMUON_RESIDENCY_FLAT)
    DMUON_TRY(cut_flat(memory, registry, R, G, r, s, align, bundle));
  else
    DMUON_TRY(cut_by_owner(memory, registry, r, s, align, bundle));
  if (!dmuon_bundle_is_lent(bundle)) return place_values(memory, bundle);
  return place_home(memory, registry, G, r, s, align, bucket_bytes, bundle);
}

void dmuon_bundle_share(const dmuon_bundle *bundle, int index, int64_t numel, int R, int r, int s,
                        int64_t *first, int64_t *count) {
  const dmuon_bundle_param *p = &bundle->params[index];
  *first = 0;
  if (bundle->residency == DMUON_RESIDENCY_FLAT) {
    int64_t begin, end;
    part_of(bundle, bundle->flat_unit, (int64_t)s * R + r, &begin, &end);
    *count = higher(0, lower(end, p->offset + numel) - higher(begin, p->offset));
    if (*count > 0) *first = higher(begin, p->offset) - p->offset;
  } else {
    const int is_owner = p->owner[DMUON_AXIS_SHARD] == s && p->owner[DMUON_AXIS_REPLICATE] == r;
    *count = is_owner ? numel : 0;
  }
}

void dmuon_bundle_free(dmuon_bundle *bundle) {
  dmuon_memory_free(bundle->params);
  dmuon_memory_free(bundle->shard_segments);
  dmuon_memory_free(bundle->column_segments);
  dmuon_memory_free(bundle->value_segments);
  dmuon_memory_free(bundle->unshard_segments);
  dmuon_memory_free(bundle->publish_segments);
  dmuon_memory_free(bundle->bucket_end);
  dmuon_memory_free(bundle->moves);
  memset(bundle, 0, sizeof *bundle);
}
