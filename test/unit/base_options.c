/* Options: reading from all sources, precedence of every pair of sources, refusals, and reports. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include <stdlib.h>

#include "tap.h"

#include "base/options.h"

typedef struct {
  int flag, rule;
  int64_t depth, replicate;
  double lr;
  char *path;
} settings;

static const char *const rules[] = {"dmuon", "jordan", "moonlight", NULL};

static const dmuon_option_spec specs[] = {
    {"flag", DMUON_OPTION_BOOL, offsetof(settings, flag), "no", 0, 0, NULL, "a flag"},
    {"rule", DMUON_OPTION_ENUM, offsetof(settings, rule), "dmuon", 0, 0, rules, "a recipe"},
    {"depth", DMUON_OPTION_INT, offsetof(settings, depth), "2", 0, 64, NULL, "groups ahead"},
    {"replicate", DMUON_OPTION_INT, offsetof(settings, replicate), "decide", -1, 1 << 20, NULL,
     "copies"},
    {"lr", DMUON_OPTION_REAL, offsetof(settings, lr), "0.02", 0, 10, NULL, "learning rate"},
    {"path", DMUON_OPTION_STRING, offsetof(settings, path), NULL, 0, 0, NULL, "a path"},
};

static const dmuon_option_table table = {"optimizer", 6, specs};

enum { LR = 4 };

/* The environment of this program may have DMUON_ variables of its own. */
static void clean_environment(void) {
  extern char **environ;
  for (int again = 1; again;) {
    again = 0;
    for (char **e = environ; *e; e++) {
      char name[256];
      const char *equals = strchr(*e, '=');
      if (strncmp(*e, "DMUON_", 6) || !equals || equals - *e > 255) continue;
      memcpy(name, *e, (size_t)(equals - *e));
      name[equals - *e] = 0;
      unsetenv(name);
      again = 1;
      break;
    }
  }
}

static const char *write_file(const char *text) {
  static const char path[] = "base_options.tmp";
  FILE *file = fopen(path, "w");
  if (file) {
    fputs(text, file);
    fclose(file);
  }
  return path;
}

/* Reads a command line given as one string of words. */
static DMuonErrorCode read_words(dmuon_options *options, const char *words, char *left) {
  char buffer[512], *argv[64];
  int argc = 0;
  snprintf(buffer, sizeof buffer, "%s", words);
  for (char *w = strtok(buffer, " "); w; w = strtok(NULL, " ")) argv[argc++] = w;
  argv[argc] = NULL;
  DMuonErrorCode code = dmuon_options_read(options, &argc, argv);
  if (left) {
    *left = 0;
    for (int i = 0; i < argc; i++) {
      if (i) strcat(left, " ");
      strcat(left, argv[i]);
    }
    if (argv[argc]) strcat(left, " (no end)");
  }
  return code;
}

static const char *get(const dmuon_options *options, const char *name) {
  const char *value = NULL;
  return dmuon_options_get(options, name, &value, NULL) ? DMuonErrorGetName(DMUON_ERR_NOT_FOUND)
                                                        : value;
}

static const char *get_source(const dmuon_options *options, const char *name) {
  const char *source = NULL;
  return dmuon_options_get(options, name, NULL, &source) ? "none" : source;
}

