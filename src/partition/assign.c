/* Places units on slots, greedily. It decides the owner of every item; how items are cut into units
 * and ordered stands in units.c, which slot is best in slots.c.
 *
 * LPT prefers a slot that the unit's group does not use yet, above all load: the parameters of one
 * layer are communicated together, and different owners share that work. */
#include "partition/assign.h"

#include <math.h>
#include <string.h>

#include "partition/slots.h"
#include "partition/units.h"

typedef struct {
  const dmuon_assign_problem *problem;
  dmuon_units units;
  int *used, *used_start, *used_count; /* slots used by each group, ascending */
  double *rank_cost;                   /* [rank_count] load of the ranks of the whole */
  int64_t *rank_size;
  unsigned char *rank_owns;
  int (*owners)[3];
} placement;

static DMuonErrorCode check_problem(const dmuon_assign_problem *problem) {
  for (int m = 0; m < problem->mesh_count; m++) {
    const dmuon_assign_mesh *mesh = &problem->meshes[m];
    if (mesh->replicate < 1 || mesh->shard < 1 || mesh->tp < 1)
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "mesh %d is %dx%dx%d: every size must be at least 1", m,
                 mesh->replicate, mesh->shard, mesh->tp);
  }
  if (problem->max_owners_per_group < 0)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "max_owners_per_group is %lld, must be at least 1 (0: no limit)",
               (long long)problem->max_owners_per_group);
  for (int i = 0; i < problem->item_count; i++) {
    const dmuon_assign_item *item = &problem->items[i];
    if (item->mesh < 0 || item->mesh >= problem->mesh_count)
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s is on mesh %d of %d", item->name, item->mesh,
                 problem->mesh_count);
    if (!isfinite(item->cost) || item->cost < 0)
      DMUON_FAIL(DMUON_ERR_ARGUMENT, "cost of %s is %g, must be finite and not negative",
                 item->name, item->cost);
    const dmuon_assign_mesh *mesh = &problem->meshes[item->mesh];
    const int sizes[3] = {mesh->replicate, mesh->shard, mesh->tp};
    static const char *const axes[3] = {"replicate", "shard", "tp"};
    for (int a = 0; a < 3; a++)
      if (item->fixed[a] != DMUON_DECIDE && (item->fixed[a] < 0 || item->fixed[a] >= sizes[a]))
        DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s owner %d out of range [0,%d) for %s; mesh is %dx%dx%d",
                   axes[a], item->fixed[a], sizes[a], item->name, sizes[0], sizes[1], sizes[2]);
  }
  return DMUON_SUCCESS;
}

/* The rank of the whole at a slot's tp coordinate t. */
static int rank_of(const dmuon_assign_mesh *mesh, int slot, int t) {
  int s = slot / mesh->replicate, r = slot % mesh->replicate;
  return mesh->ranks[(r * mesh->shard + s) * mesh->tp + t];
}

static int is_used(const placement *p, int group, int slot) {
  const int *used = p->used + p->used_start[group];
  int low = 0, high = p->used_count[group];
  while (low < high) {
    int middle = (low + high) / 2;
    if (used[middle] < slot)
      low = middle + 1;
    else
      high = middle;
  }
  return low < p->used_count[group] && used[low] == slot;
}

static void note_used(placement *p, int group, int slot) {
  if (is_used(p, group, slot)) return;
  int *used = p->used + p->used_start[group], i = p->used_count[group]++;
  for (; i > 0 && used[i - 1] > slot; i--) used[i] = used[i - 1];
  used[i] = slot;
}

/* An owner wanted in part: the best of the slots that fit, fresh for the group before used ones. */
static int choose_fitting(const placement *p, const dmuon_slots *slots, const dmuon_unit *unit) {
  const dmuon_assign_item *item = &p->problem->items[p->units.member[unit->first]];
  int best = -1, best_used = 0;
  int64_t cap = p->problem->max_owners_per_group;
  int capped = cap > 0 && p->used_count[unit->group] >= cap;
  for (int slot = 0; slot < slots->count; slot++) {
    if (item->fixed[0] >= 0 && item->fixed[0] != slot % slots->replicate) continue;
    if (item->fixed[1] >= 0 && item->fixed[1] != slot / slots->replicate) continue;
    int used = is_used(p, unit->group, slot);
    if (capped) used = !used; /* no fresh ones, if it can be helped */
    if (best < 0 || used < best_used ||
        (used == best_used && dmuon_slots_better(slots, slot, best)))
      best = slot, best_used = used;
  }
  return best;
}

