"""Pushes an application's own samples to the flight recorder flatcap, through shared memory.

    import flatcap_push
    client = flatcap_push.Client("payments")
    client.gauge("motor.torque", "Nm", 12.5)
    orders = client.source("orders")
    orders.push(b"any bytes")
    logging.getLogger().addHandler(flatcap_push.Handler(client))

Needs libflatcap_push.so and nothing else. Without a recorder everything succeeds, and what is
dropped is counted. Set FLATCAP_PUSH_LIBRARY for a library that the loader does not find.
"""

import ctypes
import errno
import json
import logging
import os

DROP_NEWEST, DROP_OLDEST, BLOCK = 0, 1, 2

_library = ctypes.CDLL(os.environ.get("FLATCAP_PUSH_LIBRARY", "libflatcap_push.so"))


def _function(name, result, *arguments):
    function = getattr(_library, "flatcap_" + name)
    function.restype, function.argtypes = result, arguments
    return function


_pointer, _text, _size, _int = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
_open = _function("open", _pointer, _text, _text)
_source = _function("source", _pointer, _pointer, _text, _text, _text, _size, _int)
_push = _function("push", _int, _pointer, _text, _size)
_push_many = _function("push_many", ctypes.c_ssize_t, _pointer, _text, ctypes.POINTER(_size), _size)
_trigger = _function("trigger", _int, _pointer, _text, ctypes.c_uint32)
_dropped = _function("dropped", ctypes.c_uint64, _pointer)
_is_connected = _function("is_connected", _int, _pointer)
_error = _function("error", _size, _pointer, _text, _size)
_close = _function("close", None, _pointer)


class _Budget(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("cpu_ns_per_second", ctypes.c_uint64),
        ("user_frames_per_second", ctypes.c_uint64),
        ("user_bytes_per_second", ctypes.c_uint64),
    ]


try:
    _budget = _function("budget", _int, _pointer, ctypes.POINTER(_Budget))
    _gauge = _function("gauge", _int, _pointer, _text, _text, ctypes.c_double)
except AttributeError:
    # The shared library is older than this module.
    def _budget(_client, _result):
        return -1

    def _gauge(*_):
        raise NotImplementedError("libflatcap_push.so is older than this module and has no gauges")


class Client:
    """A connection to the recorder, or the wait for one."""

    def __init__(self, name, socket=None):
        self._pointer = _open(os.fsencode(socket) if socket else None, name.encode())
        if not self._pointer:
            raise ValueError(f"a client's name must have 1 to 64 bytes without control characters: {name!r}")

    def source(self, name, root="", schema=b"", on_full=DROP_NEWEST):
        """Sets up a source. `schema` is what `flatc --binary --schema` writes, `root` the full name
        of the payload's table; without both, payloads are any bytes."""
        pointer = _source(self._open_pointer(), name.encode(), root.encode(), schema, len(schema), on_full)
        if not pointer:
            raise ValueError(f"a source's name must be valid, and a client can have 64 sources: {name!r}")
        return Source(self, pointer)

    def gauge(self, name, unit, value):
        """Pushes one value, stamped now: the field NAME.value in recordings. Returns whether it was
        not dropped."""
        result = _gauge(self._open_pointer(), name.encode(), unit.encode(), value)
        if result in (-errno.EINVAL, -errno.ENOSPC):
            raise ValueError(
                "a gauge has a name of 1 to 64 bytes and a unit of at most 32, without control "
                f"characters, and a client can have 64: {name!r}, {unit!r}"
            )
        return result == 0

    def trigger(self, reason):
        """Fires the recorder's black box. Returns whether it did; `error` says why not."""
        return _trigger(self._open_pointer(), reason.encode(), 0) == 0

    @property
    def is_connected(self):
        """Whether a recorder is there."""
        return bool(_is_connected(self._open_pointer()))

    @property
    def budget(self):
        """The recorder's budget for pushed frames: CPU time for the frames of all users
        (`cpu_ns_per_second`), and frames and bytes per second of this user, None if unlimited.
        None before the first push, and if the recorder does not state it."""
        place = _Budget(size=ctypes.sizeof(_Budget))
        if _budget(self._open_pointer(), ctypes.byref(place)) != 0:
            return None
        names = [name for name, _ in _Budget._fields_[1:]]
        return {name: getattr(place, name) or None for name in names}

    @property
    def error(self):
        """What the recorder last refused."""
        text = ctypes.create_string_buffer(1024)
        _error(self._open_pointer(), text, len(text))
        return text.value.decode(errors="replace")

    def close(self):
        """Closes the client. The recorder keeps what was pushed."""
        pointer, self._pointer = self._pointer, None
        if pointer:
            _close(pointer)

    def _open_pointer(self):
        if not self._pointer:
            raise ValueError("the client is closed")
        return self._pointer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Source:
    """A source of a client. Any thread may push."""

    def __init__(self, client, pointer):
        self._client, self._pointer = client, pointer

    def push(self, payload):
        """Pushes one sample, stamped now. Returns whether it was not dropped."""
        self._client._open_pointer()
        return _push(self._pointer, payload, len(payload)) == 0

    def push_many(self, payloads):
        """Pushes samples with one call. Returns how many were not dropped."""
        self._client._open_pointer()
        lengths = (_size * len(payloads))(*map(len, payloads))
        return _push_many(self._pointer, b"".join(payloads), lengths, len(payloads))

    @property
    def dropped(self):
        """How many samples of this source were dropped in this process."""
        self._client._open_pointer()
        return _dropped(self._pointer)


class Handler(logging.Handler):
    """Pushes log records, each as one JSON object: level, logger, message, file, line, thread."""

    def __init__(self, client, name="log", level=logging.NOTSET):
        super().__init__(level)
        self._source = client.source(name)

    def emit(self, record):
        try:
            fields = {
                "level": record.levelname,
                "logger": record.name,
                "message": self.format(record),
                "file": record.pathname,
                "line": record.lineno,
                "thread": record.threadName,
            }
            self._source.push(json.dumps(fields, separators=(",", ":")).encode())
        except Exception:
            self.handleError(record)