static void test_command_line(void) {
  static const struct {
    const char *words, *left, *name, *value;
  } cases[] = {
      {"prog -dmuon_lr 0.1 x", "prog x", "lr", "0.1"},
      {"prog -dmuon_lr=0.1 x", "prog x", "lr", "0.1"},
      {"prog -dmuon_lr -1e-3 x", "prog x", "lr", "-1e-3"},
      {"prog -dmuon_lr -.5", "prog", "lr", "-.5"},
      {"prog -dmuon_flag -v", "prog -v", "flag", "1"},
      {"prog -dmuon_flag -dmuon_lr 3", "prog", "flag", "1"},
      {"prog -dmuon_flag", "prog", "flag", "1"},
      {"prog -dmuon_disc.lr 2 -o f", "prog -o f", "disc.lr", "2"},
      {"prog -dmuon_path=a=b", "prog", "path", "a=b"},
      {"prog -dmuon_path=", "prog", "path", ""},
      {"prog -dmuon_device host:deferred,seed=7", "prog", "device", "host:deferred,seed=7"},
      {"prog -dmuon_lr 1 a -dmuon_lr 2", "prog a", "lr", "2"},
      {"prog a -- -dmuon_lr 1", "prog a -- -dmuon_lr 1", "lr", "DMUON_ERR_NOT_FOUND"},
      {"prog --dmuon_lr 1", "prog --dmuon_lr 1", "lr", "DMUON_ERR_NOT_FOUND"},
      {"-dmuon_lr 1", "-dmuon_lr 1", "lr", "DMUON_ERR_NOT_FOUND"}, /* the program's name */
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    dmuon_memory memory = {0};
    dmuon_options options;
    char left[512];
    dmuon_options_init(&options, &memory);
    tap_is_int(read_words(&options, cases[i].words, left), DMUON_SUCCESS, "%s", cases[i].words);
    tap_is_string(left, cases[i].left, "what is left");
    tap_is_string(get(&options, cases[i].name), cases[i].value, "%s", cases[i].name);
    dmuon_options_free(&options);
    tap_is_int(memory.bytes, 0, "given back");
  }
}

static void test_file_and_environment(void) {
  dmuon_memory memory = {0};
  dmuon_options options;
  char words[128];
  dmuon_options_init(&options, &memory);
  const char *path = write_file(
      "# a comment\n\n  lr = 0.5   # of all\r\ndisc.lr 0.25\npath = a b#c\nflag\nrule=jordan");
  snprintf(words, sizeof words, "prog -dmuon_options_file %s y", path);
  setenv("DMUON_DEPTH", "5", 1);
  setenv("DMUON_DISC__DEPTH", "6", 1);
  setenv("DMUON_EMPTY", "", 1);
  setenv("DMUON_", "x", 1);
  char left[256];
  tap_is_int(read_words(&options, words, left), DMUON_SUCCESS, "a file and the environment");
  tap_is_string(left, "prog y", "the file is taken out of argv");
  tap_is_string(get(&options, "lr"), "0.5", "X = value # comment");
  tap_is_string(get(&options, "disc.lr"), "0.25", "X value");
  tap_is_string(get(&options, "path"), "a b#c", "a value of words");
  tap_is_string(get(&options, "flag"), "1", "a flag");
  tap_is_string(get(&options, "rule"), "jordan", "the last line without its end");
  tap_is_string(get_source(&options, "rule"), "file", "its source");
  tap_is_string(get(&options, "depth"), "5", "environment");
  tap_is_string(get(&options, "disc.depth"), "6", "environment of one object");
  tap_is_string(get_source(&options, "depth"), "environment", "its source");
  tap_is_string(get(&options, "empty"), "DMUON_ERR_NOT_FOUND", "an empty variable says nothing");
  dmuon_options_free(&options);
  setenv("DMUON_OPTIONS_FILE", path, 1);
  tap_is_int(dmuon_options_read(&options, NULL, NULL), DMUON_SUCCESS, "without a command line");
  tap_is_string(get(&options, "lr"), "0.5", "the environment names a file");
  dmuon_options_free(&options);
  FILE *second = fopen("base_options2.tmp", "w");
  if (second) fputs("lr 0.75\n", second), fclose(second);
  tap_is_int(read_words(&options, "prog -dmuon_options_file base_options2.tmp", NULL), 0,
             "two files");
  tap_is_string(get(&options, "lr"), "0.75", "the command line's file wins");
  tap_is_string(get(&options, "rule"), "jordan", "over the other, which counts too");
  dmuon_options_free(&options);
  remove("base_options2.tmp");
  remove(path);
  tap_ok(dmuon_environment("DMUON_DEPTH") && !strcmp(dmuon_environment("DMUON_DEPTH"), "5"),
         "a variable");
  tap_ok(!dmuon_environment("DMUON_EMPTY") && !dmuon_environment("DMUON_NO"), "empty is unset");
  clean_environment();
  tap_is_int(memory.bytes, 0, "given back");
}

