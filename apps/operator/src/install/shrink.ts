import { retry } from "@heddle/base/async/retry";
import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";
import { HeddleError } from "@heddle/client/errors";
import { Heddle } from "@heddle/client/heddle";
import type { Log } from "@heddle/observability/logger";
import { commandFlags } from "./command-flags.ts";

const BACKOFF = { baseMs: 500, maxMs: 3_000 };
const DEADLINE_MS = 120_000;
const FLAGS = ["prefix", "masters", "endpoints", "key-file"] as const;

/**
 * Takes the masters PREFIX-N with N from the wanted number on out of the group, the highest first. It
 * runs before their pods go: a group of three that lost two pods at once would have no majority.
 */
export async function shrink(args: readonly string[], log: Log): Promise<void> {
  const { prefix, masters, ...flags } = commandFlags(args, FLAGS);
  if (!/^[135]$/.test(masters)) {
    throw new AppError("invalid_value", `--masters takes 1, 3 or 5, not ${masters}.`);
  }
  const wanted = "the file with an administrator's API key";
  const auth_token = readFlagFile("--key-file", flags["key-file"], wanted).trim();
  const heddle = new Heddle({ endpoint: flags.endpoints.split(","), auth_token });
  const again = <T>(work: () => Promise<T>) =>
    retry(work, {
      backoff: BACKOFF,
      deadlineMs: DEADLINE_MS,
      isPassing: (error) => error instanceof HeddleError && (error.status ?? 500) >= 500,
      onRetry: (error) => log.info({ why: (error as Error).message }, "waiting for the masters"),
    });
  const surplus = async () =>
    surplusOf(await again(() => heddle.cluster.status()), prefix, masters);
  for (let names = await surplus(); names[0] !== undefined; names = await surplus()) {
    const [name] = names;
    const { leader } = await again(() => heddle.cluster.status());
    if (leader === name) await again(() => heddle.cluster.transfer(`${prefix}-0`));
    // A repeated removal finds no such master: the next look sees that.
    await again(() => heddle.cluster.removeMaster(name)).catch((error: unknown) => {
      if (!(error instanceof HeddleError && error.status === 404)) throw error;
    });
    log.info({ name }, "the master is no member any more");
  }
}

function surplusOf(
  { masters: members }: { readonly masters: readonly { readonly id: string }[] },
  prefix: string,
  masters: string,
): string[] {
  return members
    .flatMap(({ id }) => {
      const number = id.startsWith(`${prefix}-`) ? id.slice(prefix.length + 1) : "";
      return /^\d+$/.test(number) && Number(number) >= Number(masters) ? [Number(number)] : [];
    })
    .sort((left, right) => right - left)
    .map((number) => `${prefix}-${number}`);
}
