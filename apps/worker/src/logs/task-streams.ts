import { statfs } from "node:fs/promises";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { TaskLog } from "@heddle/storage/task-log";
import type { MetricStore } from "../records/metric-history.ts";
import {
  OUTPUT_STREAMS,
  type StreamName,
  TASK_STREAMS,
  type TaskDirectory,
} from "../records/task-directory.ts";

/** The bytes of each stream that are searched for last lines, and the longest of them. */
const TAIL_BYTES = 16 * 1024;
const MAX_TAIL_LINE = 1_024;
/** The share of the bound that is released at once. */
const DROPPED_SHARE = 1 / 16;
const NEWLINE = 10;
/** Holes are a whole number of the file system's blocks. */
const BLOCK_BYTES = 4_096;
/** With less free space the disk counts as full: output may be lost. */
const MIN_FREE_BYTES = 64 * 1024;
const FULL_DISK_MARK =
  "[heddle: the worker's disk was full: what was written here meanwhile may be lost]\n";

/** The streams of one task; other processes write the files of its output. */
export class TaskStreams {
  readonly logs: Readonly<Record<StreamName, TaskLog>>;
  /**
   * The bytes of each stream that are kept here, and that may wait for the masters before the task
   * is held.
   */
  readonly maxBytes: number;
  /** Bytes of each that a majority of the masters has on disk. */
  readonly #shipped: Record<StreamName, number> = { stdout: 0, stderr: 0, metrics: 0 };
  /** Serializes calls that write. */
  readonly #turns = new SerialQueue();
  #sealed = false;
  /** The disk was full, and the streams are not marked yet. */
  #isUnmarked = false;

  private constructor(logs: Record<StreamName, TaskLog>, maxBytes: number) {
    this.logs = logs;
    this.maxBytes = maxBytes;
  }

  /** `maxBytes` of each stream are kept; older bytes are released where the masters have them. */
  static async open(directory: TaskDirectory, maxBytes: number): Promise<TaskStreams> {
    const logs: Partial<Record<StreamName, TaskLog>> = {};
    try {
      for (const name of TASK_STREAMS) {
        logs[name] = await TaskLog.open(directory.stream(name), directory.root);
      }
      return new TaskStreams(logs as Record<StreamName, TaskLog>, maxBytes);
    } catch (error) {
      await Promise.all(Object.values(logs).map((log) => log.close()));
      throw error;
    }
  }

  /** A majority of the masters has the stream up to there. */
  onShipped(name: StreamName, end: number): void {
    this.#shipped[name] = Math.max(this.#shipped[name], end);
  }

  /** The share of the bound that is not yet on a majority of masters; the larger of the streams'. */
  get waitingShare(): number {
    const waiting = TASK_STREAMS.map((name) => {
      const { end, first } = this.logs[name];
      return end - Math.max(first, this.#shipped[name]);
    });
    return Math.max(...waiting) / this.maxBytes;
  }

  /** Records new output; `now` as for `TaskLog.observe`. True if there is more. */
  observe(now: () => number | undefined): Promise<boolean> {
    return this.#turns.run(async () => {
      if (this.#sealed) return false;
      await this.#mark();
      const grown = await Promise.all(
        TASK_STREAMS.map((name) =>
          this.#kept(this.logs[name].observe(() => (this.#sealed ? undefined : now()))),
        ),
      );
      for (const name of TASK_STREAMS) await this.#kept(this.#bound(name));
      return grown.some(Boolean);
    });
  }

  /** Where the history of its progress is kept; `now` as for `TaskLog.observe`. */
  metricStore(now: () => number | undefined): MetricStore {
    const { metrics } = this.logs;
    const record = async (text: string) => {
      if (this.#sealed) return;
      await metrics.appendText(text);
      await metrics.observe(() => (this.#sealed ? undefined : now()));
    };
    return {
      record: (text) => this.#turns.run(() => record(text)),
      recordedTail: async (maxBytes) => {
        const from = Math.max(metrics.first, metrics.end - maxBytes);
        return (await metrics.read(from, maxBytes)).data.toString();
      },
    };
  }

  /**
   * Later output of the task does not count. Resolves with whether the disk has had room for the
   * output, or for a mark where a part of it is lost.
   */
  async seal(): Promise<boolean> {
    this.#sealed = true;
    return this.#turns.run(async () => {
      await this.#mark();
      await Promise.all(TASK_STREAMS.map((name) => this.#kept(this.logs[name].finish())));
      return !this.#isUnmarked;
    });
  }

  /** On a full disk the state stays in memory, and is written once there is space. */
  async #kept<T>(work: Promise<T>): Promise<T | undefined> {
    try {
      return await work;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
      this.#isUnmarked = true;
      return undefined;
    }
  }

  /** Marks the output as soon as the disk has space again: which lines were lost is unknown. */
  async #mark(): Promise<void> {
    const { bavail, bsize } = await statfs(this.logs.stdout.path);
    const isFull = bavail * bsize < MIN_FREE_BYTES;
    if (isFull) this.#isUnmarked = true;
    if (isFull || !this.#isUnmarked) return;
    this.#isUnmarked = false;
    for (const name of OUTPUT_STREAMS) await this.#kept(this.#markIn(this.logs[name]));
  }

  async #markIn(log: TaskLog): Promise<void> {
    const isCut = log.end > 0 && (await log.read(log.end - 1, 1)).data[0] !== NEWLINE;
    // After the end neither the task's later output nor a mark behind it counts.
    const isFenced = this.#sealed && log.base + (await log.size()) > log.end;
    if (isFenced) return;
    await log.appendText(`${isCut ? "\n" : ""}${FULL_DISK_MARK}`);
    if (this.#sealed) await log.observe(() => Date.now());
  }

  /** The last lines of the output, oldest first. */
  async lastLines(count: number): Promise<string[]> {
    const lines = (
      await Promise.all(OUTPUT_STREAMS.map((name) => lastLinesOf(this.logs[name])))
    ).flat();
    // Sorting is stable: lines of one time stay in the order of their stream.
    const sorted = lines.sort((a, b) => a.unixMs - b.unixMs);
    return sorted.slice(-count).map(({ text }) => text);
  }

  close(): Promise<unknown> {
    return this.#turns.run(() => Promise.all(TASK_STREAMS.map((name) => this.logs[name].close())));
  }

  /** Releases the oldest bytes that the masters have; the offsets of the rest do not change. */
  async #bound(name: StreamName): Promise<void> {
    const log = this.logs[name];
    if (log.end - log.first <= this.maxBytes) return;
    const keepFrom = Math.min(log.end - this.maxBytes * (1 - DROPPED_SHARE), this.#shipped[name]);
    const first = Math.floor(keepFrom / BLOCK_BYTES) * BLOCK_BYTES;
    if (first <= log.first) return;
    await log.dropBefore(first);
    if (first > log.base) await log.punchHole(first - log.base);
  }
}

async function lastLinesOf(log: TaskLog): Promise<{ text: string; unixMs: number }[]> {
  const from = Math.max(log.first, log.end - TAIL_BYTES);
  const { data, times } = await log.read(from, TAIL_BYTES);
  const lines: { text: string; unixMs: number }[] = [];
  for (let start = 0; start < data.byteLength; ) {
    const newline = data.indexOf(10, start);
    const end = newline < 0 ? data.byteLength : newline;
    const unixMs = times.findLast(({ at }) => at <= start)?.unixMs ?? 0;
    lines.push({
      text: data.toString("utf8", start, Math.min(end, start + MAX_TAIL_LINE)),
      unixMs,
    });
    start = end + 1;
  }
  return lines;
}