/* Says lr as source does, for every object or for disc alone. */
static void say_as(dmuon_options *options, int source, int is_special, settings *s,
                   unsigned char *program, const char *value) {
  const char *name = is_special ? "disc.lr" : "lr";
  switch (source) {
    case DMUON_SOURCE_DEFAULT:
      break;
    case DMUON_SOURCE_PROGRAM:
      (void)dmuon_options_store(options->memory, &specs[LR], value, s);
      program[LR] = 1;
      break;
    default:
      (void)dmuon_options_say(options, name, value, (dmuon_option_source)source);
  }
}

/* Every pair of sources, in both orders of saying, plain and for the object: the stronger source
 * wins whatever the order; of one source the object's own saying wins. */
static void test_precedence(void) {
  static const char *const names[] = {"default", "program", "file", "environment", "command line"};
  for (int a = 0; a < 5; a++) {
    for (int b = 0; b < 5; b++) {
      for (int special = 0; special < 4; special++) {
        int a_special = special & 1, b_special = special >> 1;
        if (a == b && (a_special == b_special || a < DMUON_SOURCE_FILE)) {
          continue;
        }
        dmuon_memory memory = {0};
        dmuon_options options;
        settings s = {0};
        unsigned char program[6] = {0};
        dmuon_options_init(&options, &memory);
        (void)dmuon_options_defaults(&memory, &table, &s);
        int a_wins = a > b || (a == b && a_special);
        say_as(&options, a, a_special, &s, program, "1");
        say_as(&options, b, b_special, &s, program, "2");
        DMuonErrorCode code = dmuon_options_apply(&options, &table, "disc", program, &s);
        int winner = a_wins ? a : b;
        double expected = winner == DMUON_SOURCE_DEFAULT ? 0.02 : a_wins ? 1 : 2;
        tap_ok(!code && s.lr == expected &&
                   !strcmp(get_source(&options, "disc.lr"), names[winner]) &&
                   atof(get(&options, "disc.lr")) == expected,
               "%s%s, then %s%s: %s", names[a], a_special ? " (own)" : "", names[b],
               b_special ? " (own)" : "", names[winner]);
        dmuon_options_settings_free(&table, &s);
        dmuon_options_free(&options);
        if (memory.bytes) tap_is_int(memory.bytes, 0, "given back");
      }
    }
  }
}

