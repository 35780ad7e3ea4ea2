/**
 * A deterministic automaton over bytes. State s has the edges starts[s] to starts[s + 1]: from byte
 * lows[i] to highs[i] it goes to targets[i]. State 0 is the first.
 */
export interface Dfa {
  readonly starts: Int32Array;
  readonly lows: Uint8Array;
  readonly highs: Uint8Array;
  readonly targets: Int32Array;
  readonly accepts: Uint8Array;
}

/** One node of a grammar; nodes name each other by their index, so they may be recursive. */
export type GrammarNode =
  | {
      readonly kind: "text";
      readonly dfa: Dfa;
      /** From each state of the automaton the fewest bytes to its end. */
      readonly rests: Float64Array;
    }
  | {
      readonly kind: "sequence";
      readonly parts: readonly number[];
      /** Whether it is one level of nesting: an object or an array. */
      readonly nests: boolean;
    }
  | { readonly kind: "choice"; readonly options: readonly number[] }
  | {
      readonly kind: "repeat";
      readonly part: number;
      readonly min: number;
      /** Infinity for no limit. */
      readonly max: number;
      /** Whether each is an element of an array. */
      readonly ofElements: boolean;
    };

/** A compiled grammar; it can be sent to another thread. */
export interface GrammarProgram {
  readonly root: number;
  readonly nodes: readonly GrammarNode[];
  /** The least levels of nesting of each node's texts; Infinity for a node without any text. */
  readonly heights: readonly number[];
  /** The fewest bytes of each node's texts; Infinity for a node without any text. */
  readonly lengths: readonly number[];
  /** Roughly its memory. */
  readonly bytes: number;
}

/** The largest number of nodes of a grammar. */
const MAX_NODES = 100_000;

/** Thrown where a grammar is larger than the limits allow. */
export class GrammarTooLarge extends Error {}

/** Collects the nodes of a grammar. */
export class GrammarBuilder {
  readonly #nodes: (GrammarNode | undefined)[] = [];
  readonly #texts = new Map<Dfa, number>();

  /** A node that is defined later, by `define`. */
  reserve(): number {
    if (this.#nodes.length >= MAX_NODES) {
      throw new GrammarTooLarge(`its grammar has more than ${MAX_NODES} nodes`);
    }
    return this.#nodes.push(undefined) - 1;
  }

  define(id: number, node: GrammarNode): void {
    this.#nodes[id] = node;
  }

  text(dfa: Dfa): number {
    const known = this.#texts.get(dfa);
    if (known !== undefined) return known;
    const id = this.#add({ kind: "text", dfa, rests: restsOf(dfa) });
    this.#texts.set(dfa, id);
    return id;
  }

  sequence(parts: readonly number[], nests = false): number {
    return this.#add({ kind: "sequence", parts, nests });
  }

  choice(options: readonly number[]): number {
    return options.length === 1
      ? (options[0] as number)
      : this.#add({ kind: "choice", options: [...new Set(options)] });
  }

  repeat(part: number, min: number, max: number, ofElements = false): number {
    return this.#add({ kind: "repeat", part, min, max, ofElements });
  }

  /** The empty text. */
  empty(): number {
    return this.sequence([]);
  }

  /** No text at all. */
  never(): number {
    return this.#add({ kind: "choice", options: [] });
  }

  optional(part: number): number {
    return this.choice([part, this.empty()]);
  }

  build(root: number): GrammarProgram {
    const nodes = this.#nodes.map((node) => node ?? { kind: "choice" as const, options: [] });
    const heights = smallest(nodes, heightOf);
    const lengths = smallest(nodes, (node, known) => restOf(node, 0, known));
    const bytes = nodes.reduce((sum, node) => sum + bytesOf(node), 0);
    return { root, nodes, heights, lengths, bytes };
  }

  #add(node: GrammarNode): number {
    const id = this.reserve();
    this.define(id, node);
    return id;
  }
}

