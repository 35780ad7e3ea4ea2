/** Which elements show which rows. */
export interface ElementKeys {
  /** React's keys of the elements, by the rows' own. */
  readonly keys: ReadonlyMap<string, number>;
  /** How often all elements went to other rows. */
  readonly jumps: number;
}

export const NO_ELEMENTS: ElementKeys = { keys: new Map(), jumps: 0 };

/**
 * Gives elements to the rows in view. A row that stays in view keeps its own. After a jump, where
 * most rows are new, all take those of the rows before: to fill them again costs less than to make
 * others.
 */
export function elementKeys(rows: readonly string[], before: ElementKeys): ElementKeys {
  const free = [...before.keys.values()];
  const staying = rows.filter((row) => before.keys.has(row)).length;
  const isJump = free.length > 0 && staying < rows.length / 2;
  let next = Math.max(-1, ...free) + 1;
  const keyOf = (row: string, at: number) => (isJump ? free[at] : before.keys.get(row)) ?? next++;
  const keys = new Map(rows.map((row, at) => [row, keyOf(row, at)]));
  return { keys, jumps: before.jumps + (isJump ? 1 : 0) };
}
