/* What comes before what on one rank, and whether that is enough for every byte. Every actor (the
 * host thread, the caller, each queue) has a clock; what an actor knows is, for each other actor,
 * the latest time that certainly lies behind it. An access is in order when the actor knows the
 * time of the access before it. */
#include <stdio.h>
#include <string.h>

#include "backend/trace/shadow.h"
#include "backend/trace/verify.h"

enum { HOST = 0, CALLER = 1, FIRST_QUEUE = 2 };

typedef struct {
  dmuon_memory *memory;
  const dmuon_trace *trace;
  int64_t position;
  dmuon_trace_report *report;
  int64_t actors;
  int64_t *known;       /* [actors][actors]: what each knows */
  int64_t *events;      /* [event_count][actors]: what whoever waits for it knows then */
  dmuon_shadow *shadow; /* by buffer; empty until touched */
} judge;

static int64_t *known_by(const judge *j, int64_t actor) {
  return j->known + actor * j->actors;
}

static void learn(const judge *j, int64_t *into, const int64_t *from) {
  for (int64_t i = 0; i < j->actors; i++)
    if (from[i] > into[i]) into[i] = from[i];
}

static int knows(const judge *j, int64_t actor, const dmuon_shadow_stamp *stamp) {
  return stamp->actor < 0 || known_by(j, actor)[stamp->actor] >= stamp->clock;
}

static const char *name_of(const judge *j, int64_t actor, char *buffer) {
  if (actor == HOST) return "the host thread";
  if (actor == CALLER) return "the caller";
  return dmuon_trace_queue_name(j->trace, actor - FIRST_QUEUE, buffer);
}

/* Fills a finding: `doing` what the second operation does to the bytes. */
static void complain(const judge *j, dmuon_trace_kind kind, int64_t second,
                     const dmuon_trace_access *access, const dmuon_shadow_piece *piece,
                     const char *doing, const dmuon_shadow_stamp *before, const char *done,
                     int64_t actor) {
  dmuon_trace_finding *f = dmuon_trace_report_add(j->report, kind, j->position);
  char buffer[128], first_text[128], second_text[128], name[2][64];
  const int64_t begin = piece->begin > access->begin ? piece->begin : access->begin;
  const int64_t end = piece->end < access->end ? piece->end : access->end;
  f->first = before ? before->record : -1;
  f->second = second;
  f->buffer = access->buffer;
  int length = snprintf(f->text, sizeof f->text, "%s bytes [%lld,%lld) %s by %s",
                        dmuon_trace_buffer_name(j->trace, access->buffer, buffer), (long long)begin,
                        (long long)end, doing,
                        dmuon_trace_describe(j->trace, second, second_text, sizeof second_text));
  if (!before) return;
  length += snprintf(f->text + length, sizeof f->text - (size_t)length, ", %s by %s", done,
                     dmuon_trace_describe(j->trace, before->record, first_text, sizeof first_text));
  if (!knows(j, actor, before))
    snprintf(f->text + length, sizeof f->text - (size_t)length,
             ": no wait of %s for %s between them", name_of(j, actor, name[0]),
             name_of(j, before->actor, name[1]));
}

static DMuonErrorCode shadow_of(judge *j, int64_t buffer, dmuon_shadow **shadow) {
  const dmuon_trace_buffer *b = &j->trace->buffers[buffer];
  *shadow = &j->shadow[buffer];
  if ((*shadow)->count > 0 || (*shadow)->pieces) return DMUON_SUCCESS;
  /* A buffer that was there before the trace began was written by somebody then. */
  return dmuon_shadow_init(j->memory, *shadow, j->actors, b->is_callers ? INT64_MIN / 2 : 0,
                           b->is_callers ? INT64_MAX / 2 : (b->bytes ? b->bytes : 1),
                           DMUON_SHADOW_WRITTEN);
}

/* The buffer was freed before. */
static int is_gone(const judge *j, const dmuon_shadow_piece *piece) {
  return piece->state == DMUON_SHADOW_NEVER && piece->written.actor >= 0 &&
         j->trace->records[piece->written.record].operation == DMUON_TRACE_FREE;
}

static DMuonErrorCode do_read(judge *j, int64_t record, int64_t actor,
                              const dmuon_trace_access *access) {
  dmuon_shadow *shadow;
  int64_t first, end, nothing = 0, told = 0;
  DMUON_TRY(shadow_of(j, access->buffer, &shadow));
  DMUON_TRY(dmuon_shadow_cut(j->memory, shadow, access->begin, access->end, &first, &end));
  for (int64_t i = first; i < end; i++) {
    dmuon_shadow_piece *piece = dmuon_shadow_at(shadow, i);
    if (is_gone(j, piece)) {
      if (!told)
        complain(j, DMUON_TRACE_RACE_FREE, record, access, piece, "read", &piece->written, "freed",
                 actor);
      told = 1;
      continue;
    }
    if (piece->state != DMUON_SHADOW_WRITTEN) nothing += piece->end - piece->begin;
    if (piece->state != DMUON_SHADOW_WRITTEN && nothing > access->padding && !told) {
      const int never = piece->state == DMUON_SHADOW_NEVER;
      complain(j, DMUON_TRACE_UNDEFINED, record, access, piece,
               never ? "read, but never written," : "read", never ? NULL : &piece->written,
               "discarded", actor);
      told = 1;
    } else if (!knows(j, actor, &piece->written) && !told) {
      complain(j, DMUON_TRACE_RACE_READ, record, access, piece, "read", &piece->written, "written",
               actor);
      told = 1;
    }
    piece->reads[actor] = (dmuon_shadow_stamp){actor, known_by(j, actor)[actor], record};
  }
  return DMUON_SUCCESS;
}

