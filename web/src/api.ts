// Requests to the server that served the page.

export interface Recording {
  version: string;
  host: string;
  from_ns: string;
  to_ns: string;
  is_growing: boolean;
  can_mark: boolean;
  /** There is a timeline of the CPUs. */
  has_tasks: boolean;
}

export interface Field {
  id: string;
  unit: string;
  meaning?: string;
  is_share?: boolean;
  source?: string;
}

/** A point in time that is flagged: a mark, or what a snapshot was taken for. */
export interface Flag {
  wall_ns: string;
  text: string;
  /** The time that the snapshot kept. */
  kept?: { from_ns: string; to_ns: string };
}

/** An integer: a text if a number is not exact enough, as for times. */
export type Integer = number | string;

// What `explain` and `spikes` answer is the JSON of `flatcap explain` and `flatcap spikes`, of which
// this is the part that is shown. A key without a value is absent.

export interface Departure {
  wall_ns: Integer;
  source: string;
  /** The id of the source, if the run has several sources with its name. */
  source_id?: number;
  /** With the state whose share is counted. */
  field: string;
  element: string | null;
  value: number;
  usual: number;
  unit: string;
  /** The unit of its schema. */
  field_unit?: string;
  score: number;
  /** Programs that pushed it. */
  pushed_by?: { client: string; user: string | null; program: string | null }[];
  state?: string;
  /** In full: with source and element. */
  name: string;
  /** The field of a chart. */
  path: string;
  /** The fields that move together with it. */
  together?: { name: string }[];
}

/** The use of a resource by new children of a process, as a sum. */
export interface ChildrenUse {
  field: string;
  count: number;
  sum: number;
  unit: string;
}

export interface Suspect {
  /** What it did in the window. */
  role: "used_more" | "ended" | "used_less" | "waited";
  kind: string;
  name: string;
  pid: number | null;
  /** The names that people use for it; each is absent if it is not known. */
  identity?: { command_line?: string; unit?: string; container?: string; pod?: string; user?: string };
  score: number;
  /** What it did, as text. */
  what: string;
  evidence: Departure[];
  children: ChildrenUse[];
}

export interface Explanation {
  /** The answer as a sentence. */
  answer: string;
  window: { first_wall_ns: Integer; last_wall_ns: Integer };
  /** The time before, and the shortest of which it is known what is usual. */
  baseline: { recorded_ns: Integer; least_ns: Integer; is_too_short: boolean };
  suspects: Suspect[];
  fields: Departure[];
  ranked: number;
  unranked: { count: number }[];
  lost: number;
  /** What the kernel's events say; each is absent without such a source. */
  tasks?: TaskCauses;
  waits?: Wait[];
  sleeps?: Sleep[];
  stacks?: Stacks;
  log?: KernelLog;
}

/** Who ran. Times of causes are in nanoseconds, and those of several threads add up. */
export interface TaskCauses {
  recorded_ns: number;
  lost: number;
  gaps: number;
  stopped_ns: number;
  has_wakeups: boolean;
  /** Whether all of the selection was recorded; times of which not all was. */
  is_complete: boolean;
  unrecorded: Unrecorded[];
  processes: { pid: number; name: string; on_cpu_ns: number; usual_ns: number | null; switches: number }[];
}

export interface Unrecorded {
  cause: "stopped" | "lost_records" | "missing_samples";
  begin_wall_ns: Integer;
  end_wall_ns: Integer;
  records?: number;
}

/** Who waited for a CPU, and who ran meanwhile. */
export interface Wait {
  pid: number;
  name: string;
  run_delay_ns: number;
  longest_ns: number;
  usual_ns: number | null;
  meanwhile: { pid: number; name: string; ns: number }[];
}

/** A thread that slept longer than usual: it waited for something else than a CPU, or, without wakeups, for one. */
export interface Sleep {
  pid: number;
  name: string;
  tid: number;
  thread: string;
  longest_ns: number;
  usual_longest_ns: number;
}

/** Which code ran. */
export interface Stacks {
  total_ns: number;
  lost: number;
  functions: { pid: number; name: string; function: string | null; object: string; offset: Integer; self_ns: number }[];
}

/** What the kernel logged. */
export interface KernelLog {
  lines: { wall_ns: Integer; priority: number; text: string }[];
  further: number;
  lost: number;
}

/** First and last time, smallest, largest, first and last value, number of values. */
export type LiveRow = [string, string, number | null, number | null, number | null, number | null, number];

export interface LiveEvent {
  until_ns: string;
  charts: { id: string; series: { label: string | null; path: string; unit: string; rows: LiveRow[] }[] }[];
}

export class Refused extends Error {
  constructor(readonly status: number, text: string) {
    super(text);
  }
}

export class Api {
  constructor(private readonly token: string) {}

  private async ask(path: string, more: RequestInit = {}): Promise<Response> {
    const headers = { Authorization: `Bearer ${this.token}` };
    const response = await fetch(`api/v1/${path}`, { ...more, headers });
    if (!response.ok) throw new Refused(response.status, (await response.text()).trim());
    return response;
  }

  async get<T>(path: string, query: Record<string, string> = {}, signal?: AbortSignal): Promise<T> {
    const response = await this.ask(`${path}${queryText(query)}`, signal ? { signal } : {});
    return parsed(await response.text()) as T;
  }

  async bytes(path: string, query: Record<string, string>, signal: AbortSignal): Promise<ArrayBuffer> {
    return (await this.ask(`${path}${queryText(query)}`, { signal })).arrayBuffer();
  }

  async mark(text: string): Promise<string> {
    return (await this.ask("mark", { method: "POST", body: text })).text();
  }

  /** Keeps a snapshot of so many seconds of the past. */
  async snapshot(seconds: number, reason: string): Promise<string> {
    return (await this.ask(`snapshot?last=${seconds}`, { method: "POST", body: reason })).text();
  }

  /** Returns the token; a ticket was given in its place. */
  async tokenOfTicket(): Promise<string> {
    return (await (await this.ask("token")).text()).trim();
  }

  /** Calls `receive` with each event until the signal, or until the server ends. */
  async live(receive: (event: LiveEvent) => void, signal: AbortSignal): Promise<void> {
    const response = await this.ask("live", { signal });
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
        const line = text.slice(0, end);
        text = text.slice(end + 2);
        if (line.startsWith("data: {")) receive(JSON.parse(line.slice(6)) as LiveEvent);
      }
    }
  }
}

/** Parses JSON. An integer that a number of JavaScript cannot hold becomes a text. */
export function parsed(json: string): unknown {
  const exact = json.replace(/"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*/g, (part) =>
    /^-?[0-9]+$/.test(part) && !Number.isSafeInteger(Number(part)) ? `"${part}"` : part,
  );
  return JSON.parse(exact);
}

function queryText(query: Record<string, string>): string {
  const text = new URLSearchParams(query).toString();
  return text === "" ? "" : `?${text}`;
}
