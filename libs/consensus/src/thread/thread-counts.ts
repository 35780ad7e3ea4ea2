import type { StorageFile, StorageFiles } from "@heddle/storage/storage-files";

/** A histogram: how many durations were at most each bound, and above the one before. */
export interface DurationCounts {
  readonly boundsSeconds: readonly number[];
  /** One more than there are bounds: the last counts those above all of them. */
  readonly counts: readonly number[];
  readonly sumSeconds: number;
}

/** Figures of the Raft thread since its start. */
export interface ThreadCounts {
  /** Elections in which this member was a candidate. */
  readonly elections: number;
  /** Snapshots whose own files could not be read. */
  readonly snapshotsDamaged: number;
  /** Durable writes to the log. */
  readonly appends: DurationCounts;
}

/** From 0.1 ms, which a fast disk takes, to 1 s, which an unhealthy one does. */
const APPEND_BOUNDS_SECONDS = [
  0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
];

/** Counts what the Raft thread does, as plain numbers that can cross threads. */
export class ThreadCounter {
  elections = 0;
  snapshotsDamaged = 0;
  readonly #appends = new Array<number>(APPEND_BOUNDS_SECONDS.length + 1).fill(0);
  #appendSeconds = 0;

  view(): ThreadCounts {
    return {
      elections: this.elections,
      snapshotsDamaged: this.snapshotsDamaged,
      appends: {
        boundsSeconds: APPEND_BOUNDS_SECONDS,
        counts: [...this.#appends],
        sumSeconds: this.#appendSeconds,
      },
    };
  }

  /** The same files, with the time of each durable write counted. */
  measure(files: StorageFiles): StorageFiles {
    return {
      ...files,
      open: async (path, mode) => {
        const file = await files.open(path, mode);
        return mode === "durable" ? this.#measured(file) : file;
      },
    };
  }

  #measured(file: StorageFile): StorageFile {
    return {
      write: async (buffer, position) => {
        const beganMs = performance.now();
        await file.write(buffer, position);
        this.#append((performance.now() - beganMs) / 1000);
      },
      read: (length, position) => file.read(length, position),
      size: () => file.size(),
      truncate: (size) => file.truncate(size),
      sync: () => file.sync(),
      close: () => file.close(),
    };
  }

  #append(seconds: number): void {
    const at = APPEND_BOUNDS_SECONDS.findIndex((bound) => seconds <= bound);
    const bucket = at === -1 ? APPEND_BOUNDS_SECONDS.length : at;
    this.#appends[bucket] = (this.#appends[bucket] ?? 0) + 1;
    this.#appendSeconds += seconds;
  }
}
