import type { Dfa } from "./program.ts";

/** The byte before the spelling of a control token; no UTF-8 text has it. */
export const MARK_BYTE = 0xff;

/** How grammars spell a control token. */
export function markedBytes(spelling: Uint8Array): Uint8Array {
  return Uint8Array.of(MARK_BYTE, ...spelling);
}

/** The automaton of exactly these bytes. */
export function exactBytes(bytes: Uint8Array): Dfa {
  const places = Int32Array.from({ length: bytes.length + 2 }, (_, at) =>
    Math.min(at, bytes.length),
  );
  return {
    starts: places,
    lows: Uint8Array.from(bytes),
    highs: Uint8Array.from(bytes),
    targets: Int32Array.from(bytes, (_, at) => at + 1),
    accepts: Uint8Array.from({ length: bytes.length + 1 }, (_, at) => Number(at === bytes.length)),
  };
}
