/* Agreement: pieces of data are combined up the binomial tree to rank 0, and the result comes back
 * down the same tree. It decides when to give up and who gets the blame; how messages travel is
 * bootstrap_link.c's.
 *
 * Blame. A rank that waited too long for its children says so to its parent and to its children,
 * with the names of those that did not answer, and ranks nearer to rank 0 wait a little longer, so
 * that they hear from their children who is really missing. A late rank finds the note when it
 * comes. */
#include "comm/bootstrap_link.h"

#include <stdio.h>
#include <string.h>

#include "comm/bootstrap_private.h"

typedef enum { REDUCE, BROADCAST, MERGE } session_kind;

typedef struct {
  session_kind kind;
  dmuon_link *link;
  const char *what;
  int root; /* of a broadcast */
  dmuon_combine combine;
  dmuon_merge merge;
  void *context;
  void *data; /* this subtree's piece, then the result */
  int64_t bytes;
  int owned; /* data was allocated here (merge) */
  int failed;
  dmuon_link_failure failure;
  int silent_count;
  int32_t silent[DMUON_LINK_SILENT];
  int32_t silent_by; /* who waited for them: this rank, or one that told us */
} session;

static void note_failure(session *s, DMuonErrorCode code) {
  if (s->failed) return;
  s->failed = 1;
  s->failure.code = (int32_t)code;
  s->failure.rank = s->link->rank;
  snprintf(s->failure.text, sizeof s->failure.text, "%s", dmuon_error_text());
}

/* This rank waited too long for rank. */
static void note_silent(session *s, int rank) {
  if (!s->silent_count) s->silent_by = s->link->rank;
  if (s->silent_count < DMUON_LINK_SILENT) s->silent[s->silent_count++] = rank;
}

static void take_silent(session *s, const dmuon_link_note *note) {
  const int is_first = !s->silent_count;
  for (int i = 0; i < note->silent_count && i < DMUON_LINK_SILENT; i++)
    note_silent(s, note->silent[i]);
  if (!note->silent_count) note_silent(s, -1);
  if (is_first) s->silent_by = note->silent_by;
}

/* Ranks that are in different calls must not take each other's data: nonzero, and the session has
 * failed. */
static int is_other_call(session *s, int child, const dmuon_link_note *note) {
  char mine[DMUON_LINK_CALL];
  snprintf(mine, sizeof mine, "%s", s->what);
  if (note->kind != DMUON_NOTE_DATA || memcmp(mine, note->call, strlen(mine) + 1) == 0) return 0;
  note_failure(s, DMUON_ERROR(DMUON_ERR_DISAGREE,
                              "ranks make different calls: rank %d is at \"%s\", rank %d at "
                              "\"%.*s\"",
                              s->link->rank, s->what, child, DMUON_LINK_CALL - 1, note->call));
  return 1;
}

static void take_failure(session *s, const dmuon_link_note *note) {
  if (s->failed) return;
  s->failed = 1;
  memcpy(&s->failure, note->payload, sizeof s->failure);
  s->failure.text[sizeof s->failure.text - 1] = '\0';
}

/* Replaces the session's data by a block of its own. */
static void adopt(session *s, void *data, int64_t bytes) {
  if (s->owned) dmuon_memory_free(s->data);
  s->data = data;
  s->bytes = bytes;
  s->owned = 1;
}

/* Where a child's payload of more than a note goes; NULL when it must be dropped. */
static void *room_up(session *s, int64_t bytes) {
  if (s->failed || s->silent_count) return NULL;
  if (s->kind == BROADCAST) return bytes == s->bytes ? s->data : NULL;
  DMuonErrorCode code = dmuon_link_reserve(s->link, bytes);
  if (code) note_failure(s, code);
  return code ? NULL : s->link->scratch;
}

