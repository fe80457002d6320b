/* The text of text.h: finding it, reading it, cutting sequences out of it. */
#define _POSIX_C_SOURCE 200809L
#include "text.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Appends a file to *bytes. 0, or an errno value. */
static int append(const char *path, unsigned char **bytes, size_t *size) {
  FILE *file = fopen(path, "rb");
  int bad = file ? 0 : errno;
  size_t room = *size, got = 1;
  while (!bad && got) {
    if (*size == room) {
      unsigned char *more = realloc(*bytes, room = room * 2 + 65536);
      if (!more) {
        bad = ENOMEM;
        break;
      }
      *bytes = more;
    }
    errno = 0;
    got = fread(*bytes + *size, 1, room - *size, file);
    *size += got;
    if (!got && ferror(file)) bad = errno ? errno : EIO;
  }
  if (file) fclose(file);
  return bad;
}

/* Regular files whose name begins with a letter; a link is not one. */
static int is_text(const struct dirent *entry) {
  char path[sizeof TEXT_DIRECTORY + sizeof entry->d_name + 1];
  struct stat s;
  snprintf(path, sizeof path, "%s/%s", TEXT_DIRECTORY, entry->d_name);
  return entry->d_name[0] != '.' && lstat(path, &s) == 0 && S_ISREG(s.st_mode);
}

/* Byte order, whatever the locale says. */
static int by_name(const struct dirent **a, const struct dirent **b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

int text_load(const char *path, unsigned char **bytes, size_t *size, int *files, char *why,
              size_t why_size) {
  int bad = 0;
  *bytes = NULL;
  *size = 0;
  *files = 0;
  if (path) {
    bad = append(path, bytes, size);
    *files = 1;
    if (bad) snprintf(why, why_size, "cannot read the text %s: %s", path, strerror(bad));
  } else {
    struct dirent **list = NULL;
    const int n = scandir(TEXT_DIRECTORY, &list, is_text, by_name);
    for (int i = 0; i < n; i++) {
      char full[sizeof TEXT_DIRECTORY + sizeof list[i]->d_name + 1];
      snprintf(full, sizeof full, "%s/%s", TEXT_DIRECTORY, list[i]->d_name);
      if (!bad) bad = append(full, bytes, size);
      if (bad) snprintf(why, why_size, "cannot read the text %s: %s", full, strerror(bad));
      free(list[i]);
    }
    free(list);
    *files = n > 0 ? n : 0;
    if (n <= 0) {
      bad = ENOENT;
      snprintf(why, why_size, "no texts in %s: say which to train on with -text FILE",
               TEXT_DIRECTORY);
    }
  }
  if (!bad) return 0;
  free(*bytes);
  *bytes = NULL;
  *size = 0;
  return -1;
}

void text_sequence(const unsigned char *bytes, size_t size, uint64_t seed, int64_t step,
                   int64_t index, unsigned char *out, size_t length) {
  uint64_t z = seed;
  const uint64_t parts[2] = {(uint64_t)step, (uint64_t)index};
  for (int i = 0; i < 2; i++) { /* splitmix64, once for each argument */
    z = (z + parts[i] + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
  }
  memcpy(out, bytes + z % (size - length + 1), length);
}
