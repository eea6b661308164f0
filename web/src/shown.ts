// What is read and drawn for a view: a chart, or the timeline of the CPUs.

import type { Api } from "./api";
import type { Span } from "./times";

/** What is asked for: a time, and the pixels that show it. */
export interface Asked {
  api: Api;
  span: Span;
  px: number;
}

export interface Shown {
  readonly element: HTMLElement;
  /** The source whose samples it shows one by one; none if there is no such. */
  readonly source: string | null;
  /** The request in flight, so that an answer to an older one is not drawn. */
  request: AbortController | null;
  error: string;
  /** Reads what it draws; returns false if the same request leads further. */
  load(asked: Asked, signal: AbortSignal): Promise<boolean>;
  /** Takes note of the width of the page. */
  resize(): void;
  /** Draws it anew for the view. */
  redraw(): void;
  /** Shows the values at the cursor. */
  showValues(): void;
}
