#!/bin/sh
# Install every Debian or Ubuntu package that building, testing and the demo need.
#
#   tools/deps.sh          install what is missing (through sudo when not root)
#   tools/deps.sh --check  only list what is missing; exit 1 when something is
#   tools/deps.sh --fuzz   install what the fuzz targets need as well: clang with libFuzzer
set -eu

packages="build-essential cmake pkg-config mpi-default-bin openmpi-bin libopenmpi-dev
libjansson-dev libyaml-dev libcsv-dev libpcre2-dev libutf8proc-dev librandom123-dev
libhwloc-dev libcmocka-dev libopenblas-openmp-dev wordnet-base clang-format mpich libmpich-dev iproute2"

# oneDNN is packaged for 64-bit x86 only; elsewhere CBLAS computes the products.
case $(dpkg --print-architecture 2>/dev/null) in
amd64) packages="$packages libdnnl-dev" ;;
"")
    echo "deps: this is no Debian or Ubuntu; install these yourself:" $packages >&2
    exit 1
    ;;
esac

if [ "${1:-}" = --fuzz ]; then
    packages="$packages clang libclang-rt-dev libomp-dev"
fi

missing=""
for package in $packages; do
    state=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$state" = "install ok installed" ] || missing="$missing $package"
done

if [ -z "$missing" ]; then
    exit 0
fi
if [ "${1:-}" = --check ]; then
    echo "missing:$missing"
    exit 1
fi

sudo=""
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "deps: run as root: apt-get install$missing" >&2
        exit 1
    fi
    sudo="sudo"
fi
echo "deps: installing$missing"
DEBIAN_FRONTEND=noninteractive
export DEBIAN_FRONTEND
$sudo apt-get update -q
$sudo apt-get install -q -y --no-install-recommends $missing
