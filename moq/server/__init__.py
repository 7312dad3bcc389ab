"""The shell around the broker core: event loop, listeners, certificates, clock."""

from moq.server.server import Server

__all__ = ["Server"]
