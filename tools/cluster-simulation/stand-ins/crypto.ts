import crypto from "node:crypto";
import { here } from "../simulated-process.ts";

/** `node:crypto` with random numbers of the simulated process, so that a run repeats. */
export * from "node:crypto";
export default crypto;

export function randomBytes(size: number): Buffer {
  const dice = here()?.dice;
  if (!dice) return crypto.randomBytes(size);
  return Buffer.from(Array.from({ length: size }, () => dice.whole(0, 256)));
}

export function randomUUID(): string {
  const hex = randomBytes(16);
  hex[6] = ((hex[6] ?? 0) & 0x0f) | 0x40;
  hex[8] = ((hex[8] ?? 0) & 0x3f) | 0x80;
  return hex.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

export function randomInt(min: number, max?: number): number {
  const [from, until] = max === undefined ? [0, min] : [min, max];
  return here()?.dice.whole(from, until) ?? crypto.randomInt(from, until);
}
