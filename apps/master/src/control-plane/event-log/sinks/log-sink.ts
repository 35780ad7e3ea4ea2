/** Events in order, as readers see them. */
export interface SinkBatch {
  readonly first: number;
  readonly texts: readonly string[];
}

/** Where events are copied. Each comes at least once, and in order. */
export interface LogSink {
  /** Without a secret. */
  readonly name: string;
  /** How long events gather for one write. */
  readonly gatherMs: number;
  /** The next event, where the sink itself knows it: it then belongs to this master alone. */
  next?(): Promise<number | undefined>;
  /** Resolves when all of them are stored. */
  write(batch: SinkBatch): Promise<void>;
  close(): Promise<void>;
}
