#!/bin/sh
# Builds, checks and measures the CUDA backend on a machine with one GPU, nvcc, a C compiler, and nothing
# else of ours: no registry, no autotools, no MPI. pack.sh made the folder it comes in. About 6 minutes.
#
#   gpu_check.sh [RESULT-FOLDER]       the packed folder is the one this file lies in
#
#   GPU_CHECK_SECONDS  time for everything (460); parts that do not fit any more are skipped
#   GPU_CHECK_WORK     where to build (a new folder in /tmp, removed at the end)
#   GPU_CHECK_PARTS    only these of: conformance bits accuracy ns loops nccl client train staged sanitizer
#   GPU_CHECK_SHAPES   of Newton-Schulz (1024x1024 1024x4096 2048x8192 4096x4096 4096x16384)
#
# RESULT-FOLDER/gpu_check.json has every result, gpu_check.log what was printed. The exit status is 1 when
# a part failed, 77 when there is no GPU (then it still builds), else 0.
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=${GPU_CHECK_WORK:-}
root=$work/root bench=$work/build/test/cuda
nvcc=${GPU_CHECK_NVCC:-} arch=${GPU_CHECK_ARCH:-} shapes=${GPU_CHECK_SHAPES:-1024x1024 1024x4096 2048x8192 4096x4096 4096x16384}
cuda_path=$(sort -u "$work/cuda/paths" 2>/dev/null | tr '\n' ':')

# ---- build ------------------------------------------------------------------------------------------
# The carried libraries come last in the search, and only for our programs: the machine's stay its own.
ours() {
  env LD_LIBRARY_PATH="$root/lib${cuda_path:+:$cuda_path}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
    OPAL_PREFIX="$root" OPAL_BINDIR="$root/bin" OPAL_LIBDIR="$root/lib" OPAL_PKGLIBDIR="$root/lib/openmpi3" \
    OPAL_DATADIR="$root/share" OPAL_PKGDATADIR="$root/share/openmpi" OPAL_SYSCONFDIR="$root/etc" \
    OMPI_MCA_mca_base_component_path="$root/lib/openmpi3" PMIX_INSTALL_PREFIX="$root/pmix2" PMIX_MCA_mca_base_component_path="$root/pmix2/lib/pmix" \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent=sh PMIX_MCA_pcompress_base_silence_warning=1 \
    OMPI_MCA_btl_vader_single_copy_mechanism=none OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 "$@"
}
mpi() {
  ranks=$1
  shift
  ours "$root/bin/mpirun.openmpi" -n "$ranks" -x LD_LIBRARY_PATH "$@"
}

# A header or library of CUDA: in the toolkit, or in a Python package of NVIDIA's.
find_cuda() {
  toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
  find "$toolkit" "$toolkit/targets" /usr/local/cuda*/ /usr/include /usr/lib/x86_64-linux-gnu /opt /usr/lib/python3* /usr/local/lib \
    -name "$1" -not -path '*/stubs/*' 2>/dev/null | head -n 1
}

build() {
  mkdir -p "$root" "$work/src" "$work/build" "$work/cuda"
  xz -dc "$here/root.tar.xz" | tar -C "$root" -xf - && tar -C "$work/src" --strip-components=1 -xzf "$here/libdmuon.tar.gz" || return 1
  flags= libs= paths=
  for header in cuda_runtime_api.h cublas_v2.h nccl.h; do
    file=$(find_cuda $header)
    [ -n "$file" ] || { echo "error: no $header on this machine"; return 1; }
    case " $flags " in *" ${file%/*} "*) ;; *) flags="$flags -isystem ${file%/*}" ;; esac
  done
  for library in cudart cublas nccl; do
    file=$(find_cuda "lib$library.so.[0-9]*")
    [ -n "$file" ] || { echo "error: no lib$library.so on this machine"; return 1; }
    ln -sf "$file" "$work/cuda/lib$library.so"
    libs="$libs -l$library" paths="$paths -Wl,-rpath,${file%/*} -Wl,-rpath-link,${file%/*}"
    printf '%s\n' "${file%/*}" >>"$work/cuda/paths"
  done
  printf '%s\n' "$flags" >"$work/cuda/flags"
  make=$(command -v make || echo "$root/bin/make")
  cc=$(command -v gcc || command -v cc || command -v clang)
  cd "$work/build" || return 1
  "$work/src/configure" CC="$cc" CXX="$(command -v g++ || command -v c++)" NVCC="$nvcc" MAKE="$make" \
    CUDA_CFLAGS="$flags" CUDA_LIBS="-L$work/cuda $libs $paths" --with-cuda --with-cuda-arch="$arch" --without-hwloc \
    MPI_CFLAGS="-isystem $root/include/openmpi" MPIRUN="$root/bin/mpirun.openmpi" \
    MPI_LIBS="-L$root/lib -Wl,-rpath,$root/lib -Wl,-rpath-link,$root/lib -lmpi" \
    BLAS_CFLAGS="-isystem $root/include" BLAS_LIBS="-L$root/lib -Wl,-rpath,$root/lib -lopenblas" \
    JANSSON_CFLAGS="-isystem $root/include" JANSSON_LIBS="-L$root/lib -Wl,-rpath,$root/lib -ljansson" || return 1
  "$make" -j "$(getconf _NPROCESSORS_ONLN)" gpu-programs
}

