/* The model through its public calls, on a mesh without ranks: the shapes of real models, stacks
 * and arrays, what is refused and when, what Get, View and Summary say, and every allocation
 * failing. */
#include <dmuon.h>
#include <jansson.h>

#include "mesh/mesh.h"
#include "model/model.h"
#include "model/rules.h"
#include "tap.h"

static DMuonMesh new_mesh(void) {
  DMuonMesh mesh = NULL;
  if (DMuonMeshCreatePlan(2, 4, 1, &mesh)) tap_diag("%s", DMuonErrorGetMessage());
  return mesh;
}

/* ---- shapes files: "name dtype dims" a line ---- */

static int read_shapes(DMuonModel model, const char *file) {
  char path[512], line[512];
  const char *top = getenv("abs_top_srcdir");
  snprintf(path, sizeof path, "%s/test/data/shapes/%s", top ? top : ".", file);
  FILE *in = fopen(path, "r");
  if (!in) return -1;
  int count = 0;
  while (fgets(line, sizeof line, in)) {
    char name[256], dtype[16], shape[128];
    if (line[0] == '#' || sscanf(line, "%255s %15s %127s", name, dtype, shape) != 3) continue;
    int64_t dims[8];
    int ndim = 0;
    for (char *d = strtok(shape, ","); d && ndim < 8; d = strtok(NULL, ","))
      dims[ndim++] = strtoll(d, NULL, 10);
    DMuonDType type = strcmp(dtype, "bf16") == 0 ? DMUON_BFLOAT16 : DMUON_FLOAT32;
    if (DMuonModelAddParam(model, name, type, ndim, dims, NULL)) break;
    count++;
  }
  fclose(in);
  return count;
}

static void real_model(const char *file, int count, int muon, int groups) {
  DMuonMesh mesh = new_mesh();
  DMuonModel model = NULL;
  DMuonModelCreate(mesh, &model);
  tap_is_int(read_shapes(model, file), count, "%s: parameters", file);
  tap_is_int(DMuonModelSetUp(model), DMUON_SUCCESS, "%s: set up", file);
  int got = 0, keys = 0;
  for (int i = 0; i < count; i++) {
    DMuonParamInfo info = {.struct_size = sizeof info}, before = info;
    if (DMuonModelGetParam(model, i, &info)) break;
    got += info.route == DMUON_ROUTE_MUON;
    int is_new = 1;
    for (int k = 0; k < i && is_new; k++) {
      DMuonModelGetParam(model, k, &before);
      is_new = strcmp(before.group, info.group) != 0;
    }
    keys += is_new;
  }
  tap_is_int(got, muon, "%s: routed to muon", file);
  tap_is_int(keys, groups, "%s: groups", file);
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
}

