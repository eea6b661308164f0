"""Uses the whole module. Argument: the push socket."""

import logging
import sys

import flatcap_push

with flatcap_push.Client("program", sys.argv[1]) as client:
    orders = client.source("orders", on_full=flatcap_push.BLOCK)
    assert client.is_connected and client.error == ""
    assert client.budget is None
    assert orders.push(b"one")
    assert client.budget["cpu_ns_per_second"] > 0 and client.budget["user_bytes_per_second"] is None
    assert orders.push_many([b"two", b"", b"three"]) == 3
    assert orders.push_many([]) == 0
    assert orders.dropped == 0
    assert client.gauge("motor.torque", "Nm", 12.5)
    log = logging.getLogger("payments")
    log.addHandler(flatcap_push.Handler(client))
    log.warning("order %d is slow", 4711)
    assert client.trigger("slow order 4711")
    try:
        client.gauge("motor.torque", "x" * 33, 1)
    except ValueError as error:
        assert "at most 32" in str(error)
    else:
        raise AssertionError("accepted")
for wrong in (lambda: orders.push(b"closed"), lambda: flatcap_push.Client("")):
    try:
        wrong()
    except ValueError:
        continue
    raise AssertionError("accepted")
print("pushed")
