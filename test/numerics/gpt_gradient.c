/* The example's backward pass against finite differences of its forward pass.
 *
 * Along a direction u of one tensor the slope of the loss F is compared with (gradient, u), by the
 * difference of fourth order D4 = (8 (F(h) - F(-h)) - (F(2h) - F(-2h))) / 12h and that of second
 * order D2 = (F(h) - F(-h)) / 2h. Two errors bound what may be seen:
 *   rounding    each F is a sum of n losses of about log 256, each wrong by at most e = 16 units of
 *               fp32 relative (its logits are sums of a few hundred rounded products, whose errors
 *               largely cancel); independent errors add up to sqrt(n) e. D4 amplifies them by
 *               at most 18 / 12h.
 *   truncation  D2 - D4 is h^2 F'''/6 up to h^4, what is left in D4 is of order h^4: taken as
 *               a quarter of |D2 - D4|.
 * Directions: the gradient's own (where the signal is largest: there the bound must be below 2 % of
 * the slope, so a lost factor or term cannot hide) and three of random signs, which see errors
 * across the gradient. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpt.h"
#include "tap.h"

enum { SEQUENCES = 3, CONTEXT = 6, DIRECTIONS = 4 };

static unsigned char text[SEQUENCES * (CONTEXT + 1)];
static uint64_t state = 88172645463325252u;

static double uniform(void) { /* (-1, 1), xorshift */
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (double)(state >> 11) / 4503599627370496.0 - 1;
}

static double loss_at(Gpt *gpt, float *weights, const float *start, const double *u, int64_t n,
                      double h) {
  for (int64_t k = 0; k < n; k++) weights[k] = (float)(start[k] + h * u[k]);
  return gpt_forward(gpt, text, SEQUENCES);
}

/* Slope along u and its bound. h is chosen so that the weights move by some 1e-2 in norm. */
static double slope(Gpt *gpt, const GptTensor *t, int64_t n, const double *u, double *bound) {
  float *start = malloc((size_t)n * sizeof *start);
  double length = 0;
  memcpy(start, t->weights, (size_t)n * sizeof *start);
  for (int64_t k = 0; k < n; k++) length += u[k] * u[k];
  const double h = 0.03 / sqrt(length);
  const double f1 = loss_at(gpt, t->weights, start, u, n, h);
  const double b1 = loss_at(gpt, t->weights, start, u, n, -h);
  const double f2 = loss_at(gpt, t->weights, start, u, n, 2 * h);
  const double b2 = loss_at(gpt, t->weights, start, u, n, -2 * h);
  memcpy(t->weights, start, (size_t)n * sizeof *start);
  free(start);
  const double d2 = (f1 - b1) / (2 * h), d4 = (8 * (f1 - b1) - (f2 - b2)) / (12 * h);
  const double rounding = sqrt(SEQUENCES * CONTEXT) * log(256) * 16 * ldexp(1, -24);
  *bound = rounding * 18 / (12 * h) + fabs(d2 - d4) / 4;
  return d4;
}

int main(void) {
  const GptConfig config = {.layers = 2, .width = 16, .heads = 2, .context = CONTEXT};
  Gpt *gpt = gpt_create(config, SEQUENCES + 1); /* more room than the pass uses */
  if (!tap_ok(gpt && !gpt_own(gpt, 7), "a network")) return tap_done();
  for (size_t i = 0; i < sizeof text; i++) text[i] = (unsigned char)(97 + 5 * i % 11);
  /* Larger weights than the initial ones, gains and biases off their special values: every term
   * of the gradient counts. */
  for (int i = 0; i < GPT_TENSORS; i++) {
    const GptTensor *t = &gpt->tensor[i];
    const int64_t n = t->numel * (t->layers ? t->layers : 1);
    for (int64_t k = 0; k < n; k++) t->weights[k] += (float)(0.2 * uniform());
  }
  gpt_zero_gradients(gpt);
  gpt_forward(gpt, text, SEQUENCES);
  gpt_backward(gpt);
  tap_plan(1 + 2 * GPT_TENSORS + 2);

  for (int i = 0; i < GPT_TENSORS; i++) {
    const GptTensor *t = &gpt->tensor[i];
    const int64_t n = t->numel * (t->layers ? t->layers : 1);
    double *u = malloc((size_t)n * sizeof *u), worst = 0, sharpness = 0;
    for (int direction = 0; direction < DIRECTIONS; direction++) {
      double expected = 0, bound;
      for (int64_t k = 0; k < n; k++) {
        u[k] = direction ? (uniform() < 0 ? -1 : 1) : t->gradients[k];
        expected += u[k] * t->gradients[k];
      }
      const double got = slope(gpt, t, n, u, &bound);
      if (!(fabs(got - expected) <= worst * bound)) worst = fabs(got - expected) / bound;
      if (direction == 0) sharpness = bound / expected;
    }
    tap_ok(worst <= 1, "%s: slopes agree (error %.2f of the bound)", t->name, worst);
    tap_ok(sharpness < 0.02, "%s: the bound is sharp (%.2g of the slope)", t->name, sharpness);
    free(u);
  }

  /* Gradients add up: a second backward pass doubles them, but for rounding. */
  const GptTensor *fc = &gpt->tensor[GPT_FC_B];
  float once[2 * 4 * 16];
  gpt_zero_gradients(gpt);
  gpt_forward(gpt, text, 1);
  gpt_backward(gpt);
  memcpy(once, fc->gradients, sizeof once);
  gpt_zero_gradients(gpt);
  for (int pass = 0; pass < 2; pass++) {
    gpt_forward(gpt, text, 1);
    gpt_backward(gpt);
  }
  double apart = 0;
  for (int k = 0; k < 2 * 4 * 16; k++) {
    apart = fmax(apart, fabs(fc->gradients[k] - 2.0 * once[k]) - 1e-5 * fabs(once[k]) - 1e-6);
  }
  tap_ok(apart <= 0, "gradients of two passes add up");

  /* Keeping the blocks' inputs alone, and running each block again, changes no bit. */
  GptConfig frugal = config;
  frugal.recompute = 1;
  Gpt *again = gpt_create(frugal, SEQUENCES);
  if (again && !gpt_own(again, 7) && again->room == gpt->room) {
    memcpy(again->parameters, gpt->parameters, (size_t)gpt->room * sizeof(float));
    gpt_zero_gradients(gpt);
    gpt_zero_gradients(again);
    const double loss = gpt_forward(gpt, text, SEQUENCES);
    const double loss_again = gpt_forward(again, text, SEQUENCES);
    gpt_backward(gpt);
    gpt_backward(again);
    const size_t bytes = (size_t)gpt->room * sizeof(float);
    tap_ok(loss == loss_again && !memcmp(gpt->gradients, again->gradients, bytes),
           "recomputation gives the same bits");
  } else {
    tap_ok(0, "a second network");
  }
  gpt_destroy(again);
  gpt_destroy(gpt);
  return tap_done();
}
