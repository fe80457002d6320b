/* Writing and reading the bytes of a summary. */
#include "topo/bytes.h"

#include <string.h>

void dmuon_put_bytes(dmuon_writer *w, const void *data, int64_t bytes) {
  if (w->code || bytes == 0) return;
  if (w->length + bytes > w->room) {
    int64_t want = w->room > 0 ? w->room : 256;
    while (want < w->length + bytes) want *= 2;
    w->code = dmuon_memory_resize(w->memory, &w->data, w->room, want, 1);
    if (w->code) return;
    w->room = want;
  }
  memcpy(w->data + w->length, data, (size_t)bytes);
  w->length += bytes;
}

void dmuon_put(dmuon_writer *w, uint64_t value) {
  unsigned char digits[10];
  int count = 0;
  do {
    digits[count++] = (unsigned char)((value & 127) | (value > 127 ? 128 : 0));
    value >>= 7;
  } while (value);
  dmuon_put_bytes(w, digits, count);
}

void dmuon_put_text(dmuon_writer *w, const char *text) {
  int64_t length = (int64_t)strlen(text);
  dmuon_put(w, (uint64_t)length);
  dmuon_put_bytes(w, text, length);
}

DMuonErrorCode dmuon_writer_finish(dmuon_writer *w, void **data, int64_t *bytes) {
  if (!w->code && w->length == 0) w->code = dmuon_memory_alloc(w->memory, 0, 1, &w->data);
  if (w->code) {
    dmuon_memory_release(&w->data);
    return w->code;
  }
  /* The block as large as what is in it: it travels, and its owner frees it by itself. */
  if (w->room > w->length) {
    DMuonErrorCode code = dmuon_memory_resize(w->memory, &w->data, w->room, w->length, 1);
    if (code) {
      dmuon_memory_release(&w->data);
      return code;
    }
  }
  *data = w->data;
  *bytes = w->length;
  return DMUON_SUCCESS;
}

const unsigned char *dmuon_get_bytes(dmuon_reader *r, uint64_t bytes) {
  if (r->bad || bytes > (uint64_t)(r->length - r->at)) {
    r->bad = 1;
    return NULL;
  }
  const unsigned char *data = r->data + r->at;
  r->at += (int64_t)bytes;
  return data;
}

uint64_t dmuon_get(dmuon_reader *r, uint64_t most) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const unsigned char *digit = dmuon_get_bytes(r, 1);
    if (!digit || (shift == 63 && *digit > 1)) break;
    value |= (uint64_t)(*digit & 127) << shift;
    if (*digit < 128) {
      if (value <= most) return value;
      break;
    }
  }
  r->bad = 1;
  return 0;
}

void dmuon_get_chars(dmuon_reader *r, char *text, uint64_t length) {
  const unsigned char *data = dmuon_get_bytes(r, length);
  text[0] = 0;
  if (!data) return;
  if (memchr(data, 0, (size_t)length)) r->bad = 1;
  memcpy(text, data, (size_t)length);
  text[length] = 0;
}

DMuonErrorCode dmuon_get_head(dmuon_reader *r, char source[64], char lost[128]) {
  uint64_t version = dmuon_get(r, UINT64_MAX);
  if (!r->bad && version != DMUON_SUMMARY_VERSION) {
    DMUON_FAIL(DMUON_ERR_FORMAT, "a machine summary of version %llu; this library reads %d",
               (unsigned long long)version, DMUON_SUMMARY_VERSION);
  }
  dmuon_get_chars(r, source, dmuon_get(r, 63));
  dmuon_get_chars(r, lost, dmuon_get(r, 127));
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_reader_check(const dmuon_reader *r) {
  if (r->bad || r->at != r->length) {
    DMUON_FAIL(DMUON_ERR_FORMAT, "a machine summary of %lld bytes is damaged at byte %lld",
               (long long)r->length, (long long)r->at);
  }
  return DMUON_SUCCESS;
}

void dmuon_end_runs(dmuon_runs *runs) {
  dmuon_run *last = &runs->last;
  if (last->count == 0) return;
  dmuon_put(runs->out, (uint64_t)last->count);
  dmuon_put(runs->out, (uint64_t)last->kind << 1 | (last->fabric != 0));
  if (last->fabric) dmuon_put_bytes(runs->out, &last->fabric, sizeof last->fabric);
  last->count = 0;
}

void dmuon_put_run(dmuon_runs *runs, dmuon_run run) {
  dmuon_run *last = &runs->last;
  if (last->count > 0 && last->kind == run.kind && last->fabric == run.fabric) {
    last->count += run.count;
    return;
  }
  dmuon_end_runs(runs);
  *last = run;
}

int dmuon_get_run(dmuon_reader *r, int kinds, dmuon_run *run) {
  if (r->bad || r->at == r->length) return 0;
  run->count = (int64_t)dmuon_get(r, (uint64_t)(DMUON_MACHINE_NODES - r->nodes));
  r->nodes += run->count;
  uint64_t kind = dmuon_get(r, (uint64_t)UINT32_MAX);
  run->kind = (int)(kind >> 1);
  run->fabric = 0;
  if (kind & 1) {
    const unsigned char *data = dmuon_get_bytes(r, sizeof run->fabric);
    if (data) memcpy(&run->fabric, data, sizeof run->fabric);
  }
  if (run->count == 0 || run->kind >= kinds || ((kind & 1) && run->fabric == 0)) r->bad = 1;
  return !r->bad;
}
