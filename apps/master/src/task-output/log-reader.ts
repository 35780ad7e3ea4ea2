import { setTimeout as delay } from "node:timers/promises";
import { resolvesWithin } from "@heddle/base/async/resolves-within";
import { AppError } from "@heddle/base/errors";
import { isTerminal } from "@heddle/control/jobs/records/lifecycle";
import { type JobRecord, type JobsState, taskKey } from "@heddle/control/jobs/records/records";
import type { LogCursor } from "./log-cursor.ts";
import { type LogItem, LogLines } from "./log-lines.ts";
import { type LogName, type LogStream, logFileName } from "./log-name.ts";
import type { LogRepair } from "./log-repair.ts";
import type { LogStorePort } from "./log-thread/log-store-api.ts";

/** Logs that one reader reads in parallel; incarnations of a task are read one after the other. */
const MAX_LOGS = 64;
const MAX_LOGS_WITH_REPLACED = 1_024;
const BATCH_ITEMS = 512;
const BATCH_BYTES = 256 * 1024;
/** Polling interval of a waiting reader, and of its repairs. */
const IDLE_MS = 500;
const REPAIR_EVERY_MS = 5_000;
/** How long an answer waits for other masters and workers. */
const REPAIR_WAIT_MS = 2_000;
/** After the job's end, how long a log of a missing worker is waited for. */
const SETTLE_MS = 3_000;
/** Without `follow`, how long a pause in an ended job's arriving logs ends the wait. */
const ARRIVAL_QUIET_MS = 2_500;
const MAX_ARRIVAL_MS = 7_000;
const ARRIVAL_POLL_MS = 50;
/** This long after the job's end, missing logs are no longer waited for. */
const ARRIVED_AFTER_MS = 60_000;

export interface LogQuery {
  readonly jobId: string;
  /** Only this attempt; absent: the latest and later ones. */
  readonly attempt?: number | undefined;
  /** Start with this attempt or the first one after it; absent: with the latest. */
  readonly fromAttempt?: number | undefined;
  /** Absent: all. */
  readonly ranks?: readonly number[] | undefined;
  readonly streams: readonly LogStream[];
  /** Only this many of the available lines. */
  readonly tail?: number | undefined;
  readonly sinceMs?: number | undefined;
  readonly untilMs?: number | undefined;
  readonly cursor?: LogCursor | undefined;
  /** Continue until the job has ended and everything was read. */
  readonly follow: boolean;
}

/** Some lines, and the cursor after them. */
export interface LogBatch {
  readonly items: readonly LogItem[];
  readonly cursor: LogCursor;
}

export interface LogReaderOptions {
  readonly store: LogStorePort;
  readonly repair: LogRepair;
  /** The present replicated state. */
  state(): JobsState;
  /** The time of the Raft log, as in a job's `endedAtMs`; this master's wall clock may be wrong. */
  logTimeMs(): number;
  /** Whether the node ships its logs to this master now. */
  isAttached(nodeId: string): boolean;
}

/** Reads the logs of jobs from this master's store, fetching what it lacks. */
export class LogReader {
  readonly #options: LogReaderOptions;

  constructor(options: LogReaderOptions) {
    this.#options = options;
  }

  /** Rejects with `not_found` if neither the job nor a log of it is known. */
  async read(query: LogQuery, signal: AbortSignal): Promise<AsyncGenerator<LogBatch, void>> {
    return this.#batches(await Reading.open(query, this.#options, signal), query, signal);
  }

  async *#batches(
    reading: Reading,
    query: LogQuery,
    signal: AbortSignal,
  ): AsyncGenerator<LogBatch, void> {
    const { store } = this.#options;
    let wake = Promise.withResolvers<void>();
    const unsubscribe = store.onGrown((name) => {
      if (name.jobId === query.jobId) wake.resolve();
    });
    const onAbort = () => wake.resolve();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      while (!signal.aborted) {
        wake = Promise.withResolvers<void>();
        // Check for the end before reading, so that everything written before it is read.
        const isEnd = query.follow ? reading.isEnded() : true;
        let batch = await reading.next(!query.follow);
        const isIdle = batch === undefined;
        for (; batch && !signal.aborted; batch = await reading.next(!query.follow)) yield batch;
        if (isEnd && (isIdle || !query.follow)) {
          const rest = await reading.next(true);
          if (rest) yield rest;
          return;
        }
        if (!isIdle) continue;
        await resolvesWithin(wake.promise, IDLE_MS);
        await reading.refresh();
      }
    } finally {
      unsubscribe();
      signal.removeEventListener("abort", onAbort);
    }
  }
}

