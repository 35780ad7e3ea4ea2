import { AppError } from "@heddle/base/errors";
import type { LogEvent } from "@heddle/contracts/api/events/log";
import type { ControlState } from "@heddle/control/state";
import { openedEvent } from "./sealed-members.ts";

/** The event that the log has as these bytes at that place, and its text, with personal data. */
export type OpenEvent = (
  bytes: Uint8Array,
  sequence: number,
) => { readonly event: LogEvent; readonly text: string };

/** Opens stored events by the keys of their subjects that the masters keep. */
export function opener(
  { subjectKeys }: Pick<ControlState, "subjectKeys">,
  { origin }: { readonly origin: string },
): OpenEvent {
  return (bytes, sequence) => {
    const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString();
    const stored = JSON.parse(text) as LogEvent;
    if (stored.sequence !== String(sequence)) {
      const message = `event ${sequence} of the log says that it is ${stored.sequence}`;
      throw new AppError("server_error", message);
    }
    const event = openedEvent(stored, { sequence, origin }, (id) => subjectKeys.get(id));
    return { event, text: event === stored ? text : JSON.stringify(event) };
  };
}
