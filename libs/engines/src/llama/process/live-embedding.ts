import type { EmbedRequest, EngineEvent, SubmitOptions, Usage } from "@heddle/contracts/engine";
import { LiveWork } from "./live-work.ts";

/** An embedding request: each input is a sequence that ends with its vector. */
export class LiveEmbedding extends LiveWork {
  readonly request: EmbedRequest;
  readonly #open: Set<number>;

  constructor(id: number, request: EmbedRequest, options: SubmitOptions) {
    super(id, request.inputs.length, options);
    this.request = request;
    this.#open = new Set(request.inputs.keys());
  }

  get usage(): Usage {
    const { promptTokens } = this;
    return { promptTokens, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  }

  get isDone(): boolean {
    return this.#open.size === 0;
  }

  isOpen(sequence: number): boolean {
    return this.#open.has(sequence);
  }

  vector(handle: number, values: Float32Array): EngineEvent {
    const input = handle - this.firstHandle;
    this.#open.delete(input);
    return { type: "embedding", id: this.id, input, values };
  }
}