static void test_values(void) {
  static const struct {
    const char *name, *text, *shown, *message; /* shown when good, message when bad */
  } cases[] = {
      {"flag", NULL, "1", NULL},
      {"flag", "Yes", "1", NULL},
      {"flag", "on", "1", NULL},
      {"flag", "true", "1", NULL},
      {"flag", "0", "0", NULL},
      {"flag", "off", "0", NULL},
      {"flag", "FALSE", "0", NULL},
      {"flag", "no", "0", NULL},
      {"flag", "2", NULL,
       "option -dmuon_flag: '2' is neither 1|true|yes|on nor 0|false|no|off; command line"},
      {"rule", "jordan", "jordan", NULL},
      {"rule", "jodran", NULL,
       "option -dmuon_rule: 'jodran' is none of dmuon, jordan, moonlight; did you mean 'jordan'?; "
       "command line"},
      {"rule", NULL, NULL, "option -dmuon_rule needs a value; command line"},
      {"depth", "64", "64", NULL},
      {"depth", "+7", "7", NULL},
      {"depth", "65", NULL, "option -dmuon_depth: 65 is out of range [0, 64]; command line"},
      {"depth", "-1", NULL, "option -dmuon_depth: -1 is out of range [0, 64]; command line"},
      {"depth", "decide", NULL, "option -dmuon_depth: 'decide' is no integer; command line"},
      {"depth", "1.5", NULL, "option -dmuon_depth: '1.5' is no integer; command line"},
      {"depth", "", NULL, "option -dmuon_depth: '' is no integer; command line"},
      {"depth", "99999999999999999999", NULL,
       "option -dmuon_depth: '99999999999999999999' is no integer; command line"},
      {"replicate", "decide", "decide", NULL},
      {"replicate", "-1", "decide", NULL},
      {"replicate", "8", "8", NULL},
      {"replicate", "x", NULL, "option -dmuon_replicate: 'x' is no integer; command line"},
      {"lr", "1e-3", "0.001", NULL},
      {"lr", "0.1", "0.1", NULL},
      {"lr", ".5", "0.5", NULL},
      {"lr", "3", "3", NULL},
      {"lr", "0.3333333333333333", "0.3333333333333333", NULL},
      {"lr", "0x1p3", NULL, "option -dmuon_lr: '0x1p3' is no finite number; command line"},
      {"lr", "nan", NULL, "option -dmuon_lr: 'nan' is no finite number; command line"},
      {"lr", "inf", NULL, "option -dmuon_lr: 'inf' is no finite number; command line"},
      {"lr", "1e999", NULL, "option -dmuon_lr: '1e999' is no finite number; command line"},
      {"lr", "1,5", NULL, "option -dmuon_lr: '1,5' is no finite number; command line"},
      {"lr", "11", NULL, "option -dmuon_lr: 11 is out of range [0, 10]; command line"},
      {"path", "a b", "a b", NULL},
      {"path", "", "", NULL},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    dmuon_memory memory = {0};
    dmuon_options options;
    settings s = {0};
    dmuon_options_init(&options, &memory);
    (void)dmuon_options_defaults(&memory, &table, &s);
    s.lr = 5; /* shows whether a failed apply stores anything */
    (void)dmuon_options_say(&options, "lr", "7", DMUON_SOURCE_FILE);
    (void)dmuon_options_say(&options, cases[i].name, cases[i].text, DMUON_SOURCE_COMMAND_LINE);
    DMuonErrorCode code = dmuon_options_apply(&options, &table, NULL, NULL, &s);
    const char *shown = cases[i].text ? cases[i].text : "(bare)";
    if (cases[i].shown) {
      tap_is_int(code, DMUON_SUCCESS, "%s %s", cases[i].name, shown);
      tap_is_string(get(&options, cases[i].name), cases[i].shown, "the value in force");
    } else {
      tap_is_int(code, DMUON_ERR_ARGUMENT, "%s %s", cases[i].name, shown);
      tap_is_string(dmuon_error_text(), cases[i].message, "the refusal");
      tap_ok(s.lr == 5 && s.depth == 2 && !s.path && options.effective_count == 0,
             "nothing is stored");
    }
    dmuon_options_settings_free(&table, &s);
    dmuon_options_free(&options);
    tap_is_int(memory.bytes, 0, "given back");
  }
}

