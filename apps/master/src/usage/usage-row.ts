/**
 * The usage of one call, written once when it ends, for any reason. It holds no text of the call.
 */
export interface UsageRow {
  readonly atMs: number;
  readonly requestId: string;
  readonly key: string;
  /** The first of the keys that this one replaced; absent if it replaced none. */
  readonly owner?: string | undefined;
  readonly project: string;
  readonly model: string;
  /** Whether the model is the project's own, not one of the whole cluster. */
  readonly isOwnModel?: boolean | undefined;
  /** The worker that answered; absent if none was reached. */
  readonly node: string | undefined;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** In nano-units, by the model's prices when the call was admitted. */
  readonly cost: number;
  /** Absent for a successful call. */
  readonly errorCode: string | undefined;
  /** The caller's own user, as in its request. */
  readonly endUser: string | undefined;
  /** The caller's own labels of the call. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  readonly durationMs: number;
}

const DAY_MS = 86_400_000;

/** Days since the epoch, in UTC. */
export function dayOf({ atMs }: Pick<UsageRow, "atMs">): number {
  return Math.floor(atMs / DAY_MS);
}

export function dayText(day: number): string {
  return new Date(day * DAY_MS).toISOString().slice(0, 10);
}

/** The day of a text such as `2026-11-23`; undefined for another text. */
export function dayOfText(text: string): number | undefined {
  const atMs = /^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(`${text}T00:00:00Z`) : Number.NaN;
  return Number.isNaN(atMs) ? undefined : atMs / DAY_MS;
}
