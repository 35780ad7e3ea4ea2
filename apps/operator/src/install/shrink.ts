import { lookup } from "node:dns/promises";
import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";
import { Heddle } from "@heddle/client/heddle";
import { GROUP_SIZES } from "@heddle/contracts/kubernetes/settings-resources";
import type { Log } from "@heddle/observability/logger";
import { isUnanswered } from "../kubernetes/refusal.ts";
import { removeSurplusMasters } from "../settings/masters-set.ts";
import { commandFlags } from "./command-flags.ts";

const FLAGS = ["prefix", "masters", "pod-domain", "endpoints", "key-file"] as const;
const MAX_MASTERS = Math.max(...GROUP_SIZES);
/** How long masters may not answer where none of those that leave has a pod. */
const IDLE_DEADLINE_MS = 15_000;

/** Takes the masters PREFIX-N with N from the wanted number on out of the group. */
export async function shrink(args: readonly string[], log: Log): Promise<void> {
  const { prefix, masters, ...flags } = commandFlags(args, FLAGS);
  if (!/^[135]$/.test(masters)) {
    throw new AppError("invalid_value", `--masters takes 1, 3 or 5, not ${masters}.`);
  }
  const wanted = "the file with an administrator's API key";
  const auth_token = readFlagFile("--key-file", flags["key-file"], wanted).trim();
  const heddle = new Heddle({ endpoint: flags.endpoints.split(","), auth_token });
  const surplus = { prefix, masters: Number(masters) };
  const canHarm = await hasPods(surplus, flags["pod-domain"]);
  const deadline = canHarm ? {} : { deadlineMs: IDLE_DEADLINE_MS };
  try {
    await removeSurplusMasters(heddle, { ...surplus, ...deadline }, log);
  } catch (error) {
    // An upgrade that mends masters which never started must not wait for them.
    if (canHarm || !isUnanswered(error)) throw error;
    log.warn({ why: error.message }, "no master answers, and none of those that leave has a pod");
  }
}

/** Whether any of the masters that leave has a pod, by the name that it has even before it is ready. */
async function hasPods(
  { prefix, masters }: { readonly prefix: string; readonly masters: number },
  domain: string,
): Promise<boolean> {
  const numbers = Array.from({ length: MAX_MASTERS - masters }, (_, at) => masters + at);
  const found = await Promise.all(
    numbers.map((number) =>
      lookup(`${prefix}-${number}.${domain}`).then(
        () => true,
        (error: NodeJS.ErrnoException) => error.code !== "ENOTFOUND",
      ),
    ),
  );
  return found.includes(true);
}