/** From the root the nodes because of which it has no text, one in the other; none where it has one. */
export function barrenPath({ root, nodes, heights }: GrammarProgram): number[] {
  const path: number[] = [];
  const isBarren = (id: number) => heights[id] === Number.POSITIVE_INFINITY;
  let next: number | undefined = root;
  while (next !== undefined && isBarren(next) && !path.includes(next)) {
    path.push(next);
    next = childrenOf(nodes[next] as GrammarNode).find(isBarren);
  }
  return path;
}

function childrenOf(node: GrammarNode): readonly number[] {
  switch (node.kind) {
    case "text":
      return [];
    case "sequence":
      return node.parts;
    case "choice":
      return node.options;
    case "repeat":
      return [node.part];
    default:
      node satisfies never;
      throw new TypeError("a node has no known kind");
  }
}

/** The smallest value of each node that `leastOf` gives, found by repeating until nothing changes. */
function smallest(
  nodes: readonly GrammarNode[],
  leastOf: (node: GrammarNode, values: readonly number[]) => number,
): number[] {
  const values = new Array<number>(nodes.length).fill(Number.POSITIVE_INFINITY);
  for (let changed = true; changed; ) {
    changed = false;
    // Parts are mostly made before what they are part of, so few rounds are needed.
    nodes.forEach((node, id) => {
      const value = leastOf(node, values);
      if (value >= (values[id] as number)) return;
      values[id] = value;
      changed = true;
    });
  }
  return values;
}

/** The fewest bytes of the rest of a node from `at` on (see GrammarFrame), with those of each node. */
export function restOf(node: GrammarNode, at: number, lengths: readonly number[]): number {
  const of = (id: number) => lengths[id] as number;
  switch (node.kind) {
    case "text":
      return node.rests[at] as number;
    case "sequence":
      return node.parts.slice(at).reduce((sum, part) => sum + of(part), 0);
    case "choice":
      return node.options.reduce((least, id) => Math.min(least, of(id)), Number.POSITIVE_INFINITY);
    case "repeat":
      return at < node.min ? (node.min - at) * of(node.part) : 0;
    default:
      node satisfies never;
      throw new TypeError("a node has no known kind");
  }
}

/** From each state the fewest bytes to one that accepts, found from those backwards. */
function restsOf({ starts, targets, accepts }: Dfa): Float64Array {
  const sources = new Map<number, number[]>();
  const rests = new Float64Array(accepts.length).fill(Number.POSITIVE_INFINITY);
  const found: number[] = [];
  for (let state = 0; state < accepts.length; state++) {
    if (accepts[state]) {
      rests[state] = 0;
      found.push(state);
    }
    for (const target of targets.subarray(starts[state], starts[state + 1])) {
      const known = sources.get(target);
      if (known === undefined) sources.set(target, [state]);
      else if (known.at(-1) !== state) known.push(state);
    }
  }
  // States are found in the order of their rests.
  for (const state of found) {
    for (const source of sources.get(state) ?? []) {
      if (rests[source] !== Number.POSITIVE_INFINITY) continue;
      rests[source] = (rests[state] as number) + 1;
      found.push(source);
    }
  }
  return rests;
}

function heightOf(node: GrammarNode, heights: readonly number[]): number {
  const of = (id: number): number => heights[id] as number;
  switch (node.kind) {
    case "text":
      return 0;
    case "sequence":
      return node.parts.reduce((most, id) => Math.max(most, of(id)), 0) + (node.nests ? 1 : 0);
    case "choice":
      return node.options.reduce((least, id) => Math.min(least, of(id)), Number.POSITIVE_INFINITY);
    case "repeat":
      return node.min > 0 ? of(node.part) : 0;
    default:
      node satisfies never;
      throw new TypeError("a node has no known kind");
  }
}

function bytesOf(node: GrammarNode): number {
  switch (node.kind) {
    case "text":
      return 64 + node.dfa.targets.length * 6 + node.dfa.starts.length * 13;
    case "sequence":
      return 64 + node.parts.length * 8;
    case "choice":
      return 64 + node.options.length * 8;
    default:
      return 64;
  }
}
