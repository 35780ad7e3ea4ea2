import type { EngineEvent, GenerateRequest } from "@heddle/contracts/engine";

export interface InferenceCall {
  readonly requestId: string;
  readonly deployment: string;
  readonly request: GenerateRequest;
  /** The API key's id: engines share fairly between these. */
  readonly fairKey: string;
  readonly deadlineMs: number;
  readonly priority: number;
}

/** A started call: which worker answers, and its events. Leaving the iteration cancels the call. */
export interface InferenceAnswer {
  readonly node: string;
  readonly events: AsyncIterable<EngineEvent>;
}

export interface InferenceDispatch {
  /**
   * Picks a replica, waiting in a bounded queue while none can take the call, and resolves with the
   * first event at hand (so that a refusal still has its HTTP status). Retries another replica only
   * before that. Rejects with an AppError: `overloaded` (with retryAfterMs), `model_loading`,
   * `unavailable`, `deadline_exceeded`, `cancelled`, or what the engine refused with.
   */
  start(call: InferenceCall, signal: AbortSignal): Promise<InferenceAnswer>;
}
