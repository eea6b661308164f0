// The panel beside the charts: what was found, each row a button that leads to a chart.

import type { Departure, Explanation, Field, Suspect } from "./api";
import { causes, type Lead } from "./causes";
import { button, make } from "./dom";
import { exactText, lengthText, zoneText } from "./times";
import { shown, valueText } from "./units";

/** Fields that a search lists. */
const FOUND_MAX = 200;
/** The most suspects that waited, and of those that used less. */
const AFFECTED_SHOWN = 5;

export const KEYS: [string, string][] = [
  ["wheel, + and -", "zoom at the pointer, or at the cursor"],
  ["left and right", "move; with the pointer, drag the axis"],
  ["up and down", "choose a chart, or below them a CPU; c leads to the CPUs; in a list, a row of it"],
  [", and .", "the sample before and after the cursor, of the chosen chart; the slice, of a CPU"],
  ["drag, [ and ]", "select a time; z zooms to it"],
  ["e", "what changed in the selection, or in what is shown"],
  ["s", "list the spikes in what is shown"],
  ["/", "search fields by name or meaning"],
  ["p", "pin the chosen chart to the top, or take it off"],
  ["h, click", "let the process at the cursor stand out on the CPUs"],
  ["m", "write a mark into the running recording"],
  ["k", "keep a snapshot from the begin of the selection, or of what is shown, until now"],
  ["0, Home", "the whole recording; its begin"],
  ["space, End", "freeze or follow the recorder"],
  ["Esc", "clear the selection, close this"],
];

/** The last name of a field, with the state whose share is counted. */
function leaf({ field, state }: Departure): string {
  const path = (state === undefined ? field : field.slice(0, -1 - state.length)).replace(/\[\*\]$/, "");
  const name = path.slice(Math.max(path.lastIndexOf("]."), path.lastIndexOf(".")) + 1).replace(/^\./, "");
  return state === undefined ? name : `${name} = ${state}`;
}

/** A name of what departs: its element, and the last name of its field. */
function name(departure: Departure): string {
  const { element, source, source_id } = departure;
  if (element === null) return shown(departure.name);
  const instance = source_id === undefined ? "" : `${source}[${source_id}].`;
  return shown(`${element} ${instance}${leaf(departure)}`);
}

export class Panel {
  constructor(private readonly element: HTMLElement, private readonly closed: () => void) {}

  get isOpen(): boolean {
    return !this.element.hidden;
  }

  /** A row of it has the focus. */
  get hasFocus(): boolean {
    return document.activeElement instanceof HTMLButtonElement && this.element.contains(document.activeElement);
  }

  /** Moves the focus to the next or the last row. */
  step(isForward: boolean): void {
    const rows = [...this.element.querySelectorAll("button")];
    const at = rows.findIndex((row) => row === document.activeElement);
    rows[at + (isForward ? 1 : -1)]?.focus();
  }

  /** Moves the focus to the first row: the one before it closes the panel. */
  private enter(): void {
    const [close, first] = this.element.querySelectorAll("button");
    (first ?? close)?.focus({ preventScroll: true });
  }

  close(): void {
    this.element.hidden = true;
    this.element.replaceChildren();
    this.closed();
  }

  private open(title: string): void {
    const head = make("div", "panel-head");
    head.append(make("h2", "", title), button("\u00d7", "Close (Esc)", () => this.close()));
    this.element.replaceChildren(head);
    this.element.hidden = false;
  }

  private add(text: string, className = ""): HTMLElement {
    const line = make("p", className, text);
    this.element.append(line);
    return line;
  }

  message(title: string, text: string): void {
    this.open(title);
    this.add(text);
  }

  help(version: string): void {
    this.open("Keys");
    const list = make("dl");
    for (const [keys, meaning] of KEYS) list.append(make("dt", "", keys), make("dd", "", meaning));
    this.element.append(list);
    this.add("Hatched: no samples, for they were lost or the recorder did not run. A flag is a mark, or a snapshot with a bar for the time that it kept.", "quiet");
    this.add("On a CPU, height is the share of a pixel's time that it was busy, and the color that of the process that ran longest; gray are others. A cut corner: it was preempted. Shaded, but empty: idle.", "quiet");
    this.add(`flatcap ${version}`, "quiet");
  }

