#!/bin/sh
# Packs what gpu_check.sh needs on a machine with a GPU and nothing else of ours: the sources as a release
# (with configure), Debian's Open MPI (runtime, plugins, headers), OpenBLAS, jansson and make, each with
# the libraries that it needs below the C library. About 25 MB.
#
#   test/cuda/pack.sh BUILD-DIRECTORY [FOLDER]      FOLDER: gpu_pack beside the sources
#
# Then on the other machine: FOLDER/gpu_check.sh. Both must be x86-64 with glibc, that one not the older.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?usage: pack.sh BUILD-DIRECTORY [FOLDER]}
folder=${2:-$here/../../gpu_pack}
rm -rf "$folder"
mkdir -p "$folder/root/bin" "$folder/root/lib/openmpi3" "$folder/root/pmix2/lib/pmix" "$folder/root/share" "$folder/root/include"
folder=$(cd "$folder" && pwd)
root=$folder/root
machine=$(gcc -print-multiarch)
libraries=/usr/lib/$machine

# ---- the sources
make -C "$build" dist-gzip >/dev/null
mv "$build"/libdmuon-[0-9]*.tar.gz "$folder/libdmuon.tar.gz"

# ---- programs, plugins, headers
mpirun=$(command -v mpirun.openmpi) orted=$(command -v orted)
cp -L "$mpirun" "$root/bin/mpirun.openmpi"
cp -L "$orted" "$(command -v make)" "$root/bin/"
for plugin in "$libraries"/openmpi/lib/openmpi3/mca_*.so; do
  case ${plugin##*/mca_} in
    *ucx* | *ofi* | *psm* | *openib* | *flux* | *slurm* | *jsm* | *gridengine* | *monitoring* | *simulator*) ;;
    memheap* | scoll* | spml* | sshmem* | atomic* | io_* | fs_* | fbtl* | fcoll* | sharedfp* | crs* | pml_cm* | vprotocol*) ;;
    *) cp -L "$plugin" "$root/lib/openmpi3/" ;;
  esac
done
cp -R /usr/share/openmpi "$root/share/"
cp -RL "$libraries/openmpi/include" "$root/include/openmpi"
rm -rf "$root/include/openmpi/openmpi/ompi/mpi/java"
for plugin in "$libraries"/pmix2/lib/pmix/*.so; do
  case $plugin in *munge* | *slurm* | *ucx* | *ofi*) ;; *) cp -L "$plugin" "$root/pmix2/lib/pmix/" ;; esac
done
cp -RL "$libraries/pmix2/share" "$root/pmix2/"
cp -L /usr/include/jansson.h /usr/include/jansson_config.h "$root/include/" 2>/dev/null ||
  cp -L /usr/include/jansson.h "/usr/include/$machine/jansson_config.h" "$root/include/"
blas=$(find "$libraries" -name 'libopenblas*.so.0' | sort | head -n 1)
headers=$(find "/usr/include/$machine" -name openblas_config.h | sort | head -n 1)
cp -L "${headers%/*}"/cblas.h "$headers" "$root/include/"
cp -L "$blas" "$root/lib/libopenblas.so.0"

# ---- libraries below all of these, but for the C library
for name in libmpi.so.40 libjansson.so.4; do cp -L "$libraries/$name" "$root/lib/"; done
find "$root/bin" "$root/lib" "$root/pmix2" -type f | while read -r file; do ldd "$file" 2>/dev/null || true; done |
  sed -n 's/^[[:space:]]*\([^ ]*\) => \(\/[^ ]*\) .*/\1 \2/p' | sort -u | while read -r name path; do
  case $name in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libutil.so.* | ld-linux* | libresolv.so.*) ;;
    *) [ -f "$root/lib/$name" ] || cp -L "$path" "$root/lib/$name" ;;
  esac
done
for name in mpi:40 openblas:0 jansson:4; do ln -s "lib${name%:*}.so.${name#*:}" "$root/lib/lib${name%:*}.so"; done
chmod -R u+w "$root"
strip --strip-unneeded "$root"/lib/*.so.* "$root"/lib/*/*.so "$root"/pmix2/lib/pmix/*.so 2>/dev/null || true
(cd "$root" && tar -cf - . | xz -6 -T0 >"$folder/root.tar.xz")
rm -rf "$root"
cp "$here/gpu_check.sh" "$folder/"
du -sh "$folder"
