import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import { commandFlags } from "./command-flags.ts";
import { newSecrets, SECRET_NAMES } from "./new-secrets.ts";

/** Writes a new cluster's secrets as files, readable by this user alone; files that exist stay. */
export async function createFiles(args: readonly string[], log: Log): Promise<void> {
  const { directory } = commandFlags(args, ["directory"]);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const present = readdirSync(directory);
  const missing = SECRET_NAMES.filter((name) => !present.includes(name));
  if (missing.length === 0)
    return log.info({ directory }, "the secrets exist and stay as they are");
  if (missing.length < SECRET_NAMES.length) {
    const message = `${directory} lacks ${missing.join(", ")}. Add them, or empty it for a new cluster.`;
    throw new AppError("conflict", message);
  }
  for (const [name, text] of Object.entries(await newSecrets())) {
    writeFileSync(join(directory, name), text, { mode: 0o600, flag: "wx" });
  }
  log.info({ directory }, "the secrets were made");
}
