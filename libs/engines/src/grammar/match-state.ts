import { type GrammarNode, type GrammarProgram, restOf } from "./program.ts";

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
  /** Indexed by byte; null for a byte that does not fit. */
  next: (MatchState | null | undefined)[] | undefined;
  /** A bit for each token that fits, where it was asked for. */
  mask: Uint32Array | undefined;
  /** The fewest bytes to the end of the text, where they were asked for. */
  bytesToEnd: number | undefined;
  /** The tokens of a short end, where they were asked for. */
  tokensToEnd: number | undefined;

  constructor(frames: readonly GrammarFrame[], isComplete: boolean) {
    this.frames = frames;
    this.isComplete = isComplete;
  }
}

/** The fewest bytes to the end of texts of one grammar. */
export class ShortestEnd {
  readonly #program: GrammarProgram;
  readonly #ofFrames = new WeakMap<GrammarFrame, number>();

  constructor(program: GrammarProgram) {
    this.#program = program;
  }

  /** From a state of a text on. */
  after(state: MatchState): number {
    const { frames, isComplete } = state;
    state.bytesToEnd ??= isComplete ? 0 : Math.min(...frames.map((frame) => this.#ofFrame(frame)));
    return state.bytesToEnd;
  }

  /** The next byte of a shortest end; undefined where the text may end, or no byte is known. */
  nextByte({ frames, isComplete }: MatchState): number | undefined {
    if (isComplete) return undefined;
    let next: number | undefined;
    let least = Number.POSITIVE_INFINITY;
    for (const frame of frames) {
      const bytes = this.#ofFrame(frame);
      const byte = bytes < least ? this.#shorterByte(frame) : undefined;
      if (byte !== undefined) [next, least] = [byte, bytes];
    }
    return next;
  }

  #shorterByte({ node, at }: GrammarFrame): number | undefined {
    const text = this.#program.nodes[node] as GrammarNode;
    if (text.kind !== "text") return undefined;
    const { dfa, rests } = text;
    const end = dfa.starts[at + 1] as number;
    for (let edge = dfa.starts[at] as number; edge < end; edge++) {
      const target = dfa.targets[edge] as number;
      if ((rests[target] as number) < (rests[at] as number)) return dfa.lows[edge];
    }
    return undefined;
  }

  #ofFrame(frame: GrammarFrame): number {
    const known = this.#ofFrames.get(frame);
    if (known !== undefined) return known;
    const { nodes, lengths } = this.#program;
    const behind = frame.next === undefined ? 0 : this.#ofFrame(frame.next);
    const bytes = behind + restOf(nodes[frame.node] as GrammarNode, frame.at, lengths);
    this.#ofFrames.set(frame, bytes);
    return bytes;
  }
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
