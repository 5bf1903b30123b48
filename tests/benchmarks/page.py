"""Plots and tables of a run: `python tests/benchmarks/page.py FILE docs/benchmarks`.

Reads the JSON that `run.py --output` wrote, draws the plots, and puts the tables between the two
marks of the page `README.md` there; what people wrote around them stays.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from harness.context import Figure
from harness.report import Run, number, read_json
from harness.targets import verdicts
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

_BEGIN = "<!-- results: written by tests/benchmarks/page.py -->"
_END = "<!-- end of results -->"
_COLOURS = {"dragoman": "#1f6f8b", "bound": "#b5b5b5", "missed": "#c0504d"}
#: Metrics that have a column of their own, and its heading. The rest share one.
_COLUMNS = (
    ("messages_per_s", "messages/s"),
    ("mb_per_s", "MB/s"),
    ("p50_ms", "p50 ms"),
    ("p99_ms", "p99 ms"),
    ("max_ms", "max ms"),
    ("server_cpu_s_per_gb", "CPU s/GB"),
    ("server_cpu_s_per_million", "CPU s/million"),
    ("server_cpu_share", "server CPUs"),
    ("client_cpu_share", "client CPUs"),
    ("resident_mb", "MB resident"),
    ("resident_peak_mb", "MB peak"),
)
_COLUMN_NAMES = {name for name, _ in _COLUMNS}


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print("usage: page.py FILE DIRECTORY", file=sys.stderr)
        return 2
    run, directory = read_json(Path(arguments[0])), Path(arguments[1])
    directory.mkdir(parents=True, exist_ok=True)
    plots = [name for name, draw in _PLOTS.items() if _save(run, directory / f"{name}.png", draw)]
    page = directory / "README.md"
    text = page.read_text() if page.exists() else f"# Benchmarks\n\n{_BEGIN}\n{_END}\n"
    page.write_text(_with_results(text, _results(run, plots)))
    return 0


def _with_results(text: str, results: str) -> str:
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise SystemExit("README.md lacks the marks between which the results go")
    return f"{before}{_BEGIN}\n\n{results}\n{_END}{after}"


# ---- tables


def _results(run: Run, plots: Sequence[str]) -> str:
    parts = [_machine(run), _targets(run)]
    parts += [f"![{name.replace('-', ' ')}]({name}.png)\n" for name in plots]
    for each in run.scenarios:
        figures = [figure for figure in run.figures if figure.scenario == each.scenario]
        parts.append(f"### {each.scenario}\n")
        parts.append(
            f"{each.seconds:.0f} s; other processes used {each.neighbours_cpu_share:.0%} of the"
            f" CPUs meanwhile, load average {each.load_average:.1f}.\n"
        )
        if each.trouble:
            parts.append(f"Trouble: {each.trouble}.\n")
        if figures:
            parts.append(_table_of(figures))
    return "\n".join(parts)


def _machine(run: Run) -> str:
    machine = run.machine
    missing = ", ".join(run.peers_missing)
    return (
        f"Machine: {machine.processor}, {machine.cores} cores, {machine.memory_gb:g} GB, Linux"
        f" {machine.kernel}, {machine.file_system}; Python {machine.python}, dragoman"
        f" {machine.dragoman}.{' Quick run: rough figures.' if run.quick else ''}"
        f"{f' Not installed: {missing}.' if missing else ''}\n"
    )


def _targets(run: Run) -> str:
    rows = [
        (each.text, each.bound, number(each.got), "met" if each.is_met else "**missed**")
        for each in verdicts(run.figures)
    ]
    return "### Targets\n\n" + _table(("target", "bound", "got", ""), rows)


def _table_of(figures: Sequence[Figure]) -> str:
    used = [(n, head) for n, head in _COLUMNS if any(n in each.metrics for each in figures)]
    has_more = any(set(each.metrics) - _COLUMN_NAMES for each in figures)
    has_ratios = any(each.ratios for each in figures)
    heads = ["case", *(head for _, head in used)]
    heads += ["more"] * has_more + ["rate against bounds"] * has_ratios
    rows = []
    for figure in figures:
        row = [figure.case]
        row += [number(figure.metrics[n]) if n in figure.metrics else "" for n, _ in used]
        if has_more:
            more = [(k, v) for k, v in figure.metrics.items() if k not in _COLUMN_NAMES]
            row.append(", ".join(f"{name} {number(value)}" for name, value in more))
        if has_ratios:
            row.append(", ".join(f"{v:.2f} x {name}" for name, v in figure.ratios.items()))
        rows.append(row)
    return _table(heads, rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


# ---- plots


def _save(run: Run, path: Path, draw: object) -> bool:
    assert callable(draw)
    figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
    drawn = bool(draw(run, axes))
    if drawn:
        axes.spines[["top", "right"]].set_visible(False)
        # Without metadata equal runs give equal files.
        figure.savefig(path, dpi=110, metadata={"Software": ""})
    plt.close(figure)
    return drawn


def _in_flight(run: Run, axes: Axes) -> bool:
    """Rate over the number of partitions, one line for each number in flight."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for figure in _of(run, "produce-in-flight"):
        words = figure.case.split(", ")
        if "[" in figure.case or "partitions" not in figure.case or not words[0].endswith("flight"):
            continue
        if not words[1].split()[0].isdecimal():
            continue
        label = ", ".join([words[0], *(words[2:] or ["fsync"])])
        point = (int(words[1].split()[0]), figure.metrics["messages_per_s"])
        lines.setdefault(label, []).append(point)
    for label, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=label)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("partitions")
    axes.set_ylabel("single records per second")
    axes.set_title("Single records in flight over many partitions")
    if lines:
        axes.legend()
    return bool(lines)


