import { AppError } from "@heddle/base/errors";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import type { RecordedEvents } from "../../control-plane/recorded-events.ts";

/** This master's event log. Throws `not_found` where it keeps none. */
export function ownEventLog({ events }: Pick<ControlPlane, "events">): RecordedEvents {
  if (events) return events;
  throw new AppError("not_found", "This master keeps no event log.");
}
