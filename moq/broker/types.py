"""Type discovery: what is published on these topics, and what do its bytes mean?

A publisher announces the type of a topic; the broker remembers it. Asked about a topic whose type it does not know,
the broker asks a connected publisher of that topic, remembers what it says and answers with it; a publisher that
keeps silent delays the answer by no more than `type_timeout_s`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.access import Action

if TYPE_CHECKING:
    from collections.abc import Callable

    from moq.broker.environment import Environment
    from moq.broker.message import TopicType
    from moq.broker.retention import Topic, Topics
    from moq.broker.session import Session
    from moq.broker.sessions import Sessions
    from moq.broker.timers import Timer

Described = list[tuple[str, "TopicType"]]

MAX_ASKED = 1_000
"""Publishers asked for one question: a wildcard over a whole fleet is answered from what is known beyond that."""


class _Question:
    """One TYPEREQ that waits for publishers."""

    __slots__ = ("answer", "pending", "timer", "topics")

    def __init__(self, topics: list[Topic], answer: Callable[[Described], None]) -> None:
        self.topics = topics
        self.answer = answer
        self.pending: set[int] = set()
        self.timer: Timer | None = None


class TypeDiscovery:
    """Questions about types that are still open."""

    def __init__(self, environment: Environment, topics: Topics, sessions: Sessions) -> None:
        self._environment = environment
        self._topics = topics
        self._sessions = sessions
        self._asked: dict[int, tuple[_Question, str]] = {}
        self._last_query_id = 0

    def describe(self, session: Session, filter_: str, answer: Callable[[Described], None], now: float) -> None:
        """Find the types of all topics a filter matches; `answer` is called with them, possibly at once."""
        allows = self._environment.access.allows
        # Nobody learns of a topic that it may not read.
        topics = [
            topic
            for topic in self._topics.matching(filter_)
            if allows(session, Action.TYPE, topic.name) and allows(session, Action.RECEIVE, topic.name)
        ]
        question = _Question(sorted(topics, key=lambda topic: topic.name), answer)
        for topic in question.topics:
            if topic.type is None and len(question.pending) < MAX_ASKED:
                self._ask(question, topic)
        if question.pending:
            deadline = now + self._environment.limits.type_timeout_s
            question.timer = self._environment.timers.at(deadline, lambda _: self._finish(question))
        else:
            self._finish(question)

    def on_answer(self, client_id: str, query_id: int, topic_name: str, type_: TopicType | None) -> None:
        """A publisher answered the broker's question; answers nobody asked for are ignored."""
        question, name = self._asked.get(query_id, (None, ""))
        topic = self._topics.get(name)
        if question is None or topic is None or topic_name != name or client_id not in topic.publishers:
            return
        if type_ is not None:
            self._topics.set_type(topic, type_)
        del self._asked[query_id]
        question.pending.discard(query_id)
        if not question.pending:
            self._finish(question)

    def _ask(self, question: _Question, topic: Topic) -> None:
        for client_id in topic.publishers:
            publisher = self._sessions.get(client_id)
            if publisher is not None and (peer := publisher.peer) is not None:
                query_id = self._next_query_id()
                if query_id:
                    self._asked[query_id] = (question, topic.name)
                    question.pending.add(query_id)
                    peer.ask_type(query_id, topic.name)
                return

    def _next_query_id(self) -> int:
        """A free identifier of 16 bits, or 0 if all are in use."""
        if len(self._asked) >= 0xFFFF:
            return 0
        self._last_query_id = self._last_query_id % 0xFFFF + 1
        while self._last_query_id in self._asked:
            self._last_query_id = self._last_query_id % 0xFFFF + 1
        return self._last_query_id

    def _finish(self, question: _Question) -> None:
        for query_id in question.pending:
            del self._asked[query_id]
        question.pending.clear()
        if question.timer is not None:
            question.timer.cancel()
        question.answer([(topic.name, topic.type) for topic in question.topics if topic.type is not None])
