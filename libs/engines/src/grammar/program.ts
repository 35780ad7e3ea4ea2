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
  | { readonly kind: "text"; readonly dfa: Dfa }
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
    const id = this.#add({ kind: "text", dfa });
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
    const heights = heightsOf(nodes);
    const bytes = nodes.reduce((sum, node) => sum + bytesOf(node), 0);
    return { root, nodes, heights, bytes };
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

function heightsOf(nodes: readonly GrammarNode[]): number[] {
  return smallest(nodes.length, (id, heights) => heightOf(nodes[id] as GrammarNode, heights));
}

/** The smallest values of which each is what `leastOf` gives, found by repeating until nothing changes. */
export function smallest(
  count: number,
  leastOf: (id: number, values: readonly number[]) => number,
): number[] {
  const values = new Array<number>(count).fill(Number.POSITIVE_INFINITY);
  for (let changed = true; changed; ) {
    changed = false;
    // Parts are mostly made before what they are part of, so few rounds are needed.
    for (let id = 0; id < count; id++) {
      const value = leastOf(id, values);
      if (value >= (values[id] as number)) continue;
      values[id] = value;
      changed = true;
    }
  }
  return values;
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
      return 64 + node.dfa.targets.length * 6 + node.dfa.starts.length * 5;
    case "sequence":
      return 64 + node.parts.length * 8;
    case "choice":
      return 64 + node.options.length * 8;
    default:
      return 64;
  }
}
