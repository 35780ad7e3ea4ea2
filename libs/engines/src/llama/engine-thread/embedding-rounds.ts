import koffi from "koffi";
import type { EmbeddedSequence } from "../kv-cache/sequence.ts";
import type { Pointer } from "../native/layouts.ts";
import type { Batch } from "./batch.ts";
import type { LoadedModel } from "./model.ts";
import { OutputRows } from "./output-rows.ts";

/** Tokens of a call whose inputs may come in parts: each of its rows costs a row of logits too. */
const CALL_TOKENS = 128;
/** The same while text runs, which waits that long for its next token. */
const SHARED_CALL_TOKENS = 32;

/**
 * Computes inputs to embed, which the library pools as their model says. For a model that says
 * nothing the mean of all rows is taken here, so that its inputs may be computed in parts.
 */
export class EmbeddingRounds {
  readonly #model: LoadedModel;
  readonly #rows: OutputRows;
  /** What is in the call, and the first token of each. */
  #parts: { readonly sequence: EmbeddedSequence; readonly begin: number }[] = [];
  /** Time that text has had since embeddings had as much. */
  #textMs = 0;

  constructor(model: LoadedModel) {
    this.#model = model;
    this.#rows = new OutputRows(model.pooling.size, model.batchTokens);
  }

  /** Whether it is the turn of embeddings, after text was computed for `textMs`. */
  isDue(hasText: boolean, textMs: number): boolean {
    this.#textMs = hasText ? this.#textMs + textMs : 0;
    return this.#textMs >= 0;
  }

  /** A call was made that took this long; text gets as much before the next. */
  spent(ms: number): void {
    this.#textMs = Math.min(0, this.#textMs - ms);
  }

  /** Sets how much of each input the next call computes, oldest first; gives the tokens. */
  plan(sequences: readonly EmbeddedSequence[], hasText: boolean): number {
    const { pooling, batchTokens, limits } = this.#model;
    // With slots the library cuts a call of several inputs, and takes means of the last parts alone.
    const isAlone = pooling.isWhole && (hasText || limits.layout === "slots");
    const parts = Math.min(batchTokens, hasText ? SHARED_CALL_TOKENS : CALL_TOKENS);
    let planned = 0;
    let room = pooling.isWhole ? batchTokens : parts;
    for (const sequence of sequences) {
      const left = sequence.tokens.length - sequence.computed;
      if (pooling.isWhole) sequence.planned = left <= room ? left : 0;
      else sequence.planned = Math.min(left, room);
      planned += sequence.planned;
      room = isAlone ? 0 : room - sequence.planned;
    }
    return planned;
  }

  /** Adds what is planned to the batch; gives the sequences that are in it. */
  fill(sequences: readonly EmbeddedSequence[], batch: Batch): EmbeddedSequence[] {
    const members = sequences.filter(({ planned }) => planned > 0);
    this.#parts = members.map((sequence) => ({ sequence, begin: sequence.computed }));
    for (const { tokens, computed, planned, slot } of members) {
      for (let at = computed; at < computed + planned; at++) {
        batch.add(tokens.values[at] as number, at, slot, true);
      }
    }
    return members;
  }

  /** Reads what the call gave; gives the vectors of the inputs that are done. */
  pool(): { readonly sequence: EmbeddedSequence; readonly values: Float32Array | undefined }[] {
    const { llama, context, pooling } = this.#model;
    if (!pooling.isNative) this.#addRows(llama.get_embeddings(context));
    return this.#parts
      .filter(({ sequence }) => sequence.computed === sequence.tokens.length)
      .map(({ sequence }) => {
        const values = pooling.isNative ? this.#pooled(sequence.slot) : meanOf(sequence);
        return { sequence, values: Number.isNaN(values[0]) ? undefined : values };
      });
  }

  #addRows(address: Pointer): void {
    this.#rows.point(address);
    let row = 0;
    for (const { sequence, begin } of this.#parts) {
      const { embedding: sum, computed } = sequence;
      if (begin === 0) sum.fill(0);
      for (let at = begin; at < computed; at++) {
        const values = this.#rows.row(row++);
        for (let i = 0; i < sum.length; i++) sum[i] = (sum[i] as number) + (values[i] as number);
      }
    }
  }

  #pooled(slot: number): Float32Array {
    const { llama, context, pooling } = this.#model;
    const address = llama.get_embeddings_seq(context, slot);
    if (address === null) throw new Error("llama_get_embeddings_seq gave no embedding");
    return new Float32Array(koffi.view(address, pooling.size * 4)).slice();
  }
}

function meanOf({ embedding, tokens }: EmbeddedSequence): Float32Array {
  return Float32Array.from(embedding, (sum) => sum / tokens.length);
}
