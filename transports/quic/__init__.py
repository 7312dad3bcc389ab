"""The QUIC transport: stream 0 for control, a unidirectional stream per topic, on our own UDP endpoint."""

from __future__ import annotations

from transports.quic.connector import connect
from transports.quic.lane import QUICLane
from transports.quic.link import QUICLink
from transports.quic.listener import Listener, serve
from transports.quic.options import QUICOptions

__all__ = ["Listener", "QUICLane", "QUICLink", "QUICOptions", "connect", "serve"]
