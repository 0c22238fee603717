"""Units of spec files: `<field>_<unit>` becomes the SI field. The one place that knows 1e9, 2**30 and 8."""

UNITS: dict[str, dict[str, float]] = {
    "usd_per_bytes_per_s": {"usd_per_gb_per_s": 1e-9, "usd_per_gib_per_s": 2.0**-30, "usd_per_gbit_per_s": 8e-9},
    "w_per_bytes_per_s": {"w_per_gb_per_s": 1e-9, "w_per_gib_per_s": 2.0**-30, "w_per_gbit_per_s": 8e-9},
    "usd_per_byte": {"usd_per_gb": 1e-9, "usd_per_gib": 2.0**-30},
    "usd_per_j": {"usd_per_kwh": 1 / 3.6e6},
    "g_per_j": {"g_per_kwh": 1 / 3.6e6},
    "failure_s": {"failure_hours": 3600.0},
    "repair_s": {"repair_days": 86400.0},
    "usd_per_s": {"usd_per_hour": 1 / 3600},
    "life_s": {"life_years": 365.25 * 86400},
    "bytes_per_s": {
        "mb_per_s": 1e6,
        "gb_per_s": 1e9,
        "tb_per_s": 1e12,
        "gib_per_s": 2.0**30,
        "gbit_per_s": 1e9 / 8,
        "tbit_per_s": 1e12 / 8,
    },
    "flop_per_s": {"gflop_per_s": 1e9, "tflop_per_s": 1e12, "pflop_per_s": 1e15},
    "bytes": {
        "kb": 1e3,
        "mb": 1e6,
        "gb": 1e9,
        "tb": 1e12,
        "kib": 2.0**10,
        "mib": 2.0**20,
        "gib": 2.0**30,
        "tib": 2.0**40,
    },
    "s": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3},
    "w": {"kw": 1e3},
}
"""SI suffix of a field, to the suffixes that a file may use instead and what they multiply. Longest suffix first."""


def file_keys(field: str) -> dict[str, float]:
    """The keys by which a file may give a field, the SI one first, and the factor of each."""
    for suffix, units in UNITS.items():
        if field.endswith(f"_{suffix}"):
            stem = field.removesuffix(suffix)
            return {field: 1.0, **{stem + unit: factor for unit, factor in units.items()}}
    return {field: 1.0}
