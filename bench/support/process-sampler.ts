import { type ProcessSample, sampleProcess } from "./proc-files.ts";
import { median, slope } from "./statistics.ts";

export interface WatchedProcess {
  readonly pid: number;
  /** What the process is, as `worker`. */
  readonly role: string;
}

/** A process's memory and descriptors over a run. */
export interface ProcessTrend extends WatchedProcess {
  readonly samples: number;
  /** Medians of the run's second quarter (the first one warms up) and of its last. */
  readonly residentMiB: { readonly first: number; readonly last: number; readonly max: number };
  /** The slope of the straight line through all samples after the first quarter. */
  readonly residentMiBPerMinute: number;
  readonly descriptors: { readonly first: number; readonly last: number; readonly max: number };
  readonly cpuMs: number;
  /** Whether the memory is flat; `flat` is for the descriptors too, which follow the load. */
  readonly residentFlat: boolean;
  readonly flat: boolean;
}

export interface TimedSample extends ProcessSample {
  readonly atMs: number;
}

/** All samples of a process. */
export interface ProcessSeries extends WatchedProcess {
  readonly samples: readonly TimedSample[];
}

const mebibyte = 2 ** 20;
/** A process is flat when it ends at most this much above its second quarter. */
const maxGrowth = 1.1;
const maxGrowthMiB = 16;
export const maxMoreDescriptors = 8;

/** Samples processes at an interval; `watched` is asked each time, so that processes may join. */
export class ProcessSampler {
  readonly #watched: () => readonly WatchedProcess[];
  readonly #series = new Map<number, { role: string; samples: TimedSample[] }>();
  readonly #intervalMs: number;
  #timer: NodeJS.Timeout | undefined;

  constructor(watched: () => readonly WatchedProcess[], intervalMs: number) {
    this.#watched = watched;
    this.#intervalMs = intervalMs;
  }

  /** May be called again after `pause`; the samples of all stretches make one series. */
  resume(): void {
    this.#timer ??= setInterval(() => this.#take(), this.#intervalMs);
  }

  pause(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  series(): readonly ProcessSeries[] {
    return [...this.#series].map(([pid, { role, samples }]) => ({ pid, role, samples }));
  }

  trends(): readonly ProcessTrend[] {
    return this.series().map(({ samples, ...watched }) => trend(watched, samples));
  }

  #take(): void {
    const atMs = performance.now();
    for (const { pid, role } of this.#watched()) {
      const sample = sampleProcess(pid);
      if (!sample) continue;
      const series = this.#series.get(pid) ?? { role, samples: [] };
      series.samples.push({ ...sample, atMs });
      this.#series.set(pid, series);
    }
  }
}

function trend(watched: WatchedProcess, samples: readonly TimedSample[]): ProcessTrend {
  const quarter = Math.ceil(samples.length / 4);
  const warm = samples.slice(quarter);
  const second = samples.slice(quarter, 2 * quarter);
  const last = samples.slice(-quarter);
  const resident = (list: readonly TimedSample[]) =>
    median(list.map(({ residentBytes }) => residentBytes / mebibyte));
  const open = (list: readonly TimedSample[]) => median(list.map(({ descriptors }) => descriptors));
  const residentMiB = {
    first: resident(second),
    last: resident(last),
    max: Math.max(0, ...samples.map(({ residentBytes }) => residentBytes / mebibyte)),
  };
  const descriptors = {
    first: open(second),
    last: open(last),
    max: Math.max(0, ...samples.map((sample) => sample.descriptors)),
  };
  const grown = residentMiB.last - residentMiB.first;
  const residentFlat = grown <= maxGrowthMiB || residentMiB.last <= residentMiB.first * maxGrowth;
  return {
    ...watched,
    samples: samples.length,
    residentMiB,
    residentMiBPerMinute: slope(
      warm.map(({ atMs, residentBytes }) => ({ x: atMs / 60_000, y: residentBytes / mebibyte })),
    ),
    descriptors,
    cpuMs: (samples.at(-1)?.cpuMs ?? 0) - (samples[0]?.cpuMs ?? 0),
    residentFlat,
    flat: residentFlat && descriptors.last - descriptors.first <= maxMoreDescriptors,
  };
}
