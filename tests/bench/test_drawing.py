"""Charts as SVG: round numbers on the axes, and everything that was given in its place."""

from __future__ import annotations

from xml.etree import ElementTree

from moq.bench.drawing import (
    Axis,
    Chart,
    Mark,
    Series,
    draw,
    draw_file,
    linear_ticks,
    logarithmic_steps,
    number_text,
    sparse_ticks,
)

NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_axes_have_round_numbers() -> None:
    assert linear_ticks(0.0, 9.3) == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert linear_ticks(10, 80) == [0, 20, 40, 60, 80]
    assert linear_ticks(3.0, 3.0)[0] <= 3.0 < linear_ticks(3.0, 3.0)[-1]
    assert logarithmic_steps([30.0, 150.0]) == [20.0, 50.0, 100.0, 200.0]
    assert logarithmic_steps([10.0, 10.0]) == [10.0, 20.0]
    assert logarithmic_steps([0.0, 0.5, 1.0]) == [0.5, 1.0]
    assert sparse_ticks(logarithmic_steps([30.0, 150.0])) == [20.0, 50.0, 100.0, 200.0]
    assert sparse_ticks(logarithmic_steps([30.0, 40_000.0])) == [100.0, 1000.0, 10_000.0]
    assert [number_text(value) for value in (0.5, 9000, 12_000, 1.5e6)] == ["0.5", "9000", "12k", "1.5M"]


def test_an_axis_puts_values_between_its_ends() -> None:
    decades = Axis.logarithmic([10, 95_000], 0.0, 100.0)
    assert [decades.at(tick) for tick in decades.ticks] == [0.0, 25.0, 50.0, 75.0, 100.0]
    assert (Axis.logarithmic([3, 900], 0.0, 100.0).low, Axis.logarithmic([3, 900], 0.0, 100.0).high) == (2.0, 1000.0)
    assert not decades.has(0.0)
    tight = Axis.linear([3.0, 8.0], 100.0, 0.0, is_tight=True)
    assert (tight.at(3.0), tight.at(8.0)) == (100.0, 0.0)
    assert all(3.0 <= tick <= 8.0 for tick in tight.ticks)


def test_a_file_has_a_line_for_each_series_and_leaves_out_what_has_no_logarithm() -> None:
    series = Series("a", [(1, 0), (10, 5), (20, 6)])
    chart = Chart("t<1>", "x", "y", [series], is_x_logarithmic=True, is_y_logarithmic=True)
    drawn = ElementTree.fromstring(draw_file([chart], "c & d"))
    lines = list(drawn.iter(f"{NAMESPACE}polyline"))
    assert len(lines) == 1
    assert lines[0].get("points", "").count(",") == 2
    assert "c & d" in "".join(drawn.itertext())
    assert "t<1>" in "".join(drawn.itertext())


def test_a_chart_shows_marks_and_whiskers_where_they_belong() -> None:
    series = Series("a", [(0, 1), (10, 5)], "#123456", whiskers=[(10, 4, 6)])
    marks = [Mark(5, "link down"), Mark(99, "never seen")]
    said = draw(Chart("t", "s", "ms", [series], marks=marks, has_legend=False))
    assert "link down" in said
    assert "never seen" not in said
    whiskers = [line for line in ElementTree.fromstring(said).iter("line") if line.get("stroke") == "#123456"]
    assert [(line.get("x1"), line.get("x2")) for line in whiskers] == [("426", "426")]
    assert float(whiskers[0].get("y1", "")) > float(whiskers[0].get("y2", ""))


def test_a_chart_without_points_is_none() -> None:
    assert draw(Chart("t", "x", "y", [Series("a", [])])) == ""
