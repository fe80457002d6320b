/* Bottom-up merge sort: runs of 1, 2, 4, ... are merged between the array and as much scratch. Of
 * equal elements the left one goes first, which makes it stable. */
#include "base/sort.h"

#include <string.h>

static void merge(char *out, const char *left, int64_t left_count, const char *right,
                  int64_t right_count, size_t bytes, dmuon_compare compare, void *context) {
  while (left_count > 0 && right_count > 0) {
    if (compare(left, right, context) <= 0) {
      memcpy(out, left, bytes);
      left += bytes;
      left_count--;
    } else {
      memcpy(out, right, bytes);
      right += bytes;
      right_count--;
    }
    out += bytes;
  }
  if (left_count > 0) memcpy(out, left, (size_t)left_count * bytes);
  if (right_count > 0) memcpy(out, right, (size_t)right_count * bytes);
}

DMuonErrorCode dmuon_sort(dmuon_memory *memory, void *base, int64_t count, size_t element_bytes,
                          dmuon_compare compare, void *context) {
  if (count < 2 || element_bytes == 0) return DMUON_SUCCESS;
  char *scratch = NULL;
  DMUON_TRY(dmuon_memory_alloc(memory, count, element_bytes, &scratch));
  char *from = base, *to = scratch;
  for (int64_t width = 1; width<count; width = width> count / 2 ? count : 2 * width) {
    for (int64_t begin = 0; begin < count;) {
      int64_t left = count - begin < width ? count - begin : width;
      int64_t right = count - begin - left < width ? count - begin - left : width;
      char *start = from + (size_t)begin * element_bytes;
      merge(to + (size_t)begin * element_bytes, start, left, start + (size_t)left * element_bytes,
            right, element_bytes, compare, context);
      begin += left + right;
    }
    char *swap = from;
    from = to;
    to = swap;
  }
  if (from != (char *)base) memcpy(base, from, (size_t)count * element_bytes);
  dmuon_memory_free(scratch);
  return DMUON_SUCCESS;
}