static void absorb(session *s, int child, const void *from, int64_t bytes) {
  if (s->failed || s->silent_count) return;
  if (s->kind == MERGE) {
    void *out = NULL;
    int64_t out_bytes = 0;
    DMuonErrorCode code =
        s->merge(s->link->memory, s->data, s->bytes, from, bytes, &out, &out_bytes, s->context);
    if (code) {
      note_failure(s, code);
    } else {
      adopt(s, out, out_bytes);
    }
    return;
  }
  if (s->kind == BROADCAST && bytes == 0) return; /* root is not below this child */
  if (bytes != s->bytes) {
    note_failure(
        s, DMUON_ERROR(DMUON_ERR_DISAGREE, "%s: rank %d has %lld bytes, rank %d has %lld", s->what,
                       child, (long long)bytes, s->link->rank, (long long)s->bytes));
  } else if (s->kind == REDUCE) {
    s->combine(s->data, from, bytes, s->context);
  } else if (from != s->data) {
    memcpy(s->data, from, (size_t)bytes);
  }
}

static void fill_note(const session *s, dmuon_link_note *note, int64_t bytes) {
  note->silent_count = s->silent_count;
  note->silent_by = s->silent_by;
  snprintf(note->call, sizeof note->call, "%s", s->what);
  memcpy(note->silent, s->silent, sizeof note->silent);
  if (s->silent_count) {
    note->kind = DMUON_NOTE_SILENT;
    note->bytes = 0;
  } else if (s->failed) {
    note->kind = DMUON_NOTE_FAILED;
    note->bytes = sizeof s->failure;
    memcpy(note->payload, &s->failure, sizeof s->failure);
  } else {
    note->kind = DMUON_NOTE_DATA;
    note->bytes = bytes;
    if (bytes && bytes <= DMUON_LINK_INLINE) memcpy(note->payload, s->data, (size_t)bytes);
  }
}

static int has_body(const dmuon_link_note *note) {
  return note->kind == DMUON_NOTE_DATA && note->bytes > DMUON_LINK_INLINE;
}

/* How much later than a leaf a rank gives up, a level. */
static double patience(const dmuon_link *link) {
  double share = 0.1 * link->timeout;
  return share > 1 ? 1 : share;
}

static DMuonErrorCode collect(session *s, double deadline) {
  dmuon_link *link = s->link;
  for (int i = 0; i < link->child_count; i++) {
    int done, child = link->child[i];
    /* An answer before the question: the parent has given up, and says whom it missed. */
    MPI_Request *alarm = link->rank > 0 ? &link->parent_in : NULL;
    DMUON_TRY(dmuon_link_wait(link, &link->child_in[i], alarm, deadline, &done));
    if (!done && alarm && *alarm == MPI_REQUEST_NULL) return DMUON_SUCCESS;
    if (!done) {
      note_silent(s, child);
      continue;
    }
    const dmuon_link_note *note = &link->notes[i];
    if (note->kind == DMUON_NOTE_SILENT) {
      take_silent(s, note);
    } else if (note->kind == DMUON_NOTE_FAILED) {
      take_failure(s, note);
    } else if (!has_body(note)) {
      if (!is_other_call(s, child, note)) absorb(s, child, note->payload, note->bytes);
    } else if (!s->silent_count) { /* else the child's send is stopped by our note */
      void *into = is_other_call(s, child, note) ? NULL : room_up(s, note->bytes);
      DMUON_TRY(dmuon_link_receive_body(link, child, into, note->bytes, &done));
      if (!done) {
        note_silent(s, child);
      } else if (into) {
        absorb(s, child, into, note->bytes);
      } else if (!s->failed) {
        absorb(s, child, NULL, note->bytes); /* a broadcast of another length: says so */
      }
    }
  }
  return DMUON_SUCCESS;
}

