// What all charts share: time, cursor and selection.

import type { Span } from "./times";

export { ticks } from "./times";
export { xOf } from "./envelope";

/** Shortest view: ten nanoseconds, so that ticks of one are apart. */
const LENGTH_MIN = 10n;

export interface View {
  span: Span;
  cursor: bigint | null;
  selection: Span | null;
  isLive: boolean;
  /** Width of the scales of values at the left, in pixels. */
  left: number;
}

/** Returns the time at a part of the width. */
export function timeAt(span: Span, part: number): bigint {
  const length = span.to - span.from;
  // Exact for all views of up to 104 days; beyond, a pixel is hours.
  return span.from + BigInt(Math.floor(Number(length) * Math.min(1, Math.max(0, part))));
}

/** Returns a view that is longer by this factor, around a time that stays where it is. */
export function zoomed(span: Span, factor: number, around: bigint, whole: Span): Span {
  const scale = (length: bigint) => BigInt(Math.round(Number(length) * factor));
  const from = around - scale(around - span.from);
  const to = around + scale(span.to - around);
  return bounded({ from, to: to - from < LENGTH_MIN ? from + LENGTH_MIN : to }, whole);
}

/** Returns a view within the recording, and a tenth of it around it. */
export function bounded(span: Span, whole: Span): Span {
  const margin = (whole.to - whole.from) / 10n + 1n;
  const [least, most] = [whole.from - margin, whole.to + margin];
  const length = span.to - span.from < most - least ? span.to - span.from : most - least;
  if (span.from < least) return { from: least, to: least + length };
  if (span.to > most) return { from: most - length, to: most };
  return { from: span.from, to: span.from + length };
}
