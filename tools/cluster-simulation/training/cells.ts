/** Elements of a tensor: one for each node of a job, then one for each attempt. */
export const CELLS = 256;
export const NODE_CELLS = 4;

export function attemptCell(attempt: number): number {
  return NODE_CELLS + (attempt % (CELLS - NODE_CELLS));
}

/** Parts under bsp are weighted in 32 bits. */
const TOLERANCE = 1e-3;

export function isNear(left: number, right: number): boolean {
  return Math.abs(left - right) < TOLERANCE;
}

export function sumOf(cells: Float32Array): number {
  return cells.reduce((sum, each) => sum + each, 0);
}

export function areEqual(left: Float32Array, right: Float32Array): boolean {
  return left.every((each, at) => each === right[at]);
}

/** The cells that are not zero. */
export function describeCells(cells: Float32Array): string {
  const shown = [...cells.entries()].flatMap(([at, value]) => {
    const name = at < NODE_CELLS ? `node ${at}` : `attempt ${at - NODE_CELLS}`;
    return value === 0 ? [] : [`${name}: ${value}`];
  });
  return `{${shown.join(", ")}}`;
}