static void test_bad_reads(void) {
  static const struct {
    const char *words, *file;
    DMuonErrorCode code;
    const char *message;
  } cases[] = {
      {"prog -dmuon_depth 3 -dmuon_=1", NULL, DMUON_ERR_ARGUMENT, "'-dmuon_=1' names no option"},
      {"prog -dmuon_depth 3 -dmuon_a/b 1", NULL, DMUON_ERR_ARGUMENT, "-dmuon_a/b"},
      {"prog -dmuon_depth 3 -dmuon_options_file", NULL, DMUON_ERR_ARGUMENT, "needs the path"},
      {"prog -dmuon_options_file no_such.opts -dmuon_depth 3", NULL, DMUON_ERR_FILE,
       "'no_such.opts' named by -dmuon_options_file"},
      {"prog -dmuon_options_file / -dmuon_depth 3", NULL, DMUON_ERR_FILE, "/"},
      {"prog -dmuon_options_file base_options.tmp", "depth 3\n= 4\n", DMUON_ERR_FORMAT,
       "file base_options.tmp, line 2"},
      {"prog -dmuon_options_file base_options.tmp", "depth 3\n\n-dmuon_lr 4\n", DMUON_ERR_FORMAT,
       "'-dmuon_lr' is no option's name (write \"lr = 0.1\"); file base_options.tmp, line 3"},
      {"prog -dmuon_options_file base_options.tmp", "options_file x\n", DMUON_ERR_FORMAT,
       "names no other"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    dmuon_memory memory = {0};
    dmuon_options options;
    char left[256];
    dmuon_options_init(&options, &memory);
    if (cases[i].file) (void)write_file(cases[i].file);
    setenv("DMUON_LR", "3", 1);
    tap_is_int(read_words(&options, cases[i].words, left), cases[i].code, "%s", cases[i].words);
    tap_contains(dmuon_error_text(), cases[i].message, "the refusal");
    tap_is_string(left, cases[i].words, "argv stays");
    tap_is_int(options.said_count, 0, "nothing is recorded");
    dmuon_options_free(&options);
    tap_is_int(memory.bytes, 0, "given back");
  }
  remove("base_options.tmp");
  clean_environment();
  dmuon_memory memory = {0};
  dmuon_options options;
  dmuon_options_init(&options, &memory);
  static const char *const bad[] = {"", "a b", "=x", "1x", "-dmuon_lr", "a.", "options_file", NULL};
  for (int i = 0; i < 8; i++) {
    tap_is_int(dmuon_options_say(&options, bad[i], "1", DMUON_SOURCE_COMMAND_LINE),
               DMUON_ERR_ARGUMENT, "'%s' is not said", bad[i] ? bad[i] : "NULL");
  }
  tap_is_int(options.said_count, 0, "nothing is recorded");
  dmuon_options_free(&options);
}

/* Where a bad value came from is part of the message. */
static void test_where(void) {
  dmuon_memory memory = {0};
  dmuon_options options;
  settings s = {0};
  dmuon_options_init(&options, &memory);
  (void)dmuon_options_defaults(&memory, &table, &s);
  setenv("DMUON_DISC__DEPTH", "x", 1);
  tap_is_int(dmuon_options_read(&options, NULL, NULL), DMUON_SUCCESS, "read");
  tap_is_int(dmuon_options_apply(&options, &table, "gen", NULL, &s), DMUON_SUCCESS,
             "another object does not care");
  tap_is_int(dmuon_options_apply(&options, &table, "Disc", NULL, &s), DMUON_ERR_ARGUMENT,
             "the environment knows no case of names");
  tap_is_string(dmuon_error_text(),
                "option disc.depth: 'x' is no integer; environment DMUON_DISC__DEPTH", "named");
  clean_environment();
  dmuon_options_free(&options);
  (void)write_file("lr 1\ndepth = y\n");
  tap_is_int(read_words(&options, "prog -dmuon_options_file base_options.tmp", NULL), 0, "read");
  tap_is_int(dmuon_options_apply(&options, &table, NULL, NULL, &s), DMUON_ERR_ARGUMENT, "refused");
  tap_is_string(dmuon_error_text(),
                "option depth: 'y' is no integer; file base_options.tmp, line 2", "named");
  remove("base_options.tmp");
  tap_is_int(dmuon_options_say(&options, "depth", "4", DMUON_SOURCE_COMMAND_LINE), 0, "overridden");
  tap_is_int(dmuon_options_apply(&options, &table, NULL, NULL, &s), DMUON_ERR_ARGUMENT,
             "it is wrong all the same");
  dmuon_options_free(&options);
  tap_is_int(memory.bytes, 0, "given back");
}

static void test_report(void) {
  dmuon_memory memory = {0};
  dmuon_options options;
  dmuon_text text;
  settings s = {0}, t = {0};
  const char *report = NULL;
  static const dmuon_option_spec mesh_specs[] = {
      {"node_size", DMUON_OPTION_INT, 0, "decide", -1, 1000, NULL, "ranks of a node"}};
  static const dmuon_option_table mesh_table = {"mesh", 1, mesh_specs};
  const dmuon_option_table *tables[] = {&mesh_table, &table};
  dmuon_options_init(&options, &memory);
  dmuon_text_init(&text, &memory);
  setenv("DMUON_CACHE_DIR", "/x", 1);
  setenv("DMUON_DEPHT", "7", 1);
  tap_is_int(read_words(&options, "p -dmuon_lr 3 -dmuon_disk.lr 4 -dmuon_node_size 2", NULL), 0,
             "read");
  (void)dmuon_options_defaults(&memory, &table, &s);
  (void)dmuon_options_defaults(&memory, &table, &t);
  s.depth = 9;
  tap_is_int(dmuon_options_apply(&options, &table, "disc", NULL, &s), 0, "one object");
  t.lr = 1;
  tap_is_int(dmuon_options_say(&options, "gen.lr", "5", DMUON_SOURCE_COMMAND_LINE), 0, "its own");
  tap_is_int(dmuon_options_apply(&options, &table, "gen", NULL, &t), 0, "another");
  tap_ok(s.lr == 3 && t.lr == 5, "each has its own");
  tap_is_string(get_source(&options, "disc.depth"), "program", "a value that is not the default");
  tap_is_string(get(&options, "flag"), "0", "a plain name where all agree");
  tap_is_int(dmuon_options_get(&options, "lr", NULL, NULL), DMUON_ERR_NOT_FOUND, "not where not");
  tap_contains(dmuon_error_text(), "disc.lr (3) or gen.lr (5)", "both are named");
  tap_is_int(dmuon_options_get(&options, "replcate", NULL, NULL), DMUON_ERR_NOT_FOUND, "no option");
  tap_contains(dmuon_error_text(), "did you mean replicate?", "nearest");
  dmuon_options_report(&options, 2, tables, &text);
  tap_is_int(dmuon_text_finish(&text, &report), DMUON_SUCCESS, "a report");
  static const char *const lines[] = {
      "disc.lr                          3                command line   learning rate\n",
      "gen.lr                           5                command line   learning rate\n",
      "disc.path                        -                default        a path\n",
      "disc.depth                       9                program        groups ahead\n",
      "node_size                        decide           default        ranks of a node\n",
      "disk.lr = 4 (command line): no optimizer named disk took it; did you mean disc.lr?\n",
      "node_size = 2 (command line): no mesh was set up after it was said\n",
      "cache_dir = /x (environment DMUON_CACHE_DIR): unknown\n",
      "depht = 7 (environment DMUON_DEPHT): unknown; did you mean depth?\n"};
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
    tap_contains(report, lines[i], "a line of the report");
  }
  tap_ok(!strstr(report, "\n  lr = 3"), "what was used is not among the unused");
  tap_is_int(dmuon_options_note_live(&options, "disc", "lr", "0.5"), 0, "a live change");
  tap_is_string(get(&options, "disc.lr"), "0.5", "is in force");
  tap_is_string(get_source(&options, "disc.lr"), "live", "as live");
  settings second = {0};
  (void)dmuon_options_defaults(&memory, &table, &second);
  tap_ok(!dmuon_options_apply(&options, &table, "disc", NULL, &second) && second.lr != 0.5 &&
             atof(get(&options, "disc.lr")) == second.lr,
         "a second object of that name gets what was said, not the first one's live value");
  dmuon_options_settings_free(&table, &second);
  int64_t before = memory.allocations;
  int failed = 0;
  for (int i = 0; i < 100; i++)
    failed += !!dmuon_options_note_live(&options, NULL, "zz", "0.123456");
  tap_ok(!failed && memory.allocations <= before + 100 + 2, "a live change grows nothing");
  dmuon_text_free(&text);
  dmuon_options_list(&options, &text);
  tap_is_int(dmuon_text_finish(&text, &report), 0, "the list");
  tap_is_string(report, "disk.lr=4\ngen.lr=5\nlr=3\nnode_size=2\n",
                "sorted, without what nothing used of the environment");
  dmuon_text_free(&text);
  clean_environment();
  dmuon_options_settings_free(&table, &s);
  dmuon_options_settings_free(&table, &t);
  dmuon_options_free(&options);
  tap_is_int(memory.bytes, 0, "given back");
}

