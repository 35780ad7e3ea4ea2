/** Where events are sent. The secrets follow from its id, their number and the cluster's pepper. */
export interface WebhookRecord {
  readonly url: string;
  /** Empty for all. */
  readonly types: readonly string[];
  readonly project?: string | undefined;
  /** The number of its present secret, from 1 on. */
  readonly secret: number;
  /** Until then the secret before signs too. */
  readonly overlapUntilMs?: number | undefined;
  readonly createdAtMs: number;
}

/** How far a webhook is. */
export interface WebhookProgress {
  /** Rises with each change. */
  readonly revision: number;
  /** The first event that was not tried yet. */
  readonly next: number;
  readonly waiting: readonly WaitingDelivery[];
  /** Given up; the oldest are forgotten. */
  readonly failed: readonly FailedDelivery[];
}

export interface WaitingDelivery {
  readonly sequence: number;
  /** Attempts so far. */
  readonly attempts: number;
  readonly atMs: number;
}

export interface FailedDelivery {
  readonly sequence: number;
  readonly attempts: number;
  readonly message: string;
}

export type WebhookCommand =
  | {
      readonly type: "webhook.set";
      readonly atMs: number;
      readonly id: string;
      readonly webhook: WebhookRecord;
    }
  | { readonly type: "webhook.remove"; readonly atMs: number; readonly id: string }
  | {
      readonly type: "webhook.progress";
      readonly atMs: number;
      readonly id: string;
      /** Has the revision after the present one; else it is refused. */
      readonly progress: WebhookProgress;
    }
  /** Sends what was given up again. */
  | { readonly type: "webhook.retry"; readonly atMs: number; readonly id: string };
