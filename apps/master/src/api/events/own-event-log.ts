import { AppError } from "@heddle/base/errors";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import type { EventLogWriter } from "../../control-plane/event-log/event-log-writer.ts";

/** This master's event log. Throws `not_found` where it keeps none. */
export function ownEventLog({ events }: Pick<ControlPlane, "events">): EventLogWriter {
  if (events) return events;
  throw new AppError("not_found", "This master keeps no event log.");
}
