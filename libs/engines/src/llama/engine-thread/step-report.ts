import type { StepRing } from "../protocol/step-ring.ts";
import type {
  ThreadEmbedding,
  ThreadLoad,
  ThreadScores,
  ThreadStarted,
  ThreadStep,
} from "../protocol/thread-messages.ts";
import type { RowLogprobs } from "../sampling/logprobs.ts";

/** Gathers what one step brings, to be posted as one message. */
export class StepReport {
  readonly #handles: Int32Array;
  readonly #tokens: Int32Array;
  readonly #ends: Uint8Array;
  readonly #ring: StepRing;
  #count = 0;
  #logprobs: (RowLogprobs | undefined)[] | undefined;
  #started: ThreadStarted[] = [];
  #embeddings: ThreadEmbedding[] | undefined;
  #scores: ThreadScores[] | undefined;

  /** `capacity` is the most tokens that one step samples. */
  constructor(capacity: number, ring: StepRing) {
    this.#ring = ring;
    this.#handles = new Int32Array(capacity);
    this.#tokens = new Int32Array(capacity);
    this.#ends = new Uint8Array(capacity);
  }

  get isEmpty(): boolean {
    return this.#count === 0 && this.#started.length === 0 && !this.#embeddings && !this.#scores;
  }

  started(event: ThreadStarted): void {
    this.#started.push(event);
  }

  embedding(embedding: ThreadEmbedding): void {
    this.#embeddings ??= [];
    this.#embeddings.push(embedding);
  }

  scores(scores: ThreadScores): void {
    this.#scores ??= [];
    this.#scores.push(scores);
  }

  token(handle: number, token: number, end: number, logprobs: RowLogprobs | undefined): void {
    const at = this.#count++;
    this.#handles[at] = handle;
    this.#tokens[at] = token;
    this.#ends[at] = end;
    if (logprobs === undefined) return;
    this.#logprobs ??= [];
    this.#logprobs[at] = logprobs;
  }

  /** The message, or the step's position in the ring; the report is empty afterwards. */
  take(load: ThreadLoad): ThreadStep | number {
    const isPlain = !this.#logprobs && !this.#embeddings && !this.#scores;
    if (this.#count > 0 && isPlain && this.#started.length === 0) {
      const begin = this.#ring.write(this.#count, this.#handles, this.#tokens, this.#ends, load);
      if (begin !== undefined) {
        this.#count = 0;
        return begin;
      }
    }
    const step: ThreadStep = {
      kind: "step",
      handles: this.#handles.slice(0, this.#count),
      tokens: this.#tokens.slice(0, this.#count),
      ends: this.#ends.slice(0, this.#count),
      logprobs: this.#logprobs,
      started: this.#started,
      embeddings: this.#embeddings,
      scores: this.#scores,
      load,
    };
    this.#count = 0;
    this.#logprobs = undefined;
    this.#started = [];
    this.#embeddings = undefined;
    this.#scores = undefined;
    return step;
  }
}
