import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import { commandFlags } from "./command-flags.ts";
import { ENROLL_KEY, newEnrollKey, newSecrets, SECRET_NAMES } from "./new-secrets.ts";

/** Writes a new cluster's secrets as files, readable by this user alone; files that exist stay. */
export async function createFiles(args: readonly string[], log: Log): Promise<void> {
  const { directory } = commandFlags(args, ["directory"]);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const present = readdirSync(directory);
  const missing = SECRET_NAMES.filter((name) => !present.includes(name));
  if (missing.length === 0) {
    if (present.includes(ENROLL_KEY)) log.info({ directory }, "the secrets stay as they are");
    else addEnrollKey(directory, log);
    return;
  }
  if (missing.length < SECRET_NAMES.length) {
    const message = `${directory} lacks ${missing.join(", ")}. Add them, or empty it for a new cluster.`;
    throw new AppError("conflict", message);
  }
  for (const [name, text] of Object.entries(await newSecrets())) {
    writeFileSync(join(directory, name), text, { mode: 0o600, flag: "wx" });
  }
  log.info({ directory }, "the secrets were made");
}

function addEnrollKey(directory: string, log: Log): void {
  const path = join(directory, "ca.pem");
  const text = newEnrollKey(readFileSync(path, "utf8"), path);
  writeFileSync(join(directory, ENROLL_KEY), text, { mode: 0o600, flag: "wx" });
  log.info({ directory }, "the enroll-key was added; the other secrets stay as they are");
}
