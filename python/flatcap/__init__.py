"""Reads recordings of flatcap, a flight recorder for Linux hosts.

    import flatcap, polars
    recording = flatcap.open("flatcap-data")
    frame = polars.DataFrame(recording.read("cpu.total.user,running", since="-5m"))

What `read` and `samples` return is taken by pandas, Polars, DuckDB and pyarrow through the Arrow
PyCapsule interface, batch by batch; this package depends on none of them.
"""

from ._answers import Explanation, Report, Spikes
from ._flatcap import (
    Error,
    Field,
    FieldError,
    Gap,
    Host,
    Marker,
    NoSamplesError,
    ReadError,
    Recording,
    Rows,
    Snapshot,
    UsageError,
    __version__,
    open,
)

__all__ = [
    "Error",
    "Explanation",
    "Field",
    "FieldError",
    "Gap",
    "Host",
    "Marker",
    "NoSamplesError",
    "ReadError",
    "Recording",
    "Report",
    "Rows",
    "Snapshot",
    "Spikes",
    "UsageError",
    "__version__",
    "open",
]
