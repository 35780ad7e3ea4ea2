import { ConnectionError, HeddleError, ServerError, streamedError } from "./errors.ts";
import { readServerSentEvents } from "./server-sent-events.ts";
import { aborted } from "./transport.ts";

/** Ends a stream of chat chunks; others end with an empty object, or with an event of their own. */
const DONE = "[DONE]";

/**
 * The JSON events of a response up to its end mark. Rejects with an error that the cluster sent as
 * an event, with AbortedError after the signal, and with ConnectionError if the response ended
 * early.
 */
export async function* readJsonEvents<T>(
  response: Response,
  silenceMs: number,
  signal: AbortSignal | undefined,
  isLast: (event: T) => boolean = () => false,
): AsyncGenerator<T, void> {
  if (!response.body) {
    throw new ServerError("The cluster answered without a body.", { code: "server_error" });
  }
  try {
    for await (const { data } of readServerSentEvents(response.body, silenceMs)) {
      if (data === "") continue;
      if (data === DONE || data === "{}") return;
      const error = streamedError(data);
      if (error) throw error;
      const event = JSON.parse(data) as T;
      yield event;
      if (isLast(event)) return;
    }
  } catch (cause) {
    if (signal?.aborted) throw aborted();
    if (cause instanceof HeddleError) throw cause;
    throw new ConnectionError("The answer broke off.", { code: "unavailable", cause });
  }
  throw new ConnectionError("The answer ended before it was complete.", { code: "unavailable" });
}