static void test_hash(void) {
  dmuon_memory memory = {0};
  dmuon_options a, b;
  dmuon_options_init(&a, &memory);
  dmuon_options_init(&b, &memory);
  tap_ok(dmuon_options_hash(&a) == dmuon_options_hash(&b), "two empty ones");
  (void)dmuon_options_say(&a, "lr", "1", DMUON_SOURCE_COMMAND_LINE);
  tap_ok(dmuon_options_hash(&a) != dmuon_options_hash(&b), "one that says more");
  (void)dmuon_options_say(&a, "depth", "2", DMUON_SOURCE_FILE);
  (void)dmuon_options_say(&b, "depth", "2", DMUON_SOURCE_COMMAND_LINE);
  (void)dmuon_options_say(&b, "lr", "1", DMUON_SOURCE_COMMAND_LINE);
  tap_ok(dmuon_options_hash(&a) == dmuon_options_hash(&b), "order and source do not count");
  (void)dmuon_options_say(&b, "lr", "2", DMUON_SOURCE_COMMAND_LINE);
  tap_ok(dmuon_options_hash(&a) != dmuon_options_hash(&b), "values do");
  (void)dmuon_options_say(&b, "lr", "1", DMUON_SOURCE_COMMAND_LINE);
  (void)dmuon_options_say(&b, "lr", "1", DMUON_SOURCE_ENVIRONMENT);
  tap_ok(dmuon_options_hash(&a) == dmuon_options_hash(&b), "the environment only where used");
  settings used = {0};
  (void)dmuon_options_defaults(&memory, &table, &used);
  tap_is_int(dmuon_options_apply(&b, &table, NULL, NULL, &used), DMUON_SUCCESS, "it is used");
  tap_ok(dmuon_options_hash(&a) != dmuon_options_hash(&b), "then it counts");
  dmuon_options_settings_free(&table, &used);
  dmuon_options_free(&b);
  (void)dmuon_options_say(&b, "lr", "1", DMUON_SOURCE_COMMAND_LINE);
  (void)dmuon_options_say(&b, "depth", "2", DMUON_SOURCE_COMMAND_LINE);
  tap_ok(dmuon_options_hash(&a) == dmuon_options_hash(&b), "the same again");
  (void)dmuon_options_say(&b, "flag", NULL, DMUON_SOURCE_COMMAND_LINE);
  (void)dmuon_options_say(&a, "flag", "", DMUON_SOURCE_COMMAND_LINE);
  tap_ok(dmuon_options_hash(&a) != dmuon_options_hash(&b), "a bare flag is not an empty value");
  dmuon_options_free(&a);
  dmuon_options_free(&b);
}

