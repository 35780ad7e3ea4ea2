import { type Dfa, type GrammarNode, type GrammarProgram, smallest } from "./program.ts";

/** What is left of a text: the rest of one node, and then what follows it. Equal ones are one object. */
export interface GrammarFrame {
  readonly id: number;
  readonly node: number;
  /** The automaton's state for a text; for a sequence or a repetition, the parts that are done. */
  readonly at: number;
  /** Undefined at the end of the text. */
  readonly next: GrammarFrame | undefined;
  readonly depth: number;
}

/** The state of a text in a grammar. Equal states are one object while they are kept. */
export class MatchState {
  readonly frames: readonly GrammarFrame[];
  /** Whether the text may end here. */
  readonly isComplete: boolean;
  /** By byte; null for a byte that does not fit. */
  next: (MatchState | null | undefined)[] | undefined;
  /** A bit for each token that fits, where it was asked for. */
  mask: Uint32Array | undefined;

  constructor(frames: readonly GrammarFrame[], isComplete: boolean) {
    this.frames = frames;
    this.isComplete = isComplete;
  }
}

/** The fewest bytes to the end of texts of one grammar. */
export class ShortestEnd {
  readonly #program: GrammarProgram;
  /** The fewest bytes of the whole texts of each node. */
  readonly #ofNodes: readonly number[];
  /** From each state. */
  readonly #ofDfas = new Map<Dfa, readonly number[]>();
  readonly #ofFrames = new WeakMap<GrammarFrame, number>();

  constructor(program: GrammarProgram) {
    this.#program = program;
    this.#ofNodes = smallest(program.nodes.length, (id, known) => this.#rest(id, 0, known));
  }

  /** From a state of a text on. */
  after({ frames, isComplete }: MatchState): number {
    return isComplete ? 0 : Math.min(...frames.map((frame) => this.#ofFrame(frame)));
  }

  #ofFrame(frame: GrammarFrame): number {
    const known = this.#ofFrames.get(frame);
    if (known !== undefined) return known;
    const behind = frame.next === undefined ? 0 : this.#ofFrame(frame.next);
    const bytes = behind + this.#rest(frame.node, frame.at, this.#ofNodes);
    this.#ofFrames.set(frame, bytes);
    return bytes;
  }

  /** The rest of one node from `at` on; see GrammarFrame. */
  #rest(id: number, at: number, ofNodes: readonly number[]): number {
    const node = this.#program.nodes[id] as GrammarNode;
    const of = (part: number) => ofNodes[part] as number;
    switch (node.kind) {
      case "text":
        return this.#ofDfa(node.dfa)[at] as number;
      case "sequence":
        return node.parts.slice(at).reduce((sum, part) => sum + of(part), 0);
      case "choice":
        return Math.min(...node.options.map(of));
      case "repeat":
        return at < node.min ? (node.min - at) * of(node.part) : 0;
      default:
        node satisfies never;
        throw new TypeError("a node has no known kind");
    }
  }

  #ofDfa(dfa: Dfa): readonly number[] {
    let distances = this.#ofDfas.get(dfa);
    if (distances === undefined) {
      distances = smallest(dfa.accepts.length, (state, known) => distanceOf(dfa, state, known));
      this.#ofDfas.set(dfa, distances);
    }
    return distances;
  }
}

function distanceOf(dfa: Dfa, state: number, known: readonly number[]): number {
  if (dfa.accepts[state]) return 0;
  let least = Number.POSITIVE_INFINITY;
  const end = dfa.starts[state + 1] as number;
  for (let edge = dfa.starts[state] as number; edge < end; edge++) {
    least = Math.min(least, 1 + (known[dfa.targets[edge] as number] as number));
  }
  return least;
}

/** The innermost part of the text that all the states are in; undefined where that is the whole text. */
export function commonPart(states: readonly MatchState[]): GrammarFrame | undefined {
  const ways = (states.at(-1)?.frames ?? []).map(({ next }) => {
    let part = next;
    while (part && !states.every((state) => isWithin(state, part as GrammarFrame)))
      part = part.next;
    return part;
  });
  return ways.reduce((a, b) => (heightOf(b) > heightOf(a) ? b : a), undefined);
}

/** Whether what repeats itself between the states are elements of an array, not parts of one. */
export function areElements(program: GrammarProgram, states: readonly MatchState[]): boolean {
  const part = commonPart(states);
  // Before its comma an element may be in the part of the one after it.
  const around = [part, part?.next];
  // Where the elements are counted, each has a frame of its own within the common part.
  const within = (states.at(-1)?.frames ?? []).map((frame) => {
    let outer = frame;
    while (outer.next && outer.next !== part) outer = outer.next;
    return outer;
  });
  return [...around, ...within].some((frame) => {
    const node = frame && program.nodes[frame.node];
    return node?.kind === "repeat" && node.ofElements;
  });
}

/** Whether a text in the state may still be in the part. */
export function isWithin({ frames }: MatchState, part: GrammarFrame): boolean {
  return frames.some(({ next }) => {
    let frame = next;
    while (frame && frame !== part) frame = frame.next;
    return frame !== undefined;
  });
}

/** The objects and arrays within one another that the text is in. */
export function depthOf({ frames }: MatchState): number {
  return Math.max(0, ...frames.map(({ depth }) => depth));
}

function heightOf(frame: GrammarFrame | undefined): number {
  let height = 0;
  for (let below = frame; below; below = below.next) height++;
  return height;
}