/* The reads and the write before are behind; one finding an access is enough. */
static void check_overwrite(judge *j, int64_t record, int64_t actor,
                            const dmuon_trace_access *access, const dmuon_shadow *shadow,
                            int64_t first, int64_t end, dmuon_trace_kind kind, const char *doing) {
  for (int64_t i = first; i < end; i++) {
    const dmuon_shadow_piece *piece = dmuon_shadow_at(shadow, i);
    if (is_gone(j, piece)) {
      complain(j, DMUON_TRACE_RACE_FREE, record, access, piece, doing, &piece->written, "freed",
               actor);
      return;
    }
    for (int64_t a = 0; a < j->actors; a++)
      if (!knows(j, actor, &piece->reads[a])) {
        complain(j, kind, record, access, piece, doing, &piece->reads[a], "read", actor);
        return;
      }
    if (!knows(j, actor, &piece->written)) {
      complain(j, kind, record, access, piece, doing, &piece->written, "written", actor);
      return;
    }
  }
}

static int is_read(const judge *j, const dmuon_shadow_piece *piece) {
  for (int64_t a = 0; a < j->actors; a++)
    if (piece->reads[a].actor >= 0) return 1;
  return 0;
}

/* Work done twice: discarded again, or brought from other ranks again with no reader between (of
 * none of its bytes: nobody reads what lies between parameters). */
static void check_twice(judge *j, int64_t record, int64_t actor, const dmuon_trace_access *access,
                        const dmuon_shadow *shadow, int64_t first, int64_t end) {
  const int64_t operation = j->trace->records[record].operation;
  const int discards = operation == DMUON_TRACE_DISCARD;
  const dmuon_shadow_piece *brought = NULL;
  if (!discards && !dmuon_trace_is_collective((int)operation)) return;
  for (int64_t i = first; i < end; i++) {
    const dmuon_shadow_piece *piece = dmuon_shadow_at(shadow, i);
    if (discards && piece->state == DMUON_SHADOW_DISCARDED) {
      complain(j, DMUON_TRACE_TWICE, record, access, piece, "discarded again", &piece->written,
               "discarded", actor);
      return;
    }
    if (is_read(j, piece)) return;
    if (piece->state == DMUON_SHADOW_WRITTEN && piece->written.actor >= 0 &&
        piece->written.record != record &&
        j->trace->records[piece->written.record].operation == operation)
      brought = piece;
  }
  if (brought && !discards)
    complain(j, DMUON_TRACE_TWICE, record, access, brought, "brought again", &brought->written,
             "brought and read by nobody", actor);
}

static DMuonErrorCode do_write(judge *j, int64_t record, int64_t actor,
                               const dmuon_trace_access *access) {
  dmuon_shadow *shadow;
  int64_t first, end;
  const int discards = j->trace->records[record].operation == DMUON_TRACE_DISCARD;
  DMUON_TRY(shadow_of(j, access->buffer, &shadow));
  DMUON_TRY(dmuon_shadow_cut(j->memory, shadow, access->begin, access->end, &first, &end));
  check_overwrite(j, record, actor, access, shadow, first, end, DMUON_TRACE_RACE_OVERWRITE,
                  discards ? "discarded" : "written");
  check_twice(j, record, actor, access, shadow, first, end);
  dmuon_shadow_write(shadow, first, end, discards ? DMUON_SHADOW_DISCARDED : DMUON_SHADOW_WRITTEN,
                     (dmuon_shadow_stamp){actor, known_by(j, actor)[actor], record});
  return DMUON_SUCCESS;
}

static DMuonErrorCode do_alloc(judge *j, const dmuon_trace_access *access) {
  dmuon_shadow *shadow = &j->shadow[access->buffer];
  dmuon_shadow_free(shadow);
  return dmuon_shadow_init(j->memory, shadow, j->actors, 0, access->end, DMUON_SHADOW_NEVER);
}

