"""The lab: real netem between two network namespaces, for measuring brokers and clients on networks that are known."""

from moq.lab import profiles
from moq.lab.lab import Lab
from moq.lab.profiles import Profile

__all__ = ["Lab", "Profile", "profiles"]
