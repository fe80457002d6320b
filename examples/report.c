/* The text that report.h promises. */
#include "report.h"

#include <string.h>

static const char *const PHASE_NAME[PHASES] = {
    [PHASE_FORWARD] = "forward", [PHASE_BACKWARD] = "backward",
    [PHASE_REDUCE] = "reduce",   [PHASE_NEWTON_SCHULZ] = "newton_schulz",
    [PHASE_UPDATE] = "update",   [PHASE_PUBLISH] = "publish",
    [PHASE_OTHER] = "other"};

/* width characters, share of them filled. */
static void bar(char *out, int width, double share) {
  int filled = (int)(share * width + 0.5);
  if (filled < 0) filled = 0;
  if (filled > width) filled = width;
  memset(out, '#', (size_t)filled);
  memset(out + filled, '.', (size_t)(width - filled));
  out[width] = 0;
}

void report_progress(const Report *r, double elapsed, int terminal) {
  const int64_t every = r->steps / 20 > 0 ? r->steps / 20 : 1;
  const double rate = elapsed > 0 ? (double)(r->done * r->step_tokens) / elapsed : 0;
  const int left = (int)(elapsed / (double)r->done * (double)(r->steps - r->done) + 0.5);
  const double loss = r->loss[r->done - 1];
  const int last = r->done == r->steps;
  if (terminal) {
    /* At most 79 characters, the same number each time: no line may wrap, or show an older one. */
    char drawn[21], text[96];
    bar(drawn, 20, (double)r->done / (double)r->steps);
    snprintf(text, sizeof text, "[%s] step %lld/%lld  loss %.4f  %.0f tokens/s  %d:%02d left",
             drawn, (long long)r->done, (long long)r->steps, loss, rate, left / 60, left % 60);
    printf("\r%-78.78s", text);
    if (last) printf("\n");
  } else if (r->done == 1 || r->done % every == 0 || last) {
    printf("step %5lld/%lld  loss %.4f  %8.0f tokens/s  %d:%02d left\n", (long long)r->done,
           (long long)r->steps, loss, rate, left / 60, left % 60);
  }
  fflush(stdout);
}

void report_summary(const Report *r) {
  const double total = r->total > 0 ? r->total : 1e-9;
  printf(
      "\nloss %.4f -> %.4f nats a byte in %lld steps of %lld bytes with %s, "
      "%s\n",
      r->loss[0], r->loss[r->steps - 1], (long long)r->steps, (long long)r->step_tokens,
      r->optimizer, r->form);
  if (r->skipped) {
    printf("%lld steps had a gradient that was not finite and changed nothing\n",
           (long long)r->skipped);
  }
  printf(
      "%.0f tokens a second, %.1f seconds; %lld Newton-Schulz calls in all "
      "on %d rank%s\n",
      (double)(r->steps * r->step_tokens) / total, r->total, (long long)r->newton_schulz_calls,
      r->ranks, r->ranks == 1 ? "" : "s");
  printf("sent along replicate: %.1f MB, along shard: %.1f MB\n", 1e-6 * (double)r->bytes[0],
         1e-6 * (double)r->bytes[1]);
  printf("the library's memory at its highest: %.2f MB on a rank (planned: %.2f), %.2f MB on all\n",
         1e-6 * (double)r->memory_most, 1e-6 * (double)r->memory_planned_most,
         1e-6 * (double)r->memory_total);
  printf("where the time of a step goes (mean of the ranks)\n");
  for (int p = 0; p < PHASES; p++) {
    char drawn[41];
    bar(drawn, 40, r->seconds[p] / total);
    printf("  %-13s %5.1f %%  %s  %8.2f ms\n", PHASE_NAME[p], 100 * r->seconds[p] / total, drawn,
           1e3 * r->seconds[p] / (double)r->steps);
  }
  printf("parameters %016llx\n", (unsigned long long)r->parameter_hash);
}

int report_json(const Report *r, FILE *f) {
  static const char *const axis[3] = {"replicate", "shard", "tp"};
  const double total = r->total > 0 ? r->total : 1e-9;
  fprintf(f, "{\n  \"optimizer\": \"%s\",\n  \"form\": \"%s\",\n", r->optimizer, r->form);
  fprintf(f, "  \"steps\": %lld,\n  \"ranks\": %d,\n", (long long)r->steps, r->ranks);
  fprintf(f, "  \"mesh\": [%d, %d, %d],\n  \"loss\": [", r->mesh[0], r->mesh[1], r->mesh[2]);
  for (int64_t k = 0; k < r->steps; k++) fprintf(f, "%s%.9g", k ? ", " : "", r->loss[k]);
  fprintf(f, "],\n  \"parameter_hash\": \"%016llx\",\n  \"seconds\": {",
          (unsigned long long)r->parameter_hash);
  for (int p = 0; p < PHASES; p++) fprintf(f, "\"%s\": %.6f, ", PHASE_NAME[p], r->seconds[p]);
  fprintf(f,
          "\"total\": %.6f},\n  \"tokens_per_second\": %.1f,\n  "
          "\"optimizer_share\": %.6f,\n",
          r->total, (double)(r->steps * r->step_tokens) / total, r->in_step / total);
  fprintf(f,
          "  \"newton_schulz_calls\": %lld,\n  \"skipped_steps\": %lld,\n  "
          "\"comm\": {",
          (long long)r->newton_schulz_calls, (long long)r->skipped);
  for (int a = 0; a < 3; a++) {
    fprintf(f, "%s\"%s\": {\"bytes\": %lld, \"operations\": %lld}", a ? ", " : "", axis[a],
            (long long)r->bytes[a], (long long)r->operations[a]);
  }
  for (int a = 0; a < 2; a++) {
    fprintf(f, ",\n    \"%s_bytes_per_step_total\": %.15g, \"%s_bytes_per_step_planned\": %lld",
            axis[a], (double)r->bytes_steps[a] / (double)r->steps, axis[a],
            (long long)r->bytes_planned[a]);
  }
  fprintf(f, "},\n  \"memory\": {\"most_peak_bytes\": %lld, \"most_planned_bytes\": %lld,\n",
          (long long)r->memory_most, (long long)r->memory_planned_most);
  fprintf(f, "    \"total_peak_bytes\": %lld, \"total_planned_bytes\": %lld}\n}\n",
          (long long)r->memory_total, (long long)r->memory_planned_total);
  return ferror(f) ? -1 : 0;
}
