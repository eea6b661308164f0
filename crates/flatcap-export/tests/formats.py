"""Reads exported files of MCAP and Perfetto by the libraries of these formats.

    formats.py mcap FILE FOLDER      writes the payloads of each topic, each after its length and time
    formats.py perfetto FILE         prints tracks and their events as JSON
"""

import json
import pathlib
import struct
import sys


def mcap(path, folder):
    from mcap.reader import make_reader

    files = {}
    with open(path, "rb") as file:
        reader = make_reader(file, validate_crcs=True)
        summary = reader.get_summary()
        for schema, channel, message in reader.iter_messages():
            target = files.setdefault(channel.topic, bytearray())
            target += struct.pack("<IQ", len(message.data), message.log_time) + message.data
    channels = {}
    for channel in summary.channels.values():
        schema = summary.schemas.get(channel.schema_id)
        channels[channel.topic] = {
            "encoding": channel.message_encoding,
            "schema": schema and schema.name,
            "schema_bytes": schema and len(schema.data),
        }
    for topic, content in files.items():
        (pathlib.Path(folder) / topic.strip("/").replace("/", "_")).write_bytes(content)
    print(json.dumps({"channels": channels, "messages": summary.statistics.message_count}))


def perfetto(path):
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2

    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(pathlib.Path(path).read_bytes())
    types = perfetto_trace_pb2.TrackEvent.Type
    descriptors, events = {}, {}
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            descriptors[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in descriptors, "a track is described before its events"
            has_double = event.HasField("double_counter_value")
            value = event.double_counter_value if has_double else event.counter_value
            row = [types.Name(event.type), packet.timestamp, event.name or value]
            events.setdefault(event.track_uuid, []).append(row)

    def path_of(uuid):
        descriptor = descriptors[uuid]
        parent = path_of(descriptor.parent_uuid) if descriptor.parent_uuid else []
        return parent + [descriptor.name]

    clocks = {clock.clock_id: clock.timestamp for clock in trace.packet[0].clock_snapshot.clocks}
    tracks = {
        "/".join(path_of(uuid)): {"unit": descriptors[uuid].counter.unit_name, "events": rows}
        for uuid, rows in events.items()
    }
    print(json.dumps({"clocks": clocks, "tracks": tracks}))


if sys.argv[1] == "mcap":
    mcap(sys.argv[2], sys.argv[3])
else:
    perfetto(sys.argv[2])