static int choose(const placement *p, dmuon_slots *slots, const dmuon_unit *unit, int turn) {
  if (unit->fixed < 2) return choose_fitting(p, slots, unit);
  const int *used = p->used + p->used_start[unit->group];
  int used_count = p->used_count[unit->group];
  int64_t cap = p->problem->max_owners_per_group;
  int capped = cap > 0 && used_count >= cap;
  switch (p->problem->strategy) {
    case DMUON_STRATEGY_RANK0:
      return 0;
    case DMUON_STRATEGY_ROUND_ROBIN:
      return capped ? used[turn % used_count] : turn % slots->count;
    default:
      break;
  }
  if (!capped) return dmuon_slots_best(slots, used_count, used);
  int best = used[0];
  for (int i = 1; i < used_count; i++)
    if (dmuon_slots_better(slots, used[i], best)) best = used[i];
  return best;
}

static void place(placement *p, dmuon_slots *slots, const dmuon_unit *unit, int slot) {
  const dmuon_assign_mesh *mesh = &p->problem->meshes[unit->mesh];
  dmuon_slots_add(slots, slot, unit->cost, unit->size);
  note_used(p, unit->group, slot);
  for (int k = 0; k < unit->count; k++) {
    int i = p->units.member[unit->first + k];
    const dmuon_assign_item *item = &p->problem->items[i];
    int t = item->fixed[2] >= 0 ? item->fixed[2] : 0, rank = rank_of(mesh, slot, t);
    p->owners[i][0] = slot % mesh->replicate;
    p->owners[i][1] = slot / mesh->replicate;
    p->owners[i][2] = t;
    p->rank_cost[rank] += item->cost;
    p->rank_size[rank] += item->size;
    p->rank_owns[rank] = 1;
  }
}

/* Units [from, to) all live on one mesh. */
static DMuonErrorCode place_mesh(dmuon_memory *memory, placement *p, int from, int to) {
  const dmuon_assign_mesh *mesh = &p->problem->meshes[p->units.units[from].mesh];
  dmuon_slots slots;
  DMUON_TRY(
      dmuon_slots_init(memory, mesh->replicate, mesh->shard, p->problem->column_balance, &slots));
  for (int slot = 0; slot < slots.count; slot++)
    for (int t = 0; t < mesh->tp; t++) {
      slots.cost[slot] += p->rank_cost[rank_of(mesh, slot, t)];
      slots.size[slot] += p->rank_size[rank_of(mesh, slot, t)];
    }
  dmuon_slots_rebuild(&slots);
  for (int u = from, turn = 0; u < to; u++) {
    const dmuon_unit *unit = &p->units.units[u];
    place(p, &slots, unit, choose(p, &slots, unit, turn));
    if (unit->fixed == 2) turn++;
  }
  dmuon_slots_free(&slots);
  return DMUON_SUCCESS;
}

