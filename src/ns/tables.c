/* The named coefficient tables. Decides nothing: numbers as their authors published them, one row
 * (a, b, c) a step for X <- aX + b(XX^T)X + c(XX^T)^2 X. Rescaled prologues (normalisation by rows,
 * norms multiplied by a safety factor) are not part of a table, so a table that only makes sense
 * with one is not here. */
#include "ns/ns.h"

#include <string.h>

/* Polar Express (Amsel, Persson, Musco, Gower, arXiv:2505.16932), each step's polynomial taken at
 * s/1.05, all five steps alike: (a/1.05, b/1.05^3, c/1.05^5). */
static const double polar_express[][3] = {
    {7.892582874424408, -20.38301394587957, 13.555306149406924},
    {3.911484868135431, -2.5464635929060884, 0.4268988319673074},
    {3.760657955697423, -2.512819018216563, 0.4323647349070073},
    {3.160399673686287, -2.149649518898498, 0.3996366907664389},
    {2.1910971618617303, -1.441662010214663, 0.328146487623155}};

/* The same without the safety factor. */
static const double polar_express_raw[][3] = {
    {8.28721201814563, -23.595886519098837, 17.300387312530933},
    {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
    {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
    {3.3184196573706015, -2.488488024314874, 0.51004894012372},
    {2.300652019954817, -1.6689039845747493, 0.4188073119525673}};

/* Jiacheng You's five steps; "quintic" in NVIDIA Emerging-Optimizers. */
static const double you[][3] = {{4.0848, -6.8946, 2.9270},
                                {3.9505, -6.3029, 2.6377},
                                {3.7418, -5.5913, 2.3037},
                                {2.8769, -3.1427, 1.2046},
                                {2.8366, -3.0525, 1.2012}};

/* Keller Jordan's Muon: one polynomial, five times (https://kellerjordan.github.io/posts/muon/). */
static const double jordan[][3] = {{3.4445, -4.7750, 2.0315},
                                   {3.4445, -4.7750, 2.0315},
                                   {3.4445, -4.7750, 2.0315},
                                   {3.4445, -4.7750, 2.0315},
                                   {3.4445, -4.7750, 2.0315}};

/* Polar Express with safety 1.02 on all but the last step (https://github.com/microsoft/dion). */
static const double dion[][3] = {{8.156554524902461, -22.48329292557795, 15.878769915207462},
                                 {4.042929935166739, -2.808917465908714, 0.5000178451051316},
                                 {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
                                 {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
                                 {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}};

/* The sets of NVIDIA Emerging-Optimizers (https://github.com/NVIDIA-NeMo/Emerging-Optimizers). */
static const double emerging_polar_express[][3] = {
    {8.2051, -22.9019, 16.4607}, {4.0664, -2.8612, 0.5184}, {3.9096, -2.8234, 0.5250},
    {3.2856, -2.4153, 0.4853},   {2.2779, -1.6198, 0.3985}, {1.8726, -1.2307, 0.3585},
    {1.8564, -1.2132, 0.3568},   {1.875, -1.25, 0.375}};

/* Chebyshev-type polynomials (Grishina, Smirnov, Rakhuba, arXiv:2506.10935). */
static const double cans[][3] = {{8.4703, -25.1081, 18.6293},
                                 {4.1828, -3.1087, 0.5806},
                                 {3.9619, -2.9541, 0.5630},
                                 {3.2866, -2.4647, 0.5074},
                                 {2.2737, -1.6447, 0.4162}};

/* Four steps meant for an almost-orthogonal start (AOL: Prach and Lampert, arXiv:2208.03160);
 * usable after Frobenius normalisation too. */
static const double aol[][3] = {{4.0098, -7.0585, 2.4635},
                                {3.4585, -5.5479, 2.5959},
                                {2.7573, -3.2939, 1.4254},
                                {2.7215, -3.0494, 1.3169}};

/* Jordan's polynomial eight times, then two steps that converge to 1. */
static const double deepseekv4[][3] = {{3.4445, -4.7750, 2.0315}, {3.4445, -4.7750, 2.0315},
                                       {3.4445, -4.7750, 2.0315}, {3.4445, -4.7750, 2.0315},
                                       {3.4445, -4.7750, 2.0315}, {3.4445, -4.7750, 2.0315},
                                       {3.4445, -4.7750, 2.0315}, {3.4445, -4.7750, 2.0315},
                                       {2.0, -1.5, 0.5},          {2.0, -1.5, 0.5}};

static const double cubic5[][3] = {{3.3656576, -3.3420992, 0.0},
                                   {2.5744352, -1.4957376, 0.0},
                                   {2.5368962, -1.4312570, 0.0},
                                   {2.4418906, -1.2764040, 0.0},
                                   {2.2230472, -0.9630650, 0.0}};

#define TABLE(id, text) \
  { .name = #id, .steps = (int)(sizeof id / sizeof *id), .abc = &id[0][0], .source = text }

static const dmuon_ns_table tables[] = {
    TABLE(polar_express, "Polar Express, arXiv:2505.16932, safety 1.05 on every step"),
    TABLE(polar_express_raw, "Polar Express, arXiv:2505.16932, unmodified"),
    TABLE(you, "Jiacheng You; 'quintic' of NVIDIA Emerging-Optimizers"),
    TABLE(jordan, "Keller Jordan, kellerjordan.github.io/posts/muon"),
    TABLE(dion, "Polar Express as in microsoft/dion, safety 1.02 but on the last step"),
    TABLE(emerging_polar_express, "Polar Express as in NVIDIA Emerging-Optimizers, 8 steps"),
    TABLE(cans, "Chebyshev-type polynomials, arXiv:2506.10935"),
    TABLE(aol, "NVIDIA Emerging-Optimizers, 4 steps"),
    TABLE(deepseekv4, "NVIDIA Emerging-Optimizers: jordan 8 times, then 2 that converge"),
    TABLE(cubic5, "NVIDIA Emerging-Optimizers, cubic (c = 0)"),
};
enum { TABLE_COUNT = sizeof tables / sizeof *tables };

int dmuon_ns_table_count(void) {
  return TABLE_COUNT;
}

const dmuon_ns_table *dmuon_ns_table_at(int index) {
  return index >= 0 && index < TABLE_COUNT ? &tables[index] : NULL;
}

const dmuon_ns_table *dmuon_ns_table_find(const char *name) {
  for (int i = 0; i < TABLE_COUNT; i++)
    if (!strcmp(tables[i].name, name)) return &tables[i];
  return NULL;
}
