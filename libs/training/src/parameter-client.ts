/** A model's tensors by name, each flat. */
export type Parameters = Readonly<Record<string, Float32Array>>;

/**
 * A training worker's way to the parameter servers. Both calls reject with an AppError
 * `precondition_failed` when a later attempt has taken the job over, and with `invalid_value` for a
 * tensor of another length or one that holds NaN.
 */
export interface ParameterClient {
  /**
   * Copies the newest parameters that the consistency model lets this worker see into `into`, and
   * waits until it may. Gives their version: how many updates they contain.
   */
  pull(into: Parameters): Promise<number>;
  /**
   * Gives this worker's part of the next update: gradients, or how far its parameters have moved
   * (before less after). The tensors must stay as they are until the next pull has returned: they
   * may be sent, and sent again, until then.
   */
  push(part: Parameters, terms: PushTerms): Promise<void>;
}

export interface PushTerms {
  /** Parts are averaged by their weights, as by numbers of samples. */
  readonly weight: number;
  /**
   * Of this update; all workers send the same. The servers take it times their own
   * (`servers.learningRate` of the plan): one of the two is 1 where the other is the rate that is meant.
   */
  readonly learningRate: number;
}