/* Nobody uses the buffer any more, and nobody will. */
static DMuonErrorCode do_free(judge *j, int64_t record, const dmuon_trace_access *access) {
  dmuon_shadow *shadow;
  DMUON_TRY(shadow_of(j, access->buffer, &shadow));
  const dmuon_trace_access whole = {
      .buffer = access->buffer, .begin = 0, .end = j->trace->buffers[access->buffer].bytes};
  check_overwrite(j, record, HOST, &whole, shadow, 0, shadow->count, DMUON_TRACE_RACE_FREE,
                  "freed");
  dmuon_shadow_write(shadow, 0, shadow->count, DMUON_SHADOW_NEVER,
                     (dmuon_shadow_stamp){HOST, known_by(j, HOST)[HOST], record});
  return DMUON_SUCCESS;
}

static DMuonErrorCode do_accesses(judge *j, int64_t index, int64_t actor) {
  const dmuon_trace_record *record = &j->trace->records[index];
  for (int is_write = 0; is_write < 2; is_write++)
    for (int64_t i = 0; i < record->access_count; i++) {
      const dmuon_trace_access *access = &j->trace->accesses[record->first_access + i];
      if (access->is_write != is_write) continue;
      if (is_write)
        DMUON_TRY(do_write(j, index, actor, access));
      else
        DMUON_TRY(do_read(j, index, actor, access));
    }
  return DMUON_SUCCESS;
}

static DMuonErrorCode do_record(judge *j, int64_t index) {
  const dmuon_trace_record *r = &j->trace->records[index];
  const dmuon_trace_access *access = &j->trace->accesses[r->first_access];
  const int64_t queue = r->queue < 0 ? -1 : FIRST_QUEUE + r->queue;
  int64_t *event = r->event < 0 ? NULL : j->events + r->event * j->actors;
  int64_t *host = known_by(j, HOST), *caller = known_by(j, CALLER);
  const int on_queue = queue >= 0 && r->operation != DMUON_TRACE_QUEUE_SYNC;
  int64_t *mine = known_by(j, on_queue ? queue : HOST);
  /* What is issued comes behind all that the host has seen. */
  if (on_queue) learn(j, mine, host);
  mine[on_queue ? queue : HOST]++;
  switch ((dmuon_trace_operation)r->operation) {
    case DMUON_TRACE_ALLOC:
      return r->access_count ? do_alloc(j, access) : DMUON_SUCCESS;
    case DMUON_TRACE_FREE:
      return r->access_count ? do_free(j, index, access) : DMUON_SUCCESS;
    case DMUON_TRACE_QUEUE_SYNC:
      learn(j, host, known_by(j, queue));
      return DMUON_SUCCESS;
    case DMUON_TRACE_EVENT_SYNC:
      learn(j, host, event);
      return DMUON_SUCCESS;
    case DMUON_TRACE_RECORD:
      memcpy(event, mine, (size_t)j->actors * sizeof *event);
      return DMUON_SUCCESS;
    case DMUON_TRACE_WAIT:
      learn(j, mine, event);
      return DMUON_SUCCESS;
    case DMUON_TRACE_LEND:
      learn(j, caller, mine);
      return DMUON_SUCCESS;
    case DMUON_TRACE_RECLAIM:
      learn(j, caller, host);
      caller[CALLER]++;
      /* Who writes has read before, or may have. */
      for (int64_t i = 0; i < r->access_count; i++) {
        if (access[i].is_write) DMUON_TRY(do_write(j, index, CALLER, &access[i]));
        if (!access[i].is_write) DMUON_TRY(do_read(j, index, CALLER, &access[i]));
      }
      learn(j, mine, caller);
      return DMUON_SUCCESS;
    default:
      return do_accesses(j, index, on_queue ? queue : HOST);
  }
}

static DMuonErrorCode run(judge *j) {
  const dmuon_trace *t = j->trace;
  DMUON_TRY(dmuon_memory_alloc(j->memory, j->actors * j->actors, sizeof *j->known, &j->known));
  DMUON_TRY(
      dmuon_memory_alloc(j->memory, t->event_count * j->actors, sizeof *j->events, &j->events));
  DMUON_TRY(dmuon_memory_alloc(j->memory, t->buffer_count, sizeof *j->shadow, &j->shadow));
  for (int64_t i = 0; i < t->record_count; i++) DMUON_TRY(do_record(j, i));
  if (t->forgotten) {
    dmuon_trace_finding *f = dmuon_trace_report_add(j->report, DMUON_TRACE_FORGOTTEN, j->position);
    snprintf(f->text, sizeof f->text, "%lld operations came behind the %lld that were kept",
             (long long)t->forgotten, (long long)t->record_count);
  }
  return DMUON_SUCCESS;
}

DMuonErrorCode dmuon_trace_verify_rank(dmuon_memory *memory, const dmuon_trace *trace,
                                       int64_t position, dmuon_trace_report *report) {
  judge j = {.memory = memory,
             .trace = trace,
             .position = position,
             .report = report,
             .actors = FIRST_QUEUE + trace->queue_count};
  DMuonErrorCode code = run(&j);
  for (int64_t b = 0; j.shadow && b < trace->buffer_count; b++) dmuon_shadow_free(&j.shadow[b]);
  dmuon_memory_free(j.shadow);
  dmuon_memory_free(j.events);
  dmuon_memory_free(j.known);
  return code;
}
