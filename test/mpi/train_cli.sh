#!/bin/sh
# What train_gpt says: its results, its summary, and its refusals, of wrong options of its own and of
# the library's.
. "$abs_top_srcdir/test/mpi/train_common.sh"

train 2 $small
point $? "the small run"
same "$(result ranks)" 2 "ranks"
same "$(result steps)" 20 "steps"
same "$(result optimizer)" muon "optimizer"
same "$(result newton_schulz_calls)" 240 "each of 6 matrices of 2 layers orthogonalised once a step"
same "$(result skipped_steps)" 0 "no step skipped"
same "$(result loss | tr ',' '\n' | wc -l | tr -d ' ')" 20 "a loss for each step"
result parameter_hash | grep -Eq '^[0-9a-f]{16}$'
point $? "a hash of 16 digits"
for name in forward backward reduce newton_schulz update publish other total tokens_per_second optimizer_share; do
  result $name | $AWK '{ n = $1 } END { exit !(n ~ /^[0-9.]+$/) }'
  point $? "$name is a number"
done
$AWK '/"comm"/ { gsub(/[^0-9]+/, " "); split($0, n, " ")
                 bytes = n[1] + n[3]; operations = n[2] + n[4] }
      END { exit !(bytes > 0 && operations > 0) }' "$json"
point $? "bytes and operations were counted"
grep -q 'where the time of a step goes' "$work/run.log" && grep -q 'owners' "$work/run.log"
point $? "owners and times are shown"

# positive NAME: a number above zero
positive() {
  result "$1" | $AWK '{ n = $1 } END { exit !(n > 0) }'
}
train 2 $small -dmuon_replicate 2 -dmuon_replicate_async 1
point $? "steps that nobody waits for"
for name in reduce newton_schulz update publish; do
  positive $name
  point $? "asynchronous: $name took time"
done

train 2 $small -sharded -recompute
point $? "the small run, sharded"
same "$(result form)" sharded "the form is told"
for name in shard_bytes_per_step_total replicate_bytes_per_step_total; do
  result $name | grep -Eq '^[0-9]+$'
  point $? "sharded: $name is a whole number"
done

train 2 $small -optimizer adamw
same "$(result newton_schulz_calls)" 0 "adamw calls no Newton-Schulz"

# refused PHRASE OPTION...: it ends with another status than 0 and says why. On $on ranks; 0: by
# itself, without a launcher.
refused() {
  phrase=$1
  shift
  train $on "$@"
  status=$?
  [ $status -ne 0 ] && grep -q -- "$phrase" "$work/run.log"
  point $? "refused: $* ($phrase)"
}
on=0
refused "-stepz is no option" -stepz 3
refused "-steps wants a value" -steps
refused "-steps x: not a number" -steps x
refused "cannot be divided" -width 30 -heads 4
refused "muon or adamw" -optimizer sgd
refused "fp32 or bf16" -dtype fp64
refused "-z2 is for -sharded alone" -z2
refused "cannot read the text /nowhere" -text /nowhere
refused "too short" -context 2000000
refused "cannot write" $small -json /nowhere/x.json
refused "cannot write" $small -save /nowhere/x
on=2
refused "-stepz is no option" -stepz 3
refused replicate $small -dmuon_replicate 3
refused owner_strategy $small -dmuon_owner_strategy nonsense
refused replicate_async $small -dmuon_replicate_async nonsense
refused reduce_fanin $small -dmuon_reduce_fanin nonsense
refused device $small -dmuon_device nonsense
finish
