import { retry } from "@heddle/base/async/retry";
import { HeddleError } from "@heddle/client/errors";
import type { Heddle } from "@heddle/client/heddle";
import type { Log } from "@heddle/observability/logger";
import { isUnanswered } from "../kubernetes/refusal.ts";

const BACKOFF = { baseMs: 500, maxMs: 3_000 };
const DEADLINE_MS = 120_000;

interface SurplusMasters {
  readonly prefix: string;
  /** How many stay. */
  readonly masters: number;
  /** How long masters may not answer. */
  readonly deadlineMs?: number;
}

/**
 * Takes the masters PREFIX-N with N from the wanted number on out of the group, the highest first. It
 * is done before their pods go: a group of three that lost two pods at once would have no majority.
 */
export async function removeSurplusMasters(
  heddle: Heddle,
  { prefix, masters, deadlineMs = DEADLINE_MS }: SurplusMasters,
  log: Log,
): Promise<void> {
  const again = <T>(work: () => Promise<T>) =>
    retry(work, {
      backoff: BACKOFF,
      deadlineMs,
      isPassing: isUnanswered,
      onRetry: (error) => log.info({ why: (error as Error).message }, "waiting for the masters"),
    });
  for (;;) {
    const { leader, masters: members } = await again(() => heddle.cluster.status());
    const [name] = surplusOf(members, prefix, masters);
    if (name === undefined) return;
    if (leader === name) await again(() => heddle.cluster.transfer(`${prefix}-0`));
    // A repeated removal finds no such master: the next poll sees that.
    await again(() => heddle.cluster.removeMaster(name)).catch((error: unknown) => {
      if (!(error instanceof HeddleError && error.status === 404)) throw error;
    });
    log.info({ name }, "the master is no member any more");
  }
}

function surplusOf(
  members: readonly { readonly id: string }[],
  prefix: string,
  masters: number,
): string[] {
  return members
    .flatMap(({ id }) => {
      const number = id.startsWith(`${prefix}-`) ? id.slice(prefix.length + 1) : "";
      return /^\d+$/.test(number) && Number(number) >= masters ? [Number(number)] : [];
    })
    .sort((left, right) => right - left)
    .map((number) => `${prefix}-${number}`);
}
