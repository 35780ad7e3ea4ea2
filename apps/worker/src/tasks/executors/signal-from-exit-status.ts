import { constants } from "node:os";

/** The signal that a shell or an engine reports by a status above 128, if any. */
export function signalFromExitStatus(status: number): string | undefined {
  if (status <= 128) return undefined;
  return Object.entries(constants.signals).find(([, number]) => number === status - 128)?.[0];
}
