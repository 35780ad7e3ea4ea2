import { type Random, seededRandom } from "@heddle/base/random";

/** How one choice is sampled; see SamplingOptions for the meaning of each. */
export interface SamplerOptions {
  readonly temperature: number;
  readonly topP: number;
  /** Likeliest tokens that are kept; 0 for all. */
  readonly topK: number;
  /** Share of the likeliest token's probability that others need; 0 for none. */
  readonly minP: number;
  /** Divides positive logits of tokens that were seen, multiplies negative ones; 1 for none. */
  readonly repetitionPenalty: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  /** 0..2^32-1. */
  readonly seed: number;
  readonly biasTokens: Int32Array;
  readonly biasValues: Float32Array;
}

/**
 * The generator's 32 bits cannot draw weights smaller than this share of the largest, even all
 * together: 2^18 tokens x e^-36 < 2^-32. Their exponential is not computed.
 */
const NEGLIGIBLE_EXPONENT = -36;

/**
 * e^-i/128 for the whole range. With three more terms of the series the relative error is below
 * 2e-10, less than the generator resolves, at a tenth of Math.exp's time.
 */
const EXP_STEPS = 128;
const EXP_TABLE = Float64Array.from({ length: -NEGLIGIBLE_EXPONENT * EXP_STEPS + 1 }, (_, i) =>
  Math.exp(-i / EXP_STEPS),
);

/** Shares of all mass by which the likeliest tokens are found, without sorting the vocabulary. */
const FLOOR_SHARES = [2 ** -8, 2 ** -13, 2 ** -18, 2 ** -24, 0];

/** Tokens per partial sum: the draw finds its block first and then its token. */
const BLOCK_TOKENS = 256;

/**
 * Samples tokens of one choice as OpenAI and, for its extras, vLLM define it.
 * - Order: bias and penalties change the logits, the temperature divides them, then `minP`, `topK` and
 *   the nucleus cut the probabilities.
 * - The nucleus is exact, without sorting the vocabulary.
 * - All state is here, so the same seed draws the same numbers whatever else is in the batch.
 */
export class Sampler {
  readonly #options: SamplerOptions;
  /** Tokens of the answer. */
  #accepted = 0;
  /** Numbers for the next token after its first. */
  #others: Random | undefined;
  /** Times each token was sampled; kept only where a penalty needs it. */
  readonly #counts: Map<number, number> | undefined;
  /** Tokens of the prompt and the answer; kept only where a repetition is penalized. */
  readonly #seen: Set<number> | undefined;
  readonly #scratch: SamplerScratch;

  constructor(options: SamplerOptions, scratch: SamplerScratch, prompt: Iterable<number> = []) {
    this.#options = options;
    const penalized = options.presencePenalty !== 0 || options.frequencyPenalty !== 0;
    this.#counts = penalized ? new Map() : undefined;
    this.#seen = options.repetitionPenalty === 1 ? undefined : new Set(prompt);
    this.#scratch = scratch;
  }

