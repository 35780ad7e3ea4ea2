import {
  type Char,
  CharSet,
  type Concatenation,
  DFA,
  type Expression,
  JS,
  NFA,
  type NoParent,
  TooManyNodesError,
  type TransitionIterable,
  visitAst,
} from "refa";
import { type Dfa, GrammarTooLarge } from "./program.ts";
import { type Encoding, encodedRanges } from "./text-encoding.ts";

/** A set of texts, as an automaton over code points. */
export type TextSet = DFA;

/** States of one automaton. */
const MAX_STATES = 20_000;
const LAST_CODE_POINT = 0x10ffff;
const LAST_BYTE = 0xff;
/** Mark the beginning and the end of the text while assertions are resolved: surrogates, which no text has. */
const BEGIN: Char = 0xd800;
const END: Char = 0xd801;
const UNMARKED = "[^\\ud800\\ud801]*";

/** Thrown for a regular expression that is no regular language, as with a back reference. */
export class UnsupportedPattern extends Error {}

/** The texts that match as a whole: without assertions. */
export function matchingTexts(source: string): TextSet {
  return limited(() => determined(parse(source)));
}

/** The texts in which the pattern is found, as JSON Schema has it. Throws UnsupportedPattern. */
export function textsWith(pattern: string): TextSet {
  return limited(() => {
    const found = parse(pattern);
    resolveAssertions(found);
    const begin = parse(`(?:\\ud800${UNMARKED})?`);
    const end = parse(`(?:${UNMARKED}\\ud801)?`);
    const whole = NFA.fromRegex(begin, OPTIONS, {}, nodes());
    whole.append(NFA.fromRegex(found, OPTIONS, {}, nodes()));
    whole.append(NFA.fromRegex(end, OPTIONS, {}, nodes()));
    const framed = determined(parse(`\\ud800${UNMARKED}\\ud801`));
    return unframed(DFA.fromIntersection(DFA.fromFA(whole, states()), framed, states()));
  });
}

/** The texts that are in both sets. */
export function both(a: TextSet, b: TextSet): TextSet {
  return limited(() => minimized(DFA.fromIntersection(a, b, states())));
}

/** The texts of `a` that are not one of the words. */
export function without(a: TextSet, words: readonly string[]): TextSet {
  return limited(() => {
    const points = words.map((word) => Array.from(word, (c) => c.codePointAt(0) as number));
    const others = DFA.fromWords(points, OPTIONS, states());
    others.complement(states());
    return both(a, others);
  });
}

/** The texts that do not contain the pattern. */
export function lacking(pattern: string): TextSet {
  return notMatching(`[^]*(?:${pattern})[^]*`);
}

/** The texts that do not begin with the pattern. */
export function notBeginning(pattern: string): TextSet {
  return notMatching(`(?:${pattern})[^]*`);
}

/** The texts that do not match as a whole. */
export function notMatching(pattern: string): TextSet {
  return complementOf(matchingTexts(pattern));
}

/** All other texts; the given set is used up. */
export function complementOf(texts: TextSet): TextSet {
  return limited(() => {
    texts.complement(states());
    return minimized(texts);
  });
}

/** The pattern of one text. */
export function literalPattern(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
}

/** Exactly these texts. */
export function words(texts: readonly string[]): TextSet {
  return limited(() => {
    const points = texts.map((text) => Array.from(text, (c) => c.codePointAt(0) as number));
    return minimized(DFA.fromWords(points, OPTIONS, states()));
  });
}

/** Whether the text is in the set. */
export function hasText(texts: TextSet, text: string): boolean {
  return texts.test(Array.from(text, (c) => c.codePointAt(0) as number));
}

/** Whether the set has no text. */
export function isEmpty(texts: TextSet): boolean {
  return texts.isEmpty;
}

/** The automaton over bytes of the texts in UTF-8, or as they are written within a JSON string. */
export function toBytes(texts: TextSet, encoding: Encoding): Dfa {
  return limited(() => {
    const bytes = DFA.fromFA(byteTransitions(texts, encoding), states());
    bytes.minimize();
    return flattened(bytes);
  });
}

const OPTIONS = { maxCharacter: LAST_CODE_POINT };

function nodes() {
  return new NFA.LimitedNodeFactory(MAX_STATES);
}

function states() {
  return new DFA.LimitedNodeFactory(MAX_STATES);
}

/** Runs it; throws GrammarTooLarge where an automaton has too many states. */
export function limited<Result>(make: () => Result): Result {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof TooManyNodesError)) throw error;
    throw new GrammarTooLarge(`its automaton has more than ${MAX_STATES} states`);
  }
}

function parse(source: string): NoParent<Expression> {
  try {
    const parser = JS.Parser.fromLiteral({ source, flags: "u" });
    return parser.parse({ maxBackreferenceWords: 0, backreferences: "throw" }).expression;
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new UnsupportedPattern(reason, { cause });
  }
}

function determined(expression: NoParent<Expression>): DFA {
  return minimized(DFA.fromFA(NFA.fromRegex(expression, OPTIONS, {}, nodes()), states()));
}

