import type { ApiKeyRecord, ControlState } from "./state.ts";

/** Ended keys that give way to one new key. */
const MAX_FORGOTTEN = 256;

/**
 * While there is no room for a new key, keys that have ended are forgotten, the oldest first. Those that
 * another key has replaced stay: by them their successors own what the first has made.
 */
export function makeRoomForKey(
  { keys }: Pick<ControlState, "keys">,
  atMs: number,
  isFull: () => boolean,
): void {
  if (!isFull()) return;
  const replaced = new Set([...keys.values()].map(({ rotatedFrom }) => rotatedFrom));
  const ended = [...keys.values()].filter((key) => !isInUse(key, atMs) && !replaced.has(key.id));
  for (const { id } of ended.slice(0, MAX_FORGOTTEN)) {
    keys.delete(id);
    if (!isFull()) return;
  }
}

export function isInUse({ revokedAtMs, expiresAtMs }: ApiKeyRecord, atMs: number): boolean {
  return revokedAtMs === undefined && (expiresAtMs === undefined || expiresAtMs > atMs);
}
