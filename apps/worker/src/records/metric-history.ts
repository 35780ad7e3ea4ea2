import {
  curveNumbers,
  joinSummaries,
  type MetricSummary,
  readMetricRecord,
  writeMetricRecord,
} from "@heddle/contracts/metrics/metric-record";
import type { ProgressLine } from "./progress-file.ts";

/**
 * At each doubling of a task's values beyond these, a record has twice the lines. So the history
 * grows with the logarithm of the values, and a record is a fixed small share of them.
 */
const LEVEL_VALUES = 8_192;
/** Further names are not recorded. */
const MAX_NAMES = 64;
/** Longer than any record. */
const TAIL_BYTES = 64 * 1024;

/** Where the history is kept. */
export interface MetricStore {
  record(text: string): Promise<void>;
  recordedTail(maxBytes: number): Promise<string>;
}

/** Lines of progress that become one record. */
interface OpenRecord {
  lines: number;
  first: number;
  last: number;
  readonly values: Map<string, MetricSummary>;
}

/** The numbers of a task's progress from its beginning, in bounded space. */
export class MetricHistory {
  readonly #store: MetricStore;
  readonly #onFault: (error: unknown) => void;
  readonly #names = new Set<string>();
  #total = 0;
  #step = 0;
  /** Whether the program says its steps; if not, its lines are counted. */
  #hasSteps = false;
  #open: OpenRecord | undefined;
  /** A write has failed, and may have left a part of a line. */
  #isTorn = false;

  constructor(store: MetricStore, onFault: (error: unknown) => void) {
    this.#store = store;
    this.#onFault = onFault;
  }

  /** The byte of the progress file up to which an earlier process has recorded it. */
  async resume(): Promise<number> {
    const tail = await this.#store.recordedTail(TAIL_BYTES);
    const latest = tail
      .split("\n")
      .flatMap((line) => readMetricRecord(line) ?? [])
      .at(-1);
    if (!latest) return 0;
    this.#total = latest.total;
    this.#step = latest.last;
    for (const name of Object.keys(latest.values)) this.#names.add(name);
    return latest.offset;
  }

  /** Records the lines, which end at that byte of the progress file; `isLast`: no more follow. */
  async add(lines: readonly ProgressLine[], offset: number, isLast: boolean): Promise<void> {
    const records: string[] = [];
    for (const line of lines) {
      const open = this.#join(line);
      if (open && open.lines >= this.#width) records.push(this.#close(open, offset));
    }
    if (isLast && this.#open) records.push(this.#close(this.#open, offset));
    if (records.length > 0) await this.#write(records.join(""));
  }

  /** Lines of one record: a power of two. */
  get #width(): number {
    return 2 ** Math.max(0, Math.floor(Math.log2(this.#total / LEVEL_VALUES)));
  }

  #join(line: ProgressLine): OpenRecord | undefined {
    const numbers = Object.entries(curveNumbers(line)).filter(([name]) => this.#isTaken(name));
    if (numbers.length === 0) return undefined;
    this.#hasSteps ||= line.step !== undefined;
    const step = line.step ?? (this.#hasSteps ? this.#step : this.#step + 1);
    this.#step = step;
    this.#open ??= { lines: 0, first: step, last: step, values: new Map() };
    const open = this.#open;
    open.lines++;
    open.first = Math.min(open.first, step);
    open.last = Math.max(open.last, step);
    for (const [name, value] of numbers) {
      const one = { count: 1, min: value, max: value, mean: value };
      const known = open.values.get(name);
      open.values.set(name, known ? joinSummaries(known, one) : one);
    }
    this.#total += numbers.length;
    return open;
  }

  #isTaken(name: string): boolean {
    if (this.#names.size < MAX_NAMES) this.#names.add(name);
    return this.#names.has(name);
  }

  #close(open: OpenRecord, offset: number): string {
    const { first, last, values } = open;
    this.#open = undefined;
    const total = this.#total;
    return writeMetricRecord({ first, last, total, offset, values: Object.fromEntries(values) });
  }

  /** What cannot be written is lost, as on a full disk: it must not end the task. */
  async #write(text: string): Promise<void> {
    try {
      await this.#store.record(this.#isTorn ? `\n${text}` : text);
      this.#isTorn = false;
    } catch (error) {
      if (!this.#isTorn) this.#onFault(error);
      this.#isTorn = true;
    }
  }
}