/* Up to the parent, and its answer. */
static DMuonErrorCode consult(session *s, double deadline) {
  dmuon_link *link = s->link;
  dmuon_link_note *in = &link->notes[link->child_count], *out = in + 1;
  int subtree_has_root = s->root >= link->rank && s->root < link->rank + (1 << link->height);
  int done;
  fill_note(s, out, s->kind == BROADCAST && !subtree_has_root ? 0 : s->bytes);
  DMUON_TRY(dmuon_link_post_note(link, link->parent, 1, out, &link->parent_out));
  if (has_body(out)) {
    DMUON_TRY(
        dmuon_link_send_body(link, link->parent, s->data, out->bytes, &link->parent_in, &done));
  }
  DMUON_TRY(dmuon_link_wait(link, &link->parent_in, NULL, deadline, &done));
  if (!done && !s->silent_count) note_silent(s, link->parent);
  if (!done) return DMUON_SUCCESS;
  if (in->kind == DMUON_NOTE_SILENT) {
    if (!s->silent_count) take_silent(s, in);
  } else if (in->kind == DMUON_NOTE_FAILED) {
    s->failed = 0; /* the answer is what all ranks hear */
    take_failure(s, in);
  } else {
    void *into = s->data;
    DMuonErrorCode code = DMUON_SUCCESS;
    if (s->kind == MERGE) {
      code = dmuon_memory_alloc(link->memory, in->bytes, 1, &into);
      if (code) into = NULL;
    } else if (in->bytes != s->bytes) {
      code = DMUON_ERROR(DMUON_ERR_DISAGREE, "%s: rank %d expects %lld bytes, rank 0 has %lld",
                         s->what, link->rank, (long long)s->bytes, (long long)in->bytes);
      into = NULL;
    }
    if (code) note_failure(s, code);
    code = DMUON_SUCCESS;
    if (has_body(in)) {
      code = dmuon_link_receive_body(link, link->parent, into, in->bytes, &done);
      if (!done) note_silent(s, link->parent);
    } else if (into) {
      memcpy(into, in->payload, (size_t)in->bytes);
    }
    if (into && s->kind == MERGE) adopt(s, into, in->bytes);
    DMUON_TRY(code);
  }
  if (!s->silent_count) DMUON_TRY(dmuon_link_wait(link, &link->parent_out, NULL, deadline, &done));
  return DMUON_SUCCESS;
}

static DMuonErrorCode spread(session *s, double deadline) {
  dmuon_link *link = s->link;
  dmuon_link_note *out = &link->notes[link->child_count + 2];
  int done;
  for (int i = 0; i < link->child_count; i++) {
    fill_note(s, &out[i], s->bytes);
    DMUON_TRY(dmuon_link_post_note(link, link->child[i], 1, &out[i], &link->child_out[i]));
  }
  for (int i = 0; i < link->child_count; i++) {
    if (has_body(&out[i])) {
      DMUON_TRY(dmuon_link_send_body(link, link->child[i], s->data, out[i].bytes, NULL, &done));
      if (!done) note_silent(s, link->child[i]);
    }
    DMUON_TRY(dmuon_link_wait(link, &link->child_out[i], NULL, deadline, &done));
    if (!done && !s->silent_count) note_silent(s, link->child[i]);
  }
  return DMUON_SUCCESS;
}

static DMuonErrorCode run(session *s) {
  dmuon_link *link = s->link;
  double now = dmuon_link_now(), up = 0, down = 0;
  if (link->timeout > 0) {
    int levels = 1;
    while (levels < 31 && (1 << levels) < link->size) levels++;
    up = now + link->timeout + patience(link) * link->height;
    down = now + link->timeout + patience(link) * (levels + link->depth + 1);
  }
  for (int i = 0; i < link->child_count; i++) {
    DMUON_TRY(dmuon_link_post_note(link, link->child[i], 0, &link->notes[i], &link->child_in[i]));
  }
  if (link->rank > 0) {
    DMUON_TRY(dmuon_link_post_note(link, link->parent, 0, &link->notes[link->child_count],
                                   &link->parent_in));
  }
  DMUON_TRY(collect(s, up));
  if (link->rank > 0) DMUON_TRY(consult(s, down));
  return spread(s, s->silent_count ? now : down);
}

