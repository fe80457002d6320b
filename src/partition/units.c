/* Cuts parameters into allocation units and orders them. It decides what is placed together and in
 * which order, not where.
 *
 * Order for LPT: the costliest first, then the largest, then the group's key, then the members'
 * names joined by commas, as strings of bytes ("layers.10" before "layers.2"). For the other
 * strategies: as the parameters were given. */
#include "partition/units.h"

#include <string.h>

#include "base/sort.h"

/* Items in (mesh, key) order, first come first within equal ones. */
static int compare_group(const void *a, const void *b, void *context) {
  const dmuon_assign_item *items = context, *x = &items[*(const int *)a],
                          *y = &items[*(const int *)b];
  if (x->mesh != y->mesh) return x->mesh < y->mesh ? -1 : 1;
  int order = strcmp(x->group, y->group);
  if (order) return order;
  return *(const int *)a < *(const int *)b ? -1 : 1;
}

/* group[i] = number of item i's group, counted in the order in which groups first appear. */
static DMuonErrorCode number_groups(dmuon_memory *memory, const dmuon_assign_problem *problem,
                                    int *group, int *group_count) {
  int n = problem->item_count, *order = NULL, *number = NULL;
  DMuonErrorCode code = dmuon_memory_alloc(memory, n, sizeof *order, &order);
  if (!code) code = dmuon_memory_alloc(memory, n, sizeof *number, &number);
  for (int i = 0; !code && i < n; i++) order[i] = i;
  if (!code)
    code = dmuon_sort(memory, order, n, sizeof *order, compare_group, (void *)problem->items);
  if (!code) {
    /* first[i]: the first item of i's group; then number those firsts as they come. */
    for (int i = 0; i < n; i++) {
      const dmuon_assign_item *item = &problem->items[order[i]];
      const dmuon_assign_item *before = i ? &problem->items[order[i - 1]] : NULL;
      int same = before && before->mesh == item->mesh && strcmp(before->group, item->group) == 0;
      group[order[i]] = same ? group[order[i - 1]] : order[i];
    }
    int count = 0;
    for (int i = 0; i < n; i++) {
      if (group[i] == i) number[i] = count++;
      group[i] = number[group[i]];
    }
    *group_count = count;
  }
  dmuon_memory_free(order);
  dmuon_memory_free(number);
  return code;
}

static int fixed_class(const dmuon_assign_item *item) {
  int wanted = (item->fixed[0] >= 0) + (item->fixed[1] >= 0);
  if (wanted == 0 && item->fixed[2] < 0) return 2;
  return wanted == 2 ? 0 : 1;
}

static int is_packed(const dmuon_assign_problem *problem, const dmuon_assign_item *item) {
  return problem->pack_small && item->size < problem->pack_threshold && fixed_class(item) == 2;
}

/* What the comparison of units looks at. */
typedef struct {
  const dmuon_assign_problem *problem;
  const dmuon_unit *units;
  const int *member;
  const int *mesh_order; /* position of each mesh in the order of placement */
} order_context;

/* Reads a unit's members' names joined by commas, a byte at a time. */
typedef struct {
  const order_context *context;
  const dmuon_unit *unit;
  int member;
  const char *next;
} name_reader;

static name_reader read_names(const order_context *c, const dmuon_unit *unit) {
  return (name_reader){c, unit, 0, c->problem->items[c->member[unit->first]].name};
}

static int next_byte(name_reader *reader) {
  if (*reader->next) return (unsigned char)*reader->next++;
  if (++reader->member >= reader->unit->count) return -1;
  const order_context *c = reader->context;
  reader->next = c->problem->items[c->member[reader->unit->first + reader->member]].name;
  return ',';
}

static int compare_names(const order_context *c, const dmuon_unit *x, const dmuon_unit *y) {
  name_reader a = read_names(c, x), b = read_names(c, y);
  for (;;) {
    int p = next_byte(&a), q = next_byte(&b);
    if (p != q) return p < q ? -1 : 1;
    if (p < 0) return 0;
  }
}

static int compare_units(const void *a, const void *b, void *context) {
  const order_context *c = context;
  const dmuon_unit *x = &c->units[*(const int *)a], *y = &c->units[*(const int *)b];
  if (x->mesh != y->mesh) return c->mesh_order[x->mesh] < c->mesh_order[y->mesh] ? -1 : 1;
  if (x->fixed != y->fixed) return x->fixed < y->fixed ? -1 : 1;
  const dmuon_assign_item *items = c->problem->items;
  if (c->problem->strategy == DMUON_STRATEGY_LPT) {
    if (x->cost != y->cost) return x->cost > y->cost ? -1 : 1;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    int order = strcmp(items[c->member[x->first]].group, items[c->member[y->first]].group);
    if (!order) order = compare_names(c, x, y);
    if (order) return order;
  }
  return c->member[x->first] < c->member[y->first] ? -1 : c->member[x->first] > c->member[y->first];
}

