import { eventually } from "./eventually.ts";

/** `eventually` with the description first. */
export function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
  timeoutMs?: number,
): Promise<void> {
  return eventually(condition, what, timeoutMs);
}