static DMuonErrorCode report_failure(const dmuon_link_failure *failure, const dmuon_link *link) {
  if (!failure->code) return DMUON_SUCCESS;
  if (failure->rank == link->rank) DMUON_FAIL((DMuonErrorCode)failure->code, "%s", failure->text);
  DMUON_FAIL((DMuonErrorCode)failure->code, "rank %d: %s", (int)failure->rank, failure->text);
}

/* Carries the session out and says what came of it. After a failure that all ranks hear of the link
 * is as good as before; a lost rank breaks it. */
static DMuonErrorCode conclude(session *s) {
  dmuon_link *link = s->link;
  dmuon_link_listen(link);
  DMUON_TRY(dmuon_link_check(link));
  if (link->size == 1) return DMUON_SUCCESS;
  DMuonErrorCode code = run(s);
  link->sequence++;
  if (!code && s->silent_count) {
    char names[128] = "";
    int length = 0, self = 0;
    for (int i = 0; i < s->silent_count; i++) {
      self |= s->silent[i] == link->rank;
      if (s->silent[i] < 0) continue;
      length += snprintf(names + length, sizeof names - (size_t)length, "%s%d", length ? ", " : "",
                         (int)s->silent[i]);
    }
    /* Without a bell there is only this way to hear of it: then it is everybody's own. */
    const int heard = link->bell && s->silent_by != link->rank;
    char by[40] = "";
    if (heard) snprintf(by, sizeof by, "rank %d of %d gave up: ", (int)s->silent_by, link->size);
    code = DMUON_ERROR(heard ? DMUON_ERR_REVOKED : DMUON_ERR_TIMEOUT,
                       "%s%s%s%s%s: no answer from rank %s of %d within the timeout of %g s%s",
                       link->name ? "mesh \"" : "", link->name ? link->name : "",
                       link->name ? "\": " : "", by, s->what, length ? names : "(unknown)",
                       link->size, link->timeout, self ? " (this rank came too late)" : "");
  }
  if (code) {
    dmuon_link_break(link, code);
    return link->broken;
  }
  return report_failure(&s->failure, link);
}

DMuonErrorCode dmuon_link_reduce(dmuon_link *link, const char *what, void *data, int64_t bytes,
                                 dmuon_combine combine, void *context) {
  session s = {.kind = REDUCE,
               .link = link,
               .what = what,
               .data = data,
               .bytes = bytes,
               .combine = combine,
               .context = context};
  return conclude(&s);
}

static void lowest_failure(void *into, const void *from, int64_t bytes, void *context) {
  (void)context;
  dmuon_link_failure *a = into;
  const dmuon_link_failure *b = from;
  if (!a->code && b->code) memcpy(a, b, (size_t)bytes);
}

DMuonErrorCode dmuon_link_agree_error(dmuon_link *link, const char *what, DMuonErrorCode code,
                                      DMuonErrorCode local_as) {
  dmuon_link_failure mine;
  memset(&mine, 0, sizeof mine);
  if (code) {
    mine.code = (int32_t)(code < 100 ? local_as : code);
    mine.rank = link->rank;
    snprintf(mine.text, sizeof mine.text, "%s", dmuon_error_text());
  }
  DMUON_TRY(dmuon_link_reduce(link, what, &mine, sizeof mine, lowest_failure, NULL));
  if (!mine.code) return DMUON_SUCCESS;
  mine.text[sizeof mine.text - 1] = '\0';
  if (code == (DMuonErrorCode)mine.code && mine.rank == link->rank) return code; /* record stands */
  return report_failure(&mine, link);
}

/* Without a bootstrap there is one rank: what it says is agreed. */
static DMuonErrorCode agree_alone(DMuonErrorCode code, DMuonErrorCode local_as) {
  if (!code || code >= 100 || code == local_as) return code;
  char text[sizeof((dmuon_link_failure *)0)->text];
  snprintf(text, sizeof text, "%s", dmuon_error_text());
  DMUON_FAIL(local_as, "%s", text);
}