static void registration(void) {
  DMuonMesh mesh = new_mesh();
  DMuonModel model = NULL;
  const int64_t dims[] = {8, 6}, negative[] = {8, -6}, none[] = {0, 8};
  static float w[3 * 48], g[3 * 48], v[8];
  int id = -7, count = -7;
  tap_is_int(DMuonModelCreate(NULL, &model), DMUON_ERR_ARGUMENT, "a model needs a mesh");
  tap_ok(model == NULL, "and none is made");
  DMuonModelCreate(mesh, &model);
  tap_is_int(DMuonModelAddParam(model, NULL, DMUON_FLOAT32, 2, dims, &id), DMUON_ERR_ARGUMENT,
             "a NULL name");
  tap_is_int(DMuonModelAddParam(model, "", DMUON_FLOAT32, 2, dims, &id), DMUON_ERR_ARGUMENT,
             "an empty name");
  tap_is_int(DMuonModelAddParam(model, "w", DMUON_FLOAT32, 2, negative, &id), DMUON_ERR_ARGUMENT,
             "a negative extent");
  tap_contains(DMuonErrorGetMessage(), "dims[1] is -6", "is named with its value");
  tap_is_int(DMuonModelAddParam(model, "w", DMUON_FLOAT32, 9, dims, &id), DMUON_ERR_ARGUMENT,
             "nine dims");
  tap_is_int(DMuonModelAddParam(model, "w", (DMuonDType)4, 2, dims, &id), DMUON_ERR_ARGUMENT,
             "no dtype");
  tap_is_int(DMuonModelAddStack(model, "h.w", 0, 3, DMUON_FLOAT32, 2, dims, &id),
             DMUON_ERR_ARGUMENT, "a stack's name without %%d");
  tap_is_int(DMuonModelAddStack(model, "h.%d.%d", 0, 3, DMUON_FLOAT32, 2, dims, &id),
             DMUON_ERR_ARGUMENT, "with two");
  tap_is_int(DMuonModelAddStack(model, "h.%d", -1, 3, DMUON_FLOAT32, 2, dims, &id),
             DMUON_ERR_ARGUMENT, "a negative first");
  tap_is_int(DMuonModelAddStack(model, "h.%d", INT32_MAX, 3, DMUON_FLOAT32, 2, dims, &id),
             DMUON_ERR_ARGUMENT, "numbers beyond int");
  tap_is_int(id, -7, "no id was given out");
  DMuonModelGetCount(model, &count);
  tap_is_int(count, 0, "and nothing is registered");

  tap_is_int(DMuonModelAddStackArray(model, "h.%d.weight", 2, 3, DMUON_FLOAT32, 2, dims, w, g, &id),
             DMUON_SUCCESS, "a stack in one array");
  tap_is_int(id, 0, "its first id");
  tap_is_int(DMuonModelAddStack(model, "x.%d", 0, 0, DMUON_FLOAT32, 2, dims, &id), DMUON_SUCCESS,
             "an empty stack");
  tap_is_int(id, 3, "has the next id");
  tap_is_int(DMuonModelAddParamArray(model, "h.2.bias", DMUON_FLOAT32, 1, dims, v, NULL, &id),
             DMUON_SUCCESS, "arrays may come later");
  tap_is_int(id, 3, "ids count up");
  tap_is_int(DMuonModelAddParam(model, "h.2.none", DMUON_FLOAT32, 2, none, NULL), DMUON_SUCCESS,
             "0x8");
  tap_is_int(DMuonModelAddParam(model, "scale", DMUON_FLOAT32, 0, NULL, NULL), DMUON_SUCCESS,
             "a scalar");
  DMuonModelGetCount(model, &count);
  tap_is_int(count, 6, "six in all");
  tap_ok(model->arrays[2].weights == w + 96 && model->arrays[1].gradients == g + 48,
         "the stack's arrays follow each other");
  tap_is_int(DMuonModelFindParam(model, "h.4.weight", &id), DMUON_SUCCESS, "found by name");
  tap_is_int(id, 2, "with its id");
  tap_is_int(DMuonModelFindParam(model, "h.4.weigth", &id), DMUON_ERR_NOT_FOUND, "a misspelt name");
  tap_contains(DMuonErrorGetMessage(), "h.4.weight", "names the nearest");
  DMuonParamInfo info = {.struct_size = sizeof info};
  tap_is_int(DMuonModelGetParam(model, 0, &info), DMUON_ERR_STATE, "GetParam before SetUp");
  tap_is_int(DMuonModelView(model, "/dev/null"), DMUON_ERR_STATE, "View before SetUp");
  tap_is_int(DMuonModelSetUp(model), DMUON_SUCCESS, "set up");
  tap_is_int(DMuonModelSetUp(model), DMUON_SUCCESS, "and again");
  tap_is_int(DMuonModelAddParam(model, "late", DMUON_FLOAT32, 2, dims, NULL), DMUON_ERR_STATE,
             "registration after SetUp");
  tap_is_int(DMuonModelSetRoute(model, "*", DMUON_ROUTE_FROZEN), DMUON_ERR_STATE,
             "a rule after SetUp");
  tap_is_int(DMuonModelGetParam(model, 2, &info), DMUON_SUCCESS, "GetParam");
  tap_ok(strcmp(info.name, "h.4.weight") == 0 && strcmp(info.group, "h.4") == 0 &&
             info.route == DMUON_ROUTE_MUON && info.rows == 8 && info.cols == 6 &&
             info.numel == 48 && info.ndim == 2 && info.dims[1] == 6 && info.batch == 1 &&
             info.master_dtype == DMUON_FLOAT32,
         "says what it is");
  tap_ok(info.copies == 8 && info.divisor_ranks == 8 && info.owner_shard == -1,
         "its copies, its divisor, no owner yet");
  DMuonParamInfo small = {.struct_size = offsetof(DMuonParamInfo, group), .group = "untouched"};
  tap_is_int(DMuonModelGetParam(model, 2, &small), DMUON_SUCCESS, "a smaller struct");
  tap_is_string(small.group, "untouched", "is not overrun");
  small.struct_size = 0;
  tap_is_int(DMuonModelGetParam(model, 2, &small), DMUON_ERR_ARGUMENT, "struct_size not set");
  tap_is_int(DMuonModelGetParam(model, 6, &info), DMUON_ERR_ARGUMENT, "an id out of range");
  tap_contains(DMuonErrorGetMessage(), "6 out of range [0, 6)", "says so");
  DMuonMeshDestroy(&mesh);
  tap_is_int(DMuonModelGetParam(model, 2, &info), DMUON_SUCCESS, "a model keeps its mesh");
  tap_is_int(DMuonModelDestroy(&model), DMUON_SUCCESS, "destroyed");
  tap_ok(model == NULL, "the handle is NULL");
  tap_is_int(DMuonModelDestroy(&model), DMUON_SUCCESS, "destroyed again");
}

