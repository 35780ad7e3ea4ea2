import { areElements, type GrammarFrame, MatchState, ShortestEnd } from "./match-state.ts";
import type { Dfa, GrammarNode, GrammarProgram } from "./program.ts";
import { addTokens, ByteTables, setToken, type TextMask, textMaskOf } from "./text-mask.ts";
import { childOf, type TokenTrie } from "./token-trie.ts";

/** Objects and arrays within one another that a text may have; no JSON reader takes many more. */
const MAX_NESTING = 128;

/** Ways in which a text may continue that are followed at once; of more, the first are. */
const MAX_FRAMES = 256;

/** Frames that are followed for one mask; of the tokens, those that were found by then are in it. */
const MAX_MASK_WORK = 100_000;

/** Longer ends are not spelled in tokens: one of 500 takes some milliseconds. */
const MAX_END_TOKENS = 1024;

/** Estimated memory of the states that are kept for all grammars of a thread. */
const MAX_CACHED_BYTES = 64 * 1024 * 1024;
/** Estimated memory of a state with its transitions, and of a frame. */
const STATE_BYTES = 3 * 1024;
const FRAME_BYTES = 256;

/** The memory that the grammars of one thread share; when it is full, what is kept of all is dropped. */
export class MatchCache {
  /** The grammars that keep cached states. */
  readonly #grammars = new Set<GrammarMatcher>();
  #bytes = 0;

  /** Drops what the grammar keeps. */
  remove(grammar: GrammarMatcher): void {
    grammar.clear();
    this.#grammars.delete(grammar);
  }