/* Meshes with fewer ranks first, then by index. */
static DMuonErrorCode order_meshes(dmuon_memory *memory, const dmuon_assign_problem *problem,
                                   int **position) {
  int count = problem->mesh_count;
  DMUON_TRY(dmuon_memory_alloc(memory, count, sizeof **position, position));
  for (int i = 0; i < count; i++) {
    const dmuon_assign_mesh *mesh = &problem->meshes[i];
    int64_t size = (int64_t)mesh->replicate * mesh->shard * mesh->tp;
    for (int j = 0; j < count; j++) {
      const dmuon_assign_mesh *other = &problem->meshes[j];
      int64_t other_size = (int64_t)other->replicate * other->shard * other->tp;
      if (other_size < size || (other_size == size && j < i)) (*position)[i]++;
    }
  }
  return DMUON_SUCCESS;
}

/* Fills units and member from group (of each item), groups in order: large items alone as they
 * come, then the small ones of the group together. */
static DMuonErrorCode cut(dmuon_memory *memory, const dmuon_assign_problem *problem,
                          const int *group, dmuon_units *out) {
  int n = problem->item_count, *start = NULL, *item_at = NULL;
  DMuonErrorCode code = dmuon_memory_alloc(memory, out->group_count + 1, sizeof *start, &start);
  if (!code) code = dmuon_memory_alloc(memory, n, sizeof *item_at, &item_at);
  if (!code) {
    for (int i = 0; i < n; i++) start[group[i] + 1]++;
    for (int g = 0; g < out->group_count; g++) start[g + 1] += start[g];
    for (int i = 0; i < n; i++) item_at[start[group[i]]++] = i;
    for (int g = out->group_count; g > 0; g--) start[g] = start[g - 1];
    start[0] = 0;
    int members = 0;
    for (int g = 0; g < out->group_count; g++) {
      dmuon_unit *packed = NULL;
      for (int pass = 0; pass < 2; pass++)
        for (int k = start[g]; k < start[g + 1]; k++) {
          const dmuon_assign_item *item = &problem->items[item_at[k]];
          int pack = is_packed(problem, item);
          if (pack != pass) continue;
          dmuon_unit *unit = packed;
          if (!unit) {
            unit = &out->units[out->count++];
            *unit = (dmuon_unit){
                .mesh = item->mesh, .group = g, .first = members, .fixed = fixed_class(item)};
            out->group_units[g]++;
            if (pack) packed = unit;
          }
          out->member[members++] = item_at[k];
          unit->count++;
          unit->cost += item->cost;
          unit->size += item->size;
        }
    }
  }
  dmuon_memory_free(start);
  dmuon_memory_free(item_at);
  return code;
}

static DMuonErrorCode put_in_order(dmuon_memory *memory, const dmuon_assign_problem *problem,
                                   dmuon_units *out) {
  int *order = NULL, *mesh_order = NULL;
  dmuon_unit *sorted = NULL;
  DMuonErrorCode code = order_meshes(memory, problem, &mesh_order);
  if (!code) code = dmuon_memory_alloc(memory, out->count, sizeof *order, &order);
  if (!code) code = dmuon_memory_alloc(memory, out->count, sizeof *sorted, &sorted);
  if (!code) {
    order_context context = {problem, out->units, out->member, mesh_order};
    for (int i = 0; i < out->count; i++) order[i] = i;
    code = dmuon_sort(memory, order, out->count, sizeof *order, compare_units, &context);
  }
  if (!code) {
    for (int i = 0; i < out->count; i++) sorted[i] = out->units[order[i]];
    dmuon_memory_free(out->units);
    out->units = sorted;
    sorted = NULL;
  }
  dmuon_memory_free(sorted);
  dmuon_memory_free(order);
  dmuon_memory_free(mesh_order);
  return code;
}

DMuonErrorCode dmuon_units_make(dmuon_memory *memory, const dmuon_assign_problem *problem,
                                dmuon_units *units) {
  int n = problem->item_count, *group = NULL;
  dmuon_units made = {0};
  DMuonErrorCode code = dmuon_memory_alloc(memory, n, sizeof *group, &group);
  if (!code) code = number_groups(memory, problem, group, &made.group_count);
  if (!code) code = dmuon_memory_alloc(memory, n, sizeof *made.units, &made.units);
  if (!code) code = dmuon_memory_alloc(memory, n, sizeof *made.member, &made.member);
  if (!code)
    code =
        dmuon_memory_alloc(memory, made.group_count, sizeof *made.group_units, &made.group_units);
  if (!code) code = cut(memory, problem, group, &made);
  if (!code) code = put_in_order(memory, problem, &made);
  dmuon_memory_free(group);
  if (code) {
    dmuon_units_free(&made);
    return DMuonErrorTrace(code, __func__, __FILE__, __LINE__);
  }
  *units = made;
  return DMUON_SUCCESS;
}

void dmuon_units_free(dmuon_units *units) {
  dmuon_memory_release(&units->units);
  dmuon_memory_release(&units->member);
  dmuon_memory_release(&units->group_units);
}
