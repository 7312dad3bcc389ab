"""Processing functions: what a plug-in declares. The broker's side of it is `moq.functions.pool`.

A plug-in is a distribution with an entry point of the group `moq.functions` that names a `Function`.
"""

from moq.functions.function import Cost, Function, OutputType, PluginError, Unavailable

__all__ = ["Cost", "Function", "OutputType", "PluginError", "Unavailable"]
