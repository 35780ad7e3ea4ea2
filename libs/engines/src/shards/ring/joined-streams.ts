import type { Duplex } from "node:stream";

interface JoinedStreamsListener {
  /** Bytes that left the last of them. */
  readonly onData: (bytes: Uint8Array) => void;
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
    for (const [at, stage] of stages.entries()) {
      const next = stages[at + 1];
      stage.once("close", listener.onLost).on("error", listener.onLost);
      if (next) stage.pipe(next);
      else stage.on("data", listener.onData).resume();
    }
  }

  /** They send each other nothing more; a loss is still reported. */
  part(): void {
    for (const stage of this.stages) stage.unpipe().off("data", this.#listener.onData).pause();
  }

  /** They are others' now, or closed. */
  release(): void {
    const { onLost } = this.#listener;
    this.part();
    for (const stage of this.stages) {
      // Added once, however often the stage was joined.
      stage.off("error", ignore).on("error", ignore).off("close", onLost).off("error", onLost);
    }
  }
}

function ignore(): void {}
