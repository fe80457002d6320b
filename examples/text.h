/* The data of the training example: the bytes of a text, and which of them make up a batch. */
#ifndef TEXT_H
#define TEXT_H

#include <stddef.h>
#include <stdint.h>

#define TEXT_DIRECTORY "/usr/share/common-licenses"

/* Reads a file; with path NULL the licence texts every Debian system carries in TEXT_DIRECTORY,
 * one after another by name, links skipped so that none counts twice. The caller frees *bytes.
 * 0, or -1 with a sentence in why. */
int text_load(const char *path, unsigned char **bytes, size_t *size, int *files, char *why,
              size_t why_size);

/* Copies sequence number index of a step, length bytes, to out: a piece of the text whose place
 * is a function of (seed, step, index) alone, whichever rank asks. length <= size. */
void text_sequence(const unsigned char *bytes, size_t size, uint64_t seed, int64_t step,
                   int64_t index, unsigned char *out, size_t length);

#endif
