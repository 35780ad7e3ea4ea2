import type { Sequence, TextSequence } from "../kv-cache/sequence.ts";

/** Running sequences whose next token is computed, and those whose prompts are. */
export interface Phases {
  readonly decoding: TextSequence[];
  readonly prompts: TextSequence[];
}

/** The phases of one adapter's running sequences; only one token to decode is planned of each. */
export function phasesOf(running: Iterable<Sequence>, adapter: number): Phases {
  const decoding: TextSequence[] = [];
  const prompts: TextSequence[] = [];
  for (const sequence of running) {
    if (sequence.embedding !== undefined || sequence.adapter !== adapter) continue;
    const left = promptLeft(sequence);
    sequence.planned = left === 1 ? 1 : 0;
    sequence.drafted = 0;
    (left === 1 ? decoding : prompts).push(sequence);
  }
  return { decoding, prompts };
}

/** Tokens that are not computed. */
export function promptLeft({ tokens, computed }: Sequence): number {
  return tokens.length - computed;
}