# ---- the parts --------------------------------------------------------------------------------------
losses() { sed -n 's/.*"loss": \[\(.*\)\].*/\1/p' "$1"; }

# near A B: the last losses of two files differ by less than one in a hundred, and learning took place
near() {
  printf '%s\n%s\n' "$(losses "$1")" "$(losses "$2")" | awk -F', *' -v name="$3" '
    { count[NR] = NF; first[NR] = $1; last[NR] = $NF }
    END {
      off = last[1] - last[2]; if (off < 0) off = -off
      good = count[1] > 1 && count[1] == count[2] && last[1] < first[1] && off < 0.01 * last[1]
      printf "{\"part\": \"%s\", \"loss\": %s, \"other_loss\": %s, \"ok\": %s}\n", name, last[1] + 0, last[2] + 0, good ? "true" : "false"
      exit !good
    }'
}

train() { # RANKS NAME OPTION...
  ranks=$1 name=$2
  shift 2
  host=$work/host$ranks.json device=$work/$name.json
  settings="-steps 20 -layers 2 -width 64"
  # shellcheck disable=SC2086
  [ -s "$host" ] || mpi "$ranks" "$work/build/examples/train_gpt" $settings -json "$host" || return 1
  # shellcheck disable=SC2086
  mpi "$ranks" "$work/build/examples/train_gpt" $settings -dmuon_device cuda "$@" -json "$device" || return 1
  near "$host" "$device" "$name"
}

train_all() {
  train 1 train && train 1 train_sharded -sharded && train 1 train_again &&
    [ "$(grep parameter_hash "$work/train.json")" = "$(grep parameter_hash "$work/train_again.json")" ] && echo "ok - twice the same bits"
}

staged() {
  mpi 4 "$work/build/examples/ex01_hello" -dmuon_device cuda || return 1
  train 4 staged && train 4 staged_sharded -sharded
}

client() {
  # shellcheck disable=SC2046
  "$nvcc" -x cu -std=c++17 -O2 -gencode "arch=compute_$arch,code=sm_$arch" -I"$work/src/include" -I"$work/src/test" \
    -I"$root/include/openmpi" $(cat "$work/cuda/flags") -DD_CUDA_LAYERS=6 -DD_CUDA_WIDTH=256 -DD_CUDA_BATCH=128 \
    -DD_CUDA_STEPS=10 -o "$work/client" "$work/src/test/cuda/d_cuda.cpp" -L"$work/build/.libs" -ldmuon -L"$root/lib" -lmpi \
    -L"$work/cuda" -lcublas -lcudart -Xlinker -rpath -Xlinker "$work/build/.libs:$root/lib" \
    -Xlinker -rpath-link -Xlinker "$root/lib" || return 1
  mpi 1 "$work/client"
}

sanitizer() {
  tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
  [ -n "$tool" ] || { echo "no compute-sanitizer"; return 77; }
  ours "$tool" --tool memcheck --error-exitcode 9 "$bench/gpu_bench" accuracy 32x64
  status=$?
  # Some machines do not let it look at the device.
  if [ $status -ne 0 ] && grep -q -e 'not supported' -e 'Unable to' "$out"; then return 77; fi
  return $status
}

conformance() { ours "$bench/gpu_conformance"; }
bits() { ours "$bench/gpu_bits"; }
accuracy() { mpi 1 "$bench/gpu_bench" accuracy 256x1024; }
# shellcheck disable=SC2086
ns() { mpi 1 "$bench/gpu_bench" ns $shapes; }
loops() { mpi 1 "$bench/gpu_bench" loops; }
nccl() { mpi 1 "$bench/gpu_bench" nccl; }

# A part runs under a time limit, in a shell of its own: this script again.
if [ -n "${GPU_CHECK_RUN:-}" ]; then
  out=$work/out
  $GPU_CHECK_RUN
  exit $?
