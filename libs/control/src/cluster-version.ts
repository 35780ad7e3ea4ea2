import { ACCEPTED, type ControlReply, refuse } from "./command.ts";
import type { ControlState } from "./state.ts";

/**
 * The version of the rules of apply. It stands in the replicated state, and a log entry raises it once
 * every master supports the next one. A rule that a later version changed keeps its old form for the
 * logs of the version before, so that these give the same state when they are replayed.
 */

/** The version of a state that was never raised. */
const FIRST_VERSION = 1;
/** Bounds on the state in bytes, and the other rules that apply got together with them. */
export const HARDENED = 2;
/** The masters agree on a key with which they encrypt their log and snapshots. */
export const SEALED = 3;
/** The highest version that this build supports. */
export const NEWEST_VERSION = SEALED;

type Versioned = Pick<ControlState, "cluster">;

/** The cluster version of a state. */
export function versionOf({ cluster }: Versioned): number {
  return (cluster.get("version") as number | undefined) ?? FIRST_VERSION;
}

/** The id of the key that encrypts the log and the snapshots from now on. */
export function secretsKeyOf({ cluster }: Versioned): string | undefined {
  return cluster.get("secretsKey") as string | undefined;
}

/** Has the log and the snapshots encrypted with the key of that id from the next entry on. */
export function useSecretsKey(state: Versioned, id: string): ControlReply {
  if (!/^[0-9a-f]{16}$/.test(id)) {
    return refuse("invalid_value", `a secrets key has an id of 16 hexadecimal digits, got ${id}`);
  }
  state.cluster.set("secretsKey", id);
  return ACCEPTED;
}

/** Raises the version of the state; one that it has already succeeds and changes nothing. */
export function raiseVersion(state: Versioned, version: number): ControlReply {
  if (!(Number.isSafeInteger(version) && version >= FIRST_VERSION)) {
    return refuse("invalid_value", `a cluster version is a whole number from 1 on, got ${version}`);
  }
  if (version > versionOf(state)) state.cluster.set("version", version);
  return ACCEPTED;
}