  /** Applies bias and penalties to the raw logits, in place. */
  adjust(logits: Float32Array): void {
    const { biasTokens, biasValues, presencePenalty, frequencyPenalty } = this.#options;
    for (let i = 0; i < biasTokens.length; i++) {
      const token = biasTokens[i] as number;
      logits[token] = (logits[token] as number) + (biasValues[i] as number);
    }
    this.#penalizeSeen(logits);
    if (this.#counts === undefined) return;
    for (const [token, count] of this.#counts) {
      logits[token] = (logits[token] as number) - presencePenalty - count * frequencyPenalty;
    }
  }

  #penalizeSeen(logits: Float32Array): void {
    if (this.#seen === undefined) return;
    const { repetitionPenalty } = this.#options;
    for (const token of this.#seen) {
      const logit = logits[token] as number;
      logits[token] = logit > 0 ? logit / repetitionPenalty : logit * repetitionPenalty;
    }
  }

  /** Draws a token from adjusted logits; a token at -Infinity is never drawn. */
  draw(logits: Float32Array): number {
    const { temperature, topP, topK, minP } = this.#options;
    const best = argmax(logits);
    if (temperature === 0) return best;
    const total = this.#weigh(logits, logits[best] as number, 1 / temperature);
    if (topK > 0 || minP > 0) return this.#drawRestricted(logits.length, total);
    return topP < 1 ? this.#drawNucleus(logits.length, total, topP) : this.#drawAny(total);
  }

  /** Counts a token that became part of the answer. */
  accept(token: number): void {
    this.#accepted++;
    this.#others = undefined;
    this.#counts?.set(token, (this.#counts.get(token) ?? 0) + 1);
    this.#seen?.add(token);
  }

  /**
   * A token takes one number of the seed's, so that an answer can be continued anywhere. Where a
   * token is refused, other numbers follow from that one.
   */
  #random(): number {
    if (this.#others !== undefined) return this.#others();
    const number = seededRandom(this.#options.seed, this.#accepted)();
    this.#others = seededRandom(number * 2 ** 32);
    return number;
  }

  /** Fills the weights e^((logit - max) / temperature) and their sums by block; gives the total. */
  #weigh(logits: Float32Array, max: number, scale: number): number {
    const { weights, blockSums } = this.#scratch;
    let total = 0;
    for (let start = 0, block = 0; start < logits.length; start += BLOCK_TOKENS, block++) {
      const end = Math.min(start + BLOCK_TOKENS, logits.length);
      let sum = 0;
      for (let i = start; i < end; i++) {
        const exponent = (max - (logits[i] as number)) * scale;
        let weight = 0;
        if (exponent < -NEGLIGIBLE_EXPONENT) {
          const step = (exponent * EXP_STEPS) | 0;
          const rest = exponent - step / EXP_STEPS;
          weight = (EXP_TABLE[step] as number) * (1 - rest * (1 - rest * (0.5 - rest / 6)));
        }
        weights[i] = weight;
        sum += weight;
      }
      blockSums[block] = sum;
      total += sum;
    }
    return total;
  }

  #drawAny(total: number): number {
    const { weights, blockSums } = this.#scratch;
    let rest = this.#random() * total;
    let block = 0;
    const lastBlock = blockSums.length - 1;
    while (block < lastBlock && rest >= (blockSums[block] as number)) {
      rest -= blockSums[block++] as number;
    }
    let last = -1;
    const end = Math.min((block + 1) * BLOCK_TOKENS, weights.length);
    for (let i = block * BLOCK_TOKENS; i < end; i++) {
      const weight = weights[i] as number;
      if (weight === 0) continue;
      last = i;
      rest -= weight;
      if (rest < 0) return i;
    }
    // Rounding can leave a rest after the last token; where the block was empty, take the best.
    return last >= 0 ? last : heaviest(weights);
  }

  /**
   * The nucleus is the smallest set of most likely tokens with mass topP. Where the tokens heavier
   * than some floor already weigh that much, it is among them, so only those are sorted. No token
   * lighter than (1 - topP) / V is in it, as all of those together weigh less than 1 - topP.
   */
  #drawNucleus(vocabularySize: number, total: number, topP: number): number {
    const target = topP * total;
    const lowest = ((1 - topP) * total) / vocabularySize;
    let count = 0;
    for (const floor of [total / 256, total / 8192, lowest, 0]) {
      count = this.#collect(vocabularySize, floor);
      if ((this.#scratch.sums[0] as number) >= target) break;
    }
    return this.#drawHeaviest(count, count, () => target);
  }

  /** The likeliest tokens that `topK` and `minP` leave, and the nucleus of these. */
  #drawRestricted(vocabularySize: number, total: number): number {
    const { topK, minP, topP } = this.#options;
    let count = 0;
    for (const share of topK > 0 ? FLOOR_SHARES : [0]) {
      // The likeliest token weighs 1.
      const floor = Math.max(share * total, minP);
      count = this.#collect(vocabularySize, floor);
      if ((topK > 0 && count >= topK) || floor === minP) break;
    }
    const kept = topK > 0 ? Math.min(topK, count) : count;
    return this.#drawHeaviest(count, kept, (mass) => topP * mass);
  }

