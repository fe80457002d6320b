/* Part of device_conformance.h: the update rules at the ends of the range. Finite numbers give
 * finite ones, each element by itself; what is not finite stays so. */
#ifndef TEST_BACKEND_DEVICE_EXTREMES_H
#define TEST_BACKEND_DEVICE_EXTREMES_H

/* Elements 0 to 3 are as large as the dtype allows, 4 an infinity, 5 NaN; the others are ordinary.
 */
static array array_extreme(DMuonDType dtype, int64_t n) {
  array a = array_random(dtype, n, 1);
  const double most = dmuon_dtype_largest(dtype);
  must(suite.ops->queue_sync(suite.queue));
  for (int i = 0; i < 4; i++) a.value[i] = i % 2 ? -most : most;
  a.value[4] = INFINITY, a.value[5] = NAN;
  array_push(&a);
  return a;
}

/* Four steps with the same gradient: after them momentum and update stand at the limit, with the
 * gradient's sign; the last weight term pulls the other way, by as much. */
static void test_momentum_overflow(void) {
  const int64_t n = 700;
  for (int d = 0; d < 2; d++) {
    const DMuonDType dtype = all_dtypes[d];
    const double most = dmuon_dtype_largest(dtype);
    int held = 1, passed = 1, others = 1;
    for (int k = 0; k < 8; k++) {
      const int ema = k & 1, nesterov = k >> 1 & 1;
      array g = array_extreme(dtype, n), w = array_random(dtype, n, 1);
      array b = array_new(dtype, n, NAN), u = array_new(dtype, n, NAN);
      array plain = array_new(dtype, n, NAN), plain_u = array_new(dtype, n, NAN);
      for (int step = 0; step < 4; step++) {
        dmuon_muon_momentum args = {.n = n,
                                    .form = ema ? DMUON_MOMENTUM_EMA : DMUON_MOMENTUM_HEAVY_BALL,
                                    .nesterov = nesterov,
                                    .first = step == 0,
                                    .mu = 0.9,
                                    .grad_scale = 1,
                                    .l2 = k >> 2 ? 0.5 : 0,
                                    .grad = g.device,
                                    .grad_dtype = dtype,
                                    .momentum = b.device,
                                    .momentum_dtype = dtype,
                                    .weight = w.device,
                                    .weight_dtype = dtype,
                                    .update = u.device};
        must(suite.ops->muon_momentum(suite.queue, &args));
        /* The ordinary elements alone: the same bits. */
        args.n = n - 6;
        args.grad = dmuon_dtype_at(g.device, 6, dtype);
        args.weight = dmuon_dtype_at(w.device, 6, dtype);
        args.momentum = plain.device, args.update = plain_u.device;
        must(suite.ops->muon_momentum(suite.queue, &args));
        array_pull(&b), array_pull(&u), array_pull(&plain), array_pull(&plain_u);
        for (int i = 0; i < 4; i++) {
          const double sign = i % 2 ? -1 : 1;
          if (!(sign * b.value[i] > 0.09 * most && isfinite(b.value[i]))) held = 0;
          if (!(sign * u.value[i] > 0.09 * most && isfinite(u.value[i]))) held = 0;
          if (!ema && sign * b.value[i] != most) held = 0;
        }
        for (int i = 4; i < 6; i++) passed &= !isfinite(b.value[i]) && !isfinite(u.value[i]);
        for (int64_t i = 6; i < n; i++)
          others &= b.value[i] == plain.value[i - 6] && u.value[i] == plain_u.value[i - 6];
      }
      /* From one end to the other: nothing but finite. */
      if (ema) {
        for (int i = 0; i < 4; i++) g.value[i] = -g.value[i];
        array_push(&g);
        dmuon_muon_momentum args = {.n = 4,
                                    .form = DMUON_MOMENTUM_EMA,
                                    .nesterov = nesterov,
                                    .mu = 0.9,
                                    .grad_scale = 1,
                                    .grad = g.device,
                                    .grad_dtype = dtype,
                                    .momentum = b.device,
                                    .momentum_dtype = dtype,
                                    .update = u.device};
        for (int i = 0; i < 4; i++) b.value[i] = -g.value[i];
        array_push(&b);
        must(suite.ops->muon_momentum(suite.queue, &args));
        array_pull(&b), array_pull(&u);
        for (int i = 0; i < 4; i++)
          if (!(b.value[i] * (i % 2 ? -1 : 1) > 0.7 * most && isfinite(u.value[i]))) held = 0;
      }
      array_free(&g), array_free(&w), array_free(&b), array_free(&u);
      array_free(&plain), array_free(&plain_u);
    }
    const char *name = dmuon_dtype_name(dtype);
    tap_ok(held, "%s: %s momentum of the largest gradients is finite, with their sign", suite.name,
           name);
    tap_ok(passed, "%s: %s momentum of what is not finite is not", suite.name, name);
    tap_ok(others, "%s: %s momentum of their neighbours is as without them", suite.name, name);
  }
}

