/** A model's tensors by name, each flat. */
export type Parameters = Readonly<Record<string, Float32Array>>;

/**
 * A training worker's client of the parameter servers. Both calls reject with an AppError:
 * `precondition_failed` when a later attempt has taken the job over, `invalid_value` for a wrong
 * length or NaN.
 */
export interface ParameterClient {
  /**
   * Waits until the consistency model lets this worker read, then copies the newest parameters into
   * `into`. Returns their version: the number of updates that they contain.
   */
  pull(into: Parameters): Promise<number>;
  /**
   * Sends this worker's part of the next update: gradients, or its displacement (before less
   * after). The tensors must not change until the next pull has returned: they may be sent, and
   * sent again, until then.
   */
  push(part: Parameters, terms: PushTerms): Promise<void>;
}

export interface PushTerms {
  /** Parts are averaged by their weights, such as numbers of samples. */
  readonly weight: number;
  /**
   * The rate of this update; all workers send the same. The servers multiply it by their own
   * (`servers.learningRate` of the plan): one of the two is 1.
   */
  readonly learningRate: number;
}
