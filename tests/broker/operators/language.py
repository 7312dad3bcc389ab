"""The language of subscriptions a second time, written from the paper, for `parse` to agree with.

MQTT+ section 3.6 lists what may be combined; `PIPELINES` is that list, with the paths of our own. `is_permitted` says
whether a text is in the language, `subscriptions` draws texts that are, `damaged` ones that may be or not.
"""

from __future__ import annotations

import re
from decimal import Decimal
from urllib.parse import unquote_to_bytes

from hypothesis import strategies as st

from moq.topics import filter_error

FUNCTIONS = ("CNTPPL", "RECOGNIZE")

_PLAIN = r"(?:[^%/;$+#]|%[0-9A-Fa-f]{2})"
_STEP = r"(?:[^%/;$+#.]|%[0-9A-Fa-f]{2})"
_PATH = rf"(?:;(?:\.{_STEP}+){{1,16}})?"
_VALUE = rf"{_PLAIN}*"
_OPERATION = r"(?:COUNT|SUM|AVG|MIN|MAX)"
_RULE = rf"\$(?:EQ|NEQ|GT|GTE|LT|LTE|CONTAINS);{_VALUE}"
_SPATIAL = rf"\${_OPERATION}"
_WINDOW = rf"\$WIN;[1-9][0-9]*[smhd];{_OPERATION}"
_TEMPORAL = rf"(?:\$(?:DAILY|HOURLY|QUARTERHOURLY){_OPERATION}|{_WINDOW})"
_FUNCTION = rf"\$(?:{'|'.join(FUNCTIONS)})"

PIPELINES = (
    rf"{_RULE}{_PATH}",  # 3.1
    rf"{_FUNCTION}",  # 3.5
    rf"(?:{_RULE})?{_TEMPORAL}{_PATH}(?:{_FUNCTION})?",  # 3.3; 3.6 (2) and (3)
    rf"(?:{_RULE})?{_SPATIAL}{_PATH}(?:{_RULE}{_PATH})?(?:{_FUNCTION})?",  # 3.4; 3.6 (2) and (3)
    rf"(?:{_RULE})?{_SPATIAL}(?:{_RULE})?{_TEMPORAL}{_PATH}(?:{_FUNCTION})?",  # 3.6 (1), (2) and (3)
)
_HEADS = [
    re.compile(rf"(?:\$MRP;(?P<period>0|[1-9][0-9]{{0,4}}))?(?P<rpt>\$RPT)?{one}", re.DOTALL) for one in PIPELINES
]
_ONLY_PERIOD = re.compile(r"\$MRP;(?P<period>0|[1-9][0-9]{0,4})")
_NUMBER = re.compile(r"[ \t\r\n]*-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]{1,4})?[ \t\r\n]*")
_RULES = re.compile(rf"\$(EQ|NEQ|GTE|GT|LTE|LT|CONTAINS);({_VALUE})", re.DOTALL)
_WINDOWS = re.compile(r"\$WIN;([0-9]+)([smhd])")
_LIKE_AN_OPERATOR = re.compile(r"\$(?!SYS$)[A-Z][A-Z0-9_]*|.*;.*|.+[$].*", re.DOTALL)


def has_operators(text: str) -> bool:
    return text.startswith("$") and _LIKE_AN_OPERATOR.fullmatch(text.split("/")[0]) is not None


def is_permitted(text: str) -> bool:
    head, slash, topic = text.partition("/")
    matched = [found for one in [*_HEADS, _ONLY_PERIOD] if (found := one.fullmatch(head))]
    if not slash or not matched:
        return False
    period = matched[0]["period"]
    is_spatial = any(
        re.search(rf"\${operation}(?=[;$]|$)", head) for operation in ("COUNT", "SUM", "AVG", "MIN", "MAX")
    )
    return (
        (period is None or int(period) <= 65_535)
        and (is_spatial or "$RPT" not in head)
        and all(_says_text(part) for part in re.split(r"[;$.]", head))
        and all(_suits(operator, value) for operator, value in _RULES.findall(head))
        and all(
            int(n) * {"s": 1, "m": 60, "h": 3_600, "d": 86_400}[unit] <= 31 * 86_400
            for n, unit in _WINDOWS.findall(head)
        )
        and (_is_spatial_topic(topic) if is_spatial else _is_topic(topic))
    )


def _says_text(text: str) -> bool:
    try:
        unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        return False
    return re.search("%(?![0-9A-Fa-f]{2})", text) is None


def _suits(operator: str, escaped: str) -> bool:
    value = unquote_to_bytes(escaped).decode()
    if operator == "CONTAINS":
        return value != ""
    return operator in ("EQ", "NEQ") or _is_number(value)