  search(fields: Field[], choose: (field: Field) => void): void {
    this.open("Search fields");
    const input = make("input");
    input.type = "search";
    input.placeholder = "name or meaning";
    input.setAttribute("aria-label", "Search fields");
    const found = make("div", "rows");
    const list = () => {
      const words = input.value.toLowerCase().split(/\s+/);
      const matches = fields.filter((field) => {
        const text = `${field.id} ${field.meaning ?? ""}`.toLowerCase();
        return words.every((word) => text.includes(word));
      });
      found.replaceChildren(
        ...matches.slice(0, FOUND_MAX).map((field) => {
          const row = button("", "Chart it", () => choose(field));
          row.append(make("b", "", shown(field.id)), make("i", "", field.unit));
          if (field.meaning) row.append(make("small", "", shown(field.meaning)));
          return row;
        }),
      );
      if (matches.length > FOUND_MAX) found.append(make("p", "quiet", `${matches.length - FOUND_MAX} more`));
      if (matches.length === 0) found.append(make("p", "quiet", "no field has all of these words"));
    };
    input.addEventListener("input", list);
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") found.querySelector("button")?.focus();
      if (event.key === "Enter") found.querySelector("button")?.click();
    });
    list();
    this.element.append(input, found);
    input.focus();
  }

  /** Asks for a line of text, with which the recorder is ordered something. */
  order(title: string, example: string, send: (text: string) => Promise<string>): void {
    this.open(title);
    const form = make("form");
    const input = make("input");
    input.maxLength = 1000;
    input.placeholder = `one line, such as: ${example}`;
    input.setAttribute("aria-label", title);
    const said = make("p", "quiet");
    said.setAttribute("role", "status");
    form.append(input);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      send(input.value).then(
        (text) => (said.textContent = shown(text.trim())),
        (error: Error) => (said.textContent = shown(error.message)),
      );
    });
    this.element.append(form, said);
    input.focus();
  }

  private departure(departure: Departure, choose: (departure: Departure) => void, label = name(departure)): void {
    const row = button("", exactText(BigInt(departure.wall_ns)), () => choose(departure));
    const { value, usual, unit, score, field_unit, together = [], pushed_by = [] } = departure;
    // Known units have a form of their own; the unit of an application follows the number.
    const own = field_unit !== undefined && unit === "" ? ` ${shown(field_unit)}` : "";
    const text = (number: number) => `${valueText(number, unit)}${own}`;
    row.append(
      make("b", "", together.length > 0 ? `${label} (+${together.length})` : label),
      make("i", "", score.toFixed(2)),
      make("small", "", `${text(value)}, usually ${text(usual)}`),
    );
    this.element.append(row);
    if (together.length > 0) this.add(`with ${together.map((other) => shown(other.name)).join(", ")}`, "quiet");
    const senders = pushed_by.map(({ client, user, program }) => `${client} (user ${user ?? "unknown"}${program === null ? "" : `, ${program}`})`);
    if (senders.length > 0) this.add(`pushed by ${senders.map(shown).join("; ")}`, "quiet");
  }

  /** Shows who did what; `standOut` shows a process on the CPUs, if the recording has switches. */
  explanation(found: Explanation, choose: (departure: Departure) => void, lead: Lead): void {
    this.open("What changed here");
    const { window, baseline } = found;
    const from = BigInt(window.first_wall_ns);
    const length = lengthText(BigInt(window.last_wall_ns) - from);
    const before = lengthText(BigInt(baseline.recorded_ns));
    this.add(`${exactText(from).slice(0, 23)} ${zoneText(from)}, ${length} against ${before} before`, "quiet");
    this.add(found.answer);
    this.element.append(make("h3", "", "Who"));
    const isTooEarly = baseline.is_too_short;
    if (isTooEarly) this.add(`nothing is ranked: what is usual takes ${lengthText(BigInt(baseline.least_ns))} before`);
    else this.suspects(found.suspects, choose, lead);
    this.element.append(make("h3", "", "What"));
    if (found.fields.length === 0 && !isTooEarly) {
      const unranked = found.unranked.reduce((sum, { count }) => sum + count, 0);
      this.add(`none of ${found.ranked} ranked fields departed from what is usual for it; ${unranked} are not ranked`);
    }
    for (const departure of found.fields) this.departure(departure, choose);
    this.element.append(...causes(found, lead));
    this.add(`samples lost: ${found.lost}`, "quiet");
    this.enter();
  }

  /** Adds the suspects, by what they did. */
  private suspects(found: Suspect[], choose: (departure: Departure) => void, lead: Lead): void {
    const of = (role: Suspect["role"]) => found.filter((suspect) => suspect.role === role);
    for (const suspect of of("ended")) this.suspect(suspect, lead).append(shown(suspect.what));
    const users = of("used_more");
    if (users.length === 0) this.add("nobody used more than usual");
    for (const suspect of users) {
      this.suspect(suspect, lead);
      for (const departure of suspect.evidence.slice(0, 3)) {
        this.departure(departure, choose, shown(leaf(departure)));
      }
      for (const { field, count, sum, unit } of suspect.children.slice(0, 3)) {
        const last = shown(field.slice(field.lastIndexOf(".") + 1));
        this.add(`+ ${count} new ${count === 1 ? "child" : "children"}: ${last} ${valueText(sum, unit)}`, "quiet");
      }
    }
    for (const [title, role] of [["Who used less", "used_less"], ["Who waited", "waited"]] as const) {
      const affected = of(role);
      if (affected.length > 0) this.element.append(make("h3", "", title));
      for (const suspect of affected.slice(0, AFFECTED_SHOWN)) {
        this.suspect(suspect, lead);
        for (const departure of suspect.evidence.slice(0, 1)) this.departure(departure, choose, shown(leaf(departure)));
      }
      if (affected.length > AFFECTED_SHOWN) this.add(`and ${affected.length - AFFECTED_SHOWN} more`, "quiet");
    }
  }

  /** Adds the name of a suspect. */
  private suspect(suspect: Suspect, lead: Lead): HTMLElement {
    const process = suspect.pid;
    const pid = process === null ? "" : ` [${process}]`;
    const names = suspect.identity ?? {};
    const title = suspect.kind === "cgroup" ? (names.unit ?? suspect.name) : suspect.name;
    const who = this.add(`${suspect.kind} ${shown(title)}${pid} `, "who");
    if (process !== null && lead.toProcess !== null) who.append(button("on CPUs", "Let it stand out on the CPUs", () => lead.toProcess?.(process)));
    const kinds = ["unit", "container", "pod", "user"] as const;
    const known = kinds.flatMap((kind) => (names[kind] === undefined ? [] : [`${kind} ${names[kind]}`]));
    const all = [...(names.command_line === undefined ? [] : [names.command_line]), ...known];
    if (process !== null && all.length > 0) this.add(shown(all.join(" \u00b7 ")), "quiet");
    return who;
  }

  spikes(found: Departure[], choose: (departure: Departure) => void): void {
    this.open("Spikes");
    if (found.length === 0) this.add("no spikes: no ranked field departed from what is usual for it");
    for (const spike of found) {
      this.add(exactText(BigInt(spike.wall_ns)).slice(0, 23), "who");
      this.departure(spike, choose);
    }
    this.enter();
  }

  /** Asks for the token. */
  token(give: (token: string) => void, reason: string): void {
    this.open("Token");
    this.add(`${reason} flatcap view --web prints it in its address, after #token=`);
    const form = make("form");
    const input = make("input");
    input.setAttribute("aria-label", "Token");
    input.autocomplete = "off";
    form.append(input, make("button", "", "Open"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      give(input.value.trim().replace(/^.*token=/, "").replace(/&.*$/, ""));
    });
    this.element.append(form);
    input.focus();
  }
}
