import { HeddleError, NotFoundError } from "@heddle/client/errors";

/** Statuses that are not about the request itself: the operator's key, time and limits. */
const NOT_ITS_OWN: ReadonlySet<number> = new Set([401, 403, 408, 429]);

/** Whether the cluster has refused what the object asks for; anything else may pass by itself. */
export function isRefusedRequest(error: unknown): error is HeddleError {
  if (!(error instanceof HeddleError)) return false;
  const { status = 500 } = error;
  return status >= 400 && status < 500 && !NOT_ITS_OWN.has(status);
}

/** Whether no master has answered, or none that could: it may pass by itself. */
export function isUnanswered(error: unknown): error is HeddleError {
  return error instanceof HeddleError && (error.status ?? 500) >= 500;
}

/** Whether the caller may not do what it asks for. */
export function isDenied(error: unknown): error is HeddleError {
  return error instanceof HeddleError && error.status === 403;
}

/** What is wrong, with the fields where the cluster names them. */
export function refusalText({ message, errors }: HeddleError): string {
  const faults = errors.map(({ pointer, detail }) => `${pointer}: ${detail}`);
  return faults.length > 0 ? faults.join("; ") : message;
}

/** Undefined where the cluster has no such thing. */
export async function orNotFound<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof NotFoundError) return undefined;
    throw error;
  }
}
