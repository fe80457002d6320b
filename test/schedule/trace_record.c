/* A run on real ranks does what the plan said: what each rank's device recorded is, line by line,
 * what is planned for that rank, and so are the bytes that it communicated; the records are in
 * order. */
#include "tap_mpi.h"

#include "backend/trace/trace.h"
#include "cases.h"
#include "mesh/mesh.h"
#include "optim/optimizer.h"

enum { R = 2, G = 2 };

typedef struct {
  DMuonMesh mesh;
  DMuonModel model;
  DMuonOptimizer opt;
} run;

static DMuonErrorCode set_up(const rehearsal_plan *plan, run *x) {
  DMUON_TRY(DMuonMeshCreate(MPI_COMM_WORLD, &x->mesh));
  DMUON_TRY(DMuonMeshSetSizes(x->mesh, R, G, 1));
  DMUON_TRY(DMuonMeshSetOption(x->mesh, "device", "host:trace"));
  DMUON_TRY(DMuonMeshSetOption(x->mesh, "timeout", "30"));
  for (int i = 0; plan->options[i]; i++) {
    char name[64];
    snprintf(name, sizeof name, "%s", plan->options[i]);
    char *value = strchr(name, '=');
    *value++ = 0;
    DMUON_TRY(DMuonMeshSetOption(x->mesh, name, value));
  }
  DMUON_TRY(DMuonModelCreate(x->mesh, &x->model));
  DMUON_TRY(rehearsal_add_params(plan, x->model));
  if (plan->adapt_model) DMUON_TRY(plan->adapt_model(x->model));
  DMUON_TRY(DMuonOptimizerCreate(x->model, &x->opt));
  return DMuonOptimizerSetUp(x->opt);
}

static DMuonErrorCode print(const dmuon_trace *trace, dmuon_text *text) {
  static dmuon_memory memory;
  const char *data;
  dmuon_text_init(text, &memory);
  const int64_t first = rehearsal_behind(trace, 0, REHEARSAL_START);
  dmuon_trace_print(trace, first, rehearsal_behind(trace, first, REHEARSAL_END), text);
  return dmuon_text_finish(text, &data);
}

static int is_in_order(const dmuon_trace *trace, int may_waste) {
  static dmuon_trace_report report;
  static dmuon_memory memory;
  int wrong = 0;
  memset(&report, 0, sizeof report);
  if (dmuon_trace_verify_rank(&memory, trace, tap_rank, &report)) return 0;
  for (int64_t i = 0; i < report.count && i < DMUON_TRACE_FINDINGS; i++) {
    if (may_waste && report.findings[i].kind == DMUON_TRACE_TWICE) continue;
    if (!wrong++) printf("# rank %d: %s\n", tap_rank, report.findings[i].text);
  }
  return wrong == 0;
}

static void compare(const char *planned, const char *run) {
  for (int line = 1; *planned || *run; line++) {
    const size_t a = strcspn(planned, "\n"), b = strcspn(run, "\n");
    if (a != b || memcmp(planned, run, a) != 0) {
      printf("# rank %d, line %d was planned: %.*s\n", tap_rank, line, (int)a, planned);
      printf("# rank %d, line %d ran as:      %.*s\n", tap_rank, line, (int)b, run);
      return;
    }
    planned += a + (planned[a] != 0);
    run += b + (run[b] != 0);
  }
}

static int64_t bytes_on(DMuonMesh mesh, DMuonAxis axis) {
  DMuonCommInfo info = {.struct_size = sizeof info};
  return DMuonMeshGetCommInfo(mesh, axis, &info) ? -1 : info.bytes_sent;
}

static void test(const schedule_case *c) {
  const rehearsal_plan plan = schedule_plan(c, R, G);
  rehearsal planned;
  run x = {0};
  dmuon_text expected = {0}, got = {0};
  DMuonErrorCode code = rehearsal_run(&plan, &planned);
  tap_ok(!code, "%s: planned", c->name);
  code = set_up(&plan, &x);
  int r = 0, s = 0;
  if (!code) code = DMuonMeshGetCoords(x.mesh, &r, &s, NULL);
  const int position = r * G + s;
  if (!code) dmuon_device_note(x.mesh->device, REHEARSAL_START);
  if (!code) code = plan.drive(x.opt, position);
  if (!code) dmuon_device_note(x.mesh->device, REHEARSAL_END);
  if (!code) code = dmuon_runtime_sync(&x.opt->runtime);
  if (code) printf("# rank %d: %s\n", tap_rank, DMuonErrorGetMessage());
  if (!tap_ok(!code, "%s: ran", c->name)) return;
  const dmuon_trace *recorded = &dmuon_trace_log_of(x.mesh->device)->trace;
  const dmuon_trace *plan_trace = &planned.traces[planned.class_of[position]];
  /* Other ranks of a kind do the same elsewhere. */
  const int kind = planned.class_of[position], is_played = planned.stand_in[kind] == position;
  code = print(plan_trace, &expected);
  if (!code) code = print(recorded, &got);
  const int same = !code && strcmp(expected.data, got.data) == 0;
  if (is_played && !code && !same) compare(expected.data, got.data);
  tap_ok(!is_played || same, "%s: what was planned", c->name);
  tap_ok(is_in_order(recorded, c->may_waste), "%s: in order", c->name);
  for (int axis = 0; axis < 2; axis++)
    tap_ok(!is_played || bytes_on(x.mesh, (DMuonAxis)axis) == planned.bytes[kind][axis],
           "%s: bytes on the %s axis as planned", c->name, axis ? "shard" : "replicate");
  DMuonOptimizerDestroy(&x.opt);
  DMuonModelDestroy(&x.model);
  DMuonMeshDestroy(&x.mesh);
  dmuon_text_free(&expected);
  dmuon_text_free(&got);
  rehearsal_free(&planned);
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  tap_plan(0);
  for (int i = 0; i < schedule_case_count; i++)
    if (schedule_cases[i].is_golden) test(&schedule_cases[i]);
  return tap_mpi_done();
}
