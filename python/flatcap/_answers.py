"""What `explain` and `spikes` return: the JSON of the commands, whose keys are attributes, too."""

import json

# Keys that are absent if there is nothing to say.
_ABSENT = {
    **dict.fromkeys(["source_id", "field_unit", "measured", "state", "records"]),
    **dict.fromkeys(["ended", "exit_code", "signal", "usual_cpu_percent"]),
    **dict.fromkeys(["tasks", "waits", "sleeps", "stacks", "log"]),
    **dict.fromkeys(["command_line", "unit", "container", "pod", "user"]),
    "pushed_by": (),
    "is_early": False,
    "is_since_start": False,
    "is_limited": False,
}


class Report(dict):
    """A JSON object of an answer."""

    def __getattr__(self, name):
        if name in self:
            return self[name]
        if name in _ABSENT:
            return _ABSENT[name]
        raise AttributeError(name)


class Explanation(Report):
    """What was different in a window: the object of `flatcap explain --json`."""

    def __repr__(self):
        suspects, fields = len(self.suspects), len(self.fields)
        return f"<flatcap.Explanation of {self.window.first_wall_ns}: {suspects} suspects, {fields} fields>"


class Spikes(list):
    """The moments at which fields departed most from the usual: the list of `flatcap spikes --json`."""

    def __repr__(self):
        return f"<flatcap.Spikes: {len(self)}>"


def answer(name, report, about):
    """Makes an answer of a class from its JSON, and from an object with further attributes."""
    made = {"Explanation": Explanation, "Spikes": Spikes}[name](json.loads(report, object_hook=Report))
    for key, value in json.loads(about, object_hook=Report).items():
        setattr(made, key, value)
    return made
