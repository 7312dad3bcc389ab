"""The processing functions of a running broker: results enter the core as events of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.functions.pool import FunctionPool

if TYPE_CHECKING:
    from moq.broker.operators.functions import Then
    from moq.config import BrokerConfig
    from moq.server.server import Server


def make_functions(server: Server, config: BrokerConfig) -> FunctionPool:
    """The functions of a server; to be opened before its core is made."""

    def deliver(then: Then, result: bytes | None, error: str | None) -> None:
        server.broker.environment.now = server.clock()
        then(result, error)
        server.arm()
        server.watch.look()

    return FunctionPool(config.function_workers, config.limits, deliver)