static dmuon_adamw adamw_of(const array *g, const array *m, const array *v, const array *p) {
  return (dmuon_adamw){.n = g->n,
                       .step = 1,
                       .lr = 0.125,
                       .beta1 = 0.75,
                       .beta2 = 0.9375,
                       .grad_scale = 1,
                       .grad = g->device,
                       .grad_dtype = g->dtype,
                       .exp_avg = m->device,
                       .exp_avg_sq = v->device,
                       .state_dtype = m->dtype,
                       .weight = p->device,
                       .weight_dtype = p->dtype};
}

/* A gradient whose square overflows, many times, then ordinary ones: every step moves the weight by
 * about the rate. And a zero divisor, which moves nothing. */
static void test_adamw_overflow(void) {
  const int64_t n = 600;
  for (int d = 0; d < 2; d++) {
    const DMuonDType dtype = all_dtypes[d];
    const double most = dmuon_dtype_largest(dtype);
    int held = 1, still = 1;
    array g = array_extreme(dtype, n), p = array_new(dtype, n, 1);
    array m = array_new(dtype, n, 0), v = array_new(dtype, n, 0);
    dmuon_adamw args = adamw_of(&g, &m, &v, &p);
    args.eps = 1e-8;
    for (; args.step <= 40; args.step++) {
      must(suite.ops->adamw(suite.queue, &args));
      array_pull(&m), array_pull(&v), array_pull(&p);
      for (int i = 0; i < 4; i++) {
        const double moved = (1 - p.value[i]) * (i % 2 ? -1 : 1);
        if (!(fabs(m.value[i]) <= sqrt(most) && v.value[i] <= most)) held = 0;
        if (!(fabs(moved - 0.125 * (double)args.step) <= 1e-4 * (double)args.step)) held = 0;
      }
    }
    if (!held) tap_diag("m %g, v %g, p %g", m.value[0], v.value[0], p.value[0]);
    const double before = p.value[0];
    for (int i = 0; i < 4; i++) g.value[i] = 1;
    array_push(&g);
    for (; args.step <= 80; args.step++) must(suite.ops->adamw(suite.queue, &args));
    array_pull(&p);
    if (!(fabs(p.value[0] - before) < 40 * 0.125)) held = 0;
    tap_ok(held, "%s: %s adamw of the largest gradients moves by the rate (%g)", suite.name,
           dmuon_dtype_name(dtype), p.value[0]);
    tap_ok(!isfinite(p.value[4]) && !isfinite(p.value[5]), "%s: %s adamw of what is not finite",
           suite.name, dmuon_dtype_name(dtype));
    array_free(&g), array_free(&p), array_free(&m), array_free(&v);

    /* eps is 0: elements without gradient so far, and one whose square underflows. */
    g = array_random(dtype, n, 1), p = array_new(dtype, n, 1);
    m = array_new(dtype, n, 0), v = array_new(dtype, n, 0);
    for (int64_t i = 0; i < n; i += 3) g.value[i] = 0;
    g.value[1] = dtype == DMUON_FLOAT64 ? 1e-200 : 1e-36;
    array_push(&g);
    args = adamw_of(&g, &m, &v, &p);
    for (; args.step <= 3; args.step++) must(suite.ops->adamw(suite.queue, &args));
    array_pull(&p);
    for (int64_t i = 0; i < n; i++) {
      const double moved = fabs(p.value[i] - 1);
      if (g.value[i] == 0 ? moved != 0 : !(moved < 1)) still = 0;
      if (i % 3 && i > 1 && fabs(moved - 0.375) > 1e-4) still = 0;
    }
    tap_ok(still, "%s: %s adamw without eps: no gradient, no move", suite.name,
           dmuon_dtype_name(dtype));
    array_free(&g), array_free(&p), array_free(&m), array_free(&v);
  }
}

#endif
