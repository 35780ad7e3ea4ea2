import type { Graph } from "../ir/graph.ts";
import { elementCount, type Shape, type Value } from "../ir/value.ts";

interface Sized {
  readonly name: string;
  readonly shape: Shape;
}

/** Parameters that an optimizer updates as one tensor; a group of one keeps its shape. */
export interface UpdateGroup<Parameter extends Sized = Sized> {
  /** The parameter's own name, or one that no parameter has. */
  readonly name: string;
  readonly shape: Shape;
  readonly members: readonly Parameter[];
}

/** Below this size an operation costs more to start than to compute. */
const SMALL_ELEMENTS = 16_384;

/**
 * Groups the small parameters into one vector, since an optimizer needs about ten operations for
 * each tensor. Large ones stay alone, since joining them copies them.
 */
export function updateGroups<Parameter extends Sized>(
  parameters: readonly Parameter[],
): UpdateGroup<Parameter>[] {
  const isSmall = ({ shape }: Sized) => elementCount(shape) <= SMALL_ELEMENTS;
  const small = parameters.filter(isSmall);
  const joined = small.length > 1 ? small : [];
  const alone = parameters
    .filter((parameter) => !joined.includes(parameter))
    .map((parameter) => ({ name: parameter.name, shape: parameter.shape, members: [parameter] }));
  if (joined.length === 0) return alone;
  const total = joined.reduce((sum, { shape }) => sum + elementCount(shape), 0);
  return [{ name: "*", shape: [total], members: joined }, ...alone];
}

/** One tensor of the group's shape; values are in the order of its members. */
export function joinGroup(graph: Graph, group: UpdateGroup, values: readonly Value[]): Value {
  const [only] = values;
  if (only && values.length === 1) return only;
  const flat = values.map((value) => graph.reshape(value, [-1]));
  return graph.reshape(graph.concat(flat, 0), group.shape);
}

/** The inverse of `joinGroup`. */
export function splitGroup(graph: Graph, { members }: UpdateGroup, joined: Value): Value[] {
  if (members.length === 1) return [joined];
  let begin = 0;
  return members.map(({ shape }) => {
    const end = begin + elementCount(shape);
    const piece = graph.reshape(graph.slice(joined, 0, begin, end), shape);
    begin = end;
    return piece;
  });
}
