/* The bytes of a summary: numbers, texts and runs of nodes, written into memory that grows, and
 * read without ever passing the end. What goes wrong is kept and told once, at the end. For
 * topo/summary*.c alone. */
#ifndef DMUON_TOPO_BYTES_H
#define DMUON_TOPO_BYTES_H

#include "topo/machine.h"

enum { DMUON_SUMMARY_VERSION = 1 };

typedef struct {
  dmuon_memory *memory;
  unsigned char *data;
  int64_t length, room;
  DMuonErrorCode code;
} dmuon_writer;

void dmuon_put(dmuon_writer *w, uint64_t value);
void dmuon_put_bytes(dmuon_writer *w, const void *data, int64_t bytes);
void dmuon_put_text(dmuon_writer *w, const char *text);
/* Hands the bytes out, or returns the error met and frees them. */
DMuonErrorCode dmuon_writer_finish(dmuon_writer *w, void **data, int64_t *bytes);

typedef struct {
  const unsigned char *data;
  int64_t at, length;
  int64_t nodes; /* in the runs so far */
  int bad;
} dmuon_reader;

/* A number of at most `most`; 0 when something is wrong. */
uint64_t dmuon_get(dmuon_reader *r, uint64_t most);
/* The next bytes in place; NULL when something is wrong. */
const unsigned char *dmuon_get_bytes(dmuon_reader *r, uint64_t bytes);
/* That many characters into text, which has room for them and their end. */
void dmuon_get_chars(dmuon_reader *r, char *text, uint64_t length);
/* Version and the two texts. DMUON_ERR_FORMAT names a version that is not ours. */
DMuonErrorCode dmuon_get_head(dmuon_reader *r, char source[64], char lost[128]);
/* DMUON_ERR_FORMAT when something was wrong or bytes are left. */
DMuonErrorCode dmuon_reader_check(const dmuon_reader *r);

/* Nodes of one kind and fabric that follow each other. */
typedef struct {
  int64_t count;
  int kind;
  uint64_t fabric;
} dmuon_run;

/* Writes runs; equal ones that meet become one. Begin with {.out = w}. */
typedef struct {
  dmuon_writer *out;
  dmuon_run last; /* not written yet */
} dmuon_runs;

void dmuon_put_run(dmuon_runs *runs, dmuon_run run);
void dmuon_end_runs(dmuon_runs *runs);
/* 0 at the end of the bytes, or when something is wrong. */
int dmuon_get_run(dmuon_reader *r, int kinds, dmuon_run *run);

#endif
