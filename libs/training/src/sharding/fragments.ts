import type { TensorSpec } from "../executable.ts";
import { bad } from "../ir/shapes.ts";
import { elementCount } from "../ir/value.ts";

/** A run of one parameter's elements, of the flattened parameter. */
export interface ParameterRange {
  readonly parameter: string;
  readonly begin: number;
  readonly end: number;
}

/**
 * Cuts a model into fragments that are exchanged separately, after Streaming DiLoCo (Douillard et
 * al., 2025). They are runs of the parameters in order, equal to within one element; throws an
 * AppError `invalid_value` for fewer than one.
 */
export function fragmentRanges(
  parameters: readonly TensorSpec[],
  fragments: number,
): ParameterRange[][] {
  if (!(Number.isInteger(fragments) && fragments > 0)) {
    throw bad(`a model has at least one fragment, got ${fragments}`);
  }
  const sizes = parameters.map(({ shape }) => elementCount(shape));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  return Array.from({ length: fragments }, (_, fragment) => {
    const from = Math.floor((fragment * total) / fragments);
    const to = Math.floor(((fragment + 1) * total) / fragments);
    return rangesWithin(parameters, sizes, from, to);
  });
}

/** The ranges between two positions of the concatenated parameters. */
function rangesWithin(
  parameters: readonly TensorSpec[],
  sizes: readonly number[],
  from: number,
  to: number,
): ParameterRange[] {
  const ranges: ParameterRange[] = [];
  let at = 0;
  for (const [i, { name }] of parameters.entries()) {
    const size = sizes[i] ?? 0;
    const [begin, end] = [Math.max(0, from - at), Math.min(size, to - at)];
    if (begin < end) ranges.push({ parameter: name, begin, end });
    at += size;
  }
  return ranges;
}
