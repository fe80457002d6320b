# The table behind the tests of train_gpt's sharded form, sourced by them: switches that must not
# change a bit. Every two values of every two columns meet in a row, not the full product.
#
#   table               prints the rows
#   row "RxS ..." ROW   sets $mesh and $options for a row; four meshes, for the first column
#   pairs_meet          a point of the test: the table is what it says
#   rows RANKS "RxS ..." LIMIT OPTION...  runs the first LIMIT rows, each with these options too; a
#                       point a row: it ends with the hash $reference
#
# Columns: mesh, form, replicate_async, prefetch_depth, publish_bucket_mb, muon_forward_unshard,
# adamw, owner_strategy, order, device, delay_stage2_to_optimizer, post_step_prefetch.
table() {
  cat <<'END'
0 z3        0 1 0.001 all_gather owned   round_robin program    host     1 0
0 z2        1 0 0     broadcast  owned   lpt         program    deferred 0 1
0 recompute 1 2 0.001 broadcast  sharded rank0       registered host     0 0
1 z3        1 1 0.001 broadcast  sharded lpt         registered deferred 0 1
1 z2        0 2 0     broadcast  sharded round_robin registered deferred 0 0
1 z2        1 0 0.001 all_gather sharded rank0       program    deferred 1 0
1 recompute 1 0 0     broadcast  owned   round_robin registered host     0 0
2 z3        0 2 0     broadcast  sharded rank0       program    host     1 1
2 z2        0 0 0     broadcast  owned   rank0       registered host     0 0
2 z2        0 1 0     broadcast  sharded round_robin registered host     0 1
2 recompute 1 1 0.001 all_gather owned   lpt         registered deferred 1 1
3 z3        0 0 0.001 broadcast  sharded lpt         program    deferred 1 0
3 z2        0 1 0     broadcast  owned   rank0       program    deferred 1 0
3 recompute 0 2 0.001 all_gather owned   lpt         registered host     0 0
3 recompute 1 2 0     all_gather sharded round_robin program    deferred 1 1
END
}

pairs_meet() {
  table | $AWK '
    { for (i = 1; i <= NF; i++) {
        if (!((i, $i) in known)) { known[i, $i] = 1; value[i, ++count[i]] = $i }
        for (j = i + 1; j <= NF; j++) met[i, $i, j, $j] = 1 } }
    END { n = split("4 3 2 3 2 2 2 3 2 2 2 2", size, " ")
          for (i = 1; i <= n; i++) {
            if (count[i] != size[i]) bad++
            for (j = i + 1; j <= n; j++)
              for (a = 1; a <= count[i]; a++)
                for (b = 1; b <= count[j]; b++)
                  if (!((i, value[i, a], j, value[j, b]) in met)) bad++ }
          exit bad > 0 || NR == 0 }'
  point $? "in the table every two values of every two columns meet"
}

row() {
  row_meshes=$1
  set -- $2
  shift_to=$1 form=$2 async=$3 depth=$4 bucket=$5 unshard=$6 adamw=$7 strategy=$8
  shift 8
  order=$1 device=$2 stage2=$3 post=$4
  set -- $row_meshes
  shift "$shift_to"
  mesh=$1
  case $form in z2) form=-z2 ;; recompute) form=-recompute ;; *) form= ;; esac
  case $device in deferred) device=host:deferred,seed=$((7 * depth + 3 * async + shift_to)) ;; esac
  options="-sharded $form -adamw $adamw -order $order -dmuon_replicate ${mesh%x*} -dmuon_shard ${mesh#*x}
    -dmuon_replicate_async $async -dmuon_prefetch_depth $depth -dmuon_publish_bucket_mb $bucket
    -dmuon_muon_forward_unshard $unshard -dmuon_owner_strategy $strategy -dmuon_device $device
    -dmuon_delay_stage2_to_optimizer $stage2 -dmuon_post_step_prefetch $post"
}

rows() {
  rows_ranks=$1 rows_meshes=$2 rows_limit=$3
  shift 3
  table | head -n "$rows_limit" >"$work/rows"
  while read -r rows_row; do
    row "$rows_meshes" "$rows_row"
    # shellcheck disable=SC2086
    train "$rows_ranks" "$@" $options
    same "$(result mesh) $(result parameter_hash)" "[${mesh%x*}, ${mesh#*x}, 1] $reference" \
      "$rows_ranks ranks: $* $(echo $options)"
    grep ': unknown$' "$work/run.log" >"$work/unknown" && point 1 "unknown: $(cat "$work/unknown")"
  done <"$work/rows"
}
