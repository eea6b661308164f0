"""Reads exported files of MCAP and Perfetto by the libraries of these formats.

    formats.py mcap FILE FOLDER      writes the payloads of each topic, each after its length and time
    formats.py perfetto FILE         prints tracks and their events as JSON
    formats.py kernel FILE           prints the scheduler and sampled stacks of a trace as JSON
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
        own = f"process {descriptor.process.pid}" if descriptor.HasField("process") else descriptor.name
        return parent + [own]

    clocks = {clock.clock_id: clock.timestamp for clock in trace.packet[0].clock_snapshot.clocks}
    tracks = {
        "/".join(path_of(uuid)): {"unit": descriptors[uuid].counter.unit_name, "events": rows}
        for uuid, rows in events.items()
    }
    print(json.dumps({"clocks": clocks, "tracks": tracks}))


def kernel(path):
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2

    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(pathlib.Path(path).read_bytes())
    switches, wakings, samples = [], [], []
    threads, processes = {}, {}
    # What was interned so far, by sequence and kind.
    interned = {}
    for packet in trace.packet:
        sequence = packet.trusted_packet_sequence_id
        if packet.sequence_flags & packet.SEQ_INCREMENTAL_STATE_CLEARED:
            interned[sequence] = {}
        tables = interned.setdefault(sequence, {})
        for field, items in packet.interned_data.ListFields():
            table = tables.setdefault(field.name, {})
            for item in items:
                assert item.iid not in table, f"{field.name} {item.iid} is interned twice"
                table[item.iid] = item
        for thread in packet.process_tree.threads:
            threads[thread.tid] = [thread.tgid, thread.name]
        for process in packet.process_tree.processes:
            processes[process.pid] = list(process.cmdline)
        last = 0
        for event in packet.ftrace_events.event:
            assert event.timestamp >= last, "events of a bundle are in the order of time"
            last = event.timestamp
            place = [packet.ftrace_events.cpu, event.timestamp]
            if event.HasField("sched_switch"):
                one = event.sched_switch
                names = [one.prev_comm, one.prev_pid, one.prev_state, one.next_comm, one.next_pid]
                switches.append(place + names)
            if event.HasField("sched_waking"):
                wakings.append(place + [event.pid, event.sched_waking.comm, event.sched_waking.pid])
        if packet.HasField("perf_sample"):
            assert packet.sequence_flags & packet.SEQ_NEEDS_INCREMENTAL_STATE
            sample = packet.perf_sample
            frames = []
            for iid in tables["callstacks"][sample.callstack_iid].frame_ids:
                frame = tables["frames"][iid]
                mapping = tables["mappings"][frame.mapping_id]
                parts = [tables["mapping_paths"][part].str.decode() for part in mapping.path_string_ids]
                build_id = tables["build_ids"][mapping.build_id].str.hex() if mapping.build_id else None
                function = tables["function_names"][frame.function_name_id].str.decode()
                frames.append([function, "/".join(parts), build_id, frame.rel_pc])
            samples.append([packet.timestamp, sample.cpu, sample.pid, sample.tid, sample.cpu_mode, frames])
    print(
        json.dumps(
            {
                "switches": switches,
                "wakings": wakings,
                "samples": samples,
                "threads": threads,
                "processes": processes,
            }
        )
    )


if sys.argv[1] == "mcap":
    mcap(sys.argv[2], sys.argv[3])
elif sys.argv[1] == "kernel":
    kernel(sys.argv[2])
else:
    perfetto(sys.argv[2])
