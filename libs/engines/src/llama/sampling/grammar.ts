import koffi from "koffi";
import type { LoadedModel } from "../engine-thread/model.ts";
import type { Llama } from "../native/bindings.ts";
import type { Pointer } from "../native/layouts.ts";
import { JsonDepth } from "./json-depth.ts";

/** Bytes of a `llama_token_data`: id, logit and probability. */
const TOKEN_DATA_BYTES = 12;

/** Draws that may be refused one by one before the whole vocabulary is checked at once. */
const MAX_SINGLE_REFUSALS = 8;

/**
 * JSON (RFC 8259) with an object at the top, in GBNF. White space is bounded, else a model can
 * write nothing but that until its limit.
 */
export const JSON_OBJECT_GRAMMAR = `root ::= object
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws ( member ("," ws member)* )? "}" ws
member ::= string ":" ws value ws
array ::= "[" ws ( value ws ("," ws value ws)* )? "]"
string ::= "\\"" char* "\\""
char ::= [^"\\\\\\x7F\\x00-\\x1F] | "\\\\" (["\\\\bfnrt/] | "u" [0-9a-fA-F]{4})
number ::= "-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?
ws ::= " "? | "\\n" [ \\t]{0,20}
`;

/** Native arrays that all grammars of one thread use in turn. */
export class CandidateArray {
  readonly #struct: bigint;
  readonly #header: BigInt64Array;
  readonly #data: bigint;
  readonly #ids: Int32Array;
  readonly #logits: Float32Array;
  readonly #capacity: number;

  constructor(vocabularySize: number) {
    this.#capacity = vocabularySize;
    const data: unknown = koffi.alloc("uint8_t", vocabularySize * TOKEN_DATA_BYTES);
    const view = koffi.view(data, vocabularySize * TOKEN_DATA_BYTES);
    this.#data = koffi.address(data);
    this.#ids = new Int32Array(view);
    this.#logits = new Float32Array(view);
    // llama_token_data_array: data, size, selected and a bool padded to eight bytes.
    const struct: unknown = koffi.alloc("uint8_t", 32);
    this.#struct = koffi.address(struct);
    this.#header = new BigInt64Array(koffi.view(struct, 32));
  }

  /** Fills in all tokens with their logits; gives the array's address. */
  fill(logits: Float32Array): Pointer {
    for (let id = 0; id < this.#capacity; id++) this.#set(id, id, logits[id] as number);
    return this.#point(this.#capacity);
  }

  /** Fills in one token with logit 0. */
  single(token: number): Pointer {
    this.#set(0, token, 0);
    return this.#point(1);
  }

  /** The logit of entry `at` after a sampler has run. */
  logitAt(at: number): number {
    return this.#logits[at * 3 + 1] as number;
  }

  #set(at: number, token: number, logit: number): void {
    this.#ids[at * 3] = token;
    this.#logits[at * 3 + 1] = logit;
    this.#logits[at * 3 + 2] = 0;
  }

  #point(size: number): Pointer {
    this.#header[0] = this.#data;
    this.#header[1] = BigInt(size);
    this.#header[2] = -1n;
    this.#header[3] = 0n;
    return this.#struct;
  }
}

/**
 * A GBNF grammar that the text of one choice must match. Only the drawn token is checked; a refused
 * one is taken out and another drawn. That gives the distribution of a mask over the whole vocabulary
 * at a fraction of its cost; after several refusals the mask is applied.
 */
export class Grammar {
  readonly #llama: Llama;
  readonly #sampler: Pointer;
  readonly #candidates: CandidateArray;
  readonly #tokenBytes: LoadedModel["tokenBytes"];
  /** All grammars that there are describe JSON. */
  readonly #depth = new JsonDepth();

  /** Throws where the grammar does not parse: it is the program's, not the client's. */
  constructor(
    { llama, vocabulary, tokenBytes }: Pick<LoadedModel, "llama" | "vocabulary" | "tokenBytes">,
    source: string,
    candidates: CandidateArray,
  ) {
    this.#llama = llama;
    this.#candidates = candidates;
    this.#tokenBytes = tokenBytes;
    this.#sampler = llama.sampler_init_grammar(vocabulary, source, "root");
    if (this.#sampler === null) throw new Error(`the grammar does not parse: ${source}`);
  }

  /** Draws until a token fits; `logits` loses those that do not. -1 where no token fits. */
  draw(logits: Float32Array, draw: (logits: Float32Array) => number): number {
    for (let refused = 0; refused < MAX_SINGLE_REFUSALS; refused++) {
      const token = draw(logits);
      if (this.#allows(token)) return token;
      logits[token] = Number.NEGATIVE_INFINITY;
    }
    this.#mask(logits);
    const token = draw(logits);
    return logits[token] === Number.NEGATIVE_INFINITY ? -1 : token;
  }

  /** Moves on past a token that is part of the text; never one that ends the generation. */
  accept(token: number): void {
    this.#depth.accept(this.#tokenBytes(token));
    this.#llama.sampler_accept(this.#sampler, token);
  }

  free(): void {
    this.#llama.sampler_free(this.#sampler);
  }

  #allows(token: number): boolean {
    if (!this.#depth.allows(this.#tokenBytes(token))) return false;
    this.#llama.sampler_apply(this.#sampler, this.#candidates.single(token));
    return this.#candidates.logitAt(0) !== Number.NEGATIVE_INFINITY;
  }

  #mask(logits: Float32Array): void {
    this.#llama.sampler_apply(this.#sampler, this.#candidates.fill(logits));
    for (let id = 0; id < logits.length; id++) {
      const logit = this.#candidates.logitAt(id);
      const isOut = logit === Number.NEGATIVE_INFINITY;
      const isDeep = !isOut && !this.#depth.allows(this.#tokenBytes(id));
      logits[id] = isDeep ? Number.NEGATIVE_INFINITY : logit;
    }
  }
}
