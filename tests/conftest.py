"""Settings every test shares."""

from __future__ import annotations

import os

from hypothesis import settings

# On a loaded machine a generous example says nothing about the code: pytest's own timeout is the limit.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
