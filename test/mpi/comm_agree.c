/* Agreements: results, their association, payloads of every size, and errors that all ranks hear
 * of. Runs on any number of ranks. */
#include "comm/agree.h"
#include "tap_mpi.h"

static dmuon_context context;

/* Strings of at most 200 characters that show the association. */
static void join(void *into, const void *from, int64_t bytes, void *unused) {
  (void)unused;
  char text[512];
  snprintf(text, sizeof text, "(%s+%s)", (char *)into, (const char *)from);
  snprintf(into, (size_t)bytes, "%.199s", text);
}

static void range_text(int low, int high, char *out) {
  if (high - low == 1) {
    snprintf(out, 200, "%d", low);
    return;
  }
  int power = 1;
  while (2 * power < high - low) power *= 2;
  char a[200], b[200], text[512];
  range_text(low, low + power, a);
  range_text(low + power, high, b);
  snprintf(text, sizeof text, "(%s+%s)", a, b);
  snprintf(out, 200, "%.199s", text);
}

static void add(void *into, const void *from, int64_t bytes, void *unused) {
  (void)unused;
  for (int64_t i = 0; i < bytes / 8; i++) ((int64_t *)into)[i] += ((const int64_t *)from)[i];
}

/* Pieces are appended; a piece that begins with '!' cannot be merged. */
static DMuonErrorCode append(dmuon_memory *memory, const void *a, int64_t a_bytes, const void *b,
                             int64_t b_bytes, void **out, int64_t *out_bytes, void *unused) {
  (void)unused;
  char *text;
  if (b_bytes && *(const char *)b == '!')
    DMUON_FAIL(DMUON_ERR_DISAGREE, "a piece of %lld bytes is bad", (long long)b_bytes);
  DMUON_TRY(dmuon_memory_alloc(memory, a_bytes + b_bytes, 1, &text));
  memcpy(text, a, (size_t)a_bytes);
  memcpy(text + a_bytes, b, (size_t)b_bytes);
  *out = text;
  *out_bytes = a_bytes + b_bytes;
  return DMUON_SUCCESS;
}

static void test_reduce(dmuon_bootstrap *b) {
  char text[200], expected[200];
  snprintf(text, sizeof text, "%d", tap_rank);
  DMuonErrorCode code = dmuon_agree_reduce(b, "joining", text, sizeof text, join, NULL);
  range_text(0, tap_size, expected);
  tap_ok(!code && !strcmp(text, expected), "one association, in rank order, on all ranks");

  static const int64_t sizes[] = {0, 1, 127, 128, 129, 8192, 40000};
  for (int k = 0; k < 7; k++) {
    int64_t n = sizes[k], *data = calloc((size_t)n + 1, 8), wrong = 0;
    for (int64_t i = 0; i < n; i++) data[i] = i * tap_rank + 1;
    if (k == 6) code = dmuon_agree_reserve(b, n * 8);
    int64_t allocations = context.memory.allocations;
    if (!code) code = dmuon_agree_reduce(b, "adding", data, n * 8, add, NULL);
    if (k == 6) wrong += context.memory.allocations != allocations;
    int64_t pairs = (int64_t)tap_size * (tap_size - 1) / 2;
    for (int64_t i = 0; i < n; i++) wrong += data[i] != i * pairs + tap_size;
    tap_ok(!code && !wrong, "sum of %lld integers", (long long)n);
    free(data);
  }
}

static void test_broadcast(dmuon_bootstrap *b) {
  int64_t wrong = 0;
  DMuonErrorCode code = DMUON_SUCCESS;
  for (int64_t n = 10; n <= 300000; n *= 30) {
    unsigned char *data = malloc((size_t)n);
    for (int root = 0; root < tap_size && !code; root++) {
      for (int64_t i = 0; i < n; i++)
        data[i] = tap_rank == root ? (unsigned char)(i + 3 * root) : 0xEE;
      code = dmuon_agree_broadcast(b, "spreading", root, data, n);
      for (int64_t i = 0; i < n; i++) wrong += data[i] != (unsigned char)(i + 3 * root);
    }
    free(data);
  }
  tap_ok(!code && !wrong, "broadcast from every root, small and large");
  tap_ok(dmuon_agree_broadcast(b, "spreading", tap_size, NULL, 0) == DMUON_ERR_ARGUMENT,
         "a root out of range is refused");
}