static void count_up(const placement *p, dmuon_assign_statistics *out) {
  const dmuon_assign_problem *problem = p->problem;
  dmuon_assign_statistics s = {.units = p->units.count};
  for (int i = 0; i < problem->item_count; i++)
    s.largest_item = fmax(s.largest_item, problem->items[i].cost);
  double total = 0, mesh_total = 0;
  for (int u = 0; u < p->units.count; u++) {
    const dmuon_unit *unit = &p->units.units[u];
    const dmuon_assign_mesh *mesh = &problem->meshes[unit->mesh];
    if (u == 0 || unit->mesh != p->units.units[u - 1].mesh) mesh_total = 0;
    s.packed_units += unit->count > 1;
    s.largest_unit = fmax(s.largest_unit, unit->cost);
    total += unit->cost;
    mesh_total += unit->cost;
    s.lower_bound = fmax(s.lower_bound, mesh_total / ((double)mesh->replicate * mesh->shard));
  }
  s.lower_bound = fmax(s.lower_bound, s.largest_unit);
  const dmuon_assign_mesh *whole = &problem->meshes[0];
  s.slots = whole->replicate * whole->shard;
  s.mean_cost = total / s.slots;
  s.lower_bound = fmax(s.lower_bound, s.mean_cost);
  for (int slot = 0; slot < s.slots; slot++) {
    double cost = 0;
    int64_t size = 0;
    int owns = 0;
    for (int t = 0; t < whole->tp; t++) {
      int rank = rank_of(whole, slot, t);
      cost += p->rank_cost[rank];
      size += p->rank_size[rank];
      owns |= p->rank_owns[rank];
    }
    s.idle_slots += !owns;
    s.max_cost = fmax(s.max_cost, cost);
    if (slot == 0 || size > s.max_size) s.max_size = size;
    if (slot == 0 || size < s.min_size) s.min_size = size;
  }
  *out = s;
}

static DMuonErrorCode prepare(dmuon_memory *memory, placement *p) {
  const dmuon_assign_problem *problem = p->problem;
  DMUON_TRY(dmuon_units_make(memory, problem, &p->units));
  int groups = p->units.group_count;
  DMUON_TRY(dmuon_memory_alloc(memory, p->units.count, sizeof *p->used, &p->used));
  DMUON_TRY(dmuon_memory_alloc(memory, groups + 1, sizeof *p->used_start, &p->used_start));
  DMUON_TRY(dmuon_memory_alloc(memory, groups, sizeof *p->used_count, &p->used_count));
  for (int g = 0; g < groups; g++)
    p->used_start[g + 1] = p->used_start[g] + p->units.group_units[g];
  DMUON_TRY(dmuon_memory_alloc(memory, problem->rank_count, sizeof(double), &p->rank_cost));
  DMUON_TRY(dmuon_memory_alloc(memory, problem->rank_count, sizeof(int64_t), &p->rank_size));
  DMUON_TRY(dmuon_memory_alloc(memory, problem->rank_count, 1, &p->rank_owns));
  DMUON_TRY(dmuon_memory_alloc(memory, problem->item_count, sizeof *p->owners, &p->owners));
  return DMUON_SUCCESS;
}

static DMuonErrorCode place_all(dmuon_memory *memory, placement *p) {
  for (int u = 0, next; u < p->units.count; u = next) {
    for (next = u + 1; next < p->units.count; next++)
      if (p->units.units[next].mesh != p->units.units[u].mesh) break;
    DMUON_TRY(place_mesh(memory, p, u, next));
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_assign(dmuon_memory *memory, const dmuon_assign_problem *problem,
                            int (*owners)[3], double *slot_cost, int64_t *slot_size,
                            dmuon_assign_statistics *statistics) {
  DMUON_TRY(check_problem(problem));
  placement p = {.problem = problem};
  DMuonErrorCode code = prepare(memory, &p);
  if (!code) code = place_all(memory, &p);
  if (!code) {
    size_t ranks = (size_t)problem->rank_count;
    if (problem->item_count) memcpy(owners, p.owners, (size_t)problem->item_count * sizeof *owners);
    if (slot_cost) memcpy(slot_cost, p.rank_cost, ranks * sizeof *slot_cost);
    if (slot_size) memcpy(slot_size, p.rank_size, ranks * sizeof *slot_size);
    if (statistics && problem->mesh_count > 0) count_up(&p, statistics);
  }
  dmuon_units_free(&p.units);
  dmuon_memory_free(p.used);
  dmuon_memory_free(p.used_start);
  dmuon_memory_free(p.used_count);
  dmuon_memory_free(p.rank_cost);
  dmuon_memory_free(p.rank_size);
  dmuon_memory_free(p.rank_owns);
  dmuon_memory_free(p.owners);
  return code ? DMuonErrorTrace(code, __func__, __FILE__, __LINE__) : DMUON_SUCCESS;
}
