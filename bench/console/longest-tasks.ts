import type { Browser } from "playwright-core";

/** Parts of a task that are not worth a word. */
const LEAST_PART_MS = 1;
const MAIN_THREAD = "CrRendererMain";
const CATEGORIES = ["toplevel", "blink", "cc", "v8", "devtools.timeline"];

/** A complete event of Chromium's trace; times are in microseconds. */
interface TraceEvent {
  readonly ph: string;
  readonly pid: number;
  readonly tid: number;
  readonly name: string;
  readonly ts: number;
  readonly dur?: number;
  /** CPU time of its thread. */
  readonly tdur?: number;
  readonly args?: { readonly name?: string; readonly data?: { readonly functionName?: string } };
}

/** An event within its thread, with those that it contains. */
interface Slice {
  readonly event: TraceEvent;
  readonly inner: Slice[];
}

/**
 * Does the work and prints the tasks of pages' main threads that took most CPU time, by their parts.
 * On a machine with other work their duration says little.
 */
export async function printLongestTasks<Result>(
  browser: Browser,
  count: number,
  work: () => Promise<Result>,
): Promise<Result> {
  await browser.startTracing(undefined, { categories: CATEGORIES });
  const result = await work();
  const trace = JSON.parse((await browser.stopTracing()).toString()) as {
    readonly traceEvents: readonly TraceEvent[];
  };
  const threads = threadsOf(trace.traceEvents);
  for (const [name, slices] of threads) {
    const cpuMs = slices.reduce((sum, { event }) => sum + (event.tdur ?? 0), 0) / 1_000;
    if (cpuMs > 100) console.log(`thread ${name}: CPU ${cpuMs.toFixed(0)} ms`);
  }
  const tasks = threads
    .filter(([name]) => name.startsWith(MAIN_THREAD))
    .flatMap(([, slices]) => slices)
    .toSorted((a, b) => (b.event.tdur ?? 0) - (a.event.tdur ?? 0));
  for (const { event, inner } of tasks.slice(0, count)) {
    console.log(`task of ${msOf(event.dur)} ms, CPU ${msOf(event.tdur)} ms`);
    printParts(inner, "  ");
  }
  return result;
}

function printParts(slices: readonly Slice[], indent: string): void {
  for (const { event, inner } of slices) {
    if ((event.dur ?? 0) < LEAST_PART_MS * 1_000) continue;
    const { functionName } = event.args?.data ?? {};
    const name = functionName ? `${event.name} ${functionName}` : event.name;
    console.log(`${indent}${name}: ${msOf(event.dur)} ms, CPU ${msOf(event.tdur)} ms`);
    printParts(inner, `${indent}  `);
  }
}

function msOf(micros = 0): string {
  return (micros / 1_000).toFixed(1);
}

/** By thread, its outermost events. */
function threadsOf(events: readonly TraceEvent[]): [string, Slice[]][] {
  const names = new Map<string, string>();
  const timed = new Map<string, TraceEvent[]>();
  for (const event of events) {
    const key = `${event.pid}/${event.tid}`;
    if (event.ph === "M" && event.name === "thread_name") names.set(key, event.args?.name ?? "");
    if (event.ph !== "X") continue;
    const list = timed.get(key) ?? [];
    list.push(event);
    timed.set(key, list);
  }
  return [...timed].map(([key, list]) => [`${names.get(key) ?? ""} ${key}`, nested(list)]);
}

function nested(events: readonly TraceEvent[]): Slice[] {
  const outermost: Slice[] = [];
  const open: Slice[] = [];
  const endOf = ({ ts, dur = 0 }: TraceEvent) => ts + dur;
  for (const event of events.toSorted((a, b) => a.ts - b.ts || endOf(b) - endOf(a))) {
    while (open.length > 0 && endOf(open.at(-1)!.event) <= event.ts) open.pop();
    const slice = { event, inner: [] };
    (open.at(-1)?.inner ?? outermost).push(slice);
    open.push(slice);
  }
  return outermost;
}
