"""A zenoh router as a process: `python zenoh_router.py SETTINGS`, in zenoh's environment; a line when it is ready.

SETTINGS is a JSON object of zenoh's configuration keys. It runs with the interpreter of a rival's environment, so it
imports nothing of ours.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys


def main() -> None:
    """Route until somebody says stop."""
    zenoh = importlib.import_module("zenoh")
    config = zenoh.Config()
    for key, value in json.loads(sys.argv[1]).items():
        config.insert_json5(key, json.dumps(value))
    # Blocked before there is a thread, so that each of them leaves the signal to the wait below.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    with zenoh.open(config):
        print(json.dumps({"event": "ready"}), flush=True)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
