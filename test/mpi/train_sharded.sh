#!/bin/sh
# The sharded form ends with the bits of the replicated one: on 2, 4 and 8 ranks, on every mesh, over
# the table of switches. 68 sequences a step: some ranks have a pass less than others, so they leave
# the groups of the last one out.
. "$abs_top_srcdir/test/mpi/train_common.sh"
. "$abs_top_srcdir/test/mpi/train_table.sh"
pairs_meet

base="$tiny -batch 68"
for ranks in 8 4 2; do
  case $ranks in
    8) meshes="1x8 2x4 4x2 8x1" ;;
    4) meshes="1x4 2x2 4x1 2x2" ;;
    *) meshes="1x2 2x1 1x2 2x1" ;;
  esac
  train $ranks $base -dmuon_replicate 1
  point $? "$ranks ranks, replicated"
  reference=$(result parameter_hash)
  # shellcheck disable=SC2086
  rows $ranks "$meshes" 99 $base
  if [ -n "$nightly" ]; then # each row on every mesh
    for turn in 1 2 3; do
      meshes="${meshes#* } ${meshes%% *}"
      # shellcheck disable=SC2086
      rows $ranks "$meshes" 99 $base
    done
  fi
done

# The comparison can fail.
train 2 $base -sharded -seed 2 && [ -n "$(result parameter_hash)" ] && [ "$(result parameter_hash)" != "$reference" ]
point $? "another seed gives other parameters"

# All by AdamW, each matrix with an owner, or all in equal parts.
train 4 $base -optimizer adamw -dmuon_replicate 1
reference=$(result parameter_hash)
train 4 $base -optimizer adamw -sharded -dmuon_replicate 2
same "$(result parameter_hash)" "$reference" "adamw, owned, 2x2"
train 4 $base -optimizer adamw -sharded -adamw sharded -z2 -dmuon_replicate 4
same "$(result parameter_hash)" "$reference" "adamw, in equal parts, 4x1"
finish
