// The view in the address of the page, after #, where the server does not see it.

import type { Span } from "./times";

/** What the address holds. */
export interface Held {
  span: Span | null;
  cursor: bigint | null;
  selection: Span | null;
  pins: string[];
  /** The process that stands out among those on the CPUs. */
  process: number | null;
  isLive: boolean;
}

const TIME = /^-?\d{1,19}$/;

function time(text: string | null): bigint | null {
  return text !== null && TIME.test(text) ? BigInt(text) : null;
}

function span(from: string | null, to: string | null): Span | null {
  const [first, last] = [time(from), time(to)];
  return first !== null && last !== null && first < last ? { from: first, to: last } : null;
}

export function parseHeld(hash: string): Held & { token: string | null; ticket: string | null; at: bigint | null } {
  const held = new URLSearchParams(hash.replace(/^#/, ""));
  return {
    token: held.get("token"),
    ticket: held.get("ticket"),
    at: time(held.get("at")),
    span: span(held.get("from"), held.get("to")),
    cursor: time(held.get("cursor")),
    selection: span(held.get("since"), held.get("until")),
    pins: held.getAll("pin"),
    process: /^\d{1,10}$/.test(held.get("process") ?? "") ? Number(held.get("process")) : null,
    isLive: held.get("live") === "1",
  };
}

export function heldText(held: Held): string {
  const text = new URLSearchParams();
  if (held.isLive) text.set("live", "1");
  if (held.span !== null && !held.isLive) {
    text.set("from", String(held.span.from));
    text.set("to", String(held.span.to));
  }
  if (held.cursor !== null) text.set("cursor", String(held.cursor));
  if (held.selection !== null) {
    text.set("since", String(held.selection.from));
    text.set("until", String(held.selection.to));
  }
  if (held.process !== null) text.set("process", String(held.process));
  for (const pin of held.pins) text.append("pin", pin);
  return `#${text}`;
}