static void setup_mistakes(void) {
  DMuonMesh mesh = new_mesh();
  DMuonModel model = NULL;
  const int64_t dims[] = {8, 6}, sizes[] = {4, 3};
  static float w[100];
  int id = 0;
  DMuonModelCreate(mesh, &model);
  tap_is_int(DMuonModelSetRoute(model, "", DMUON_ROUTE_MUON), DMUON_ERR_ARGUMENT,
             "an empty pattern");
  tap_is_int(DMuonModelSetRoute(model, "*", (DMuonRoute)9), DMUON_ERR_ARGUMENT, "no route");
  tap_is_int(DMuonModelSetReshard(model, "*", (DMuonReshard)2), DMUON_ERR_ARGUMENT,
             "no way to reshard");
  tap_is_int(DMuonModelSetGroup(model, "*", ""), DMUON_ERR_ARGUMENT, "an empty key");
  tap_is_int(DMuonModelSetMesh(model, "*", NULL, NULL), DMUON_ERR_ARGUMENT, "no mesh");
  tap_is_int(DMuonModelSetMesh(model, "*", mesh, mesh), DMUON_SUCCESS, "the model's own mesh");
  DMuonMesh other = new_mesh();
  tap_is_int(DMuonModelSetMesh(model, "*", other, NULL), DMUON_ERR_UNSUPPORTED,
             "another mesh without ranks");
  DMuonMeshDestroy(&other);
  tap_is_int(DMuonModelSetMatrix(model, "*", -1, 1), DMUON_ERR_ARGUMENT, "negative batch dims");
  tap_is_int(DMuonModelSetMatrix(model, "*", 0, 0), DMUON_ERR_ARGUMENT, "no row dims");
  tap_is_int(DMuonModelSetOutput(model, "*", (DMuonSide)2), DMUON_ERR_ARGUMENT, "no side");
  tap_is_int(DMuonModelSetBlocks(model, "*", 2, NULL, 1), DMUON_ERR_ARGUMENT, "no sizes");
  tap_is_int(DMuonModelSetBlocks(model, "*", 2, sizes, 0), DMUON_ERR_ARGUMENT, "no repeat");
  tap_is_int(DMuonModelSetDTypes(model, "*", DMUON_BFLOAT16, DMUON_BFLOAT16, DMUON_FLOAT32),
             DMUON_ERR_ARGUMENT, "a master below fp32");
  tap_is_int(DMuonModelSetDTypes(model, "*", DMUON_BFLOAT16, DMUON_FLOAT32, DMUON_FLOAT16),
             DMUON_ERR_ARGUMENT, "a state below fp32");

  DMuonModelAddParamArray(model, "h.0.weight", DMUON_FLOAT32, 2, dims, w, NULL, NULL);
  DMuonModelSetRoute(model, "h.1.*", DMUON_ROUTE_FROZEN);
  tap_is_int(DMuonModelSetUp(model), DMUON_ERR_SETUP, "a pattern that matches nothing");
  tap_contains(DMuonErrorGetMessage(), "\"h.1.*\" of DMuonModelSetRoute", "is named");
  DMuonParamInfo info = {.struct_size = sizeof info};
  tap_is_int(DMuonModelGetParam(model, 0, &info), DMUON_ERR_STATE, "the model is not set up");
  tap_is_int(
      DMuonModelAddParamArray(model, "h.1.weight", DMUON_FLOAT32, 2, dims, w + 47, NULL, &id),
      DMUON_SUCCESS, "it can be corrected");
  tap_is_int(DMuonModelSetUp(model), DMUON_ERR_SETUP, "arrays that overlap");
  tap_contains(DMuonErrorGetMessage(), "h.0.weight", "are named");
  model->arrays[id].weights = w + 48;
  DMuonModelSetBlocks(model, "h.*.weight", 2, sizes, 1);
  tap_is_int(DMuonModelSetUp(model), DMUON_ERR_SETUP, "blocks with the wrong sum");
  tap_contains(DMuonErrorGetMessage(), "1 x 7 = 7", "say which");
  DMuonModelSetBlocks(model, "*", 0, NULL, 1);
  tap_is_int(DMuonModelSetUp(model), DMUON_SUCCESS, "and corrected it is set up");
  DMuonModelGetParam(model, id, &info);
  tap_ok(info.route == DMUON_ROUTE_FROZEN && info.nblocks == 0, "as said last");
  DMuonModelDestroy(&model);

  DMuonModelCreate(mesh, &model);
  DMuonModelAddParam(model, "b", DMUON_FLOAT32, 2, dims, NULL);
  DMuonModelAddParam(model, "a", DMUON_FLOAT32, 2, dims, NULL);
  DMuonModelAddParam(model, "b", DMUON_FLOAT32, 2, dims, NULL);
  tap_is_int(DMuonModelSetUp(model), DMUON_ERR_SETUP, "a name twice");
  tap_contains(DMuonErrorGetMessage(), "\"b\" is registered twice: ids 0 and 2", "is named");
  DMuonModelDestroy(&model);
  DMuonModelCreate(mesh, &model);
  tap_is_int(DMuonModelSetUp(model), DMUON_SUCCESS, "a model without parameters");
  tap_is_int(DMuonModelDestroy((DMuonModel *)&mesh), DMUON_ERR_ARGUMENT, "a mesh is no model");
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
}

