"""Where and with what benchmark rows were measured, in one line."""

import pandas as pd


def provenance(frame: pd.DataFrame) -> str:
    """Device, versions, dates and the copy bandwidths that the floors rest on."""
    parts = [
        f"Device {frame['gpu_name'].iloc[0]}",
        *[
            f"{label} {_several(frame[column])}"
            for label, column in (
                ("torch", "torch_version"),
                ("triton", "triton_version"),
                ("CUDA", "cuda_version"),
                ("driver", "driver"),
                ("kernelyard", "kernelyard_version"),
                ("commit", "commit"),
            )
            if frame[column].notna().any()
        ],
        *[
            f"{provider} {_several(rows['provider_version'])}"
            for provider, rows in frame.groupby("kernel_provider")
            if rows["provider_version"].notna().any()
        ],
        _several(frame["timestamp"].str.slice(0, 10)),
    ]
    timed = frame[frame["metric_name"] == "speed"]
    timers = (timed["timer"] + ", " + timed["cache"] + " cache").dropna().unique()
    parts += [f"timer {timer}" for timer in timers]
    copies = sorted({f"{gbps:.0f}" for gbps in frame["copy_gbps"].dropna()}, key=float)
    if copies:
        parts.append(
            f"floor: a copy of equal bytes in the same run, {' to '.join(copies[:: len(copies) - 1 or 1])} GB/s"
        )
    return ", ".join(parts) + "."


def _several(values: pd.Series) -> str:
    return " and ".join(sorted(values.dropna().astype(str).unique()))
