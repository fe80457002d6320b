/* What a parameter's name says: the numbered block it is in, its group, and whether it is a norm, a
 * bias or an embedding. Pure. */
#ifndef DMUON_MODEL_NAMES_H
#define DMUON_MODEL_NAMES_H

#include "model/param.h"

/* The group of a name without a parent path: "wte". */
#define DMUON_ROOT_GROUP "_root"

/* Length of the leading part of name that ends with its outermost numbered block: 14 for
 * "model.layers.3.mlp.weight" ("model.layers.3"), 0 when there is none. A numbered block is a
 * component layers, blocks, layer or h followed by a component of digits. */
size_t dmuon_name_block(const char *name);

/* The group key: the numbered block with its prefix ("h.3"), else the parent path ("head" of
 * "head.weight"), else "_root". */
DMuonErrorCode dmuon_name_group(dmuon_memory *memory, const char *name, char **key);

/* The word of name that says norm, bias, embedding or output head, or NULL; *length is set on
 * success. Words, not substrings: components are cut at everything that is no letter and where
 * capitals begin a word, so "ln_1", "input_layernorm", "LayerNorm" and "norm1" say so,
 * "normal_head" and "biased_sampler" do not. A word counts when it is ln, bias, biases, rope,
 * rotary, ends in "norm" or "norms", or begins with "embed"; and so do the two words "lm_head". */
const char *dmuon_name_base_word(const char *name, size_t *length);

/* The route of a parameter that no rule decides, and why, in words (cut short where buffer ends):
 * Muon for a matrix of more than one row and column in a numbered block whose name has no base
 * word, else AdamW. */
DMuonRoute dmuon_route_default(const dmuon_param *param, char *reason, size_t size);

#endif