/* The gradients of a stack follow each other in their own dtype, fixed only at SetUp. */
static void gradient_strides(void) {
  DMuonMesh mesh = new_mesh();
  DMuonModel model = NULL;
  const int64_t dims[] = {8, 6};
  static double w[3 * 48];
  static float g[3 * 48], moved[48];
  DMuonModelCreate(mesh, &model);
  DMuonModelAddStackArray(model, "h.%d", 0, 3, DMUON_FLOAT64, 2, dims, w, g, NULL);
  DMuonModelSetDTypes(model, "h.*", DMUON_FLOAT32, (DMuonDType)DMUON_DECIDE,
                      (DMuonDType)DMUON_DECIDE);
  model->arrays[2].gradients = moved; /* replaced before SetUp */
  tap_is_int(DMuonModelSetUp(model), DMUON_SUCCESS, "fp32 gradients of an fp64 stack");
  tap_ok(model->arrays[1].weights == w + 48 && model->arrays[1].gradients == g + 48,
         "each has its own stride");
  tap_ok(model->arrays[2].gradients == moved, "what was replaced stays");
  DMuonParamInfo info = {.struct_size = sizeof info};
  DMuonModelGetParam(model, 1, &info);
  tap_ok(info.grad_dtype == DMUON_FLOAT32 && info.master_dtype == DMUON_FLOAT64, "dtypes as said");
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
}

