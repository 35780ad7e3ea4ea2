import type { Terminal } from "./terminal.ts";

const MAX_BAR_CELLS = 28;
const MIN_BAR_CELLS = 8;
/** Without a terminal, progress is printed at these steps, so that a log stays short. */
const STEP_PERCENT = 10;

/** The progress of one pull: a redrawn bar on a terminal, percent lines elsewhere. */
export class PullProgressView {
  readonly #out: Terminal;
  readonly #label: string;
  #shownStep = -1;
  #drawn = false;

  constructor(out: Terminal, label: string) {
    this.#out = out;
    this.#label = label;
  }

  /** Shows nothing while the size is unknown (0). */
  update(pulledBytes: number, totalBytes: number): void {
    if (totalBytes <= 0) return;
    const share = Math.min(1, pulledBytes / totalBytes);
    const percent = Math.floor(share * 100);
    const amount = `${megabytes(pulledBytes)} of ${megabytes(totalBytes)} MB`;
    if (this.#out.isTty) {
      this.#out.redraw(this.#line(share, ` ${percent} % (${amount})`));
      this.#drawn = true;
      return;
    }
    const step = Math.floor(percent / STEP_PERCENT);
    if (step <= this.#shownStep) return;
    this.#shownStep = step;
    this.#out.write(`${this.#label} ${percent} % (${amount})\n`);
  }

  /** A wrapped line cannot be redrawn, so the bar shrinks first, then the label. */
  #line(share: number, figures: string): string {
    const room = this.#out.columns - 1 - figures.length - " []".length;
    const label = this.#label.slice(0, Math.max(0, room - MIN_BAR_CELLS));
    const cells = Math.max(0, Math.min(MAX_BAR_CELLS, room - label.length));
    const filled = Math.round(share * cells);
    return `${label} [${"#".repeat(filled)}${"-".repeat(cells - filled)}]${figures}`;
  }

  /** Ends the current line. */
  end(): void {
    if (this.#drawn) this.#out.write("\n");
    this.#drawn = false;
  }
}

/** Without a terminal the seconds are printed at these times, and then regularly. */
const REPORT_AT_S = [10, 30, 60];
const REPORT_EVERY_S = 60;

/** The duration of a load of unknown length. */
export class LoadProgressView {
  readonly #out: Terminal;
  readonly #label: string;
  readonly #nowMs: () => number;
  readonly #startedAtMs: number;
  #shownS = 0;

  constructor(out: Terminal, label: string, nowMs: () => number = () => performance.now()) {
    this.#out = out;
    this.#label = label;
    this.#nowMs = nowMs;
    this.#startedAtMs = nowMs();
    out.write(out.isTty ? label : `${label}\n`);
  }

  update(): void {
    const seconds = Math.floor((this.#nowMs() - this.#startedAtMs) / 1_000);
    if (seconds === this.#shownS) return;
    if (this.#out.isTty) this.#out.redraw(`${this.#label} ${seconds} s`);
    else if (seconds < nextShownS(this.#shownS)) return;
    else this.#out.write(`${this.#label} ${seconds} s\n`);
    this.#shownS = seconds;
  }

  /** Ends the current line. */
  end(): void {
    if (this.#out.isTty) this.#out.write("\n");
  }
}

function nextShownS(shownS: number): number {
  const listed = REPORT_AT_S.find((seconds) => seconds > shownS);
  return listed ?? (Math.floor(shownS / REPORT_EVERY_S) + 1) * REPORT_EVERY_S;
}

function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(1);
}
