"""What a study hands over: verdicts, comparisons with the paper, tables and charts; the report only draws them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Relation = Literal["at most", "at least"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A bound, and whether what was measured keeps it."""

    claim: str
    measured: float
    relation: Relation
    bound: float
    unit: str = ""

    @property
    def is_met(self) -> bool:
        """True if the bound holds; a figure that is no number keeps none."""
        return self.measured <= self.bound if self.relation == "at most" else self.measured >= self.bound

    def __str__(self) -> str:
        """In one line, without the verdict itself."""
        return f"{self.claim}: {self.measured:.4g}{self.unit}; wanted {self.relation} {self.bound:.4g}{self.unit}"

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "is_met": self.is_met}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row of the table "paper / ours"."""

    quantity: str
    paper: str
    place: str
    """Where the paper says so."""
    ours: str


@dataclass(frozen=True, slots=True)
class Table:
    """Figures in rows, the first column naming them."""

    title: str
    headings: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves over one axis."""

    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[tuple[float, float]]]
    is_logarithmic: bool = False
    """The y axis."""


@dataclass(slots=True)
class Study:
    """One paper's experiment."""

    name: str
    title: str
    reference: str
    method: list[str]
    """How it was measured, a paragraph each."""
    verdicts: list[Verdict] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    figures: dict[str, object] = field(default_factory=dict)
    """Every figure, for machines."""

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "verdicts": [verdict.to_dict() for verdict in self.verdicts]}
