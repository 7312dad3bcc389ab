# Shared by the commands in this directory: makes .venv when it is missing or stale, then gets out of the way.
#
# A stamp in .venv says what was installed from what; comparing it starts no Python, so a second start is not delayed.

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=$root/.venv

fail() {
    echo "$(basename -- "$0"): $1" >&2
    exit 1
}

find_python() {
    for python in "${PYTHON:-python3.11}" python3 python3.14 python3.13 python3.12; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    fail "MoQ needs Python 3.11 or newer and found none; install one, or name it: PYTHON=/path/to/python $0"
}

# `ensure LOCK` returns once .venv holds what LOCK lists and the project itself.
ensure() {
    inputs=$(cd "$root" && cat requirements.lock requirements-dev.lock pyproject.toml scripts/install.py | cksum)
    stamp=$venv/.installed-$1
    if [ -x "$venv/bin/python" ] && [ -f "$stamp" ] &&
        [ "$(cat "$stamp")" = "$inputs $(readlink -f "$venv/bin/python")" ]; then
        return
    fi
    python=$(find_python) || exit 1
    "$python" "$root/scripts/install.py" "$1" "$inputs" || exit 1
}
