import type { EngineEvent, SubmitOptions, Usage } from "@heddle/contracts/engine";

/** A request between its submission and its last event. */
export abstract class LiveWork {
  readonly id: number;
  readonly options: SubmitOptions;
  /** Sequences of the engine thread that it takes. */
  readonly sequences: number;
  /** The first sequence's handle in the engine thread; -1 until all prompts are tokenized. */
  firstHandle = -1;
  promptTokens = 0;
  started = false;
  deadline: NodeJS.Timeout | undefined;
  /** Takes long prompts out of the line of those that are to be read. */
  stopReading: (() => void) | undefined;
  protected cachedTokens = 0;

  constructor(id: number, sequences: number, options: SubmitOptions) {
    this.id = id;
    this.sequences = sequences;
    this.options = options;
  }

  abstract get usage(): Usage;

  abstract get isDone(): boolean;

  /** Whether the sequence still gets something. */
  abstract isOpen(sequence: number): boolean;

  /** The handles of sequences that the engine thread still computes. */
  get openHandles(): number[] {
    const handles: number[] = [];
    if (this.firstHandle < 0) return handles;
    for (let sequence = 0; sequence < this.sequences; sequence++) {
      if (this.isOpen(sequence)) handles.push(this.firstHandle + sequence);
    }
    return handles;
  }

  start(cachedTokens: number, queuedMs: number): EngineEvent[] {
    this.started = true;
    this.cachedTokens = cachedTokens;
    const { id, promptTokens } = this;
    return [{ type: "started", id, promptTokens, cachedTokens, queuedMs }];
  }
}
