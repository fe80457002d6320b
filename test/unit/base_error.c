/* The error record: its text, its frames, its names, and that it never overflows. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <pthread.h>

#include "tap.h"

#include "base/error.h"
#include "base/json.h"
#include "base/object.h"

static DMuonErrorCode decider(int owner) {
  DMUON_FAIL(DMUON_ERR_ARGUMENT, "owner %d out of range [0,4)", owner);
}

static DMuonErrorCode caller(int owner) {
  DMUON_TRY(decider(owner));
  return DMUON_SUCCESS;
}

static DMuonErrorCode deep(int depth) {
  if (depth == 0) DMUON_FAIL(DMUON_ERR_STATE, "bottom");
  DMUON_TRY(deep(depth - 1));
  return DMUON_SUCCESS;
}

static void *other_thread(void *got) {
  strcpy(got, DMuonErrorGetMessage());
  (void)caller(9);
  return NULL;
}

static int count_lines(const char *text) {
  int lines = 1;
  for (; *text; text++) lines += *text == '\n';
  return lines;
}

static void test_record(void) {
  char seen[256] = "";
  pthread_t thread;
  DMuonErrorClear();
  tap_is_string(DMuonErrorGetMessage(), "no error", "nothing recorded yet");
  tap_is_string(dmuon_error_text(), "no error", "nor as text");
  tap_is_int(caller(5), DMUON_ERR_ARGUMENT, "the code comes through");
  tap_is_string(dmuon_error_text(), "owner 5 out of range [0,4)", "the text is one line");
  const char *message = DMuonErrorGetMessage();
  tap_ok(!strncmp(message, "owner 5 out of range [0,4)\n", 27), "the message begins with it");
  const char *first = strstr(message, "in decider ("), *second = strstr(message, "in caller (");
  tap_ok(first && second && first < second, "decider and caller are frames, in this order");
  tap_contains(message, "base_error.c:", "with their file");
  tap_is_int(count_lines(message), 3, "and nothing else");
  tap_ok(!pthread_create(&thread, NULL, other_thread, seen) && !pthread_join(thread, NULL),
         "another thread runs");
  tap_is_string(seen, "no error", "it has a record of its own");
  tap_contains(DMuonErrorGetMessage(), "owner 5", "and leaves ours alone");
  (void)caller(7);
  tap_ok(!strstr(DMuonErrorGetMessage(), "owner 5"), "a new failure replaces the record");
  (void)DMUON_ERROR(DMUON_ERR_PEER, "rank 3: %s", dmuon_error_text());
  tap_is_string(dmuon_error_text(), "rank 3: owner 7 out of range [0,4)",
                "the old text may be part of the new one");
  (void)DMUON_ERROR(DMUON_ERR_SETUP, "name 'a\nb\tc'");
  tap_is_string(dmuon_error_text(), "name 'a b c'", "control characters do not break the line");
  tap_is_int(DMuonErrorTrace(DMUON_SUCCESS, "f", "x.c", 1), DMUON_SUCCESS, "success is no frame");
  tap_is_string(dmuon_error_text(), "name 'a b c'", "and leaves the record");
  (void)DMuonErrorTrace(DMUON_ERR_TIMEOUT, "f", "../../x.c", 12);
  tap_is_string(DMuonErrorGetMessage(), "DMUON_ERR_TIMEOUT\n  in f (x.c:12)",
                "a code without its record does not borrow an older one's text");
  DMuonErrorClear();
  tap_is_string(DMuonErrorGetMessage(), "no error", "cleared");
}

static void test_bounds(void) {
  static char long_text[10000];
  memset(long_text, 'x', sizeof long_text - 1);
  (void)DMUON_ERROR(DMUON_ERR_FILE, "%s", long_text);
  size_t length = strlen(dmuon_error_text());
  tap_ok(length > 1000 && length < 4096, "a long text is cut, to %zu characters", length);
  tap_is_string(dmuon_error_text() + length - 4, "x...", "and says so");
  tap_is_int(deep(1000), DMUON_ERR_STATE, "a deep stack");
  const char *message = DMuonErrorGetMessage();
  tap_ok(strlen(message) < 4096, "fits");
  tap_is_string(message + strlen(message) - 6, "\n  ...", "and says where it was cut");
  (void)DMUON_ERROR(DMUON_ERR_FILE, "%s", "short");
  tap_is_int(count_lines(DMuonErrorGetMessage()), 2, "the next record starts afresh");
}

static void test_codes(void) {
  static const struct {
    DMuonErrorCode code;
    int number;
    const char *name;
  } codes[] = {{DMUON_SUCCESS, 0, "DMUON_SUCCESS"},
               {DMUON_ERR_ARGUMENT, 1, "DMUON_ERR_ARGUMENT"},
               {DMUON_ERR_STATE, 2, "DMUON_ERR_STATE"},
               {DMUON_ERR_UNSUPPORTED, 3, "DMUON_ERR_UNSUPPORTED"},
               {DMUON_ERR_NOT_FOUND, 4, "DMUON_ERR_NOT_FOUND"},
               {DMUON_ERR_THREAD, 5, "DMUON_ERR_THREAD"},
               {DMUON_ERR_DISAGREE, 100, "DMUON_ERR_DISAGREE"},
               {DMUON_ERR_SETUP, 101, "DMUON_ERR_SETUP"},
               {DMUON_ERR_MEMORY, 102, "DMUON_ERR_MEMORY"},
               {DMUON_ERR_FILE, 103, "DMUON_ERR_FILE"},
               {DMUON_ERR_FORMAT, 104, "DMUON_ERR_FORMAT"},
               {DMUON_ERR_PEER, 200, "DMUON_ERR_PEER"},
               {DMUON_ERR_TIMEOUT, 201, "DMUON_ERR_TIMEOUT"},
               {DMUON_ERR_REVOKED, 202, "DMUON_ERR_REVOKED"},
               {DMUON_ERR_COMM, 203, "DMUON_ERR_COMM"},
               {DMUON_ERR_DEVICE, 204, "DMUON_ERR_DEVICE"},
               {DMUON_ERR_INTERNAL, 205, "DMUON_ERR_INTERNAL"}};
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
    tap_is_int(codes[i].code, codes[i].number, "number of %s", codes[i].name);
    tap_is_string(DMuonErrorGetName(codes[i].code), codes[i].name, "name of %d", codes[i].number);
    tap_is_int(DMuonErrorIsFatal(codes[i].code), codes[i].number >= 200, "fatal only from 200");
  }
  tap_is_string(DMuonErrorGetName((DMuonErrorCode)77), "unknown DMuonErrorCode", "no such code");
}

static void test_objects(void) {
  dmuon_context context;
  dmuon_object object;
  dmuon_context_init(&context);
  dmuon_object_init(&object, DMUON_CLASS_MODEL, &context);
  tap_is_int(object.references, 1, "an object begins with one holder");
  tap_is_int(dmuon_object_check(&object, DMUON_CLASS_MODEL), DMUON_SUCCESS, "right class");
  tap_is_int(dmuon_object_check(NULL, DMUON_CLASS_OPTIMIZER), DMUON_ERR_ARGUMENT, "NULL");
  tap_is_string(dmuon_error_text(), "optimizer handle is NULL", "and says so");
  tap_is_int(dmuon_object_check(&object, DMUON_CLASS_MESH), DMUON_ERR_ARGUMENT, "wrong class");
  tap_is_string(dmuon_error_text(), "the handle is of class model; this call wants class mesh",
                "and says so");
  tap_is_int(dmuon_object_set_name(&object, "disc"), DMUON_SUCCESS, "named");
  tap_is_int(dmuon_object_set_name(&object, "a=b"), DMUON_ERR_ARGUMENT, "no '=' in a name");
  tap_is_string(dmuon_error_text(),
                "the name of the model is \"a=b\": no '=' or '#' may stand in it", "and says so");
  tap_is_int(dmuon_object_set_name(&object, "a\nb"), DMUON_ERR_ARGUMENT, "nor a line break");
  tap_is_string(dmuon_error_text(),
                "the name of the model has the control character 0x0a as its character 2",
                "and says so");
  tap_is_int(dmuon_object_set_name(&object, ""), DMUON_ERR_ARGUMENT, "nor an empty one");
  tap_is_string(object.name, "disc", "the name stays");
  tap_is_int(dmuon_object_check_state(&object, DMUON_CLASS_MODEL, 0, "F"), DMUON_SUCCESS,
             "a setter before SetUp");
  tap_is_int(dmuon_object_check_state(&object, DMUON_CLASS_MODEL, 1, "DMuonF"), DMUON_ERR_STATE,
             "a live call before SetUp");
  tap_is_string(dmuon_error_text(), "DMuonF: model 'disc' is not set up yet; call its SetUp first",
                "named");
  object.is_set_up = 1;
  tap_is_int(dmuon_object_check_state(&object, DMUON_CLASS_MODEL, 0, "F"), DMUON_ERR_STATE,
             "a setter after SetUp");
  tap_is_int(dmuon_object_check_state(&object, DMUON_CLASS_MODEL, 1, "F"), DMUON_SUCCESS,
             "a live call after SetUp");
  object.class_id = (dmuon_class)0;
  tap_is_int(dmuon_object_check(&object, DMUON_CLASS_MODEL), DMUON_ERR_ARGUMENT, "destroyed");
  dmuon_memory_release(&object.name);
  dmuon_context_free(&context);
  tap_is_int(context.memory.bytes, 0, "nothing is left");
}

static void keep_line(void *context, int level, const char *line) {
  snprintf(context, 64, "%d:%.50s", level, line);
}

static void test_rest(void) {
  int major = -1, minor = -1, patch = -1;
  char *text = NULL, line[64] = "", *big = malloc(5000);
  dmuon_logger logger = {keep_line, line}, silent = {0};
  DMuonGetVersion(&major, &minor, &patch);
  tap_is_int(major, DMUON_VERSION_MAJOR, "major version");
  tap_is_int(minor, DMUON_VERSION_MINOR, "minor version");
  tap_is_int(patch, DMUON_VERSION_PATCH, "patch version");
  DMuonGetVersion(NULL, NULL, NULL);
  tap_is_int(dmuon_json_finish(json_pack("{s:[i,b]}", "a", 1, 1), &text), DMUON_SUCCESS, "JSON");
  tap_is_string(text, "{\n  \"a\": [\n    1,\n    true\n  ]\n}", "indented");
  DMuonFree(text);
  DMuonFree(NULL);
  text = NULL;
  tap_is_int(dmuon_json_finish(NULL, &text), DMUON_ERR_MEMORY, "no tree");
  tap_ok(!text, "no text then");
  dmuon_log(&logger, 2, "rank %d", 3);
  tap_is_string(line, "2:rank 3", "a line is logged");
  dmuon_log(&silent, 1, "nobody");
  dmuon_log(NULL, 1, "nobody");
  memset(big, 'y', 4999);
  big[4999] = 0;
  dmuon_log(&logger, 1, "%s", big);
  tap_contains(line, "1:yyyyyy", "a long line is cut");
  free(big);
}

int main(void) {
  test_record();
  test_bounds();
  test_codes();
  test_objects();
  test_rest();
  return tap_done();
}
