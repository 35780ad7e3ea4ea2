import { abortableDelay } from "@heddle/base/async/abortable-delay";
import { AppError } from "@heddle/base/errors";
import type { Heddle } from "@heddle/client/heddle";
import { isTerminalPhase } from "@heddle/client/resources/jobs/job-stream";
import { phaseOf } from "@heddle/contracts/api/job-replies";
import { JOB_STATES } from "@heddle/contracts/api/job-spec";
import type { Command } from "commander";
import { type CommandContext, commandContext } from "../command-context.ts";
import { watchInterrupts } from "../interrupt.ts";
import { isRecordFormat, printRecord, printStreamed } from "../output/rows.ts";
import { fitted, type TopReading, topText } from "./top-view.ts";

const MAX_JOBS = 100;
const MAX_INTERVAL_SECONDS = 3_600;
const ACTIVE = JOB_STATES.filter((state) => !isTerminalPhase(phaseOf(state)));
/** Another screen without a cursor, so that the terminal is as before at the end. */
const SCREEN = { open: "\x1b[?1049h\x1b[?25l", close: "\x1b[?25h\x1b[?1049l" };
/** `q`, or Ctrl-C as a terminal without echo gives it. */
const QUIT: readonly string[] = ["q", "\x03"];

/** `heddle top`: 0 with `--once` or after `q`, 130 after Ctrl-C. */
export async function top(command: Command): Promise<number> {
  const context = commandContext(command);
  const { once, interval } = command.opts<{ once?: boolean; interval: string }>();
  const seconds = intervalOf(interval);
  if (!once) return follow(context, seconds);
  const reading = await read(context.heddle);
  const { format, data } = context;
  if (isRecordFormat(format)) printRecord(reading, "", format, data);
  else data.write(topText(reading, data));
  return 0;
}

function intervalOf(text: string): number {
  const seconds = /^\d{1,4}(\.\d)?$/.test(text) ? Number(text) : 0;
  if (seconds >= 0.5 && seconds <= MAX_INTERVAL_SECONDS) return seconds;
  const message = `--interval "${text}": give seconds from 0.5 to ${MAX_INTERVAL_SECONDS}.`;
  throw new AppError("invalid_value", message);
}

async function read(heddle: Heddle, signal?: AbortSignal): Promise<TopReading> {
  const [metrics, workers, jobs] = await Promise.all([
    heddle.cluster.metrics({ signal }),
    heddle.workers.list({ signal }),
    heddle.jobs.list({ state: ACTIVE, limit: MAX_JOBS }, { signal }).page(),
  ]);
  const { data, has_more: more } = jobs;
  return { at: metrics.timestamp, metrics, workers, jobs: data, more_jobs: more };
}

async function readOrFault(
  heddle: Heddle,
  signal: AbortSignal,
): Promise<{ readonly reading?: TopReading; readonly fault?: string }> {
  try {
    return { reading: await read(heddle, signal) };
  } catch (error) {
    return { fault: (error as Error).message };
  }
}

/** A cluster that does not answer at first is an error; later it is shown, and asked again. */
async function follow(context: CommandContext, seconds: number): Promise<number> {
  const { heddle, data, format } = context;
  const first = await read(heddle);
  const interrupts = watchInterrupts({ untilLeft: true });
  const isLive = data.isTty && !isRecordFormat(format);
  const keys = isLive ? watchKeys() : undefined;
  const signal = keys ? AbortSignal.any([interrupts.signal, keys.signal]) : interrupts.signal;
  if (isLive) data.control(SCREEN.open);
  try {
    let reading = first;
    let fault = "";
    while (!signal.aborted) {
      show(reading, fault, context);
      await abortableDelay(seconds * 1_000, signal);
      const next = signal.aborted ? {} : await readOrFault(heddle, signal);
      reading = next.reading ?? reading;
      fault = next.fault ?? "";
    }
  } finally {
    if (isLive) data.control(SCREEN.close);
    keys?.release();
    interrupts.release();
  }
  return keys?.quit() ? 0 : 130;
}

function show(
  reading: TopReading,
  fault: string,
  { data, messages, format }: CommandContext,
): void {
  if (isRecordFormat(format) || !data.isTty) {
    if (fault) messages.write(`${fault}\n`);
    else if (isRecordFormat(format)) printStreamed(reading, format, data);
    else data.write(`${topText(reading, data)}\n`);
    return;
  }
  const note = fault ? `${data.paint("red", "no answer")} ${fault}\n` : "";
  const { rows = 24 } = process.stdout;
  const text = topText(reading, data, rows - (fault ? 1 : 0));
  const lines = fitted(note + text, process.stdout.columns || 80, rows);
  for (const [at, line] of lines.entries()) {
    data.control(at === 0 ? "\x1b[H" : "\x1b[K\n");
    data.write(line);
  }
  data.control("\x1b[J");
}

/** Ends at a key of QUIT. */
function watchKeys() {
  const controller = new AbortController();
  const { stdin } = process;
  let key = "";
  const onData = (typed: Buffer) => {
    key = [...typed.toString()].find((each) => QUIT.includes(each)) ?? "";
    if (key !== "") controller.abort();
  };
  if (stdin.isTTY) stdin.setRawMode(true).on("data", onData);
  return {
    signal: controller.signal,
    quit: () => key === "q",
    release: () => {
      if (stdin.isTTY) stdin.setRawMode(false).off("data", onData).pause();
    },
  };
}
