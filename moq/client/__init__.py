"""The client: a pure protocol core, and the asyncio library around it."""

from __future__ import annotations

from moq.client.client import Client, FirstConfirmation
from moq.client.confirming import Confirmation, Confirmations, NotConfirmed
from moq.client.connect import connect
from moq.client.connection import Reconnect
from moq.client.messages import Message, Request, TopicType, Will
from moq.client.subscription import Requests, Subscription
from moq.client.typed import PayloadError
from moq.wire.mmqp import RetentionMode, TypeFormat

__all__ = [
    "Client",
    "Confirmation",
    "Confirmations",
    "FirstConfirmation",
    "Message",
    "NotConfirmed",
    "PayloadError",
    "Reconnect",
    "Request",
    "Requests",
    "RetentionMode",
    "Subscription",
    "TopicType",
    "TypeFormat",
    "Will",
    "connect",
]
