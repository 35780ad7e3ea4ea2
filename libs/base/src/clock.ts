/** The time source of testable code. */
export interface Clock {
  /** Milliseconds since the Unix epoch; may jump when the machine's clock is set. */
  wallMs(): number;
  /** Milliseconds since an arbitrary origin; never decreases. */
  monotonicMs(): number;
}

export const systemClock: Clock = {
  wallMs: () => Date.now(),
  monotonicMs: () => performance.now(),
};
