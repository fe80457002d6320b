/* The table of settings.h, and what makes no sense. */
#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

const char SETTINGS_USAGE[] =
    "usage: train_gpt [options] [any -dmuon_... option]\n"
    "  -text FILE             train on its bytes (default: the texts in " TEXT_DIRECTORY
    ")\n"
    "  -steps N               steps to make (default 240)\n"
    "  -layers L -width D     size of the network (4, 128)\n"
    "  -heads H -context T    attention heads, bytes a sequence (4, 64)\n"
    "  -batch B               sequences a step, of all ranks together (64)\n"
    "  -optimizer muon|adamw  what updates the layers' matrices (muon)\n"
    "  -lr X -adamw_lr X      learning rates of Muon, of AdamW (0.01, 0.003)\n"
    "  -dtype fp32|bf16       of parameters and gradients; the network computes in fp32 (fp32)\n"
    "  -seed S                of initial weights and batches (1)\n"
    "  -recompute             keep a block's input alone, and run it again before its backward\n"
    "  -sharded               parameters live with their owners, and are lent block by block; "
    "with\n"
    "    -z2                    a block is kept from its forward to its backward\n"
    "    -reduce_each           gradients go to their owners after every pass, not once a step\n"
    "    -order registered|program  who decides the order of communication (registered)\n"
    "    -adamw owned|sharded   AdamW by one owner, or on equal parts on every rank (owned)\n"
    "  -json FILE             write the results there too\n"
    "  -save FILE             write the parameters there at the end, as fp32 one after another\n"
    "  -progress bar|lines    how to show progress (a bar where standard output is a terminal)\n";

int settings_is(const char *setting, const char *word) {
  return strcmp(setting, word) == 0;
}

/* One of its two words, or the trouble in why. */
static int is_either(const char *name, const char *word, const char *a, const char *b, char *why,
                     size_t room) {
  if (settings_is(word, a) || settings_is(word, b)) return 1;
  snprintf(why, room, "%s %s: %s or %s\n", name, word, a, b);
  return 0;
}

static int make_sense(const Settings *s, char *why, size_t room) {
  if (s->width % s->heads) {
    snprintf(why, room, "-width %ld cannot be divided among -heads %ld\n", s->width, s->heads);
    return 0;
  }
  if (!is_either("-optimizer", s->optimizer, "muon", "adamw", why, room) ||
      !is_either("-dtype", s->dtype, "fp32", "bf16", why, room) ||
      !is_either("-adamw", s->adamw, "owned", "sharded", why, room) ||
      !is_either("-order", s->order, "registered", "program", why, room)) {
    return 0;
  }
  const char *alone = s->z2                              ? "-z2"
                      : s->reduce_each                   ? "-reduce_each"
                      : settings_is(s->adamw, "sharded") ? "-adamw sharded"
                      : settings_is(s->order, "program") ? "-order program"
                                                         : NULL;
  if (alone && !s->sharded) {
    snprintf(why, room, "%s is for -sharded alone\n", alone);
    return 0;
  }
  return 1;
}

int settings_read(Settings *s, int argc, char **argv, char *why, size_t room) {
  *s = (Settings){.optimizer = "muon",
                  .adamw = "owned",
                  .order = "registered",
                  .dtype = "fp32",
                  .steps = 240,
                  .layers = 4,
                  .width = 128,
                  .heads = 4,
                  .context = 64,
                  .batch = 64,
                  .seed = 1,
                  .lr = 0.01,
                  .adamw_lr = 0.003};
  const struct {
    const char *name;
    const char **word;
    long *count;
    double *real;
    long *flag; /* takes no value */
  } table[] = {{"-text", .word = &s->text},
               {"-json", .word = &s->json},
               {"-save", .word = &s->save},
               {"-optimizer", .word = &s->optimizer},
               {"-progress", .word = &s->progress},
               {"-adamw", .word = &s->adamw},
               {"-order", .word = &s->order},
               {"-dtype", .word = &s->dtype},
               {"-steps", .count = &s->steps},
               {"-layers", .count = &s->layers},
               {"-width", .count = &s->width},
               {"-heads", .count = &s->heads},
               {"-context", .count = &s->context},
               {"-batch", .count = &s->batch},
               {"-seed", .count = &s->seed},
               {"-lr", .real = &s->lr},
               {"-adamw_lr", .real = &s->adamw_lr},
               {"-sharded", .flag = &s->sharded},
               {"-z2", .flag = &s->z2},
               {"-recompute", .flag = &s->recompute},
               {"-reduce_each", .flag = &s->reduce_each}};
  const size_t known = sizeof table / sizeof table[0];
  for (int i = 1; i < argc; i++) {
    size_t k = 0;
    while (k < known && strcmp(argv[i], table[k].name)) k++;
    if (k < known && table[k].flag) {
      *table[k].flag = 1;
      continue;
    }
    if (k == known || i + 1 == argc) {
      snprintf(why, room, "%s %s\n%s", argv[i], k == known ? "is no option" : "wants a value",
               SETTINGS_USAGE);
      return -1;
    }
    const char *value = argv[++i];
    char *end = argv[i] + strlen(argv[i]);
    if (table[k].word) *table[k].word = value;
    if (table[k].count) *table[k].count = strtol(value, &end, 10);
    if (table[k].real) *table[k].real = strtod(value, &end);
    const int bad = *end || end == value;
    if (bad || (table[k].count && table[k].count != &s->seed &&
                (*table[k].count < 1 || *table[k].count > 1 << 24))) {
      snprintf(why, room, "%s %s: not a number that makes sense there\n", argv[i - 1], value);
      return -1;
    }
  }
  return make_sense(s, why, room) ? 0 : -1;
}
