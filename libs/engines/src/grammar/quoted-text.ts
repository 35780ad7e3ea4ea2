import type { Dfa } from "./program.ts";

const QUOTE = 0x22;

/** Writes an automaton state by state. */
class DfaWriter {
  readonly #starts = [0];
  readonly #lows: number[] = [];
  readonly #highs: number[] = [];
  readonly #targets: number[] = [];
  readonly #accepts: number[] = [];

  edge(low: number, high: number, target: number): void {
    this.#lows.push(low);
    this.#highs.push(high);
    this.#targets.push(target);
  }

  /** Ends the state whose edges were added last. */
  end(isAccepting = false): void {
    this.#starts.push(this.#lows.length);
    this.#accepts.push(isAccepting ? 1 : 0);
  }

  dfa(): Dfa {
    return {
      starts: Int32Array.from(this.#starts),
      lows: Uint8Array.from(this.#lows),
      highs: Uint8Array.from(this.#highs),
      targets: Int32Array.from(this.#targets),
      accepts: Uint8Array.from(this.#accepts),
    };
  }
}

/** The same texts between quotes, in one automaton; none of them has a quote of its own. */
export function inQuotes(content: Dfa): Dfa {
  const writer = new DfaWriter();
  const count = content.accepts.length;
  writer.edge(QUOTE, QUOTE, 1);
  writer.end();
  for (let state = 0; state < count; state++) {
    copyEdges(writer, content, state, (target) => target + 1);
    if (content.accepts[state]) writer.edge(QUOTE, QUOTE, count + 1);
    writer.end();
  }
  writer.end(true);
  return writer.dfa();
}

/**
 * A string of `min` to `max` characters between quotes. `character` is the automaton of one, of which
 * only the last state accepts and has no edges.
 */
export function quotedCharacters(character: Dfa, min: number, max: number): Dfa {
  const writer = new DfaWriter();
  const inner = [...character.accepts.keys()].filter((state) => !character.accepts[state]);
  const places = new Map(inner.map((state, at) => [state, at]));
  const blocks = max === Number.POSITIVE_INFINITY ? min + 1 : max;
  const beginOf = (block: number) => 1 + block * inner.length;
  // Behind the last of a limited number of characters there is a state for the quote alone.
  const closing = beginOf(blocks) + (max === Number.POSITIVE_INFINITY ? 0 : 1);
  writer.edge(QUOTE, QUOTE, 1);
  writer.end();
  for (let block = 0; block < blocks; block++) {
    const isLoop = max === Number.POSITIVE_INFINITY && block === min;
    const next = beginOf(isLoop ? block : block + 1);
    for (const state of inner) {
      const target = (to: number) => {
        const place = places.get(to);
        return place === undefined ? next : beginOf(block) + place;
      };
      copyEdges(writer, character, state, target);
      if (state === 0 && block >= min) writer.edge(QUOTE, QUOTE, closing);
      writer.end();
    }
  }
  if (max !== Number.POSITIVE_INFINITY) {
    writer.edge(QUOTE, QUOTE, closing);
    writer.end();
  }
  writer.end(true);
  return writer.dfa();
}

function copyEdges(
  writer: DfaWriter,
  from: Dfa,
  state: number,
  target: (to: number) => number,
): void {
  const end = from.starts[state + 1] as number;
  for (let edge = from.starts[state] as number; edge < end; edge++) {
    writer.edge(
      from.lows[edge] as number,
      from.highs[edge] as number,
      target(from.targets[edge] as number),
    );
  }
}
