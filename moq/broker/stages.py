"""Stages: between topics and subscribers that asked for less than every message, or for something made of them (MQTT+).

    topics ──► stage of `$GT;30/+/temp` ──► its subscribers, the messages that satisfy the rule
           ──► stage of `$AVG/+/temp`   ──► its subscribers, one number, on `$AVG/$AGGREGATE/temp`
           ──► stage of `$CNTPPL/+/cam` ──► a worker ──► its subscribers, what the function found

A stage stands in the trie of subscriptions under each filter that feeds it, and has one computation for everybody who
asked for the same. With rules of access each client has its own: what one may not read must not reach it as part of an
average. What must survive of a computation, its open window, is in the store topic by topic, written together with the
message that changed it, while a persistent session is subscribed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from moq.broker.access import Action, OpenAccess
from moq.broker.message import Message, Target
from moq.broker.operators import Calendar, RuleFilter, Settings, WindowRecord, compute
from moq.broker.store import AggregateRecord, Table
from moq.errors import RequestRefused
from moq.reasons import Reason
from moq.topics import has_wildcard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from moq.broker.access import Actor
    from moq.broker.environment import Environment
    from moq.broker.message import Run, Subscription
    from moq.broker.operators import Computation, Output, Plan
    from moq.broker.pacing import Pacing
    from moq.broker.retention import Topic, Topics
    from moq.broker.session import Session
    from moq.broker.subscriptions import Group, Subscriptions
    from moq.broker.timers import Timer

ERRORS: Final = "$ERROR/"
"""Begins the topic of what a subscriber is told instead of a value; the topic of the value follows."""

ENCRYPTED: Final = "messages of this topic are encrypted: the broker cannot read them"

_VALUE_QOS: Final = 2
"""Values are made for whoever gets them: at the QoS of the subscription."""


class Stage:
    """One computation, and everybody who subscribed to it."""

    __slots__ = ("actor", "computation", "groups", "is_kept", "kept", "key", "plan", "rule", "targets", "timer", "told")

    def __init__(self, key: str, plan: Plan, computation: Computation, actor: Actor | None) -> None:
        self.key = key
        self.plan = plan
        self.computation = computation
        self.actor = actor
        """Whose it is alone; None: everybody's."""
        self.rule = RuleFilter(plan.outer) if plan.is_filter and plan.outer is not None else None
        """What messages must satisfy to be passed on unchanged; None if values are made of them."""
        self.targets: dict[tuple[str, str], Target] = {}  # by client id and text
        self.groups: dict[str, Group] = {}  # by key
        self.timer: Timer | None = None
        self.is_kept = False
        """True while its window must survive a restart, for a persistent session."""
        self.kept: set[str] = set()
        """Topics whose part of the window is in the store."""
        self.told: set[str] = set()
        """Topics whose messages turned out to be encrypted: that is said once."""

    @property
    def is_empty(self) -> bool:
        """True if nobody wants it any more."""
        return not (self.targets or self.groups)

    @property
    def has_persistent_subscribers(self) -> bool:
        """True if somebody will come back after a restart."""
        return any(target.session.is_persistent for target in self.targets.values()) or any(
            member.session.is_persistent for group in self.groups.values() for member in group.members
        )

    def recipients(self, message: Message) -> Iterator[Target]:
        """Every subscriber, and one member of each group."""
        for target in list(self.targets.values()):
            if not (target.no_local and target.session.client_id == message.publisher):
                yield target
        for group in list(self.groups.values()):
            if (member := group.choose(message)) is not None:
                yield member


