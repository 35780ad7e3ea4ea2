import type { Ledger } from "../cluster/ledger.ts";
import type { RequestShape } from "../cluster/shape.ts";
import { compareAlike } from "../placement/node-preference.ts";
import type { Scorer } from "../placement/scorer.ts";

/**
 * The best of the candidate nodes for one task, or -1, by a full scan: the definition that the
 * placement index must match.
 */
export function bestByScan(
  ledger: Ledger,
  scorer: Scorer,
  shape: RequestShape,
  candidates: Iterable<number>,
): number {
  let best = -1;
  let bestScore = Number.NEGATIVE_INFINITY;
  for (const node of candidates) {
    if (shape.eligible[node] === 0 || !ledger.fits(node, shape)) continue;
    const { score } = scorer.choose(node, shape);
    const first = best === -1 || score > bestScore;
    if (first || (score === bestScore && compareAlike(ledger, node, best) < 0)) {
      best = node;
      bestScore = score;
    }
  }
  return best;
}
