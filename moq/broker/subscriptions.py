"""Who receives what: a trie of topic filters with a cache of routes.

    filters  a/+/c   a/#   x          a ─┬─ + ── c   {a/+/c}
                                         └─ #        {a/#}
                                      x              {x}

Matching a name walks the trie one level at a time and visits each node at most once. The answer, a `Route`, is
kept per name until a subscription or the rules of access change: a steady stream of messages costs one dictionary
look-up each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moq.broker.access import Action
from moq.broker.message import Kind, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from moq.broker.access import Access
    from moq.broker.message import Message, Subscription
    from moq.broker.session import Session
    from moq.broker.stages import Stage

MAX_CACHED_ROUTES = 100_000
"""Bounds the memory a publisher can take by inventing topic names; past it the cache starts anew."""


class Group:
    """Subscribers that share one filter under one name: each message goes to one of them."""

    __slots__ = ("_access", "_turn", "key", "members")

    def __init__(self, access: Access, key: str) -> None:
        self._access = access
        self.key = key
        """Its name and filter in one text, NUL in between because neither has one: the store knows it by this."""
        self.members: list[Target] = []
        self._turn = 0

    def choose(self, message: Message, excluded: Session | None = None) -> Target | None:
        """The member for the next message: connected before absent, then the least loaded, then in turn."""
        members = self.members
        best: Target | None = None
        best_load = 0
        start = self._turn
        for offset in range(len(members)):
            target = members[(start + offset) % len(members)]
            session = target.session
            if session is excluded or not self.suits(target, message):
                continue
            load = session.outbound.load
            if best is None or load < best_load:
                best, best_load = target, load
        self._turn = start + 1
        return best

    def suits(self, target: Target, message: Message) -> bool:
        """True if a member may get this message."""
        session, allows = target.session, self._access.allows
        if message.kind == Kind.REQUEST and not (
            target.subscription.accepts_requests and allows(session, Action.RESPOND, message.topic)
        ):
            return False
        if target.no_local and session.client_id == message.publisher:
            return False
        return allows(session, Action.RECEIVE, message.topic)


class Route:
    """The recipients of one topic: every target gets each message, every group gives it to one member.

    Those with a reception period stand apart, and so do stages, which make something else of messages: whoever has
    neither pays nothing for them.
    """

    __slots__ = ("groups", "has_others", "paced", "stages", "targets")

    def __init__(self, targets: list[Target], groups: list[Group], stages: list[Stage]) -> None:
        self.targets = [target for target in targets if not target.period_s]
        self.paced = [target for target in targets if target.period_s]
        self.groups = groups
        self.stages = stages
        self.has_others = bool(self.paced or groups or stages)
        """True if there is anyone but `targets`."""


class _Node:
    __slots__ = ("children", "groups", "stages", "subscriptions")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.subscriptions: dict[tuple[str, str], Subscription] = {}  # by client id and text
        self.groups: dict[str, Group] = {}  # by key
        self.stages: dict[str, Stage] = {}  # by key

    @property
    def is_empty(self) -> bool:
        return not (self.children or self.subscriptions or self.groups or self.stages)


class Subscriptions:
    """Every subscription of the broker."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._root = _Node()
        self._routes: dict[str, Route] = {}
        self._groups: dict[str, Group] = {}
        self.count = 0
        self.awaited: dict[str, Callable[[], None]] = {}
        """Told when somebody subscribes to exactly this: topics that are published only for those who ask."""

    def add(self, subscription: Subscription) -> None:
        """Add a subscription; one of the same session, filter and group is replaced."""
        node = self._grow(subscription.source)
        if subscription.group is None:
            place = (subscription.session.client_id, subscription.filter)
            self.count += place not in node.subscriptions
            node.subscriptions[place] = subscription
        else:
            self.join(node.groups, subscription)
        self._routes.clear()
        if (on_subscribed := self.awaited.get(subscription.source)) is not None:
            on_subscribed()

    def remove(self, subscription: Subscription) -> None:
        """Remove what `add` added, and the branches that bore nothing else."""
        path = self._path(subscription.source)
        if subscription.group is None:
            del path[-1].subscriptions[subscription.session.client_id, subscription.filter]
            self.count -= 1
        else:
            self.leave(path[-1].groups, subscription)
        self._prune(subscription.source, path)
        self._routes.clear()

    def join(self, groups: dict[str, Group], subscription: Subscription) -> None:
        """Let a session join the group of its subscription, among the groups of one filter."""
        key = group_key(subscription)
        group = groups.get(key)
        if group is None:
            group = groups[key] = self._groups[key] = Group(self._access, key)
        others = [member for member in group.members if member.session is not subscription.session]
        self.count += len(others) == len(group.members)
        group.members = [*others, Target(subscription.session, subscription, group)]

    def leave(self, groups: dict[str, Group], subscription: Subscription) -> None:
        """Undo `join`; a group ends with its last member."""
        group = groups[group_key(subscription)]
        group.members = [member for member in group.members if member.session is not subscription.session]
        self.count -= 1
        if not group.members:
            del groups[group.key], self._groups[group.key]

    def add_stage(self, stage: Stage) -> None:
        """Let a stage take in the messages of its sources."""
        for source in stage.plan.sources:
            self._grow(source).stages[stage.key] = stage
        self._routes.clear()

    def remove_stage(self, stage: Stage) -> None:
        """Undo `add_stage`."""
        for source in stage.plan.sources:
            path = self._path(source)
            del path[-1].stages[stage.key]
            self._prune(source, path)
        self._routes.clear()

    def _grow(self, filter_: str) -> _Node:
        node = self._root
        for level in filter_.split("/"):
            node = node.children.setdefault(level, _Node())
        return node

    def _path(self, filter_: str) -> list[_Node]:
        """The nodes from the root to that of a filter."""
        path = [self._root]
        for level in filter_.split("/"):
            path.append(path[-1].children[level])
        return path

    def _prune(self, filter_: str, path: list[_Node]) -> None:
        """Cut off the end of a branch as far as it bears nothing."""
        levels = reversed(filter_.split("/"))
        for level, parent, child in zip(levels, reversed(path[:-1]), reversed(path[1:]), strict=True):
            if not child.is_empty:
                break
            del parent.children[level]

    def forget_routes(self) -> None:
        """The rules of access have changed: find out again who receives what."""
        self._routes.clear()

    def group(self, key: str) -> Group | None:
        """The group of this name and filter, if it still has members."""
        return self._groups.get(key)

    def route(self, topic: str) -> Route:
        """Who receives messages of this topic. Valid until a subscription or the rules of access change."""
        route = self._routes.get(topic)
        if route is None:
            if len(self._routes) >= MAX_CACHED_ROUTES:
                self._routes.clear()
            route = self._routes[topic] = self._find(topic)
        return route

    def matching(self, topic: str) -> Iterator[Subscription]:
        """Every subscription that matches a name, members of groups included."""
        for node in self._nodes(topic):
            yield from node.subscriptions.values()
            for group in node.groups.values():
                for member in group.members:
                    yield member.subscription

    def _find(self, topic: str) -> Route:
        best: dict[str, Target] = {}
        groups: list[Group] = []
        stages: list[Stage] = []
        for node in self._nodes(topic):
            groups.extend(node.groups.values())
            stages.extend(stage for stage in node.stages.values() if self._may_take(stage, topic))
            for (client_id, _), subscription in node.subscriptions.items():
                known = best.get(client_id)
                if known is not None:
                    known.merge(subscription, topic)
                elif self._access.allows(subscription.session, Action.RECEIVE, topic):
                    best[client_id] = Target(subscription.session, subscription)
        return Route(list(best.values()), groups, stages)

    def _may_take(self, stage: Stage, topic: str) -> bool:
        """A stage sees what its subscriber may: with rules of access each has its own."""
        return stage.actor is None or self._access.allows(stage.actor, Action.RECEIVE, topic)

    def _nodes(self, topic: str) -> Iterator[_Node]:
        levels = topic.split("/")
        is_system = topic.startswith("$")
        nodes = [self._root]
        for depth, level in enumerate(levels):
            wildcards = not (depth == 0 and is_system)
            following: list[_Node] = []
            for node in nodes:
                children = node.children
                if not children:
                    continue
                if (child := children.get(level)) is not None:
                    following.append(child)
                if wildcards:
                    if (child := children.get("+")) is not None:
                        following.append(child)
                    if (child := children.get("#")) is not None:
                        yield child
            nodes = following
        for node in nodes:
            yield node
            # `a/#` matches `a` itself: the multi-level wildcard includes the parent level.
            if (child := node.children.get("#")) is not None:
                yield child


def group_key(subscription: Subscription) -> str:
    """The key of the group a subscription is in: see `Group.key`."""
    return f"{subscription.group}\0{subscription.filter}"
