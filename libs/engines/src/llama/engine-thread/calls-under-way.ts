import type { RingAdapter } from "../../shards/ring/stage-ring.ts";
import type { Sequence } from "../kv-cache/sequence.ts";
import { Batch, rowMemory } from "./batch.ts";
import { DecodeCall } from "./decode-call.ts";
import type { LoadedModel } from "./model.ts";

/** Sequences of a call, so that a further call pays: a stage's step hardly depends on its rows. */
const LEAST_SEQUENCES = 4;

/** How many of the running sequences a call takes, of which at most `most` are under way. */
export function shareOfCall(running: number, most: number): number {
  const calls = Math.min(most, Math.floor(running / LEAST_SEQUENCES));
  return Math.ceil(running / Math.max(1, calls));
}

/**
 * The calls that the stages of a model compute at the same time, each of other sequences. One stage
 * computes one call, and several are kept busy by as many calls.
 */
export class CallsUnderWay {
  readonly #model: LoadedModel;
  readonly #spare: DecodeCall[];
  /** The oldest first. */
  readonly #sent: DecodeCall[] = [];
  readonly #busy = new Set<Sequence>();

  constructor(model: LoadedModel) {
    this.#model = model;
    const { batchTokens, limits, rowLength, callsAtOnce } = model;
    const rows = rowMemory(batchTokens, rowLength);
    const batch = () => new Batch(batchTokens, limits.maxSequences, rows);
    this.#spare = Array.from({ length: callsAtOnce }, () => new DecodeCall(batch()));
  }

  get count(): number {
    return this.#sent.length;
  }

  /** Tokens that will have cells when the calls are done. */
  get tokens(): number {
    return this.#sent.reduce((sum, { batch }) => sum + batch.size, 0);
  }

  /** Whether a call has the sequence. */
  has(sequence: Sequence): boolean {
    return this.#busy.has(sequence);
  }

  /** An empty call; undefined where as many are under way as may be. */
  next(): DecodeCall | undefined {
    const call = this.#spare.at(-1);
    call?.clear();
    return call;
  }

  /** Sends the call that `next` gave. */
  send(call: DecodeCall, adapter?: RingAdapter): void {
    this.#spare.pop();
    this.#sent.push(call);
    for (const sequence of call.members) this.#busy.add(sequence);
    this.#model.send(call.batch, adapter);
  }

  /** The oldest call, which is to be decoded now. */
  take(): DecodeCall | undefined {
    const call = this.#sent.shift();
    if (call) this.#return(call);
    return call;
  }

  /** The stages have lost all calls. */
  drop(): void {
    for (const call of this.#sent.splice(0)) this.#return(call);
  }

  #return(call: DecodeCall): void {
    for (const sequence of call.members) this.#busy.delete(sequence);
    this.#spare.push(call);
  }
}