  /** Counts what a grammar keeps from now on. */
  charge(grammar: GrammarMatcher, bytes: number): void {
    this.#grammars.add(grammar);
    this.#bytes += bytes;
    if (this.#bytes <= MAX_CACHED_BYTES) return;
    this.#bytes = 0;
    for (const kept of this.#grammars) kept.clear();
    this.#grammars.clear();
  }
}

/**
 * Follows texts through a grammar byte by byte; a state is the set of stacks that the text so far
 * may have. States, their transitions and their masks are made when they are first needed, and
 * kept.
 */
export class GrammarMatcher {
  readonly #program: GrammarProgram;
  readonly #cache: MatchCache;
  #frames = new Map<string, GrammarFrame>();
  #states = new Map<string, MatchState>();
  #nextId = 0;
  /** Keyed by automaton and its state. */
  #textMasks = new Map<Dfa, Map<number, TextMask>>();
  #tables = new ByteTables();
  readonly #end: ShortestEnd;
  /** Whether the mask that is being made has no token yet. */
  #isEmpty = true;
  /** Frames that were followed since this was last set to zero. */
  #work = 0;

  constructor(program: GrammarProgram, cache: MatchCache) {
    this.#program = program;
    this.#cache = cache;
    this.#end = new ShortestEnd(program);
  }

  /** Before the first byte. */
  start(): MatchState {
    return this.#close([this.#frame(this.#program.root, 0, undefined)]);
  }

  /** After one more byte; null where it does not fit. */
  step(state: MatchState, byte: number): MatchState | null {
    const known = state.next?.[byte];
    if (known !== undefined) return known;
    const frames: GrammarFrame[] = [];
    this.#work += state.frames.length;
    for (const frame of state.frames) {
      const to = targetOf(this.#dfaOf(frame), frame.at, byte);
      if (to >= 0) frames.push(this.#frame(frame.node, to, frame.next));
    }
    const after = frames.length === 0 ? null : this.#close(frames);
    state.next ??= new Array<MatchState | null | undefined>(256).fill(undefined);
    state.next[byte] = after;
    return after;
  }

  /** After all these bytes; null where they do not fit. */
  steps(state: MatchState, bytes: Uint8Array): MatchState | null {
    let after: MatchState | null = state;
    for (let at = 0; at < bytes.length && after !== null; at++) {
      after = this.step(after, bytes[at] as number);
    }
    return after;
  }

  /** A bit for each token of the trie that fits after the state. */
  maskOf(state: MatchState, trie: TokenTrie, vocabularySize: number): Uint32Array {
    if (state.mask !== undefined) return state.mask;
    const mask = new Uint32Array((vocabularySize + 31) >>> 5);
    this.#fill(mask, state, trie);
    state.mask = mask;
    this.#cache.charge(this, mask.byteLength);
    return mask;
  }

  /** The tokens of the trie that all bring the shortest end of the text nearer, byte by byte. */
  towardsEnd(state: MatchState, trie: TokenTrie): number[] {
    const { bytes, ends, depths, firsts, tokens } = trie;
    const path: MatchState[] = [state];
    const found: number[] = [];
    for (let node = 0; node < bytes.length; ) {
      const depth = depths[node] as number;
      const before = path[depth] as MatchState;
      const after = this.step(before, bytes[node] as number);
      if (after === null || this.#end.after(after) >= this.#end.after(before)) {
        node = ends[node] as number;
        continue;
      }
      path[depth + 1] = after;
      found.push(...tokens.subarray(firsts[node], firsts[node + 1]));
      node++;
    }
    return found;
  }

  /** Whether the text can end within this many more tokens, of a vocabulary that has all bytes. */
  endsWithin(state: MatchState, tokens: number, trie: TokenTrie): boolean {
    return this.#end.after(state) <= tokens || this.#tokensToEnd(state, tokens, trie) <= tokens;
  }

  /** The first token of the end that `endsWithin` has found; none where the text may end at once. */
  firstOfEnd(state: MatchState, trie: TokenTrie): number | undefined {
    return this.#longestTowardsEnd(state, trie)?.token;
  }

  /** The tokens of an end of the fewest bytes, each the longest that fits; Infinity for more than `most`. */
  #tokensToEnd(state: MatchState, most: number, trie: TokenTrie): number {
    const way: MatchState[] = [];
    let at: MatchState | undefined = state;
    while (at !== undefined && !at.isComplete && at.tokensToEnd === undefined) {
      if (way.length >= Math.min(most, MAX_END_TOKENS)) return Number.POSITIVE_INFINITY;
      way.push(at);
      at = this.#longestTowardsEnd(at, trie)?.after;
    }
    let tokens = at?.isComplete ? 0 : (at?.tokensToEnd ?? Number.POSITIVE_INFINITY);
    for (const before of way.reverse()) before.tokensToEnd = ++tokens;
    return tokens;
  }

  #longestTowardsEnd(
    state: MatchState,
    trie: TokenTrie,
  ): { readonly token: number; readonly after: MatchState } | undefined {
    let found: { readonly token: number; readonly after: MatchState } | undefined;
    let node = -1;
    for (let at: MatchState | null = state; at !== null; ) {
      const byte = this.#end.nextByte(at);
      node = byte === undefined ? -1 : childOf(trie, node, byte);
      if (byte === undefined || node < 0) break;
      at = this.step(at, byte);
      const first = trie.firsts[node] as number;
      if (at !== null && first < (trie.firsts[node + 1] as number)) {
        found = { token: trie.tokens[first] as number, after: at };
      }
    }
    return found;
  }

  /** See `areElements`. */
  areElements(states: readonly MatchState[]): boolean {
    return areElements(this.#program, states);
  }

  /** Forgets all states but those that are in use, and what follows those. */
  clear(): void {
    for (const state of this.#states.values()) {
      state.next = undefined;
      state.mask = undefined;
    }
    this.#states = new Map();
    this.#frames = new Map();
    this.#textMasks = new Map();
    this.#tables = new ByteTables();
  }

  /** What fits within an automaton is known of it alone; only what continues behind it is followed. */
  #fill(mask: Uint32Array, state: MatchState, trie: TokenTrie): void {
    const texts = state.frames.map((frame) => this.#textMask(frame, trie, mask.length));
    this.#work = 0;
    this.#isEmpty = true;
    for (const text of texts) if (addTokens(mask, text)) this.#isEmpty = false;
    state.frames.forEach(({ next }, at) => {
      const { exits } = texts[at] as TextMask;
      if (next === undefined || exits.length === 0) return;
      const after = this.#close([next]);
      for (const exit of exits) this.#walk(mask, after, trie, exit);
    });
  }

  #textMask(frame: GrammarFrame, trie: TokenTrie, words: number): TextMask {
    const dfa = this.#dfaOf(frame);
    let masks = this.#textMasks.get(dfa);
    if (masks === undefined) {
      masks = new Map();
      this.#textMasks.set(dfa, masks);
    }
    let text = masks.get(frame.at);
    if (text === undefined) {
      const before = this.#tables.bytes;
      text = textMaskOf({ dfa, state: frame.at }, trie, words, this.#tables);
      masks.set(frame.at, text);
      const { mask, tokens, exits } = text;
      const rows = this.#tables.bytes - before;
      this.#cache.charge(this, (mask ?? tokens).byteLength + exits.byteLength + rows);
    }
    return text;
  }

  /** Adds the tokens below a node of the trie that continue with the state. */
  #walk(mask: Uint32Array, state: MatchState, trie: TokenTrie, below: number): void {
    const { bytes, ends, depths, firsts, tokens } = trie;
    const path: MatchState[] = [state];
    const base = (depths[below] as number) + 1;
    const last = ends[below] as number;
    for (let node = below + 1; node < last && (this.#isEmpty || this.#work < MAX_MASK_WORK); ) {
      const depth = (depths[node] as number) - base;
      const after = this.step(path[depth] as MatchState, bytes[node] as number);
      if (after === null) {
        node = ends[node] as number;
        continue;
      }
      path[depth + 1] = after;
      const end = firsts[node + 1] as number;
      for (let at = firsts[node] as number; at < end; at++) {
        this.#isEmpty = false;
        setToken(mask, tokens[at] as number);
      }
      node++;
    }
  }

  /** The state of all the ways in which these frames may continue. */
  #close(frames: readonly GrammarFrame[]): MatchState {
    const closure = new Closure(this.#program, (node, at, next) => this.#frame(node, at, next));
    for (const frame of frames) closure.add(frame);
    const { found, isComplete } = closure.run();
    found.sort((a, b) => a.id - b.id);
    const key = `${isComplete ? "!" : ""}${found.map(({ id }) => id).join(",")}`;
    let state = this.#states.get(key);
    if (state === undefined) {
      state = new MatchState(found, isComplete);
      this.#cache.charge(this, STATE_BYTES);
      this.#states.set(key, state);
    }
    return state;
  }

  #frame(node: number, at: number, next: GrammarFrame | undefined): GrammarFrame {
    const key = `${node},${at},${next?.id ?? ""}`;
    let frame = this.#frames.get(key);
    if (frame === undefined) {
      const made = this.#program.nodes[node] as GrammarNode;
      const isLevel = made.kind === "sequence" && made.nests;
      const depth = (next?.depth ?? 0) + (isLevel ? 1 : 0);
      frame = { id: this.#nextId++, node, at, next, depth };
      this.#cache.charge(this, FRAME_BYTES);
      this.#frames.set(key, frame);
    }
    return frame;
  }

  #dfaOf(frame: GrammarFrame): Dfa {
    return (this.#program.nodes[frame.node] as GrammarNode & { readonly kind: "text" }).dfa;
  }
}

type MakeFrame = (node: number, at: number, next: GrammarFrame | undefined) => GrammarFrame;

/** Finds the automata's states in which a text may be, without a further byte. */
class Closure {
  readonly #program: GrammarProgram;
  readonly #frame: MakeFrame;
  readonly #seen = new Set<GrammarFrame>();
  readonly #waiting: GrammarFrame[] = [];
  readonly found: GrammarFrame[] = [];
  isComplete = false;

  constructor(program: GrammarProgram, frame: MakeFrame) {
    this.#program = program;
    this.#frame = frame;
  }

  add(frame: GrammarFrame | undefined): void {
    if (frame === undefined) {
      this.isComplete = true;
    } else if (!this.#seen.has(frame)) {
      this.#seen.add(frame);
      this.#waiting.push(frame);
    }
  }

  /** Each way that is left out could be completed by itself, so none that is kept is a dead end. */
  run(): { found: GrammarFrame[]; isComplete: boolean } {
    while (this.found.length < MAX_FRAMES) {
      const frame = this.#waiting.pop();
      if (frame === undefined) break;
      this.#expand(frame, this.#program.nodes[frame.node] as GrammarNode);
    }
    return this;
  }

  #expand(frame: GrammarFrame, node: GrammarNode): void {
    const { at, next } = frame;
    switch (node.kind) {
      case "text":
        if (node.dfa.accepts[at]) this.add(next);
        if (node.dfa.starts[at] !== node.dfa.starts[at + 1]) this.found.push(frame);
        return;
      case "sequence":
        this.#expandSequence(frame, node);
        return;
      case "choice":
        // The last one added is expanded first.
        for (let i = node.options.length - 1; i >= 0; i--) {
          this.#enter(node.options[i] as number, frame.depth, next);
        }
        return;
      case "repeat":
        if (at >= node.min) this.add(next);
        if (at < node.max) {
          const done = node.max === Number.POSITIVE_INFINITY ? Math.min(at + 1, node.min) : at + 1;
          this.#enter(node.part, frame.depth, this.#frame(frame.node, done, next));
        }
        return;
      default:
        node satisfies never;
    }
  }

  #expandSequence(frame: GrammarFrame, node: GrammarNode & { readonly kind: "sequence" }): void {
    const { at, next } = frame;
    const part = node.parts[at];
    if (part === undefined) {
      this.add(next);
      return;
    }
    // A level of nesting stays on the stack to its end: its frame counts the depth.
    const isLast = at === node.parts.length - 1 && !node.nests;
    this.add(this.#frame(part, 0, isLast ? next : this.#frame(frame.node, at + 1, next)));
  }

  /** Goes into a node unless its shortest texts would be nested too deeply. */
  #enter(node: number, depth: number, next: GrammarFrame | undefined): void {
    const height = this.#program.heights[node] as number;
    if (depth + height <= MAX_NESTING) this.add(this.#frame(node, 0, next));
  }
}

/** Where the automaton goes; -1 where the byte does not fit. */
function targetOf(dfa: Dfa, state: number, byte: number): number {
  const end = dfa.starts[state + 1] as number;
  for (let edge = dfa.starts[state] as number; edge < end; edge++) {
    if (byte >= (dfa.lows[edge] as number) && byte <= (dfa.highs[edge] as number)) {
      return dfa.targets[edge] as number;
    }
  }
  return -1;
}
