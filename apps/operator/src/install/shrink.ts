import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";
import { Heddle } from "@heddle/client/heddle";
import type { Log } from "@heddle/observability/logger";
import { removeSurplusMasters } from "../settings/masters-set.ts";
import { commandFlags } from "./command-flags.ts";

const FLAGS = ["prefix", "masters", "endpoints", "key-file"] as const;

/** Takes the masters PREFIX-N with N from the wanted number on out of the group. */
export async function shrink(args: readonly string[], log: Log): Promise<void> {
  const { prefix, masters, ...flags } = commandFlags(args, FLAGS);
  if (!/^[135]$/.test(masters)) {
    throw new AppError("invalid_value", `--masters takes 1, 3 or 5, not ${masters}.`);
  }
  const wanted = "the file with an administrator's API key";
  const auth_token = readFlagFile("--key-file", flags["key-file"], wanted).trim();
  const heddle = new Heddle({ endpoint: flags.endpoints.split(","), auth_token });
  await removeSurplusMasters(heddle, prefix, Number(masters), log);
}