  /** Gathers the tokens at least as heavy as `floor` in index order, and their mass. */
  #collect(vocabularySize: number, floor: number): number {
    const { weights, candidates, sums } = this.#scratch;
    let count = 0;
    let mass = 0;
    for (let i = 0; i < vocabularySize; i++) {
      const weight = weights[i] as number;
      if (weight < floor || weight === 0) continue;
      candidates[count++] = i;
      mass += weight;
    }
    sums[0] = mass;
    return count;
  }

  /**
   * Draws from the heaviest candidates, at most `kept`, that together weigh the target; ties go to
   * the lower id. The target may depend on the mass of those kept.
   */
  #drawHeaviest(count: number, kept: number, targetOf: (mass: number) => number): number {
    const { weights, candidates, sorted } = this.#scratch;
    for (let i = 0; i < count; i++) sorted[i] = weights[candidates[i] as number] as number;
    const ascending = sorted.subarray(0, count).sort();
    let all = 0;
    for (let i = count - kept; i < count; i++) all += ascending[i] as number;
    const target = targetOf(all);
    let mass = 0;
    let lowest = count;
    while (lowest > count - kept && mass < target) mass += ascending[--lowest] as number;
    const threshold = ascending[lowest] as number;
    let ties = 0;
    for (let i = lowest; i < count && ascending[i] === threshold; i++) ties++;
    let rest = this.#random() * mass;
    let last = -1;
    for (let i = 0; i < count; i++) {
      const token = candidates[i] as number;
      const weight = weights[token] as number;
      if (weight < threshold || (weight === threshold && ties-- <= 0)) continue;
      last = token;
      rest -= weight;
      if (rest < 0) return token;
    }
    return last;
  }
}

/** Memory that the samplers of one thread share; nothing in it outlives a draw. */
export interface SamplerScratch {
  readonly weights: Float64Array;
  readonly blockSums: Float64Array;
  readonly candidates: Int32Array;
  readonly sorted: Float64Array;
  /** One number, kept here so that no object is made per draw. */
  readonly sums: Float64Array;
}

/** Scratch memory for a vocabulary of `size` tokens. */
export function samplerScratch(size: number): SamplerScratch {
  return {
    weights: new Float64Array(size),
    blockSums: new Float64Array(Math.ceil(size / BLOCK_TOKENS)),
    candidates: new Int32Array(size),
    sorted: new Float64Array(size),
    sums: new Float64Array(1),
  };
}

/** Values that are compared at once before any is examined. */
const STRIDE = 8;

/** The first index of the largest value; eight comparisons in a row take a third of the time. */
function argmax(values: Float32Array): number {
  let best = 0;
  let max = values[0] as number;
  const blocks = values.length - (values.length % STRIDE);
  for (let i = 0; i < blocks; i += STRIDE) {
    const larger =
      (values[i] as number) > max ||
      (values[i + 1] as number) > max ||
      (values[i + 2] as number) > max ||
      (values[i + 3] as number) > max ||
      (values[i + 4] as number) > max ||
      (values[i + 5] as number) > max ||
      (values[i + 6] as number) > max ||
      (values[i + 7] as number) > max;
    if (larger) best = laterMax(values, i, i + STRIDE, best);
    max = values[best] as number;
  }
  return laterMax(values, blocks, values.length, best);
}

/** The first index of the largest of values[best] and those in [start, end). */
function laterMax(values: Float32Array, start: number, end: number, best: number): number {
  let found = best;
  for (let i = start; i < end; i++) {
    if ((values[i] as number) > (values[found] as number)) found = i;
  }
  return found;
}

/** The first index of the largest weight; apart from argmax, so that each is compiled for one type. */
function heaviest(weights: Float64Array): number {
  let best = 0;
  for (let i = 1; i < weights.length; i++) {
    if ((weights[i] as number) > (weights[best] as number)) best = i;
  }
  return best;
}
