import { type AppError, ERROR_TABLE, type ErrorCode, toAppError } from "@heddle/base/errors";
import { ApiError } from "./http/api-client.ts";
import { terminal } from "./output/terminal.ts";

/** What the reader can do about an error whose message does not say it already. */
const FIXES: Partial<Readonly<Record<ErrorCode, string>>> = {
  invalid_api_key:
    "Give a key with --api-key or HEDDLE_API_KEY; `heddle up` keeps its own in bootstrap-key and credentials.json of its data directory (~/.heddle, or --data): put a good one there.",
  permission_denied: "Ask an administrator for a key with this permission.",
  model_not_found: "`heddle models list` shows the models that there are.",
  rate_limit_exceeded: "Wait a moment and try again.",
  unavailable: "Is the cluster running there? `heddle up` starts one; --endpoint names another.",
  model_loading: "The model is still loading; `heddle models list -o wide` shows how far it is.",
  overloaded: "Every worker is busy; try again, or start more workers.",
};

/** Prints cause, fix and request id to standard error; returns the exit code of the error. */
export function reportError(thrown: unknown): number {
  const error = toAppError(thrown);
  const { paint, write } = terminal(process.stderr);
  write(`${paint("red", "error")} ${error.message}\n`);
  const fix = fixOf(error);
  if (fix) write(`${paint("dim", "fix")} ${fix}\n`);
  if (error instanceof ApiError && error.requestId) {
    write(`${paint("dim", "request")} ${error.requestId}\n`);
  }
  if (process.env["HEDDLE_DEBUG"]) write(`${error.stack}\n${causeOf(error)}`);
  return ERROR_TABLE[error.code].exit;
}

function causeOf(error: AppError): string {
  return error.cause instanceof Error ? `caused by ${error.cause.stack}\n` : "";
}

function fixOf(error: AppError): string | undefined {
  // An `unavailable` that the cluster itself sent came from a cluster that runs.
  if (error.code === "unavailable" && (error instanceof ApiError || !error.cause)) return undefined;
  return FIXES[error.code];
}
