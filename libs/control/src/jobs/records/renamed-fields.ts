import { STANDARD_TERMS } from "../../cluster-version.ts";
import type { DeviceReading, JobRecord, NodeRecord } from "./records.ts";

/** Fields of records whose names changed at STANDARD_TERMS. A record has the names of its last write. */

/** What a plan has reserved for a waiting job. */
interface RenamedReservation {
  readonly startMs?: number | undefined;
  /** The lower, the sooner; within the priority level. */
  readonly rank?: number | undefined;
}

type ReservationFields = Pick<
  JobRecord,
  "reservedStartMs" | "reservationRank" | "promisedStartMs" | "placeInLine"
>;

/** Only a waiting job has a reservation. */
export const NO_RESERVATION = {
  reservedStartMs: undefined,
  reservationRank: undefined,
  promisedStartMs: undefined,
  placeInLine: undefined,
} as const satisfies ReservationFields;

export function reservationOf(job: ReservationFields): RenamedReservation {
  const { promisedStartMs, placeInLine } = job;
  const { reservedStartMs: startMs = promisedStartMs, reservationRank: rank = placeInLine } = job;
  return { startMs, rank };
}

export function reservationFields(
  { startMs, rank }: RenamedReservation,
  version: number,
): ReservationFields {
  return version >= STANDARD_TERMS
    ? { ...NO_RESERVATION, reservedStartMs: startMs, reservationRank: rank }
    : { ...NO_RESERVATION, promisedStartMs: startMs, placeInLine: rank };
}

/** The reading by which devices of the node returned to service. */
export function healthyReading(
  node: Pick<NodeRecord, "healthyAsOf" | "wellAsOf">,
): DeviceReading | undefined {
  return node.healthyAsOf ?? node.wellAsOf;
}

export function healthyReadingFields(
  reading: DeviceReading | undefined,
  version: number,
): Pick<NodeRecord, "healthyAsOf" | "wellAsOf"> {
  return version >= STANDARD_TERMS
    ? { healthyAsOf: reading, wellAsOf: undefined }
    : { wellAsOf: reading };
}
