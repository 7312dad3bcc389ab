"""Results as JSON and back. Reading is strict: what is missing, unknown or of another type is named, never guessed."""

from __future__ import annotations

import json
import math
from dataclasses import astuple, fields
from typing import TYPE_CHECKING, Any, Final, cast

from moq.bench.results import VERSION, Parameter, Results, Run, Slice
from moq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TEXTS: Final = ("scenario", "contender", "profile")
WHOLE: Final = ("repetition", "sent", "expected", "received", "lost", "repeated", "disordered", "broker_rss_bytes")
NUMBERS: Final = ("rate", "started_at", "duration_s", "broker_cpu_s", "generator_cpu_s", "others_cpu_share")
OTHERS: Final = ("parameters", "is_overloaded", "latency_us", "timeline", "extra")
PARTS: Final = ("version", "command", "machine", "environment", "calibrations", "runs")
SLICE: Final = tuple(part.name for part in fields(Slice))


def encode(results: Results) -> str:
    """One line for each run."""
    head = {
        "version": VERSION,
        "command": results.command,
        "machine": dict(results.machine),
        "environment": dict(results.environment),
        "calibrations": {name: dict(found) for name, found in results.calibrations.items()},
    }
    runs = ",\n".join(_text(to_dict(run)) for run in results.runs)
    return f'{_text(head)[:-1]}, "runs": [\n{runs}\n]}}\n'


def to_dict(run: Run) -> dict[str, object]:
    """A run in types that JSON has; a slice of the timeline is a list of its five figures."""
    made: dict[str, object] = {name: getattr(run, name) for name in (*TEXTS, *WHOLE, *NUMBERS, "is_overloaded")}
    made["parameters"] = dict(run.parameters)
    made["latency_us"] = {str(latency_us): run.latency_us[latency_us] for latency_us in sorted(run.latency_us)}
    made["timeline"] = [list(astuple(part)) for part in run.timeline]
    made["extra"] = dict(run.extra)
    return made


def decode(text: str, source: str) -> Results:
    """The results in this text; errors name its source."""
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{source} is no JSON: {error}") from None
    return _Reader(source).results(parsed)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


class _Reader:
    """Takes a parsed file apart; each step knows the place it is at."""

    def __init__(self, source: str) -> None:
        self._source = source

    def results(self, parsed: object) -> Results:
        whole = self._mapping(parsed, "the file")
        version = whole.get("version")
        if version != VERSION or isinstance(version, bool):
            raise self._error("version", version, f"{VERSION}")
        self._check_names(whole, PARTS, "")
        calibrations = self._mapping(whole["calibrations"], "calibrations")
        return Results(
            command=self._text(whole["command"], "command"),
            machine=self._mapping(whole["machine"], "machine"),
            environment=self._mapping(whole["environment"], "environment"),
            calibrations={name: self._mapping(value, f"calibrations.{name}") for name, value in calibrations.items()},
            runs=[
                self._run(value, f"runs[{number}]") for number, value in enumerate(self._list(whole["runs"], "runs"))
            ],
        )

    def _run(self, parsed: object, place: str) -> Run:
        given = self._mapping(parsed, place)
        self._check_names(given, (*TEXTS, *WHOLE, *NUMBERS, *OTHERS), f"{place}.")
        values: dict[str, object] = {name: self._text(given[name], f"{place}.{name}") for name in TEXTS}
        values |= {name: self._whole(given[name], f"{place}.{name}") for name in WHOLE}
        values |= {name: self._number(given[name], f"{place}.{name}") for name in NUMBERS}
        values["is_overloaded"] = self._truth(given["is_overloaded"], f"{place}.is_overloaded")
        values["parameters"] = self._parameters(given["parameters"], f"{place}.parameters")
        values["latency_us"] = self._histogram(given["latency_us"], f"{place}.latency_us")
        timeline = self._list(given["timeline"], f"{place}.timeline")
        values["timeline"] = [self._slice(value, f"{place}.timeline[{at}]") for at, value in enumerate(timeline)]
        extra = self._mapping(given["extra"], f"{place}.extra")
        values["extra"] = {name: self._number(value, f"{place}.extra.{name}") for name, value in extra.items()}
        return Run(**cast("Any", values))

    def _parameters(self, parsed: object, place: str) -> dict[str, Parameter]:
        found: dict[str, Parameter] = {}
        for name, value in self._mapping(parsed, place).items():
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise self._error(f"{place}.{name}", value, "a number or a text")
            found[name] = value
        return found

    def _histogram(self, parsed: object, place: str) -> dict[int, int]:
        found: dict[int, int] = {}
        for key, count in self._mapping(parsed, place).items():
            if not key.isdecimal():
                raise self._error(place, key, "whole microseconds as keys")
            found[int(key)] = self._whole(count, f"{place}.{key}")
        return found

    def _slice(self, parsed: object, place: str) -> Slice:
        values = self._list(parsed, place)
        if len(values) != len(SLICE):
            raise self._error(place, parsed, f"a list of {', '.join(SLICE)}")
        at_s, count, *latencies = values
        p50_us, p99_us, max_us = (self._number(value, place) for value in latencies)
        return Slice(
            at_s=self._number(at_s, place),
            count=self._whole(count, place),
            p50_us=p50_us,
            p99_us=p99_us,
            max_us=max_us,
        )

    def _text(self, parsed: object, place: str) -> str:
        if not isinstance(parsed, str):
            raise self._error(place, parsed, "a text")
        return parsed

    def _whole(self, parsed: object, place: str) -> int:
        """True and false are no numbers."""
        if not isinstance(parsed, int) or isinstance(parsed, bool):
            raise self._error(place, parsed, "a whole number")
        return parsed

    def _number(self, parsed: object, place: str) -> float:
        if not isinstance(parsed, int | float) or isinstance(parsed, bool) or not math.isfinite(parsed):
            raise self._error(place, parsed, "a number")
        return float(parsed)

    def _truth(self, parsed: object, place: str) -> bool:
        if not isinstance(parsed, bool):
            raise self._error(place, parsed, "true or false")
        return parsed

    def _mapping(self, parsed: object, place: str) -> Mapping[str, object]:
        if not isinstance(parsed, dict):
            raise self._error(place, parsed, "an object")
        return parsed

    def _list(self, parsed: object, place: str) -> Sequence[object]:
        if not isinstance(parsed, list):
            raise self._error(place, parsed, "a list")
        return parsed

    def _check_names(self, given: Mapping[str, object], known: Sequence[str], prefix: str) -> None:
        for name in known:
            if name not in given:
                raise ConfigError(f"{self._source}: {prefix}{name} is missing")
        for name in given:
            if name not in known:
                raise ConfigError(f"{self._source}: {prefix}{name} is no field of version {VERSION}")

    def _error(self, place: str, value: object, expected: str) -> ConfigError:
        shown = repr(value)
        return ConfigError(
            f"{self._source}: {place} is {shown if len(shown) <= 60 else shown[:57] + '…'}; expected {expected}"
        )
