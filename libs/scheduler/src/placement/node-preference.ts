import type { Ledger } from "../cluster/ledger.ts";
import { SCALARS } from "../cluster/units.ts";

/**
 * Orders nodes of equal score by their hardware and their free amounts, not by name or position.
 * Nodes that are equal in both compare as 0; negative if `a` is first.
 */
export function compareAlike(ledger: Ledger, a: number, b: number): number {
  return (
    compareText(ledger.nodes[a]!.gpuType, ledger.nodes[b]!.gpuType) ||
    ledger.nodes[a]!.gpuMemoryGb - ledger.nodes[b]!.gpuMemoryGb ||
    ledger.deviceCount[a]! - ledger.deviceCount[b]! ||
    compareScalars(ledger, a, b) ||
    compareDevices(ledger, a, b) ||
    compareText(ledger.nodes[a]!.fabric && "fabric", ledger.nodes[b]!.fabric && "fabric") ||
    a - b
  );
}

function compareText(a: string, b: string): number {
  return a === b ? 0 : a < b ? -1 : 1;
}

function compareScalars(ledger: Ledger, a: number, b: number): number {
  for (let column = 0; column < SCALARS.length; column++) {
    const difference =
      ledger.scalarFree[a * SCALARS.length + column]! -
      ledger.scalarFree[b * SCALARS.length + column]!;
    if (difference !== 0) return difference;
  }
  return 0;
}

/** The order of devices on a node is irrelevant, so the sorted amounts are compared. */
function compareDevices(ledger: Ledger, a: number, b: number): number {
  const { gpuFree, stride } = ledger;
  let same = true;
  for (let d = 0; d < stride && same; d++) {
    same = gpuFree[a * stride + d] === gpuFree[b * stride + d];
  }
  if (same) return 0;
  const left = gpuFree.slice(a * stride, (a + 1) * stride).sort();
  const right = gpuFree.slice(b * stride, (b + 1) * stride).sort();
  for (let d = 0; d < stride; d++) {
    if (left[d] !== right[d]) return left[d]! - right[d]!;
  }
  return 0;
}