/** One reader's pass through the logs of a job. */
class Reading {
  readonly #query: LogQuery;
  readonly #options: LogReaderOptions;
  readonly #logs = new Map<string, LogLines>();
  #fromAttempt: number;
  #repairedMs = 0;
  /** Lines that `tail` has selected and that were not returned yet. */
  #tail: LogItem[] = [];
  #quietSinceMs = performance.now();
  /** When the job was first seen to have ended. */
  #endedSinceMs: number | undefined;

  private constructor(query: LogQuery, options: LogReaderOptions) {
    this.#query = query;
    this.#options = options;
    const latest = options.state().jobs.get(query.jobId)?.attempt ?? 0;
    const first = query.attempt ?? query.fromAttempt ?? Math.max(1, latest);
    this.#fromAttempt = query.cursor?.fromAttempt ?? first;
  }

  static async open(
    query: LogQuery,
    options: LogReaderOptions,
    signal: AbortSignal,
  ): Promise<Reading> {
    const reading = new Reading(query, options);
    const { jobId, cursor, attempt, fromAttempt, tail, sinceMs } = query;
    const job = options.state().jobs.get(jobId);
    if (job) refuseUnknown(query, job);
    const kept = await options.store.list(jobId);
    if (!options.state().jobs.has(jobId)) {
      if (kept.length === 0) throw new AppError("not_found", `No job has the id ${jobId}.`);
      const latest = Math.max(...kept.map((name) => name.attempt));
      if (!cursor) reading.#fromAttempt = attempt ?? fromAttempt ?? latest;
    }
    await resolvesWithin(reading.#repair(), REPAIR_WAIT_MS).catch(() => {});
    if (!query.follow) await reading.#arrival(signal);
    await reading.refresh();
    if (cursor) return reading;
    for (const lines of reading.#logs.values()) {
      if (sinceMs !== undefined) await lines.seekTime(sinceMs);
      else if (tail !== undefined) await lines.seekTail(tail);
    }
    if (tail !== undefined) await reading.#chooseTail(tail);
    return reading;
  }

  /** Waits for what the workers of an ended job are still shipping. */
  async #arrival(signal: AbortSignal): Promise<void> {
    const { store } = this.#options;
    const { jobId } = this.#query;
    const job = this.#options.state().jobs.get(jobId);
    if (!job || !isTerminal(job.state)) return;
    if (this.#options.logTimeMs() - (job.endedAtMs ?? 0) > ARRIVED_AFTER_MS) return;
    const startedMs = performance.now();
    let grownMs = startedMs;
    const unsubscribe = store.onGrown((name) => {
      if (name.jobId === jobId) grownMs = performance.now();
    });
    try {
      while (!signal.aborted && (await this.#isOnItsWay())) {
        const nowMs = performance.now();
        if (nowMs - grownMs > ARRIVAL_QUIET_MS || nowMs - startedMs > MAX_ARRIVAL_MS) return;
        await delay(ARRIVAL_POLL_MS);
      }
    } finally {
      unsubscribe();
    }
  }

  async #isOnItsWay(): Promise<boolean> {
    const { store, state, isAttached } = this.#options;
    for (const name of await this.#names()) {
      const task = state().tasks.get(taskKey(name.jobId, name.attempt, name.rank));
      const isShipped = task !== undefined && isAttached(task.nodeId);
      if (isShipped && !(await store.state(name)).complete) return true;
    }
    return false;
  }

  /** Finds new logs, and requests those that are not being shipped. */
  async refresh(): Promise<void> {
    for (const name of await this.#names()) {
      const key = logFileName(name);
      if (this.#logs.has(key)) continue;
      const known = this.#query.cursor?.positions.find((each) => logFileName(each) === key);
      this.#logs.set(key, new LogLines(name, this.#options.store, known?.offset ?? 0));
    }
    if (performance.now() - this.#repairedMs < REPAIR_EVERY_MS) return;
    // It is retried; the reader gets what is available.
    void this.#repair().catch(() => {});
  }

  /** The next lines by time; `unfinished` includes lines without an end. */
  async next(unfinished: boolean): Promise<LogBatch | undefined> {
    const items: LogItem[] = [];
    const dry = new Set<LogLines>();
    let bytes = 0;
    while (items.length < BATCH_ITEMS && bytes < BATCH_BYTES) {
      const item = this.#tail.shift() ?? (await this.#earliest(dry));
      if (!item) break;
      items.push(item);
      bytes += item.text.byteLength;
    }
    if (items.length === 0 && unfinished) {
      for (const lines of this.#logs.values()) {
        const item = lines.takeUnfinished();
        if (item && this.#isWanted(item)) items.push(item);
      }
    }
    if (items.length === 0) return undefined;
    this.#quietSinceMs = performance.now();
    return { items, cursor: this.#cursor() };
  }

  /** Whether nothing will follow; check before the last read. */
  isEnded(): boolean {
    const { untilMs, jobId } = this.#query;
    if (untilMs !== undefined && Date.now() > untilMs + SETTLE_MS) return true;
    const job = this.#options.state().jobs.get(jobId);
    if (job && !isTerminal(job.state)) return false;
    this.#endedSinceMs ??= performance.now();
    const isComplete = [...this.#logs.values()].every((lines) => lines.isEnded);
    const quietSinceMs = Math.max(this.#quietSinceMs, this.#endedSinceMs);
    return isComplete || performance.now() - quietSinceMs > SETTLE_MS;
  }

  /** The next line of all logs; those in `dry` had none at their last check. */
  async #earliest(dry: Set<LogLines>): Promise<LogItem | undefined> {
    for (;;) {
      let earliest: LogLines | undefined;
      for (const lines of this.#logs.values()) {
        if (dry.has(lines) || this.#isBehind(lines.name)) continue;
        if (!lines.peek() && !(await lines.fill())) {
          dry.add(lines);
          continue;
        }
        const isEarlier =
          (lines.peek()?.unixMs ?? 0) < (earliest?.peek()?.unixMs ?? Number.MAX_VALUE);
        if (isEarlier) earliest = lines;
      }
      const item = earliest?.take();
      if (!item || this.#isWanted(item)) return item;
    }
  }

  /** Whether lines of a replaced task are pending, whatever its node's clock says. */
  #isBehind({ attempt, rank, incarnation = 0, stream }: LogName): boolean {
    for (let earlier = 0; earlier < incarnation; earlier++) {
      const name = { jobId: this.#query.jobId, attempt, rank, incarnation: earlier, stream };
      if (this.#logs.get(logFileName(name))?.peek()) return true;
    }
    return false;
  }

  #isWanted({ unixMs }: LogItem): boolean {
    const { sinceMs, untilMs } = this.#query;
    return (
      (sinceMs === undefined || unixMs >= sinceMs) && (untilMs === undefined || unixMs <= untilMs)
    );
  }

  async #chooseTail(count: number): Promise<void> {
    const items: LogItem[] = [];
    const dry = new Set<LogLines>();
    for (let item = await this.#earliest(dry); item; item = await this.#earliest(dry)) {
      items.push(item);
    }
    this.#tail = count === 0 ? [] : items.slice(-count);
  }

  #cursor(): LogCursor {
    const { jobId } = this.#query;
    // Completely read attempts need no position in the cursor.
    const open = [...this.#logs.values()].filter((lines) => !lines.isEnded);
    const latest = Math.max(
      this.#fromAttempt,
      ...[...this.#logs.values()].map(({ name }) => name.attempt),
    );
    const fromAttempt = Math.min(latest, ...open.map(({ name }) => name.attempt));
    const positions = [...this.#logs.values()]
      .filter(({ name }) => name.attempt >= fromAttempt)
      .map(({ name, offset }) => {
        const waiting = this.#tail.find((item) => item.name === name);
        return { ...name, offset: waiting?.offset ?? offset };
      });
    return { jobId, fromAttempt, positions };
  }

  /** The logs that match the query: those stored here and those in the state. */
  async #names(): Promise<LogName[]> {
    const { jobId, attempt, ranks, streams } = this.#query;
    const kept = await this.#options.store.list(jobId);
    const names = new Map(kept.map((name) => [logFileName(name), name]));
    const job = this.#options.state().jobs.get(jobId);
    const latest = job?.attempt ?? 0;
    for (let rank = 0; latest > 0 && rank < (job?.tasks ?? 0); rank++) {
      if (ranks && !ranks.includes(rank)) continue;
      for (const stream of streams) {
        for (const each of attempt === undefined ? [latest] : [attempt]) {
          for (const name of this.#incarnationsOf({ jobId, attempt: each, rank, stream })) {
            names.set(logFileName(name), name);
          }
        }
      }
    }
    const chosen = [...names.values()].filter(
      (name) =>
        (attempt === undefined ? name.attempt >= this.#fromAttempt : name.attempt === attempt) &&
        (ranks?.includes(name.rank) ?? true) &&
        streams.includes(name.stream),
    );
    const streamsOfRanks = new Set(chosen.map((name) => logFileName({ ...name, incarnation: 0 })));
    if (streamsOfRanks.size > MAX_LOGS || chosen.length > MAX_LOGS_WITH_REPLACED) throw tooMany();
    return chosen.sort((a, b) => (a.incarnation ?? 0) - (b.incarnation ?? 0));
  }

  /** The logs of all incarnations of a rank's stream in an attempt, first one first. */
  #incarnationsOf(first: LogName): LogName[] {
    const task = this.#options.state().tasks.get(taskKey(first.jobId, first.attempt, first.rank));
    const names = [first];
    for (let incarnation = 1; incarnation <= (task?.incarnation ?? 0); incarnation++) {
      names.push({ ...first, incarnation });
    }
    return names;
  }

  /** Requests logs that no attached worker is shipping to this master. */
  async #repair(): Promise<void> {
    this.#repairedMs = performance.now();
    const { store, repair, state, isAttached } = this.#options;
    await Promise.all(
      (await this.#names()).map(async (name) => {
        const isGapless = (await store.gaps(name)).length === 0;
        if (isGapless && (await store.state(name)).complete) return;
        const task = state().tasks.get(taskKey(name.jobId, name.attempt, name.rank));
        const isPresent = (task?.incarnation ?? 0) === (name.incarnation ?? 0);
        const isShipped = task && isPresent && task.phase !== "exited" && isAttached(task.nodeId);
        if (isGapless && isShipped) return;
        await repair.repair(name);
      }),
    );
  }
}

/** An unknown log is no empty log. A follower may wait for a future attempt. */
function refuseUnknown({ ranks, attempt, follow }: LogQuery, job: JobRecord): void {
  const { id, tasks, attempt: latest } = job;
  const rank = ranks?.find((each) => each >= tasks);
  // The number of tasks may change until the first start.
  if (latest > 0 && rank !== undefined) {
    const message = `The job ${id} has no rank ${rank}: it has ${tasks} tasks, of which the first is rank 0.`;
    throw new AppError("invalid_value", message, { param: "rank" });
  }
  const isAwaited = follow && !isTerminal(job.state);
  if (attempt === undefined || isAwaited || (attempt >= 1 && attempt <= latest)) return;
  const message = `The job ${id} has no attempt ${attempt}: it has had ${latest}, of which the first is attempt 1.`;
  throw new AppError("invalid_value", message, { param: "attempt" });
}

function tooMany(): AppError {
  const message = `The logs of more than ${MAX_LOGS / 2} tasks cannot be read at once: choose some with \`rank\` (as rank=0,1), an \`attempt\` or a \`stream\`.`;
  return new AppError("invalid_value", message, { param: "rank" });
}
