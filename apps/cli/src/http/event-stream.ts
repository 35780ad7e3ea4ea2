import { AppError, isErrorCode } from "@heddle/base/errors";
import { errorFields } from "./api-client.ts";
import { fieldsOf, type JsonFields } from "./json-fields.ts";
import { readServerSentEvents } from "./server-sent-events.ts";

/** What ends a stream of chat chunks; other streams end with an empty object. */
const DONE = "[DONE]";

/**
 * The JSON events of a streamed answer up to its end mark. Rejects with the error that the cluster
 * sent in an event, `cancelled` where the signal ended it, and `unavailable` where it broke off.
 */
export async function* readEvents(
  response: Response,
  signal: AbortSignal | undefined,
): AsyncGenerator<JsonFields> {
  if (!response.body) throw new AppError("server_error", "The cluster answered without a body.");
  try {
    for await (const data of readServerSentEvents(response.body)) {
      if (data === DONE || data === "{}") return;
      yield parseEvent(data);
    }
  } catch (error) {
    if (signal?.aborted) throw new AppError("cancelled", "Interrupted.");
    if (error instanceof AppError) throw error;
    throw new AppError("unavailable", "The answer broke off.", { cause: error });
  }
  throw new AppError("unavailable", "The answer ended before it was complete.");
}

function parseEvent(data: string): JsonFields {
  const { code, message } = errorFields(data);
  if (message !== undefined) throw new AppError(isErrorCode(code) ? code : "server_error", message);
  return fieldsOf(JSON.parse(data));
}