class Stages:
    """All stages of a broker."""

    def __init__(self, environment: Environment, subscriptions: Subscriptions, topics: Topics, pacing: Pacing) -> None:
        self._environment = environment
        self._figures = environment.figures
        self._subscriptions = subscriptions
        self._topics = topics
        self._pacing = pacing
        self._stages: dict[str, Stage] = {}

    def __len__(self) -> int:
        return len(self._stages)

    # --- subscriptions --------------------------------------------------------------------------------

    def check(self, subscription: Subscription) -> None:
        """Refuse a subscription that cannot be served.

        Raises:
            RequestRefused: And why.
        """
        plan, environment = subscription.plan, self._environment
        assert plan is not None
        if subscription.group is not None and not isinstance(environment.access, OpenAccess):
            words = "with rules of access operators cannot be shared: members may read different topics"
            raise RequestRefused(words, Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)
        for source in plan.sources:
            topic = None if has_wildcard(source) else self._topics.get(source)
            if topic is not None and topic.retained and _is_encrypted(topic.retained[-1][1]):
                raise RequestRefused(f"{source!r}: {ENCRYPTED}", Reason.IMPLEMENTATION_SPECIFIC_ERROR)
        most = environment.limits.max_computations
        if self._key(subscription) not in self._stages and len(self._stages) >= most:
            raise RequestRefused(f"the broker has {most} computations, its limit", Reason.QUOTA_EXCEEDED)

    def add(self, subscription: Subscription, now: float) -> None:
        """Serve a subscription, from a stage that is there already if it is the same."""
        key = self._key(subscription)
        stage = self._stages.get(key)
        if stage is None:
            stage = self._open(key, subscription, now)
        if subscription.group is not None:
            self._subscriptions.join(stage.groups, subscription)
        else:
            place = (subscription.session.client_id, subscription.filter)
            self._subscriptions.count += place not in stage.targets
            stage.targets[place] = Target(subscription.session, subscription)
        if subscription.session.is_persistent and not stage.is_kept:
            stage.is_kept = True
            self._keep_all(stage)

    def remove(self, subscription: Subscription) -> None:
        """Undo `add`; a stage ends with its last subscriber."""
        stage = self._stages[self._key(subscription)]
        if subscription.group is not None:
            self._subscriptions.leave(stage.groups, subscription)
        else:
            del stage.targets[subscription.session.client_id, subscription.filter]
            self._subscriptions.count -= 1
        if stage.is_kept and not stage.has_persistent_subscribers:
            stage.is_kept = False
            self._forget_kept(stage)
        if stage.is_empty:
            del self._stages[stage.key]
            self._subscriptions.remove_stage(stage)
            if stage.timer is not None:
                stage.timer.cancel()

    def are_one(self, one: Subscription, other: Subscription) -> bool:
        """True if two subscriptions with operators have the same stage."""
        return self._key(one) == self._key(other)

    def target(self, session: Session, label: str) -> Target | None:
        """The target of a session's subscription with operators, by its text."""
        subscription = session.subscriptions.get((label, None))
        if subscription is None or not subscription.is_computed:
            return None
        stage = self._stages.get(self._key(subscription))
        return stage.targets.get((session.client_id, label)) if stage is not None else None

    def recover(self, now: float) -> None:
        """Go on with the windows an earlier broker had open, of the stages that are there again."""
        store = self._environment.store
        windows: dict[str, list[tuple[str, AggregateRecord]]] = {}
        for key, record in list(store.load(Table.AGGREGATE)):
            assert isinstance(key, tuple)
            assert isinstance(record, AggregateRecord)
            if key[0] in self._stages:
                windows.setdefault(key[0], []).append((key[1], record))
            else:
                store.delete(Table.AGGREGATE, key)
        for stage_key, rows in windows.items():
            stage = self._stages[stage_key]
            stage.kept = {topic for topic, _ in rows}
            topics = tuple((topic, record.statistics) for topic, record in rows)
            stage.computation.restore(WindowRecord(max(record.window for _, record in rows), topics), now)
            self._arm(stage)

    # --- messages -------------------------------------------------------------------------------------

    def take(self, stages: list[Stage], message: Message, live: Message, now: float) -> None:
        """Feed the stages of a message's topic; those that use the same function share what it finds."""
        if _is_encrypted(message):
            self._figures.unreadable_encrypted += 1
            for stage in stages:
                self._tell_encrypted(stage, message.topic, now)
            return
        processed: dict[str, list[Stage]] = {}
        for stage in stages:
            if stage.plan.function is not None:
                processed.setdefault(stage.plan.function, []).append(stage)
            elif stage.rule is None:
                self._compute(stage, message.topic, message.payload, message.expires_at, now)
            elif stage.rule.matches(message.payload):
                for target in stage.recipients(message):
                    self._pacing.deliver(message if target.retain_as_published else live, target, now)
        for name, waiting in processed.items():
            then = partial(self._on_processed, waiting, message.topic, message.expires_at)
            if not self._environment.functions.submit(name, message.payload, then):
                then(None, f"${name} has too much to do")

    def take_run(self, stages: list[Stage], run: Run, now: float) -> None:
        """Feed the stages of a topic several messages."""
        for message in run.messages():
            self.take(stages, message, message, now)

    def passes(self, subscription: Subscription, message: Message) -> bool:
        """True if a retained message is for a new subscriber: a rule lets it through."""
        stage = self._stages.get(self._key(subscription))
        rule = stage.rule if stage is not None else None
        return rule is not None and not _is_encrypted(message) and rule.matches(message.payload)

    # --- inside ---------------------------------------------------------------------------------------

    def _key(self, subscription: Subscription) -> str:
        """Subscriptions with the same key share a stage; NUL separates what no plan and no client id contains."""
        plan, session = subscription.plan, subscription.session
        assert plan is not None
        parts = [plan.key]
        if plan.spatial is not None:
            parts.append(str(subscription.max_name_bytes))
        if not isinstance(self._environment.access, OpenAccess):
            parts += [session.client_id, session.user or ""]
        return "\0".join(parts)

    def _open(self, key: str, subscription: Subscription, now: float) -> Stage:
        plan, environment = subscription.plan, self._environment
        assert plan is not None
        settings = Settings(
            calendar=Calendar(environment.epoch, environment.utc_offset_s),
            default_ttl_s=environment.limits.default_ttl_s,
            max_topics=environment.limits.max_topics_per_computation,
            max_name_bytes=subscription.max_name_bytes,
        )
        actor = None if isinstance(environment.access, OpenAccess) else subscription.session
        stage = self._stages[key] = Stage(key, plan, compute(plan, settings), actor)
        self._subscriptions.add_stage(stage)
        if plan.spatial is not None and plan.temporal is None:
            self._prime(stage, now)
        return stage

    def _prime(self, stage: Stage, now: float) -> None:
        """Let retained messages be the latest values of their topics."""
        for source in stage.plan.sources:
            for topic in self._topics.matching(source):
                message = _newest(topic, now)
                if message is None or _is_encrypted(message) or not self._may_read(stage, topic.name):
                    continue
                if stage.plan.function is None:
                    stage.computation.prime(topic.name, message.payload, message.expires_at, now)
                else:
                    then = partial(self._on_primed, stage, topic.name, message.expires_at)
                    self._environment.functions.submit(stage.plan.function, message.payload, then)

    def _may_read(self, stage: Stage, topic: str) -> bool:
        return stage.actor is None or self._environment.access.allows(stage.actor, Action.RECEIVE, topic)

    def _on_primed(self, stage: Stage, topic: str, expires_at: float, result: bytes | None, error: str | None) -> None:
        if result is not None:
            stage.computation.prime(topic, result, expires_at, self._environment.now)

    def _on_processed(
        self, stages: list[Stage], topic: str, expires_at: float, result: bytes | None, error: str | None
    ) -> None:
        """A function has made something of a message, or failed; some who waited for it may be gone."""
        now = self._environment.now
        self._figures.functions_failed += result is None
        for stage in stages:
            if self._stages.get(stage.key) is not stage:
                continue
            if result is None:
                self._tell(stage, topic, error or "it failed", now)
            else:
                self._compute(stage, topic, result, expires_at, now)

    def _compute(self, stage: Stage, topic: str, payload: bytes, expires_at: float, now: float) -> None:
        computation = stage.computation
        window, version, left_out = computation.window, computation.version, computation.left_out
        outputs = computation.on_message(topic, payload, expires_at, now)
        self._figures.left_out_of_aggregates += computation.left_out - left_out
        if stage.is_kept and computation.version != version:
            if computation.window != window:
                self._forget_kept(stage)
            self._keep(stage, topic)
        if stage.timer is None:
            self._arm(stage)
        self._publish(stage, outputs, now)

    def _arm(self, stage: Stage) -> None:
        when = stage.computation.next_timeout()
        if when is not None and stage.timer is None:
            stage.timer = self._environment.timers.at(when, partial(self._on_time, stage))

    def _on_time(self, stage: Stage, now: float) -> None:
        stage.timer = None
        outputs = stage.computation.on_timeout(now)
        if stage.computation.window is None:
            self._forget_kept(stage)
        self._arm(stage)
        self._publish(stage, outputs, now)

    def _publish(self, stage: Stage, outputs: list[Output], now: float) -> None:
        for output in outputs:
            self._give(stage, Message(output.topic, output.payload, _VALUE_QOS), now)

    def _give(self, stage: Stage, message: Message, now: float) -> None:
        for target in stage.recipients(message):
            self._pacing.deliver(message, target, now)

    # --- errors ---------------------------------------------------------------------------------------

    def _tell(self, stage: Stage, topic: str, words: str, now: float) -> None:
        """Tell the subscribers that there is no value, on a topic that no value has."""
        self._give(stage, Message(f"{ERRORS}{stage.plan.operators}/{topic}", words.encode(), _VALUE_QOS), now)

    def _tell_encrypted(self, stage: Stage, topic: str, now: float) -> None:
        if topic not in stage.told and len(stage.told) < self._environment.limits.max_topics_per_computation:
            stage.told.add(topic)
            self._tell(stage, topic, ENCRYPTED, now)

    # --- store ----------------------------------------------------------------------------------------

    def _keep(self, stage: Stage, topic: str) -> None:
        """Write what a topic said in the open window: with the message, so it is counted once it is acknowledged."""
        window, statistics = stage.computation.window, stage.computation.topic_record(topic)
        if window is not None and statistics is not None:
            stage.kept.add(topic)
            self._environment.store.put(Table.AGGREGATE, (stage.key, topic), AggregateRecord(window, statistics))

    def _keep_all(self, stage: Stage) -> None:
        record = stage.computation.to_record()
        for topic, _ in record.topics if record is not None else ():
            self._keep(stage, topic)

    def _forget_kept(self, stage: Stage) -> None:
        for topic in stage.kept:
            self._environment.store.delete(Table.AGGREGATE, (stage.key, topic))
        stage.kept.clear()


def _is_encrypted(message: Message) -> bool:
    return message.properties is not None and message.properties.encrypted


def _newest(topic: Topic, now: float) -> Message | None:
    return next((message for _, message in reversed(topic.retained) if message.expires_at > now), None)