DMuonErrorCode dmuon_agree_reduce(dmuon_bootstrap *bootstrap, const char *what, void *data,
                                  int64_t bytes, dmuon_combine combine, void *context) {
  if (!bootstrap) return DMUON_SUCCESS;
  return dmuon_link_reduce(&bootstrap->link, what, data, bytes, combine, context);
}

DMuonErrorCode dmuon_agree_reserve(dmuon_bootstrap *bootstrap, int64_t bytes) {
  if (!bootstrap) return DMUON_SUCCESS;
  return dmuon_link_reserve(&bootstrap->link, bytes);
}

DMuonErrorCode dmuon_agree_broadcast(dmuon_bootstrap *bootstrap, const char *what, int root,
                                     void *data, int64_t bytes) {
  if (!bootstrap) return DMUON_SUCCESS; /* whichever rank it plays */
  if (root < 0 || root >= bootstrap->link.size)
    DMUON_FAIL(DMUON_ERR_ARGUMENT, "%s: root %d out of range [0,%d)", what, root,
               bootstrap->link.size);
  session s = {.kind = BROADCAST,
               .link = &bootstrap->link,
               .what = what,
               .root = root,
               .data = data,
               .bytes = bytes};
  return conclude(&s);
}

void dmuon_agree_larger(void *into, const void *from, int64_t bytes, void *context) {
  (void)context;
  int *a = into;
  const int *b = from;
  for (int64_t i = 0; i < bytes / (int64_t)sizeof *a; i++)
    if (b[i] > a[i]) a[i] = b[i];
}

DMuonErrorCode dmuon_agree_merge(dmuon_bootstrap *bootstrap, const char *what, void **data,
                                 int64_t *bytes, dmuon_merge merge, void *context) {
  if (!bootstrap) return DMUON_SUCCESS;
  dmuon_link *link = &bootstrap->link;
  session s = {.kind = MERGE,
               .link = link,
               .what = what,
               .data = *data,
               .bytes = *bytes,
               .merge = merge,
               .context = context};
  DMuonErrorCode code = conclude(&s);
  if (!link->broken && link->size > 1) {
    /* A rank without memory for the result failed alone: all hear of it before anybody keeps it. */
    DMuonErrorCode lost =
        dmuon_link_reduce(link, what, &s.failure, sizeof s.failure, lowest_failure, NULL);
    code = lost ? lost : report_failure(&s.failure, link);
  }
  if (code) {
    if (s.owned) dmuon_memory_free(s.data);
    return code;
  }
  if (s.owned) {
    dmuon_memory_free(*data);
    *data = s.data;
    *bytes = s.bytes;
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_agree_error(dmuon_bootstrap *bootstrap, const char *what, DMuonErrorCode code,
                                 DMuonErrorCode local_as) {
  if (!bootstrap) return agree_alone(code, local_as);
  return dmuon_link_agree_error(&bootstrap->link, what, code, local_as);
}

typedef struct {
  uint64_t value;
  int32_t first, other;
} equality;

/* other: the lowest rank whose value is not that of first, the lowest rank of all. */
static void combine_equality(void *into, const void *from, int64_t bytes, void *context) {
  (void)bytes, (void)context;
  equality *a = into;
  const equality *b = from;
  if (a->other < 0) a->other = a->value == b->value ? b->other : b->first;
}

DMuonErrorCode dmuon_agree_equal(dmuon_bootstrap *bootstrap, const char *what, uint64_t value,
                                 int *equal, int *other) {
  if (!bootstrap) {
    *equal = 1;
    return DMUON_SUCCESS;
  }
  equality mine = {.value = value, .first = bootstrap->link.rank, .other = -1};
  DMUON_TRY(dmuon_link_reduce(&bootstrap->link, what, &mine, sizeof mine, combine_equality, NULL));
  *equal = mine.other < 0;
  if (other && mine.other >= 0) *other = mine.other;
  return DMUON_SUCCESS;
}