def _is_number(text: str) -> bool:
    if len(text.encode()) > 64 or _NUMBER.fullmatch(text) is None:
        return False
    value = Decimal(text.strip())
    return not value or abs(value.adjusted()) <= 308


def _is_topic(topic: str) -> bool:
    return filter_error(topic) is None and not has_operators(topic)


def _is_spatial_topic(topic: str) -> bool:
    if not all(_says_text(item) for level in topic.split("/") for item in level.split(";")):
        return False
    lists = [level for level in topic.split("/") if ";" in level]
    decoded = [unquote_to_bytes(level).decode() for level in topic.split("/") if level not in ("+", "#", *lists)]
    if any(character in level for level in decoded for character in "/+#"):
        return False
    if not lists:
        return _is_topic(
            "/".join(level if level in "+#" else unquote_to_bytes(level).decode() for level in topic.split("/"))
        )
    items = [unquote_to_bytes(item).decode() for item in lists[0].split(";")]
    if (
        len(lists) > 1
        or any(level in ("+", "#") for level in topic.split("/"))
        or any(re.search("[+#]|^$", i) for i in items)
    ):
        return False
    before, after = topic.split(lists[0])
    return all(_is_topic(unquote_to_bytes(before).decode() + item + unquote_to_bytes(after).decode()) for item in items)


# --- texts of the language, and texts near it ---------------------------------------------------------

operations = st.sampled_from(["COUNT", "SUM", "AVG", "MIN", "MAX"])
numbers = st.sampled_from(["0", "-1", "22.5", "22.50", "1e3", "-0.0", "1E-7", "123456789012345678901234567890"])
words = st.sampled_from(["on", "a%2Fb", "a%3Bb", "%24", "%25", "%2B", "é", "%C3%A9", " x ", "007", "nan", "1_0", ""])
paths = st.lists(st.sampled_from(["temp", "a%2Eb", "0", "%2F", "é"]), min_size=1, max_size=3).map(
    lambda p: ";." + ".".join(p)
)
maybe_path = st.just("") | paths
rules = st.one_of(
    st.builds("${};{}".format, st.sampled_from(["GT", "GTE", "LT", "LTE"]), numbers),
    st.builds("${};{}".format, st.sampled_from(["EQ", "NEQ"]), numbers | words),
    st.builds("$CONTAINS;{}".format, (numbers | words).filter(bool)),
)
windows = st.one_of(
    st.builds("${}{}".format, st.sampled_from(["DAILY", "HOURLY", "QUARTERHOURLY"]), operations),
    st.builds("$WIN;{};{}".format, st.sampled_from(["1s", "60s", "30m", "2h", "24h", "31d"]), operations),
)
functions = st.sampled_from(["", *(f"${name}" for name in FUNCTIONS)])
spatials = operations.map(lambda operation: f"${operation}")
maybe_rule = st.just("") | rules
levels = st.sampled_from(["room1", "temp", "", "a b", "é", "$x"])
plain_topics = st.lists(levels | st.just("+"), min_size=2, max_size=4).map("/".join)
topics = st.one_of(
    plain_topics, plain_topics.map(lambda topic: f"{topic}/#"), st.sampled_from(["#", "+", "a;b/c", "$SYS/x"])
)
spatial_topics = st.one_of(
    topics.filter(lambda topic: ";" not in topic),
    st.sampled_from(["room1/s1;s2/temp", "b;a;b", "a%2Fb;c", "100%25/+", "x%3By/+", "room1/temp", "a%3Bb;c/t"]),
)


def _joined(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map("".join)


periods = st.sampled_from(["", "$MRP;0", "$MRP;100", "$MRP;65535"])
slash = st.just("/")
subscriptions: st.SearchStrategy[str] = st.one_of(
    _joined(periods, rules, maybe_path, slash, topics),
    _joined(periods, functions.filter(bool), slash, topics),
    _joined(st.just("$MRP;7"), slash, topics),
    _joined(periods, maybe_rule, windows, maybe_path, functions, slash, topics),
    _joined(
        periods,
        st.sampled_from(["", "$RPT"]),
        maybe_rule,
        spatials,
        maybe_path,
        maybe_rule,
        functions,
        slash,
        spatial_topics,
    ),
    _joined(
        periods,
        st.sampled_from(["", "$RPT"]),
        maybe_rule,
        spatials,
        maybe_rule,
        windows,
        maybe_path,
        functions,
        slash,
        spatial_topics,
    ),
)

pieces: st.SearchStrategy[str] = st.one_of(
    rules, windows, spatials, paths, functions, periods, levels, st.sampled_from(["$RPT", "/", ";", "$", "%", "+", "#"])
)
pieces |= st.text("$;/%+#.aG0", max_size=3)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A text of the language after up to three cuts and insertions."""
    text = draw(subscriptions)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 6)))
        text = text[:start] + draw(pieces) + text[end:]
    return text
