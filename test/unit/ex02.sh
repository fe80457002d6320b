# ex02_partition on shapes of real models, without a launcher: owners, statistics, refusals.
srcdir=${abs_top_srcdir:-.}/test/data/shapes
program=${abs_top_builddir:-.}/examples/ex02_partition
count=0
failed=0
report() { # report STATUS TEXT
  count=$((count + 1))
  if test "$1" = 0; then echo "ok $count - $2"; else echo "not ok $count - $2"; failed=1; fi
}
contains() { # contains TEXT WHAT: the output has a line with TEXT (blanks as one)
  echo "$out" | tr -s ' ' | grep -q -e "$1"
  report $? "$2"
}
tensors() { grep -v '^#' "$1" | grep -c .; }

for model in gpt2-124m llama3.2-1b fno2d; do
  out=$("$program" "$srcdir/$model.txt" -replicate 2 -shard 4 2>&1 </dev/null)
  report $? "$model on 2 x 4"
  lines=$(echo "$out" | grep -c -E ' (muon|adamw) ')
  test "$lines" = "$(tensors "$srcdir/$model.txt")"
  report $? "$model: a line a tensor"
  contains '^slots 8, of which' "$model: statistics"
  again=$("$program" "$srcdir/$model.txt" -replicate 2 -shard 4 2>&1 </dev/null)
  test "$out" = "$again"
  report $? "$model: the same again"
done

# A block of GPT-2 has 7,087,872 elements of four bytes; rank 5 of 2 x 4 owns block 0's column and
# gets block 1 twice, for forward and for backward, and sends its gradient once.
out=$("$program" "$srcdir/gpt2-124m.txt" -replicate 2 -shard 4 -plan 5 2>&1 </dev/null)
report $? "the plan of one rank"
contains 'transformer.h.0 12 parameters, z3 shard unshard 0 B (2), shard reduce 0 B (1)' "what it owns"
contains 'transformer.h.1 12 parameters, z3 shard unshard 57 MB (2), shard reduce 28 MB (1)' "what it gets"
contains 'memory planned: ' "and the memory"
out=$("$program" "$srcdir/gpt2-124m.txt" -replicate 2 -shard 4 -plan 8 2>&1 </dev/null)
test $? != 0
report $? "a rank that is none is refused"

# Two layers of Llama's shapes (h 2048, inner 8192, kv 512) on four shards, worked out by hand.
shapes=ex02_$$.txt
trap 'rm -f "$shapes"' 0
for layer in 0 1; do
  prefix=model.layers.$layer
  echo "$prefix.self_attn.q_proj.weight fp32 2048,2048"
  echo "$prefix.self_attn.k_proj.weight fp32 512,2048"
  echo "$prefix.self_attn.v_proj.weight fp32 512,2048 # a comment"
  echo "$prefix.self_attn.o_proj.weight fp32 2048,2048"
  echo ""
  echo "$prefix.mlp.gate_proj.weight fp32 8192,2048"
  echo "$prefix.mlp.up_proj.weight fp32 8192,2048"
  echo "$prefix.mlp.down_proj.weight bf16 2048,8192"
done >"$shapes"
out=$("$program" "$shapes" -shard 4 2>&1 </dev/null)
report $? "two layers on four shards"
contains 'layers.0.mlp.down_proj.weight muon model.layers.0 0 0$' "layer 0 down: 0"
contains 'layers.0.mlp.gate_proj.weight muon model.layers.0 0 1$' "layer 0 gate: 1"
contains 'layers.0.mlp.up_proj.weight muon model.layers.0 0 2$' "layer 0 up: 2"
contains 'layers.0.self_attn.q_proj.weight muon model.layers.0 0 3$' "layer 0 q: 3"
contains 'layers.1.mlp.down_proj.weight muon model.layers.1 0 3$' "layer 1 down: 3"
contains 'layers.1.mlp.gate_proj.weight muon model.layers.1 0 0$' "layer 1 gate: 0"
contains 'layers.1.self_attn.v_proj.weight muon model.layers.1 0 2$' "layer 1 v: 2"
contains '^cost 1038 at most, 916.5 on average$' "loads"
contains 'ratio 1.1326$' "ratio to the lower bound"

out=$("$program" "$shapes" -shard 4 -dmuon_owner_strategy rank0 2>&1 </dev/null)
contains '^slots 4, of which 3 own nothing$' "rank0 by option"
out=$("$program" "$shapes" -shard 4 -dmuon_owner_strategy rnk0 2>&1 </dev/null)
test $? != 0
report $? "a strategy that is none is refused"
contains 'lpt, round_robin, rank0' "what there is, is listed"
echo "w fp32 12,x" >"$shapes"
out=$("$program" "$shapes" 2>&1 </dev/null)
test $? = 2
report $? "a broken line is refused"
contains 'line 1' "and named"
out=$("$program" /nowhere.txt 2>&1 </dev/null)
test $? = 2
report $? "a file that is not there"
echo "1..$count"
exit $failed
