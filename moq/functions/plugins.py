"""Which plug-ins there are, as installed distributions say of themselves; finding them imports nothing of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from moq.functions.function import Function, PluginError

GROUP: Final = "moq.functions"
OURS: Final = "moq-broker"


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point of an installed distribution."""

    name: str
    value: str
    """Where the function is, as `module:attribute`."""
    distribution: str
    """With its version, for people."""
    is_ours: bool = False

    def __str__(self) -> str:
        """How complaints call it."""
        return f"the function {self.name} of {self.distribution}"

    def load(self) -> Function:
        """Import it.

        Raises:
            PluginError: It is no function, or one of another name.
            Exception: Whatever the module raises.
        """
        found = EntryPoint(self.name, self.value, GROUP).load()
        if not isinstance(found, Function):
            raise PluginError(f"{self.value} is a {type(found).__name__}; expected a moq.functions.Function")
        if found.name != self.name:
            raise PluginError(
                f"its entry point is called {self.name}, it is called {found.name}; both must be the same"
            )
        return found


def find() -> list[Plugin]:
    """All of them, in the order of their right to a name: our own last, so that others can replace them."""
    found = [_plugin(entry_point) for entry_point in entry_points(group=GROUP)]
    return sorted(found, key=lambda plugin: (plugin.is_ours, plugin.distribution, plugin.name))


def _plugin(entry_point: EntryPoint) -> Plugin:
    distribution = entry_point.dist
    name = distribution.name if distribution is not None else "?"
    version = distribution.version if distribution is not None else ""
    return Plugin(entry_point.name, entry_point.value, f"{name} {version}".strip(), is_ours=name == OURS)
