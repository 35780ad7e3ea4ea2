import type { JobStateUpdate, JobUpdate } from "@heddle/client/resources/jobs/job-stream";
import type { JobProgress } from "@heddle/contracts/api/job-replies";
import type { Terminal } from "./terminal.ts";

const BAR_CELLS = 24;
/** Without a terminal, progress is printed at these steps, so that a log stays short. */
const STEP_PERCENT = 10;

type Style = Parameters<Terminal["paint"]>[0];

const STYLES: Readonly<Record<string, Style>> = {
  SUCCEEDED: "green",
  FAILED: "red",
  CANCELLED: "yellow",
  RUNNING: "cyan",
};

/** A job's updates: states as lines; progress as a redrawn bar, or as lines without a terminal. */
export class JobProgressView {
  readonly #out: Terminal;
  #drawn = false;
  #shownStep = -1;

  constructor(out: Terminal) {
    this.#out = out;
  }

  update(update: JobUpdate): void {
    if (update.type === "progress") this.#progress(update);
    else this.#state(update);
  }

  #state({ phase, attempt, why, at }: JobStateUpdate): void {
    this.end();
    this.#shownStep = -1;
    const time = at.slice(11, 19);
    const tries = attempt > 1 ? ` attempt ${attempt}` : "";
    const reason = why === null || phase === "FAILED" ? "" : ` (${why})`;
    const style = STYLES[phase];
    const shown = style ? this.#out.paint(style, phase) : phase;
    this.#out.write(`${time} ${shown}${tries}${reason}\n`);
  }

  #progress(progress: JobProgress): void {
    const text = progressText(progress);
    const share = progress.progress;
    if (this.#out.isTty) {
      const bar = share === null ? "" : `${barOf(share)} `;
      this.#out.redraw(`${bar}${text}`.slice(0, this.#out.columns - 1));
      this.#drawn = true;
      return;
    }
    const step = share === null ? 0 : Math.floor((share * 100) / STEP_PERCENT);
    if (step <= this.#shownStep) return;
    this.#shownStep = step;
    this.#out.write(`progress ${text}\n`);
  }

  /** Ends the current line. */
  end(): void {
    if (this.#drawn) this.#out.write("\n");
    this.#drawn = false;
  }
}

function barOf(share: number): string {
  const filled = Math.round(Math.min(1, share) * BAR_CELLS);
  return `[${"#".repeat(filled)}${"-".repeat(BAR_CELLS - filled)}]`;
}

/** A progress report in one line. */
export function progressText(report: JobProgress): string {
  const { progress, step, total_steps: total, loss, reward, expected_end: end } = report;
  return [
    ...(progress === null ? [] : [`${Math.floor(progress * 100)} %`]),
    ...(step === null ? [] : [total === null ? `step ${step}` : `step ${step}/${total}`]),
    ...(loss === null ? [] : [`loss ${shortNumber(loss)}`]),
    ...(reward === null
      ? []
      : [`${report.backend === null ? "reward" : "return"} ${shortNumber(reward)}`]),
    ...(report.steps_per_second === null
      ? []
      : [`${shortNumber(report.steps_per_second)} steps/s`]),
    ...(report.tokens_per_second === null
      ? []
      : [`${shortNumber(report.tokens_per_second)} tokens/s`]),
    ...(end === null ? [] : [`ends about ${end.slice(11, 16)} UTC`]),
    ...(report.backend === null ? [] : [deviceText(report)]),
    ...(report.message === null ? [] : [report.message.replace(/\p{Cc}/gu, "\ufffd")]),
  ].join(", ");
}

/** The compute backend and device, if reported. */
function deviceText({ backend, device }: JobProgress): string {
  return device === null ? `on ${backend}` : `on ${backend} (${device})`;
}

/** With four digits. */
export function shortNumber(value: number): string {
  return String(Number(value.toPrecision(4)));
}