static void test_merge(dmuon_bootstrap *b) {
  int64_t in_use = context.memory.bytes;
  for (int64_t unit = 1; unit <= 100000; unit *= 100000) {
    int64_t bytes = unit * (tap_rank + 1), wrong = 0, at = 0;
    char *data;
    dmuon_memory_alloc(&context.memory, bytes, 1, &data);
    memset(data, 'a' + tap_rank, (size_t)bytes);
    DMuonErrorCode code = dmuon_agree_merge(b, "merging", (void **)&data, &bytes, append, NULL);
    wrong += bytes != unit * tap_size * (tap_size + 1) / 2;
    for (int rank = 0; rank < tap_size && !wrong; rank++)
      for (int64_t i = 0; i < unit * (rank + 1); i++) wrong += data[at++] != 'a' + rank;
    tap_ok(!code && !wrong, "pieces of %lld bytes and more, in rank order", (long long)unit);
    dmuon_memory_free(data);
  }

  int64_t bytes = 5;
  char *data, *before;
  dmuon_memory_alloc(&context.memory, bytes, 1, &data);
  memcpy(data, tap_rank == tap_size - 1 ? "!bad" : "good", 5);
  before = data;
  DMuonErrorCode code = dmuon_agree_merge(b, "merging", (void **)&data, &bytes, append, NULL);
  if (tap_size == 1) {
    tap_ok(!code && data == before, "one rank has nothing to merge");
  } else {
    tap_ok(code == DMUON_ERR_DISAGREE && strstr(DMuonErrorGetMessage(), "bytes is bad") &&
               data == before && bytes == 5,
           "an error of merge is everybody's, and the data stays");
  }
  dmuon_memory_free(data);
  /* In rest of memory: what agreements keep between calls may have grown. */
  tap_ok(context.memory.bytes <= in_use + 8 * 100000 * 8, "merging keeps nothing");
}

static void test_error(dmuon_bootstrap *b) {
  tap_ok(!dmuon_agree_error(b, "x", DMUON_SUCCESS, DMUON_ERR_SETUP), "nobody failed");
  int bad = tap_size / 2;
  DMuonErrorCode code = DMUON_SUCCESS;
  if (tap_rank >= bad) code = DMUON_ERROR(DMUON_ERR_FILE, "no file %d", tap_rank);
  code = dmuon_agree_error(b, "x", code, DMUON_ERR_SETUP);
  char phrase[64];
  snprintf(phrase, sizeof phrase, "no file %d", bad);
  tap_ok(code == DMUON_ERR_FILE && strstr(DMuonErrorGetMessage(), phrase),
         "the lowest failing rank is heard by all");
  code = DMUON_SUCCESS;
  if (tap_rank == bad) code = DMUON_ERROR(DMUON_ERR_ARGUMENT, "bad lr");
  code = dmuon_agree_error(b, "x", code, DMUON_ERR_SETUP);
  tap_ok(code == DMUON_ERR_SETUP && strstr(DMuonErrorGetMessage(), "bad lr"),
         "a rank's own mistake comes out as the code asked for");
}

static void test_equal(dmuon_bootstrap *b) {
  int equal = -1, other = -7;
  DMuonErrorCode code = dmuon_agree_equal(b, "x", 77, &equal, &other);
  tap_ok(!code && equal == 1 && other == -7, "equal values");
  int64_t wrong = 0;
  for (int odd = 1; odd < tap_size; odd++) {
    code = dmuon_agree_equal(b, "x", tap_rank >= odd ? (uint64_t)tap_rank : 1000, &equal, &other);
    wrong += code || equal || other != odd;
    code = dmuon_agree_equal(b, "x", tap_rank == odd ? 1 : 2, &equal, &other);
    wrong += code || equal || other != odd;
  }
  tap_ok(!wrong, "the lowest rank that differs is named");
  /* rank 0 alone differs: every other one differs from it */
  code = dmuon_agree_equal(b, "x", tap_rank ? 1 : 2, &equal, NULL);
  tap_ok(!code && equal == (tap_size == 1), "rank 0 alone differs");
}

static int progressed;
static DMuonErrorCode count_progress(void *counter) {
  ++*(int *)counter;
  return DMUON_SUCCESS;
}

int main(int argc, char **argv) {
  tap_mpi_init(&argc, &argv);
  dmuon_context_init(&context);
  dmuon_bootstrap *b = NULL;
  DMuonErrorCode code = dmuon_bootstrap_create(&context, MPI_COMM_WORLD, 60, &b);
  if (!tap_ok(!code, "create")) return tap_mpi_done();
  dmuon_bootstrap_set_progress(b, count_progress, &progressed);
  test_reduce(b);
  test_broadcast(b);
  test_merge(b);
  test_error(b);
  test_equal(b);
  for (int i = 0; i < 200 && !code; i++) { /* tags repeat nowhere near */
    int64_t one = 1;
    code = dmuon_agree_reduce(b, "counting", &one, 8, add, NULL);
    if (one != tap_size) code = DMUON_ERR_INTERNAL;
  }
  tap_ok(!code, "200 agreements in a row");
  tap_ok(tap_size == 1 || tap_rank > 0 || progressed > 0, "waiting progresses the engines");
  dmuon_bootstrap_destroy(&b);
  tap_is_int(context.memory.bytes, 0, "nothing is left in memory");
  dmuon_context_free(&context);
  return tap_mpi_done();
}