/* Each allocation in turn fails: an error comes back, nothing changed, nothing is lost. */
static void test_no_memory(void) {
  int reads = 0, applies = 0, wrong = 0;
  setenv("DMUON_FLAG", "1", 1);
  (void)write_file("lr 3\nrule jordan\n");
  for (int64_t k = 1;; k++) {
    dmuon_memory memory = {0};
    dmuon_options options;
    dmuon_options_init(&options, &memory);
    memory.fail_at = k;
    DMuonErrorCode code = read_words(
        &options, "prog -dmuon_path=x -dmuon_options_file base_options.tmp -dmuon_depth 9", NULL);
    if (code) {
      wrong += code != DMUON_ERR_MEMORY || options.said_count != 0;
      reads++;
    }
    dmuon_options_free(&options);
    wrong += memory.bytes != 0;
    if (!code || k > 1000) break;
  }
  for (int64_t k = 1;; k++) {
    dmuon_memory memory = {0};
    dmuon_options options;
    settings s = {0};
    dmuon_options_init(&options, &memory);
    (void)dmuon_options_defaults(&memory, &table, &s);
    (void)read_words(&options, "prog -dmuon_path=x -dmuon_depth 9", NULL);
    memory.fail_at = memory.allocations + k;
    DMuonErrorCode code = dmuon_options_apply(&options, &table, "disc", NULL, &s);
    memory.fail_at = 0;
    if (code) {
      wrong += code != DMUON_ERR_MEMORY || s.depth != 2 || s.path || s.flag;
      wrong += options.effective_count != 0;
      applies++;
      code = dmuon_options_apply(&options, &table, "disc", NULL, &s);
      wrong += code || s.depth != 9 || !s.path || !s.flag;
      code = DMUON_ERR_MEMORY;
    }
    dmuon_options_settings_free(&table, &s);
    dmuon_options_free(&options);
    wrong += memory.bytes != 0;
    if (!code || k > 1000) break;
  }
  remove("base_options.tmp");
  clean_environment();
  tap_ok(reads > 10 && reads < 1000, "%d allocations of a read failed in turn", reads);
  tap_ok(applies > 10 && applies < 1000, "%d allocations of an apply failed in turn", applies);
  tap_is_int(wrong, 0, "each time nothing changed and nothing was lost");
}

int main(void) {
  clean_environment();
  test_command_line();
  test_file_and_environment();
  test_precedence();
  test_values();
  test_bad_reads();
  test_where();
  test_report();
  test_hash();
  test_no_memory();
  return tap_done();
}
