import { spawnSync } from "node:child_process";
import { AppError } from "../errors.ts";

/** A key management service may take a while. */
const TIMEOUT_MS = 30_000;
const MAX_OUTPUT_BYTES = 64 * 1024;
const MAX_REASON_CHARS = 300;

/**
 * The key that a program of the operator unwraps: `PROGRAM unwrap` reads the wrapped key as one
 * line, and prints the key in base64. Throws `unavailable` with what the program said.
 */
export function unwrapKey(program: string, wrapped: string): string {
  const { status, error, signal, stdout, stderr } = spawnSync(program, ["unwrap"], {
    input: `${wrapped}\n`,
    encoding: "utf8",
    timeout: TIMEOUT_MS,
    killSignal: "SIGKILL",
    maxBuffer: MAX_OUTPUT_BYTES,
  });
  if (!error && status === 0) return stdout.trim();
  const said = stderr?.trim().slice(0, MAX_REASON_CHARS) ?? "";
  const why = error ? error.message : `it ended with ${signal ?? `exit code ${status}`}`;
  const message = `HEDDLE_SECRETS_KEY_COMMAND: ${program} unwraps no key: ${why}${said && `: ${said}`}. It must read a wrapped key from standard input, and print the key within ${TIMEOUT_MS / 1_000} s.`;
  throw new AppError("unavailable", message, { cause: error });
}
