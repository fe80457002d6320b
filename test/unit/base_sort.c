/* The merge sort: order, stability, sizes, and a failed allocation. */
#include "tap.h"

#include "base/random.h"
#include "base/sort.h"

typedef struct {
  int key, place;
  char rest[5];
} element;

static int by_key(const void *a, const void *b, void *context) {
  int x = ((const element *)a)->key, y = ((const element *)b)->key;
  ++*(int64_t *)context;
  return (x > y) - (x < y);
}

static int by_byte(const void *a, const void *b, void *context) {
  (void)context;
  return *(const unsigned char *)a - *(const unsigned char *)b;
}

int main(void) {
  static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 1000, 4096, 10007};
  static element data[10007];
  dmuon_memory memory = {0};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    int64_t n = sizes[s], compared = 0, sum = 0, wrong = 0;
    for (int64_t i = 0; i < n; i++) {
      data[i] = (element){.key = (int)(dmuon_random_bits(5, (uint64_t)n, (uint64_t)i) % 50),
                          .place = (int)i};
      sum += data[i].place;
    }
    DMuonErrorCode code = dmuon_sort(&memory, data, n, sizeof data[0], by_key, &compared);
    tap_is_int(code, DMUON_SUCCESS, "%lld elements", (long long)n);
    for (int64_t i = 0; i < n; i++) sum -= data[i].place;
    for (int64_t i = 1; i < n; i++) {
      const element *a = &data[i - 1], *b = &data[i];
      wrong += a->key > b->key || (a->key == b->key && a->place >= b->place);
    }
    tap_ok(!wrong && !sum, "sorted, equal ones in their order, none lost");
    tap_ok(compared <= n * 14, "%lld comparisons", (long long)compared);
  }
  unsigned char text[] = "the quick brown fox";
  tap_ok(!dmuon_sort(&memory, text, 19, 1, by_byte, NULL), "single bytes");
  tap_is_string((char *)text, "   bcefhiknooqrtuwx", "in order");
  memory.fail_at = memory.allocations + 1;
  tap_is_int(dmuon_sort(&memory, text, 19, 1, by_byte, NULL), DMUON_ERR_MEMORY, "no scratch");
  memory.fail_at = 0;
  tap_is_int(memory.bytes, 0, "scratch given back");
  return tap_done();
}
