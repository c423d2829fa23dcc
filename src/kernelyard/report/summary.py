"""One operator on one device, for a document: a table a sweep, every dtype in one cell, and what falls short."""

import math
from collections.abc import Callable, Sequence

import pandas as pd

from kernelyard.core.workload import Mode
from kernelyard.report import ledger
from kernelyard.report.acceptance import verdict
from kernelyard.report.table import NOT_MEASURED, format_bytes, format_ms, format_ratio, format_size

DTYPES = ("bfloat16", "float16", "float32")
"""The order within a cell: most used first."""
AGREE = 0.03
"""Floors of several dtypes are given as one where they differ by less."""
LEAD = 1.01
"""Within this of the least of a row counts as the least: medians agree to half a percent."""
LEAST_RESULTS = 1 << 20
"""Bytes below which a peak over them says nothing: of cross_entropy's one scalar it was 1073742336x."""

Cell = Callable[[pd.Series], str]


def sweeps(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows by x axis and options, dtypes together: fewest options first, then `N` before other axes."""
    parts = [part for _, part in rows.groupby([_options_text(rows), rows["x_name"]], sort=True)]
    return sorted(parts, key=lambda part: (len(_options(part.iloc[0])), part.iloc[0]["x_name"] != "N"))


def dtype_of(row: pd.Series) -> str:
    """`bfloat16`; empty where the configuration names none."""
    return str(ledger.config_of(row["extra_benchmark_config_str"]).get("dtype", "")).removeprefix("torch.")


def dtypes_of(rows: pd.DataFrame) -> list[str]:
    """The dtypes in the rows, in a cell's order."""
    present = {dtype_of(row) for _, row in rows.drop_duplicates("extra_benchmark_config_str").iterrows()}
    return [*(name for name in DTYPES if name in present), *sorted(present - set(DTYPES))]


def modes_of(rows: pd.DataFrame) -> list[str]:
    """The modes in the rows, forward first."""
    present = set(rows["kernel_operation_mode"])
    return [*(mode.value for mode in Mode if mode.value in present), *sorted(present - {mode.value for mode in Mode})]


def summary(rows: pd.DataFrame, notes: dict[str, str]) -> str:
    """Markdown of the newest rows of one operator on one device; `notes` are its peers', by library."""
    parts = []
    for metric, table in (("speed", _speed), ("host", _host)):
        parts += [table(sweep) for sweep in sweeps(rows[rows["metric_name"] == metric])]
    if (rows["metric_name"] == "memory").any():
        parts.append(_memory(rows[rows["metric_name"] == "memory"]))
    present = set(rows["kernel_provider"])
    remarks = [*verdict(rows), *(f"{name}: {note}" for name, note in notes.items() if name in present)]
    if remarks:
        parts.append("\n".join(f"- {remark}" for remark in remarks))
    return "\n\n".join(parts)


def title(sweep: pd.DataFrame) -> str:
    """`softmax dim=1 over N (row length)`."""
    first = sweep.iloc[0]
    options = "".join(f" {key}={value}" for key, value in sorted(_options(first).items()))
    return f"{first['kernel_name']}{options} over {first['x_name']} ({first['x_label']})"


def _speed(sweep: pd.DataFrame) -> str:
    dtypes, names = dtypes_of(sweep), ledger.providers(sweep)
    lines = []
    for mode in modes_of(sweep):
        of_mode = sweep[sweep["kernel_operation_mode"] == mode]
        for x, rows in of_mode.groupby("x_value"):
            head = [mode, format_size(float(x)), _floors(rows, dtypes)]
            lines.append([*head, *_cells(rows, names, dtypes, _percent)])
    known = sweep["percent_of_floor"].notna().any()
    what = "percent of the speed of light, cut to whole percents" if known else "median time"
    return (
        f"**{title(sweep)}**: {what}{_order(dtypes)}; the fastest of a row, and what is within 1 % of it, in bold.\n\n"
        + markdown_table(["mode", str(sweep.iloc[0]["x_name"]), "floor", *names], lines, texts=1)
    )


def _host(sweep: pd.DataFrame) -> str:
    dtypes, names = dtypes_of(sweep), ledger.providers(sweep)
    lines = [
        [format_size(float(str(x))), *_cells(rows, names, dtypes, lambda row: f"{row['y_value_50']:.1f}")]
        for x, rows in sweep.groupby("x_value")
    ]
    return (
        f"**{title(sweep)}**: the host's microseconds per call in inference{_order(dtypes)}; the least of a row, and "
        "what is within 1 % of it, in bold. `public` is the call that names no backend.\n\n"
        + markdown_table([str(sweep.iloc[0]["x_name"]), *names], lines)
    )


def _memory(rows: pd.DataFrame) -> str:
    names = ledger.providers(rows)
    by_mode = {mode: rows[rows["kernel_operation_mode"] == mode] for mode in modes_of(rows)}
    small = [mode for mode, of_mode in by_mode.items() if of_mode["bytes"].min() < LEAST_RESULTS]
    lines = [[mode, *_peaks(of_mode, names, alone=mode in small)] for mode, of_mode in by_mode.items()]
    told = "; of results under 1 MiB the peak alone" if small else ""
    return (
        f"Peak memory of a call over the bytes of its results, the worst of all sizes{_order(dtypes_of(rows))}{told}."
        "\n\n" + markdown_table(["mode", *names], lines, texts=1)
    )


def _peaks(rows: pd.DataFrame, names: Sequence[str], *, alone: bool) -> list[str]:
    """A cell for each provider: the largest peak, or the largest over the bytes of the results."""
    peak = 1e6 * rows["y_value_50"].astype(float)
    worst = (peak if alone else peak / rows["bytes"].astype(float)).groupby(rows["kernel_provider"]).max()
    return [(format_bytes if alone else format_ratio)(worst.get(name)) for name in names]


def _order(dtypes: Sequence[str]) -> str:
    return f", {' / '.join(dtypes)}" if len(dtypes) > 1 else f", {dtypes[0]}" if dtypes and dtypes[0] else ""


def _floors(rows: pd.DataFrame, dtypes: Sequence[str]) -> str:
    known = {dtype_of(row): row["floor_ms"] for _, row in rows.iterrows() if not pd.isna(row["floor_ms"])}
    if not known:
        return NOT_MEASURED
    if max(known.values()) <= (1 + AGREE) * min(known.values()):
        return format_ms(float(pd.Series(known).median()))
    return " / ".join(format_ms(known.get(dtype)) for dtype in dtypes)


def _cells(rows: pd.DataFrame, names: Sequence[str], dtypes: Sequence[str], cell: Cell) -> list[str]:
    """A cell for each provider, in it a number for each dtype; the least times of each dtype in bold."""
    found = {(row["kernel_provider"], dtype_of(row)): row for _, row in rows.iterrows()}
    least = {
        dtype: min(row["y_value_50"] for (_, of), row in found.items() if of == dtype)
        for dtype in {of for _, of in found}
    }

    def text(name: str, dtype: str) -> str:
        row = found.get((name, dtype))
        if row is None:
            return NOT_MEASURED
        return f"**{cell(row)}**" if row["y_value_50"] <= LEAD * least[dtype] else cell(row)

    present = {name for name, _ in found}
    return [" / ".join(text(name, dtype) for dtype in dtypes) if name in present else NOT_MEASURED for name in names]


def _percent(row: pd.Series) -> str:
    """Cut and not rounded, so that 97 means 97 or more."""
    if pd.isna(row["percent_of_floor"]):
        return format_ms(float(row["y_value_50"]))
    return str(math.floor(row["percent_of_floor"]))


def _options(row: pd.Series) -> dict[str, object]:
    return {key: value for key, value in ledger.config_of(row["extra_benchmark_config_str"]).items() if key != "dtype"}


def _options_text(rows: pd.DataFrame) -> pd.Series:
    return pd.Series([str(sorted(_options(row).items())) for _, row in rows.iterrows()], index=rows.index, dtype=object)


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]], texts: int = 0) -> str:
    """A table whose first `texts` columns are words, the others numbers."""
    rule = ["---"] * texts + ["---:"] * (len(header) - texts)
    return "\n".join(_bar(cells) for cells in (header, rule, *lines))


def _bar(cells: Sequence[str]) -> str:
    # A pipe in a provider's name would open another column.
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
