/* Growing text: what is added, what a failed allocation does to it, and writing to files. */
#include "tap.h"

#include "base/text.h"

static void test_growing(void) {
  dmuon_memory memory = {0};
  dmuon_text text;
  const char *data = NULL;
  dmuon_text_init(&text, &memory);
  tap_is_int(dmuon_text_finish(&text, &data), DMUON_SUCCESS, "empty text");
  tap_is_string(data, "", "is the empty string");
  dmuon_text_add(&text, "%s=%d", "lr", 3);
  dmuon_text_add(&text, "%s", "");
  dmuon_text_add(&text, "\n");
  tap_is_int(dmuon_text_finish(&text, &data), DMUON_SUCCESS, "a line");
  tap_is_string(data, "lr=3\n", "as added");
  char expected[6 * 1000 + 1];
  dmuon_text_free(&text);
  for (int i = 0; i < 1000; i++) {
    snprintf(expected + 6 * i, 7, "%05d\n", i);
    dmuon_text_add(&text, "%05d\n", i);
  }
  tap_is_int(dmuon_text_finish(&text, &data), DMUON_SUCCESS, "1000 lines");
  tap_is_string(data, expected, "all there");
  tap_is_int(text.length, 6000, "their length");
  dmuon_text_free(&text);
  for (int length = 250; length < 260; length++) { /* around the first capacity */
    dmuon_text_add(&text, "%*d", length, 1);
    tap_ok(!dmuon_text_finish(&text, &data) && (int)strlen(data) == length, "%d at once", length);
    dmuon_text_free(&text);
  }
  tap_is_int(memory.bytes, 0, "given back");
}

static void test_no_memory(void) {
  dmuon_memory memory = {0};
  dmuon_text text;
  const char *data = "untouched";
  dmuon_text_init(&text, &memory);
  dmuon_text_add(&text, "short");
  memory.fail_at = memory.allocations + 1;
  dmuon_text_add(&text, "%1000d", 1);
  memory.fail_at = 0;
  dmuon_text_add(&text, "later");
  tap_is_int(dmuon_text_finish(&text, &data), DMUON_ERR_MEMORY, "a failure is kept till the end");
  tap_is_string(data, "untouched", "the output is untouched");
  tap_is_int(dmuon_text_write(&text, "no_such_file.out"), DMUON_ERR_MEMORY, "nor is it written");
  tap_ok(!fopen("no_such_file.out", "r"), "no file appears");
  dmuon_text_free(&text);
  tap_is_int(memory.bytes, 0, "given back");
  dmuon_text_add(&text, "again");
  tap_ok(!dmuon_text_finish(&text, &data) && !strcmp(data, "again"), "usable again");
  dmuon_text_free(&text);
}

static void test_writing(void) {
  dmuon_memory memory = {0};
  dmuon_text text;
  char read[64] = "", path[64];
  snprintf(path, sizeof path, "base_text.%p.out", (void *)&text);
  dmuon_text_init(&text, &memory);
  dmuon_text_add(&text, "one\ntwo\n");
  for (int round = 0; round < 2; round++) {
    tap_is_int(dmuon_text_write(&text, path), DMUON_SUCCESS, "written");
    FILE *file = fopen(path, "r");
    size_t got = file ? fread(read, 1, sizeof read - 1, file) : 0;
    if (file) fclose(file);
    read[got] = 0;
    tap_is_string(read, "one\ntwo\n", "replaced, not appended");
  }
  remove(path);
  tap_is_int(dmuon_text_write(&text, "/no/such/directory/x"), DMUON_ERR_FILE, "no such directory");
  tap_contains(dmuon_error_text(), "/no/such/directory/x", "named");
  FILE *full = fopen("/dev/full", "w");
  if (full) {
    fclose(full);
    tap_is_int(dmuon_text_write(&text, "/dev/full"), DMUON_ERR_FILE, "a full disk is noticed");
  } else {
    tap_skip(1, "no /dev/full");
  }
  dmuon_text_free(&text);
}

static void test_bytes(void) {
  static const struct {
    double bytes;
    const char *text;
  } cases[] = {{0, "0 B"},         {1, "1 B"},          {999, "999 B"},    {999.4, "999 B"},
               {999.6, "1.0 kB"},  {1000, "1.0 kB"},    {1249, "1.2 kB"},  {9940, "9.9 kB"},
               {9960, "10 kB"},    {17e6, "17 MB"},     {1.2e9, "1.2 GB"}, {999.6e6, "1.0 GB"},
               {140e12, "140 TB"}, {-1.5e6, "-1.5 MB"}, {3e18, "3.0 EB"},  {1e300, "1000000000 EB"},
               {NAN, "? B"}};
  char buffer[32];
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    tap_is_string(dmuon_text_bytes(buffer, cases[i].bytes), cases[i].text, "%g bytes",
                  cases[i].bytes);
  }
}

int main(void) {
  test_growing();
  test_no_memory();
  test_writing();
  test_bytes();
  return tap_done();
}