fi

# ---- the run ----------------------------------------------------------------------------------------
results=${1:-$PWD}
mkdir -p "$results" || exit 1
results=$(cd "$results" && pwd)
begin=$(date +%s)
budget=${GPU_CHECK_SECONDS:-460}
parts=${GPU_CHECK_PARTS:-conformance bits accuracy ns loops nccl client train staged sanitizer}
if [ -n "$work" ]; then
  mkdir -p "$work"
else
  work=$(mktemp -d /tmp/gpu_check.XXXXXX) || exit 1
  trap 'rm -rf "$work"' EXIT
fi
log=$results/gpu_check.log
for file in "$log" "$work/parts" "$work/numbers"; do : >"$file"; done
failed=0

left() { echo $((budget - $(date +%s) + begin)); }
say() { printf '%s\n' "$*" | tee -a "$log"; }
words() { printf '%s' "$1" | tr '\n"\\\t' "  / " | cut -c1-300; }

# record PART STATUS SECONDS WHY
record() {
  say "$1: $2 ($3 s)${4:+: $4}"
  printf '{"part": "%s", "status": "%s", "seconds": %s, "why": "%s"}\n' "$1" "$2" "$3" "$(words "${4:-}")" >>"$work/parts"
  [ "$2" != failed ] || failed=1
}

# part NAME LIMIT [COMMAND...]: passed with status 0, skipped with 77, else failed. Its lines of JSON are kept.
part() {
  name=$1 limit=$2
  shift 2
  [ $# -gt 0 ] || set -- "$name"
  case " $parts build " in *" $name "*) ;; *) return 0 ;; esac
  if [ "$name" != build ] && [ "$gpu" = none ]; then record "$name" skipped 0 "no GPU"; return 0; fi
  if [ "$name" != build ] && [ "$built" = no ]; then record "$name" skipped 0 "nothing was built"; return 0; fi
  if [ "$(left)" -lt 10 ]; then record "$name" skipped 0 "no time left"; return 0; fi
  [ "$limit" -le "$(left)" ] || limit=$(left)
  start=$(date +%s)
  GPU_CHECK_RUN="$*" GPU_CHECK_WORK=$work GPU_CHECK_NVCC=$nvcc GPU_CHECK_ARCH=$arch GPU_CHECK_SHAPES=$shapes \
    timeout -k 5 "$limit" sh "$0" >"$work/out" 2>&1 </dev/null
  status=$?
  took=$(($(date +%s) - start))
  { echo "== $name: $*"; cat "$work/out"; } >>"$log"
  grep '^{"part"' "$work/out" >>"$work/numbers"
  case $status in
    0) record "$name" passed $took "" ;;
    77) record "$name" skipped $took "$(grep -v '^{' "$work/out" | tail -n 1)" ;;
    124 | 137) record "$name" failed $took "stopped after $limit s" ;;
    *) record "$name" failed $took "status $status: $(grep -e '^not ok' -e '[Ee]rror' -e failed "$work/out" | head -n 2)" ;;
  esac
  return $status
}

gpu=none capability=
if command -v nvidia-smi >/dev/null 2>&1; then
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
  case $gpu in '' | *rror* | *ailed*) gpu=none ;; esac
fi
case $capability in 90) arch=90a ;; [0-9]*) arch=$capability ;; *) arch=90a ;; esac
[ -n "$nvcc" ] || nvcc=$(command -v nvcc || ls /usr/local/cuda*/bin/nvcc 2>/dev/null | head -n 1)
say "GPU: $gpu; kernels for sm_$arch; nvcc: ${nvcc:-none}"

built=no
if [ -z "$nvcc" ]; then record build failed 0 "no nvcc"; elif part build 240; then built=yes; fi
part conformance 60
part bits 60
part accuracy 60
part ns 120
part loops 60
part nccl 60
part client 60
part train 60 train_all
part staged 60
part sanitizer 90

{
  printf '{\n"gpu": "%s",\n"arch": "sm_%s",\n"nvcc": "%s",\n"seconds": %s,\n"parts": [\n' "$(words "$gpu")" "$arch" \
    "$(words "$("${nvcc:-true}" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')")" $(($(date +%s) - begin))
  sed '$!s/$/,/' "$work/parts"
  printf '],\n"results": [\n'
  sed '$!s/$/,/' "$work/numbers"
  printf ']\n}\n'
} >"$results/gpu_check.json"
say "results: $results/gpu_check.json, after $(($(date +%s) - begin)) s"
[ $failed -eq 0 ] || exit 1
[ "$gpu" != none ] || exit 77