function minimized(texts: DFA): DFA {
  texts.minimize();
  return texts;
}

/** Replaces `^` and `$` by the characters that mark them, which no other class then matches. */
function resolveAssertions(expression: NoParent<Expression>): void {
  const marks = CharSet.fromRange(LAST_CODE_POINT, { min: BEGIN, max: END });
  visitAst(expression as Expression, {
    onCharacterClassEnter(node) {
      node.characters = node.characters.without(marks);
    },
  });
  visitAst(expression as Expression, {
    onConcatenationEnter(node) {
      for (const element of node.elements) {
        if (element.type === "Assertion" && !isEdge(element)) {
          throw new UnsupportedPattern("only the assertions ^ and $ are supported");
        }
      }
      replaceEdges(node);
    },
  });
}

type Element = Concatenation["elements"][number];
type Assertion = Extract<Element, { type: "Assertion" }>;

/** Whether it is `^` or `$`: no character before, or none after. */
function isEdge({ negate, alternatives }: Assertion): boolean {
  const only = alternatives.length === 1 ? alternatives[0]?.elements : undefined;
  const [element] = only?.length === 1 ? only : [];
  // The marks were taken out of the class of all characters.
  return (
    negate && element?.type === "CharacterClass" && element.characters.size >= LAST_CODE_POINT - 1
  );
}

function replaceEdges(node: Concatenation): void {
  node.elements = node.elements.map((element): Element => {
    if (element.type !== "Assertion") return element;
    const mark = element.kind === "behind" ? BEGIN : END;
    const characters = CharSet.fromCharacter(LAST_CODE_POINT, mark);
    return { type: "CharacterClass", parent: node, characters };
  });
}

/** The same texts without the marks around them. */
function unframed(framed: DFA): DFA {
  const initial = framed.initial.out.get(BEGIN);
  const transitions: TransitionIterable<DFA.Node | undefined> = {
    maxCharacter: LAST_CODE_POINT,
    transitionIterator: () => ({
      initial,
      isFinal: (node) => {
        const end = node?.out.get(END);
        return end !== undefined && framed.finals.has(end);
      },
      getOut: (node) => {
        const out = new Map<DFA.Node, CharSet>();
        for (const [range, to] of node?.out ?? []) {
          if (range.min === END && range.max === END) continue;
          out.set(to, (out.get(to) ?? CharSet.empty(LAST_CODE_POINT)).union([range]));
        }
        return out;
      },
    }),
  };
  return minimized(DFA.fromFA(transitions, states()));
}

/** A state on the way through the bytes of a character: where it goes, and what may follow. */
interface ByteState {
  readonly isFinal: boolean;
  readonly out: Map<ByteState, CharSet>;
}

function byteTransitions(texts: DFA, encoding: Encoding): TransitionIterable<ByteState> {
  const known = new Map<DFA.ReadonlyNode, ByteState>();
  const waiting: DFA.ReadonlyNode[] = [];
  const stateOf = (node: DFA.ReadonlyNode): ByteState => {
    let state = known.get(node);
    if (state === undefined) {
      state = { isFinal: texts.finals.has(node as DFA.Node), out: new Map() };
      known.set(node, state);
      waiting.push(node);
    }
    return state;
  };
  const initial = stateOf(texts.initial);
  for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
    const from = stateOf(node);
    for (const [range, to] of node.out) addPaths(from, stateOf(to), encodedRanges(range, encoding));
  }
  return {
    maxCharacter: LAST_BYTE,
    transitionIterator: () => ({
      initial,
      isFinal: ({ isFinal }) => isFinal,
      getOut: ({ out }) => out,
    }),
  };
}

function addPaths(from: ByteState, to: ByteState, paths: ReturnType<typeof encodedRanges>): void {
  for (const path of paths) {
    let state = from;
    path.forEach(([min, max], at) => {
      const next = at === path.length - 1 ? to : { isFinal: false, out: new Map() };
      const set = state.out.get(next) ?? CharSet.empty(LAST_BYTE);
      state.out.set(next, set.union([{ min, max }]));
      state = next;
    });
  }
}

function flattened(texts: DFA): Dfa {
  const order: DFA.ReadonlyNode[] = [texts.initial];
  const ids = new Map<DFA.ReadonlyNode, number>([[texts.initial, 0]]);
  const edges: { low: number; high: number; target: number }[] = [];
  const starts = [0];
  for (let at = 0; at < order.length; at++) {
    for (const [{ min, max }, to] of (order[at] as DFA.ReadonlyNode).out) {
      if (!ids.has(to)) ids.set(to, order.push(to) - 1);
      edges.push({ low: min, high: max, target: ids.get(to) as number });
    }
    starts.push(edges.length);
  }
  return {
    starts: Int32Array.from(starts),
    lows: Uint8Array.from(edges, ({ low }) => low),
    highs: Uint8Array.from(edges, ({ high }) => high),
    targets: Int32Array.from(edges, ({ target }) => target),
    accepts: Uint8Array.from(order, (node) => (texts.finals.has(node as DFA.Node) ? 1 : 0)),
  };
}
