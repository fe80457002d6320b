/* Patterns on names, and the nearest name. */
#include "tap.h"

#include "base/glob.h"

static void test_match(void) {
  static const struct {
    const char *pattern, *name;
    int matches;
  } cases[] = {
      {"layers.0.wq", "layers.0.wq", 1},
      {"layers.0.wq", "layers.0.wqx", 0},
      {"layers.0.wq", "layers.0.w", 0},
      {"*.bias|ln_*", "h.3.attn.bias", 1},
      {"*.bias|ln_*", "ln_f.weight", 1},
      {"*.bias|ln_*", "h.3.ln_1.weight", 0},
      {"*", "", 1},
      {"*", "a/b.c", 1},
      {"?", "", 0},
      {"?", "x", 1},
      {"?", "xy", 0},
      {"a*b*c", "a.b.b/c", 1},
      {"a*b*c", "a.b.b", 0},
      {"*ab", "aab", 1},
      {"*aab*", "aaab", 1},
      {"**", "anything", 1},
      {"a**", "a", 1},
      {"h.[0-3].*", "h.2.x", 1},
      {"h.[0-3].*", "h.4.x", 0},
      {"h.[!0-3].*", "h.4.x", 1},
      {"h.[^0-3].*", "h.1.x", 0},
      {"[a-cx]", "x", 1},
      {"[a-cx]", "d", 0},
      {"[a-]", "-", 1},
      {"[]]", "]", 1},
      {"[|]|b", "|", 1},
      {"[|]|b", "b", 1},
      {"[|]|b", "a", 0},
      {"[[]", "[", 1},
      {"a|b|c", "c", 1},
      {"a|b|c", "a|b|c", 0},
      {"a|b|c", "d", 0},
      {"w[", "w[", 1}, /* refused by the check; still no reading beyond its end */
      {"*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tap_is_int(dmuon_glob_match(cases[i].pattern, cases[i].name), cases[i].matches, "'%s' on '%s'",
               cases[i].pattern, cases[i].name);
  }
  tap_ok(!dmuon_glob_match(NULL, "a") && !dmuon_glob_match("a", NULL), "NULL matches nothing");
}

static void test_check(void) {
  static const char *const good[] = {"a", "*", "a|b", "[a-z]", "[]]", "[|]", "x[!a]y|z", "]"};
  static const char *const bad[] = {"", "|", "a|", "|a", "a||b", "[", "a[b", "[]", "[!]", "a|[x"};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    tap_is_int(dmuon_glob_check(good[i]), DMUON_SUCCESS, "'%s' is a pattern", good[i]);
  }
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    tap_is_int(dmuon_glob_check(bad[i]), DMUON_ERR_ARGUMENT, "'%s' is none", bad[i]);
  }
  tap_is_int(dmuon_glob_check(NULL), DMUON_ERR_ARGUMENT, "nor is NULL");
}

static void test_nearest(void) {
  static const char *const names[] = {
      "lr",    "momentum", "weight_decay", "replicate", "shard", "prefetch_depth",
      "beta1", "beta2",    "ns_table",     NULL};
  static const struct {
    const char *word, *nearest;
  } cases[] = {{"replcate", "replicate"},
               {"replicte", "replicate"},
               {"Replicate", "replicate"},
               {"prefetch-depth", "prefetch_depth"},
               {"momentmu", "momentum"},
               {"lrr", "lr"},
               {"rl", "lr"},
               {"weigth_decay", "weight_decay"},
               {"beta3", "beta1"},
               {"beta2", "beta2"},
               {"completely_else", NULL},
               {"x", NULL},
               {"", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tap_is_string(dmuon_nearest_name(cases[i].word, 10, names), cases[i].nearest, "nearest to '%s'",
                  cases[i].word);
  }
  char longest[1000];
  memset(longest, 'l', sizeof longest - 1);
  longest[999] = 0;
  tap_ok(!dmuon_nearest_name(longest, 10, names), "a very long word is near nothing");
  tap_ok(!dmuon_nearest_name(NULL, 10, names), "NULL neither");
  tap_ok(!dmuon_nearest_name("lr", 0, NULL), "among none there is none");
}

int main(void) {
  test_match();
  test_check();
  test_nearest();
  return tap_done();
}