def _sync_latency(run: Run, axes: Axes) -> bool:
    """Median and p99 of one durable write at a time."""
    figures = [each for each in _of(run, "produce-sync") if "p50_ms" in each.metrics]
    names = [_short(each.case) for each in figures]
    places = range(len(figures))
    for offset, metric, shade in ((-0.2, "p50_ms", 1.0), (0.2, "p99_ms", 0.45)):
        values = [each.metrics[metric] for each in figures]
        spots = [place + offset for place in places]
        bars = axes.bar(spots, values, 0.38, alpha=shade, label=metric[:3], color=_colours(names))
        axes.bar_label(bars, fmt="%.2f", fontsize=8)
    axes.set_xticks(list(places), names, fontsize=8)
    axes.set_ylabel("ms (log)")
    axes.set_yscale("log")
    axes.set_title("One record at a time: p50 (full) and p99 (pale)")
    return bool(figures)


def _cpu_per_gb(run: Run, axes: Axes) -> bool:
    """Broker CPU for a gigabyte, in and out."""
    scenarios = ("produce-batches", "catch-up-fetch")
    figures = [
        each
        for name in scenarios
        for each in _of(run, name)
        if "server_cpu_s_per_gb" in each.metrics
    ]
    names = [f"fetch {each.case}" if "batches" in each.case else each.case for each in figures]
    values = [each.metrics["server_cpu_s_per_gb"] for each in figures]
    bars = axes.barh(names[::-1], values[::-1], color=_COLOURS["dragoman"])
    axes.bar_label(bars, fmt="%.2f", fontsize=8)
    axes.axvline(2, color=_COLOURS["missed"], linewidth=1, linestyle="--")
    axes.set_xlabel("broker CPU-seconds per GB (dashed: the bound for librdkafka 1 KiB os)")
    axes.set_title("CPU for a gigabyte")
    return bool(figures)


def _under_load(run: Run, axes: Axes) -> bool:
    figures = _of(run, "produce-under-load")
    values = [each.metrics["p99_ms"] for each in figures]
    colours = [_COLOURS["missed" if value > 5 else "dragoman"] for value in values]
    bars = axes.barh([each.case for each in figures][::-1], values[::-1], color=colours[::-1])
    axes.bar_label(bars, fmt="%.1f", fontsize=8)
    axes.axvline(5, color=_COLOURS["missed"], linewidth=1, linestyle="--")
    axes.set_xlabel("p99 of a durable single record, ms (dashed: bound)")
    axes.set_title("A durable producer beside a busy one")
    return bool(figures)


def _of(run: Run, scenario: str) -> list[Figure]:
    return [each for each in run.figures if each.scenario == scenario]


def _short(case: str) -> str:
    return case.rpartition("[")[2].rstrip("]") if "[" in case else "dragoman"


def _colours(names: Sequence[str]) -> list[str]:
    return [_COLOURS["dragoman" if name == "dragoman" else "bound"] for name in names]


_PLOTS = {
    "single-records": _in_flight,
    "one-at-a-time": _sync_latency,
    "cpu-per-gigabyte": _cpu_per_gb,
    "under-load": _under_load,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