static void words(void) {
  DMuonMesh mesh = new_mesh();
  DMuonModel model = NULL;
  const int64_t dims[] = {24, 8}, sizes[] = {8, 8, 8};
  char *json = NULL, line[512], path[] = "model_plan_view.txt";
  DMuonModelCreate(mesh, &model);
  DMuonModelAddParam(model, "h.0.attn.weight", DMUON_BFLOAT16, 2, dims, NULL);
  DMuonModelAddParam(model, "h.0.attn.bias", DMUON_BFLOAT16, 1, dims, NULL);
  DMuonModelSetBlocks(model, "h.0.attn.weight", 3, sizes, 1);
  DMuonModelSetRoute(model, "*.bias", DMUON_ROUTE_FROZEN);
  tap_is_int(DMuonModelSetUp(model), DMUON_SUCCESS, "set up");
  tap_is_int(DMuonModelView(model, path), DMUON_SUCCESS, "viewed");
  int found = 0;
  FILE *in = fopen(path, "r");
  while (in && fgets(line, sizeof line, in)) {
    found += strstr(line,
                    "h.0.attn.weight bf16 24x8, blocks 1x(8,8,8) muon (matrix in numbered "
                    "block h.0), group h.0, output rows, mesh 0, divisor 8, lent, z3\n") != NULL;
    found += strstr(line, "h.0.attn.bias   bf16 24x1 frozen (pattern \"*.bias\")") != NULL;
  }
  if (in) fclose(in);
  remove(path);
  tap_is_int(found, 2, "with a line a parameter");
  tap_is_int(DMuonModelView(model, "/nowhere/at/all"), DMUON_ERR_FILE, "a path that is none");
  tap_is_int(DMuonModelSummary(model, &json), DMUON_SUCCESS, "summed up");
  json_t *root = json ? json_loads(json, 0, NULL) : NULL;
  json_t *param = json_array_get(json_object_get(root, "parameters"), 0);
  tap_is_string(json_string_value(json_object_get(param, "route")), "muon", "as JSON: route");
  tap_is_int(json_integer_value(json_object_get(param, "divisor")), 8, "divisor");
  tap_is_int(json_integer_value(json_array_get(json_object_get(param, "blocks"), 2)), 8, "blocks");
  json_decref(root);
  DMuonFree(json);
  DMuonModelDestroy(&model);
  DMuonMeshDestroy(&mesh);
}

/* One life of a model; the first error, or success. */
static DMuonErrorCode life(DMuonMesh mesh, DMuonModel *model) {
  const int64_t dims[] = {24, 8}, sizes[] = {8, 8, 8};
  DMUON_CALL(DMuonModelCreate(mesh, model));
  DMUON_CALL(DMuonModelAddStack(*model, "h.%d.weight", 0, 20, DMUON_FLOAT32, 2, dims, NULL));
  DMUON_CALL(DMuonModelAddParam(*model, "head", DMUON_FLOAT32, 2, dims, NULL));
  DMUON_CALL(DMuonModelSetBlocks(*model, "h.*", 3, sizes, 1));
  DMUON_CALL(DMuonModelSetGroup(*model, "head", "ends"));
  DMUON_CALL(DMuonModelSetMesh(*model, "head", mesh, mesh));
  return DMuonModelSetUp(*model);
}

static void failing_allocations(void) {
  DMuonMesh mesh = new_mesh();
  DMuonMeshSetUp(mesh);
  dmuon_memory *memory = &mesh->object.context->memory;
  int64_t before = memory->bytes;
  int failures = 0, wrong = 0, references = mesh->object.references;
  DMuonErrorCode code = DMUON_ERR_MEMORY;
  for (int k = 1; code; k++) {
    DMuonModel model = NULL;
    memory->fail_at = memory->allocations + k;
    code = life(mesh, &model);
    memory->fail_at = 0;
    if (code) {
      failures++;
      wrong += code != DMUON_ERR_MEMORY;
      /* What failed is to be had again. */
      if (model && model->count == 21 && model->rules->count == 3)
        wrong += DMuonModelSetUp(model) != DMUON_SUCCESS;
    }
    DMuonModelDestroy(&model);
    wrong += memory->bytes != before || mesh->object.references != references;
  }
  tap_ok(failures > 100 && !wrong, "%d failed allocations: reported, nothing lost, %d wrong",
         failures, wrong);
  DMuonMeshDestroy(&mesh);
}

int main(void) {
  tap_plan(0);
  real_model("gpt2-124m.txt", 148, 48, 15);
  real_model("vit-l16.txt", 296, 96, 28);
  real_model("mixtral-8x7b.txt", 995, 928, 35);
  real_model("minilm-l6.txt", 103, 36, 11);
  real_model("fno2d.txt", 18, 8, 7);
  registration();
  setup_mistakes();
  gradient_strides();
  words();
  failing_allocations();
  return tap_done();
}
