/* Counted memory: alignment, zeroes, counts, overflow, and the allocation that is told to fail. */
#include "tap.h"

#include "base/memory.h"

static int all_equal(const unsigned char *data, int64_t from, int64_t to, int value) {
  for (int64_t i = from; i < to; i++) {
    if (data[i] != value) return 0;
  }
  return 1;
}

static void test_blocks(void) {
  dmuon_memory memory = {0};
  unsigned char *a = NULL, *b = NULL, *none = NULL;
  double *reals = NULL;
  tap_is_int(dmuon_memory_alloc(&memory, 1000, 1, &a), DMUON_SUCCESS, "1000 bytes");
  tap_is_int((int64_t)((uintptr_t)a % 64), 0, "aligned to 64");
  tap_ok(all_equal(a, 0, 1000, 0), "zeroed");
  memset(a, 7, 1000);
  tap_is_int(dmuon_memory_alloc(&memory, 3, sizeof *reals, &reals), DMUON_SUCCESS, "3 doubles");
  tap_is_int((int64_t)((uintptr_t)reals % 64), 0, "aligned to 64");
  tap_is_int(memory.bytes, 1024, "bytes in use");
  tap_is_int(memory.allocations, 2, "two allocations");
  tap_is_int(dmuon_memory_alloc(&memory, 0, 8, &none), DMUON_SUCCESS, "nothing");
  tap_ok(none != NULL, "is a valid pointer");
  tap_is_int(memory.bytes, 1024, "of no bytes");
  dmuon_memory_release(&reals);
  tap_ok(!reals, "release sets the pointer to NULL");
  tap_is_int(memory.bytes, 1000, "bytes after it");
  tap_is_int(memory.peak_bytes, 1024, "the peak stays");
  tap_is_int(dmuon_memory_resize(&memory, &a, 1000, 3000, 1), DMUON_SUCCESS, "grown");
  tap_ok(all_equal(a, 0, 1000, 7) && all_equal(a, 1000, 3000, 0), "old kept, new zeroed");
  tap_is_int(memory.bytes, 3000, "bytes after growing");
  tap_is_int(dmuon_memory_resize(&memory, &a, 3000, 10, 1), DMUON_SUCCESS, "shrunk");
  tap_ok(all_equal(a, 0, 10, 7), "what is left is kept");
  tap_is_int(dmuon_memory_resize(&memory, &b, 0, 5, 4), DMUON_SUCCESS, "from NULL");
  tap_ok(all_equal(b, 0, 20, 0), "zeroed");
  unsigned char *before = b;
  tap_is_int(dmuon_memory_resize(&memory, &b, 6, 7, 4), DMUON_ERR_INTERNAL, "wrong old count");
  tap_ok(b == before, "changes nothing");
  char *copy = NULL;
  tap_is_int(dmuon_memory_strdup(&memory, "layers.0.wq", &copy), DMUON_SUCCESS, "a string");
  tap_is_string(copy, "layers.0.wq", "copied");
  dmuon_memory_free(a);
  dmuon_memory_free(b);
  dmuon_memory_free(none);
  dmuon_memory_free(copy);
  dmuon_memory_free(NULL);
  tap_is_int(memory.bytes, 0, "all given back");
}

static void test_owners(void) {
  dmuon_memory one = {0}, two = {0};
  char *a = NULL, *b = NULL;
  tap_ok(!dmuon_memory_alloc(&one, 10, 1, &a) && !dmuon_memory_alloc(&two, 20, 1, &b),
         "two owners");
  dmuon_memory_free(a);
  tap_ok(one.bytes == 0 && two.bytes == 20, "a block goes back to its own");
  dmuon_memory_free(b);
  tap_is_int(two.bytes, 0, "the other too");
}

static void test_refusals(void) {
  dmuon_memory memory = {0};
  char mark, *out = &mark;
  tap_is_int(dmuon_memory_alloc(&memory, INT64_MAX, 8, &out), DMUON_ERR_MEMORY, "overflow");
  tap_contains(dmuon_error_text(), "9223372036854775807 elements of 8 bytes", "is named");
  tap_is_int(dmuon_memory_alloc(&memory, INT64_MAX, 1, &out), DMUON_ERR_MEMORY, "near overflow");
  tap_is_int(dmuon_memory_alloc(&memory, 2, SIZE_MAX / 2, &out), DMUON_ERR_MEMORY,
             "large elements");
  tap_is_int(dmuon_memory_alloc(&memory, -1, 1, &out), DMUON_ERR_MEMORY, "a negative count");
  tap_ok(out == &mark, "the output is untouched");
  tap_is_int(memory.allocations, 0, "nothing counted");
  char *block = NULL;
  memory.fail_at = 2;
  tap_is_int(dmuon_memory_alloc(&memory, 8, 1, &block), DMUON_SUCCESS, "the first");
  tap_is_int(dmuon_memory_alloc(&memory, 800, 1, &out), DMUON_ERR_MEMORY, "the second fails");
  tap_contains(dmuon_error_text(), "800 bytes", "the bytes are named");
  char *same = block;
  tap_is_int(dmuon_memory_resize(&memory, &block, 8, 16, 1), DMUON_ERR_MEMORY, "resize too");
  tap_ok(block == same && out == &mark, "outputs untouched");
  tap_is_int(memory.bytes, 8, "nothing counted");
  memory.fail_at = 0;
  tap_is_int(dmuon_memory_resize(&memory, &block, 8, 16, 1), DMUON_SUCCESS, "the hook removed");
  dmuon_memory_free(block);
  tap_is_int(memory.bytes, 0, "nothing is left");
}

int main(void) {
  test_blocks();
  test_owners();
  test_refusals();
  return tap_done();
}
