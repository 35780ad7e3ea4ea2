import {
  type AppError,
  ERROR_TABLE,
  type ErrorCode,
  isErrorCode,
  toAppError,
} from "@heddle/base/errors";
import { HeddleError, type RequestFault } from "@heddle/client/errors";
import { terminal } from "./output/terminal.ts";

/** The remedy for an error whose message does not contain one. */
const FIXES: Partial<Readonly<Record<ErrorCode, string>>> = {
  invalid_api_key:
    "Give a key with --api-key or HEDDLE_API_KEY; `heddle up` stores its own in bootstrap-key and credentials.json of its data directory (~/.heddle, or --data): put a valid one there.",
  permission_denied: "Ask an administrator for a key with this permission.",
  model_not_found: "`heddle models list` lists the models.",
  rate_limit_exceeded: "Wait a moment and try again.",
  unavailable:
    "Check that the cluster is running: `heddle up` starts one, --endpoint selects another.",
  model_loading:
    "`heddle models list -o wide` shows whether the model loads, and what it waits for.",
  overloaded: "Every worker is busy; try again, or start more workers.",
};

/** The remedy for a position of the log, in place of that of its code. */
const POSITION_FIX =
  "Give --at a position that the master has: `heddle cluster status` shows the last one, APPLIED.";

/** Nouns of commands that have a `list` of the valid ids and names. */
const LISTED: ReadonlySet<string> = new Set([
  "batches",
  "files",
  "jobs",
  "keys",
  "limits",
  "pipelines",
  "plugins",
  "projects",
  "roles",
  "secrets",
  "service-accounts",
  "webhooks",
  "workers",
]);

/** A thing that the arguments name, whatever the noun of the command is. */
const UNNAMED = /^No (role|secret|service account|project) has the name /;

/**
 * Prints cause, remedy and request id to standard error; returns the exit code of the error. `noun`
 * is that of the command, such as `jobs`.
 */
export function reportError(thrown: unknown, noun = ""): number {
  const error = thrown instanceof HeddleError ? thrown : toAppError(thrown);
  const code = isErrorCode(error.code) ? error.code : "server_error";
  const { paint, write } = terminal(process.stderr);
  write(`${paint("red", "error")} ${error.message}\n`);
  for (const { pointer, detail } of faultsOf(thrown)) write(`  ${pointer} ${detail}\n`);
  const fix = fixOf(code, error, noun);
  if (fix) write(`${paint("dim", "fix")} ${fix}\n`);
  if (error instanceof HeddleError && error.request_id) {
    write(`${paint("dim", "request")} ${error.request_id}\n`);
  }
  if (process.env["HEDDLE_DEBUG"]) write(`${error.stack}\n${causeOf(error)}`);
  return ERROR_TABLE[code].exit;
}

/** All faults of a refused request, if its message does not contain all of them. */
function faultsOf(thrown: unknown): readonly RequestFault[] {
  return thrown instanceof HeddleError && thrown.errors.length > 1 ? thrown.errors : [];
}

function causeOf(error: Error): string {
  return error.cause instanceof Error ? `caused by ${error.cause.stack}\n` : "";
}

function fixOf(code: ErrorCode, error: AppError | HeddleError, noun: string): string | undefined {
  // A message from elsewhere than the cluster says itself what is missing.
  const isOfCluster = error instanceof HeddleError && error.request_id !== undefined;
  if (isOfCluster && error.errors.some(({ pointer }) => pointer === "#/at")) return POSITION_FIX;
  if (code === "not_found") return isOfCluster ? listFix(missingNoun(error) ?? noun) : undefined;
  // An `unavailable` that the cluster sent means that the cluster runs.
  return code === "unavailable" && !error.cause ? undefined : FIXES[code];
}

function missingNoun({ message }: Error): string | undefined {
  const [, singular] = UNNAMED.exec(message) ?? [];
  return singular && `${singular.replace(" ", "-")}s`;
}

function listFix(noun: string): string | undefined {
  if (noun === "cluster") return "`heddle cluster members` lists the valid ones.";
  return LISTED.has(noun) ? `\`heddle ${noun} list\` lists the valid ones.` : undefined;
}
