#!/bin/sh
# Debian packages `make setup` can use. Only python3-venv is needed where it is missing; the others widen the tests:
# qemu-user-static runs the engines of other processors, gcc is the second compiler engines are compared with,
# g++ is what nvcc reads CUDA C++ with (docs/gpu.md), binutils (objdump) reads their machine code, valgrind counts their instructions, chromium opens proof.html,
# clang-19 and llvm-19 count MC/DC a second time (docs/coverage.md), wrk is the load of benchmarks/registry.py,
# postgresql is the registry's other database.
set -eu

missing=""
if [ -z "${VIRTUAL_ENV:-}" ] && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then missing="$missing python3-venv"; fi
command -v qemu-aarch64-static >/dev/null 2>&1 || command -v qemu-aarch64 >/dev/null 2>&1 || missing="$missing qemu-user-static"
command -v gcc >/dev/null 2>&1 || missing="$missing gcc"
command -v g++ >/dev/null 2>&1 || missing="$missing g++"
command -v objdump >/dev/null 2>&1 || missing="$missing binutils"
command -v valgrind >/dev/null 2>&1 || missing="$missing valgrind"
command -v chromedriver >/dev/null 2>&1 || missing="$missing chromium chromium-driver"
command -v clang-19 >/dev/null 2>&1 || missing="$missing clang-19 libclang-rt-19-dev"
command -v llvm-cov-19 >/dev/null 2>&1 || missing="$missing llvm-19"
command -v wrk >/dev/null 2>&1 || missing="$missing wrk"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "note: not a Debian system; not installed:$missing" >&2
elif [ "$(id -u)" -ne 0 ]; then
    echo "note: not root, so these are not installed:$missing (as root: apt-get install$missing)" >&2
else
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || echo "note: apt-get update failed; trying with the lists there are" >&2
    for package in $missing; do
        apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
            echo "note: $package could not be installed; what needs it is left out" >&2
    done
fi
