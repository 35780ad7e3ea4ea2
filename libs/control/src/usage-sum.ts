/** The calls of one key, project and model on one day. */
export interface UsageSum {
  /** Days since the epoch, in UTC. */
  readonly day: number;
  readonly key: string;
  /** The first of the keys that this one replaced; itself if it replaced none. */
  readonly owner: string;
  readonly project: string;
  readonly model: string;
  /** Whether the model is the project's own, not one of the whole cluster. */
  readonly isOwnModel?: boolean | undefined;
  readonly calls: number;
  readonly failed: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** In nano-units. */
  readonly cost: number;
}

/** A sum as one master has counted it. */
export interface MasterUsage extends UsageSum {
  /** The master's id in the group. */
  readonly master: number;
}
