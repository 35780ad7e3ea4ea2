import type { Duplex } from "node:stream";

interface JoinedStreamsListener {
  /** Bytes that left the last of them. */
  readonly onData: (bytes: Uint8Array) => void;
  /** The first of them takes more, after it was full. */
  readonly onDrain: () => void;
  /** One of them is closed. */
  readonly onLost: () => void;
}

/** Streams to stages, joined in their order: what comes from one goes to the next. */
export class JoinedStreams {
  readonly stages: readonly Duplex[];
  readonly #listener: JoinedStreamsListener;

  constructor(stages: readonly Duplex[], listener: JoinedStreamsListener) {
    this.stages = stages;
    this.#listener = listener;
    stages[0]?.on("drain", listener.onDrain);
    for (const [at, stage] of stages.entries()) {
      const next = stages[at + 1];
      stage.once("close", listener.onLost).on("error", listener.onLost);
      if (next) stage.pipe(next);
      else stage.on("data", listener.onData).resume();
    }
  }

  /** Whether more bytes would pile up before the first of them. */
  get isFull(): boolean {
    return this.stages[0]?.writableNeedDrain ?? false;
  }

  /** Sends bytes to the first of them. */
  write(bytes: Uint8Array): void {
    this.stages[0]?.write(bytes);
  }

  /** They send each other nothing more; a loss is still reported. */
  part(): void {
    for (const stage of this.stages) stage.unpipe().off("data", this.#listener.onData).pause();
  }

  /** They are others' now, or closed. */
  release(): void {
    const { onDrain, onLost } = this.#listener;
    this.part();
    this.stages[0]?.off("drain", onDrain);
    for (const stage of this.stages) {
      // Added once, however often the stage was joined.
      stage.off("error", ignore).on("error", ignore).off("close", onLost).off("error", onLost);
    }
  }
}

function ignore(): void {}
