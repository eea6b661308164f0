// What the kernel's events say of a selection: who ran, who waited and because of whom, who slept
// longer than usual, which code ran, what was logged. Beside what departed, in the panel.

import type { Explanation, KernelLog, Sleep, Stacks, TaskCauses, Unrecorded, Wait } from "./api";
import { button, make } from "./dom";
import { exactText, lengthText, significant } from "./times";
import { plural, shown } from "./units";

/** Rows of each list; the server sends some more. */
const LISTED_MAX = 8;
/** Processes that are named of those that ran while one waited. */
const MEANWHILE_MAX = 2;
/** Lines of the kernel log of this severity and below are errors. */
const ERROR = 3;

/** Where rows lead: to a process on the CPUs, if the recording has switches, and to a time. */
export interface Lead {
  toProcess: ((process: number) => void) | null;
  toTime: (at: bigint) => void;
}

/** Returns the part of the panel, as far as the recording has such sources. */
export function causes(found: Explanation, lead: Lead): HTMLElement[] {
  const parts: HTMLElement[] = [];
  const head = (text: string) => parts.push(make("h3", "", text));
  if (found.tasks !== undefined) {
    head("On CPUs");
    parts.push(...tasks(found.tasks, lead));
  }
  if (found.waits !== undefined) {
    head("Waited for a CPU");
    parts.push(...waits(found.waits, found.tasks?.is_complete ?? true, lead));
  }
  if (found.sleeps !== undefined && found.sleeps.length > 0) {
    head("Slept longer than usual");
    parts.push(...found.sleeps.slice(0, LISTED_MAX).map((slept) => sleep(slept, lead)));
  }
  if (found.stacks !== undefined) {
    head("Code");
    parts.push(...stacks(found.stacks, lead));
  }
  if (found.log !== undefined) {
    head("Kernel log");
    parts.push(...log(found.log, lead));
  }
  return parts;
}

/** A row: a name, a number at the right, and a line below. It leads to a process. */
function row(name: string, value: string, below: string, process: number, lead: Lead): HTMLElement {
  const act = lead.toProcess;
  const element = act === null ? make("div", "row") : button("", "Let it stand out on the CPUs", () => act(process));
  element.append(make("b", "", name), make("i", "", value));
  if (below !== "") element.append(make("small", "", below));
  return element;
}

function quiet(text: string): HTMLElement {
  return make("p", "quiet", text);
}

function span(ns: number): string {
  return lengthText(BigInt(Math.round(ns)));
}

function usually(ns: number | null): string {
  return ns === null ? "" : `usually ${span(ns)}`;
}

function named(name: string, process: number): string {
  return process === 0 ? "nobody" : `${shown(name)} [${process}]`;
}

function tasks(found: TaskCauses, lead: Lead): HTMLElement[] {
  // Nothing is known of the rest of the selection.
  const length = Math.max(1, found.recorded_ns);
  const rows = found.processes.slice(0, LISTED_MAX).map(({ pid, name, on_cpu_ns, usual_ns, switches }) => {
    const parts = [`${significant((on_cpu_ns / length) * 100)} % of a CPU`, usually(usual_ns), plural(switches, "switch", "switches")];
    return row(named(name, pid), span(on_cpu_ns), parts.filter((part) => part !== "").join(", "), pid, lead);
  });
  const holes = found.unrecorded.slice(0, LISTED_MAX).map((hole) => {
    const from = BigInt(hole.begin_wall_ns);
    return button(unrecordedText(hole), exactText(from), () => lead.toTime(from));
  });
  const notes = [];
  if (found.lost > 0) notes.push(`the kernel lost ${plural(found.lost, "record")}`);
  if (found.gaps > 0) notes.push(plural(found.gaps, "gap"));
  if (!found.has_wakeups) notes.push("wakeups were not recorded: waits are lower bounds, and sleeps include waits");
  if (found.stopped_ns > 0) notes.push(`not recorded for ${span(found.stopped_ns)}: above the budget`);
  if (rows.length === 0) rows.push(quiet(found.is_complete ? "nobody ran" : "who ran is not known: not all of it was recorded"));
  return notes.length === 0 ? [...holes, ...rows] : [...holes, ...rows, quiet(notes.join("; "))];
}

/** Says when and why not all switches were recorded. */
function unrecordedText({ begin_wall_ns, end_wall_ns, cause, records }: Unrecorded): string {
  const [from, to] = [begin_wall_ns, end_wall_ns].map((ns) => exactText(BigInt(ns)).slice(11, 23));
  if (cause === "stopped") return `switches were not recorded from ${from} to ${to}: above the budget`;
  if (cause === "lost_records") return `the kernel lost ${plural(records ?? 0, "record")} from ${from} to ${to}`;
  return `samples are missing from ${from} to ${to}`;
}

function waits(found: Wait[], isComplete: boolean, lead: Lead): HTMLElement[] {
  if (found.length === 0) return [quiet(isComplete ? "nobody" : "not known: not all of it was recorded")];
  return found.slice(0, LISTED_MAX).map(({ pid, name, run_delay_ns, longest_ns, usual_ns, meanwhile }) => {
    const ran = meanwhile.slice(0, MEANWHILE_MAX).map((other) => `${named(other.name, other.pid)} ${span(other.ns)}`);
    const parts = [`the longest ${span(longest_ns)}`, usually(usual_ns), ran.length === 0 ? "" : `meanwhile ran ${ran.join(", ")}`];
    return row(named(name, pid), span(run_delay_ns), parts.filter((part) => part !== "").join(", "), pid, lead);
  });
}

function sleep({ pid, name, tid, thread, longest_ns, usual_longest_ns }: Sleep, lead: Lead): HTMLElement {
  const parts = [`usually ${span(usual_longest_ns)} at most`, tid === pid ? "" : `thread ${shown(thread)} [${tid}]`];
  return row(named(name, pid), span(longest_ns), parts.filter((part) => part !== "").join(", "), pid, lead);
}

function stacks(found: Stacks, lead: Lead): HTMLElement[] {
  if (found.functions.length === 0) return [quiet("no samples")];
  const rows = found.functions.slice(0, LISTED_MAX).map((place) => {
    const file = place.object.slice(place.object.lastIndexOf("/") + 1) || "[unknown]";
    const name = place.function ?? `${file}+0x${BigInt(place.offset).toString(16)}`;
    const share = `${significant((place.self_ns / Math.max(1, found.total_ns)) * 100)} %`;
    return row(shown(name), share, `${named(place.name, place.pid)}, ${shown(file)}`, place.pid, lead);
  });
  return found.lost === 0 ? rows : [...rows, quiet(`the kernel lost ${found.lost} samples`)];
}

function log(found: KernelLog, lead: Lead): HTMLElement[] {
  if (found.lines.length === 0) return [quiet("nothing")];
  const rows: HTMLElement[] = found.lines.slice(0, LISTED_MAX).map(({ wall_ns, priority, text }) => {
    const at = BigInt(wall_ns);
    const element = button("", exactText(at), () => lead.toTime(at));
    element.append(make("b", priority <= ERROR ? "error" : "", shown(text)), make("i", "", exactText(at).slice(11, 23)));
    return element;
  });
  const more = found.lines.length - rows.length + found.further;
  if (more > 0) rows.push(quiet(plural(more, "more line")));
  if (found.lost > 0) rows.push(quiet(`${found.lost} lines were overwritten before they were read`));
  return rows;
}
