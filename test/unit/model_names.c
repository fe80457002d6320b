/* Group keys, base words and default routes from names and shapes. */
#include "model/names.h"

#include "tap.h"

static dmuon_memory memory;

static void is_key(const char *name, const char *expected) {
  char *key = NULL;
  DMuonErrorCode code = dmuon_name_group(&memory, name, &key);
  tap_is_string(code ? NULL : key, expected, "group of \"%s\"", name);
  dmuon_memory_free(key);
}

static void is_word(const char *name, const char *expected) {
  size_t length = 0;
  const char *word = dmuon_name_base_word(name, &length);
  char text[64] = "";
  if (word) snprintf(text, sizeof text, "%.*s", (int)length, word);
  tap_is_string(text, expected, "base word of \"%s\"", name);
}

static void is_route(const char *name, int ndim, int64_t d0, int64_t d1, DMuonRoute expected,
                     const char *why) {
  dmuon_param param = {.name = (char *)(uintptr_t)name, .ndim = ndim, .dims = {d0, d1}};
  char reason[200];
  dmuon_param_view(&param, -1, -1);
  tap_is_int(dmuon_route_default(&param, reason, sizeof reason), expected, "route of \"%s\"", name);
  tap_is_string(reason, why, "and why");
}

int main(void) {
  tap_plan(0);
  is_key("model.layers.3.mlp.gate.weight", "model.layers.3");
  is_key("h.3.attn.weight", "h.3");
  is_key("transformer.h.11.ln_1.weight", "transformer.h.11");
  is_key("encoder.layer.0.attention.self.query.weight", "encoder.layer.0");
  is_key("visual.blocks.5.attn.qkv.weight", "visual.blocks.5");
  is_key("layers.0.weight", "layers.0");
  is_key("model.layers.3.experts.2.w1", "model.layers.3");
  is_key("layers.0.blocks.1.qkv.weight", "layers.0");
  is_key("layers.x.blocks.12.qkv.weight", "layers.x.blocks.12");
  is_key("layers.3a.weight", "layers.3a");
  is_key("h.3", "h.3");
  is_key("head.weight", "head");
  is_key("graph.3.weight", "graph.3");
  is_key("a.b.c", "a.b");
  is_key("wte", "_root");
  is_key("layers", "_root");
  is_key(".weight", "_root");
  is_key("layers.", "layers");
  tap_is_int((int64_t)dmuon_name_block("model.layers.3.mlp"), 14, "length of a block");
  tap_is_int((int64_t)dmuon_name_block("sublayers.3.mlp"), 0, "a block word is a whole component");

  is_word("h.0.ln_1.weight", "ln");
  is_word("layers.0.input_layernorm.weight", "layernorm");
  is_word("layer.0.output.LayerNorm.weight", "Norm");
  is_word("layer.0.RMSNorm.weight", "Norm");
  is_word("blocks.0.norm1.weight", "norm");
  is_word("blocks.0.BatchNorm2d.scale", "Norm");
  is_word("layers.0.q_norm.weight", "norm");
  is_word("layers.0.normal_head.weight", "");
  is_word("layers.0.biased.weight", "");
  is_word("layers.0.relative_attention_bias.weight", "bias");
  is_word("model.embed_tokens.weight", "embed");
  is_word("embeddings.word.weight", "embeddings");
  is_word("h.0.europe.weight", "");
  is_word("h.0.rotary_emb.inv_freq", "rotary");
  is_word("h.0.kiln.weight", "");
  is_word("lm_head.weight", "lm_head");
  is_word("layers.0.head.weight", "");
  is_word("layers.0.mlp.gate_proj.weight", "");
  is_word("", "");

  is_route("h.0.attn.weight", 2, 8, 6, DMUON_ROUTE_MUON, "matrix in numbered block h.0");
  is_route("h.0.attn.bias", 1, 8, 0, DMUON_ROUTE_ADAMW, "vector");
  is_route("h.0.temperature", 0, 0, 0, DMUON_ROUTE_ADAMW, "scalar");
  is_route("head.weight", 2, 8, 6, DMUON_ROUTE_ADAMW, "matrix outside the numbered blocks");
  is_route("h.0.pos_embed", 2, 8, 6, DMUON_ROUTE_ADAMW, "name says embed");
  is_route("h.0.gate", 2, 1, 6, DMUON_ROUTE_ADAMW, "1 x 6 matrix");
  is_route("h.0.gate", 2, 0, 6, DMUON_ROUTE_ADAMW, "0 x 6 matrix");
  tap_is_int(memory.bytes, 0, "nothing is left allocated");
  return tap_done();
}
