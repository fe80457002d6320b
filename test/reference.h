/* An independent reference of the update rules: one process, everything in fp64, from the averaged
 * gradient of whole parameters. No code of the library; Newton-Schulz in its direct form with the
 * coefficient tables typed in here. Slow and plain on purpose. */
#ifndef TEST_REFERENCE_H
#define TEST_REFERENCE_H

#include <stdint.h>

typedef enum { REF_MUON, REF_ADAMW, REF_FROZEN } ref_route;
typedef enum {
  REF_DECOUPLED,
  REF_INDEPENDENT,
  REF_L2,
  REF_CAUTIOUS,
  REF_PALM,
  REF_NO_DECAY
} ref_decay;
typedef enum { REF_MOONLIGHT, REF_JORDAN, REF_SPECTRAL, REF_UNIT_RMS, REF_NO_SCALE } ref_scale;
typedef enum { REF_NO_CLIP, REF_CLIP_GLOBAL, REF_CLIP_BY_ROUTE } ref_clip;

/* A recipe, or what a test made of one. */
typedef struct {
  double lr, momentum, weight_decay;
  double adamw_lr, beta1, beta2, eps, adamw_weight_decay;
  int ema, nesterov, missing_is_zero;
  ref_decay decay;
  ref_scale scale;
  double scale_factor;
  const char *coefficients;
  ref_clip clip;
  double max_norm;
} ref_rule;

/* One parameter: batch matrices of rows x cols, each cut on its output side into blocks. */
typedef struct {
  ref_route route;
  int64_t batch, rows, cols;
  int output_is_cols, nblocks, repeat;
  int64_t blocks[4];
  double lr, momentum, weight_decay, beta1, beta2, eps; /* filled from the rule by ref_start */
  int64_t step;
  double *weight, *momentum_buffer, *exp_avg, *exp_avg_sq; /* [batch * rows * cols], the caller's */
} ref_param;

typedef struct {
  double grad_norm, muon_norm, adamw_norm, factor;
  int64_t matrices; /* orthogonalised */
} ref_info;

/* "dmuon", "jordan", "moonlight", "dion", "emerging"; 0 when there is none of this name. */
int ref_recipe(const char *name, ref_rule *rule);
/* Hyper-parameters from the rule, state to zero. */
void ref_start(const ref_rule *rule, int count, ref_param *params);
/* One step; gradients[i] NULL: no rank has one. They are not changed. */
void ref_step(const ref_rule *rule, double lr_factor, int count, ref_param *params,
              double *const *gradients, ref_info *info);
/* x (rows x cols) becomes its orthogonalised self. */
void ref_newton_schulz(const char *coefficients, int64_t rows, int64_t cols, double *x);
/* sqrt(sum (a-b)^2 / sum b^2); 0 for nothing, and for zeros that agree. */
double ref_distance(int64_t n, const double *a, const double *b);

#endif
