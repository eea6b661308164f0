"""Reads recordings of flatcap, a flight recorder for Linux hosts.

    import flatcap, polars
    recording = flatcap.open("flatcap-data")
    frame = polars.DataFrame(recording.read("cpu.total.user,running", since="-5m"))

What `read` and `samples` return is taken by pandas, Polars, DuckDB and pyarrow through the Arrow
PyCapsule interface, batch by batch; this package depends on none of them.
"""

from ._flatcap import (
    ChildrenUse,
    Departure,
    Error,
    Explanation,
    Field,
    FieldError,
    Gap,
    Host,
    Marker,
    NoSamplesError,
    Offspring,
    ReadError,
    Recording,
    Rows,
    Snapshot,
    Spikes,
    Suspect,
    UsageError,
    __version__,
    open,
)

__all__ = [
    "ChildrenUse",
    "Departure",
    "Error",
    "Explanation",
    "Field",
    "FieldError",
    "Gap",
    "Host",
    "Marker",
    "NoSamplesError",
    "Offspring",
    "ReadError",
    "Recording",
    "Rows",
    "Snapshot",
    "Spikes",
    "Suspect",
    "UsageError",
    "__version__",
    "open",
]
