# Shared by the commands in this directory: makes .venv when it is missing or stale, then gets out of the way.
#
# A stamp in .venv names what was installed (the lock, pyproject.toml, the interpreter); it is written last, so an
# installation cut short is simply done again. Comparing it costs one `cksum`, no Python is started.

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=$root/.venv

fail() {
    echo "$(basename -- "$0"): $1" >&2
    exit 1
}

is_supported() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for python in "${PYTHON:-python3.11}" python3 python3.14 python3.13 python3.12; do
        if is_supported "$python"; then
            command -v "$python"
            return
        fi
    done
    fail "MoQ needs Python 3.11 or newer; none was found. Install one, or name it: PYTHON=/path/to/python $0"
}

# `fingerprint LOCK` says what an installation of LOCK is made from. The project's own code is installed editable, so
# only its metadata counts.
fingerprint() {
    cksum "$root/$1" "$root/pyproject.toml" "$root/scripts/lib.sh"
    ls -l "$venv/bin/python" 2>/dev/null
}

is_fresh() {
    stamp=$venv/.installed-$1
    [ -f "$stamp" ] && [ -x "$venv/bin/python" ] && [ "$(cat "$stamp")" = "$(fingerprint "$1")" ]
}

make_venv() {
    python=$(find_python) || exit 1
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        fail "$python comes without venv; on Debian and Ubuntu: apt install python3-venv"
    fi
    "$python" -m venv --clear "$venv" || fail "cannot make a virtual environment in $venv"
}

install() {
    if ! { [ -x "$venv/bin/python" ] && is_supported "$venv/bin/python" && "$venv/bin/python" -m pip --version; } \
        >/dev/null 2>&1; then
        make_venv
    fi
    rm -f "$venv"/.installed-*
    pip="$venv/bin/python -m pip --disable-pip-version-check --quiet"
    $pip install --require-hashes -r "$root/$1" || fail "cannot install the dependencies in $1"
    $pip install --no-deps --no-build-isolation --editable "$root" || fail "cannot install the project"
    fingerprint "$1" >"$venv/.installed-$1"
}

# The lock is a directory because making one is atomic everywhere; it holds the pid of its owner, so that one left
# behind by a killed installation is recognised and taken over.
acquire() {
    lock=$root/.venv.lock
    said=
    until mkdir "$lock" 2>/dev/null; do
        owner=$(cat "$lock/pid" 2>/dev/null || sleep 1; cat "$lock/pid" 2>/dev/null)
        if [ -z "$owner" ] || ! kill -0 "$owner" 2>/dev/null; then
            rm -rf "$lock"
            continue
        fi
        [ -n "$said" ] || echo "waiting for process $owner, which is installing" >&2
        said=yes
        sleep 1
    done
    echo $$ >"$lock/pid"
    trap 'rm -rf "$lock"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

# `ensure LOCK` returns once .venv holds what LOCK lists and the project itself.
ensure() {
    is_fresh "$1" && return
    acquire
    if ! is_fresh "$1"; then
        echo "installing MoQ's dependencies into .venv (once; later starts skip this)" >&2
        install "$1"
    fi
    rm -rf "$lock"
    trap - EXIT INT TERM HUP
}
