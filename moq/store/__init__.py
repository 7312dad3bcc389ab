"""Durable facts and queues in the data directory: SQLite, a writer thread, files for large payloads."""

from moq.store.database import Recovered
from moq.store.figures import StoreFigures
from moq.store.sqlite import SQLiteStore
from moq.store.timeline import Timeline

__all__ = ["Recovered", "SQLiteStore", "StoreFigures", "Timeline"]
