/* What a parameter's update costs, as two models count it. Integers throughout, so that every
 * machine orders the same parameters the same way. It does not look at routes or meshes. */
#include "partition/assign.h"

#include <string.h>

/* Products of three extents of one parameter: below 2^99. */
__extension__ typedef unsigned __int128 wide;

static int64_t at_least_one(wide value) {
  if (value > (wide)INT64_MAX) return INT64_MAX;
  return value < 1 ? 1 : (int64_t)value;
}

/* word (lower case) occurs in name, whatever the case of name. */
static int name_contains(const char *name, const char *word) {
  size_t length = strlen(word);
  for (; *name; name++) {
    size_t i = 0;
    while (i < length) {
      char c = name[i];
      if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
      if (c != word[i]) break;
      i++;
    }
    if (i == length) return 1;
  }
  return 0;
}

int dmuon_cost_is_base(const char *name, int ndim) {
  static const char *const words[] = {"embed", "lm_head", "norm", "ln_",
                                      ".ln",   "bias",    "rope", "rotary"};
  if (ndim < 2) return 1;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (name_contains(name, words[i])) return 1;
  return 0;
}

double dmuon_cost_base(int64_t numel) {
  return (double)at_least_one((wide)(numel > 0 ? numel : 1) / 1000000);
}

/* Five iterations of X (a I + b A + c A^2), A = X X^T, multiply-adds counted once:
 * 5 small (rows cols + 2 big small). A unit is 10^9 of them; memory traffic is one a 4*10^6
 * elements. */
double dmuon_cost_matrices(int64_t batch, int64_t rows, int64_t cols) {
  wide small = (wide)(rows < cols ? rows : cols), big = (wide)(rows < cols ? cols : rows);
  wide numel = (wide)rows * (wide)cols;
  if (small < 1) small = 1;
  wide work = 5 * small * (numel + 2 * big * small) * (wide)batch;
  numel *= (wide)batch;
  return (double)at_least_one(work / 1000000000) + (double)at_least_one(numel / 4000000);
}

double dmuon_cost_optimizer(const char *name, int ndim, const int64_t *dims) {
  int64_t rows = ndim > 0 ? dims[0] : 1, cols = 1;
  for (int i = 1; i < ndim; i++) cols *= dims[i];
  if (dmuon_cost_is_base(name, ndim)) return dmuon_cost_base(rows * cols);
  return dmuon_cost_matrices(1, rows, cols);
}

double dmuon_cost_numel(int64_t numel) {
  return (double)(numel > 0 ? numel : 1);
}
