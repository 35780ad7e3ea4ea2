import { seededRandom } from "@heddle/base/random";
import { describe, expect, it } from "vitest";
import { Sampler, type SamplerOptions, samplerScratch } from "./sampler.ts";

const VOCABULARY = 1000;
const DRAWS = 20_000;

function samplerOf(options: Partial<SamplerOptions>, prompt: number[] = []): Sampler {
  const plain = { temperature: 1, topP: 1, presencePenalty: 0, frequencyPenalty: 0, seed: 1 };
  const extras = { topK: 0, minP: 0, repetitionPenalty: 1 };
  const noBias = { biasTokens: new Int32Array(0), biasValues: new Float32Array(0) };
  const all = { ...plain, ...extras, ...noBias, ...options };
  return new Sampler(all, samplerScratch(VOCABULARY), prompt);
}

/** Logits of the given probabilities for the first tokens, none for the others. */
function logitsFor(probabilities: readonly number[]): Float32Array {
  const logits = new Float32Array(VOCABULARY).fill(Number.NEGATIVE_INFINITY);
  for (const [token, p] of probabilities.entries()) logits[token] = Math.log(p);
  return logits;
}

function drawnTokens(sampler: Sampler, logits: Float32Array): number[] {
  const found = shares(sampler, logits);
  return [...found.keys()].filter((token) => (found[token] as number) > 0);
}

function logitsOf(seed: number): Float32Array {
  const random = seededRandom(seed);
  return Float32Array.from({ length: VOCABULARY }, () => random() * 8);
}

/** The share of each token over many draws. */
function shares(sampler: Sampler, logits: Float32Array): Float64Array {
  const found = new Float64Array(VOCABULARY);
  for (let i = 0; i < DRAWS; i++) {
    const token = sampler.draw(logits);
    found[token] = (found[token] as number) + 1 / DRAWS;
  }
  return found;
}

function probabilities(logits: Float32Array, temperature: number): number[] {
  const weights = Array.from(logits, (logit) => Math.exp(logit / temperature));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

describe("Sampler", () => {
  it("takes one number of the seed for a token, also where tokens are refused", () => {
    const logits = logitsOf(9);
    const [plain, refused] = [samplerOf({}), samplerOf({})];
    const drawn: number[] = [];
    for (let i = 0; i < 30; i++) {
      drawn.push(plain.draw(logits));
      // Where a token is due none is drawn.
      for (let draws = 0; draws < i % 3; draws++) refused.draw(logits);
      for (const sampler of [plain, refused]) sampler.accept(i);
    }
    expect(new Set(drawn).size).toBeGreaterThan(5);
    expect(refused.draw(logits)).toBe(plain.draw(logits));
  });

  it("takes the largest logit at temperature 0", () => {
    const logits = logitsOf(1);
    logits[77] = 50;
    expect(samplerOf({ temperature: 0 }).draw(logits)).toBe(77);
  });

  it.each([0.7, 1.8])("temperature %d: tokens come as often as they are likely", (temperature) => {
    const logits = logitsOf(2);
    const found = shares(samplerOf({ temperature }), logits);
    const distance = probabilities(logits, temperature).reduce(
      (sum, p, token) => sum + Math.abs(p - (found[token] as number)),
      0,
    );
    // The expected total deviation of 20,000 draws over 1,000 tokens is at most 0.18.
    expect(distance).toBeLessThan(0.25);
  });

  // holds: api-top-p
  it("draws from exactly the nucleus, also where it is most of the vocabulary", () => {
    for (const topP of [0.01, 0.3, 0.9, 0.999]) {
      const logits = logitsOf(3);
      const found = shares(samplerOf({ topP }), logits);
      const ranked = probabilities(logits, 1)
        .map((p, token) => ({ p, token }))
        .sort((a, b) => b.p - a.p);
      let mass = 0;
      const nucleus = new Set<number>();
      for (const { p, token } of ranked) {
        if (mass >= topP) break;
        mass += p;
        nucleus.add(token);
      }
      found.forEach((share, token) => {
        if (share > 0) expect(nucleus.has(token), `token ${token} at top_p ${topP}`).toBe(true);
      });
      const most = ranked[0] as { p: number; token: number };
      expect(found[most.token] as number).toBeCloseTo(most.p / mass, 1);
    }
  });

  // holds: api-top-p
  it("draws every token of the nucleus, and cuts at the exact mass", () => {
    const logits = logitsFor([0.3, 0.2, 0.15, 0.1, 0.08, 0.06, 0.05, 0.03, 0.02, 0.01]);
    const sizes: [number, number][] = [
      ...([
        [0.05, 1],
        [0.29, 1],
        [0.31, 2],
        [0.49, 2],
        [0.51, 3],
        [0.64, 3],
      ] as [number, number][]),
      ...([
        [0.66, 4],
        [0.76, 5],
        [0.84, 6],
        [0.9, 7],
        [0.96, 8],
        [0.98, 9],
        [0.995, 10],
      ] as [number, number][]),
    ];
    for (const [topP, size] of sizes) {
      expect([topP, drawnTokens(samplerOf({ topP }), logits).length]).toEqual([topP, size]);
    }
  });

  it("top_p: one heavy token and many light ones", () => {
    const light = 0.5 / (VOCABULARY - 1);
    const logits = logitsFor([0.5, ...Array<number>(VOCABULARY - 1).fill(light)]);
    const sampler = samplerOf({ topP: 0.9 });
    const drawn = Array.from({ length: 2_000 }, () => sampler.draw(logits));
    expect(drawn.filter((token) => token === 0).length / 2_000).toBeCloseTo(0.5 / 0.9, 1);
    // Of equal tokens those with lower ids are in it: 0.4 of the mass, 800 tokens.
    const last = Math.max(...drawn);
    expect(last).toBeGreaterThan(780);
    expect(last).toBeLessThanOrEqual(Math.ceil(0.4 / light));
  });

  // holds: api-samplers
  it("top_k: keeps the k likeliest, and the nucleus is that of these", () => {
    const logits = logitsFor([0.05, 0.4, 0.2, 0.1, 0.05, 0.1, 0.1]);
    expect(drawnTokens(samplerOf({ topK: 1 }), logits)).toEqual([1]);
    expect(drawnTokens(samplerOf({ topK: 2 }), logits)).toEqual([1, 2]);
    expect(drawnTokens(samplerOf({ topK: 4 }), logits)).toEqual([1, 2, 3, 5]);
    expect(drawnTokens(samplerOf({ topK: 100 }), logits)).toEqual([0, 1, 2, 3, 4, 5, 6]);
    // Of the three kept, with 4/7, 2/7 and 1/7, the first two weigh 6/7.
    expect(drawnTokens(samplerOf({ topK: 3, topP: 0.85 }), logits)).toEqual([1, 2]);
    expect(drawnTokens(samplerOf({ topK: 3, topP: 0.87 }), logits)).toEqual([1, 2, 3]);
    const flat = new Float32Array(VOCABULARY);
    expect(drawnTokens(samplerOf({ topK: 3 }), flat)).toEqual([0, 1, 2]);
    const found = shares(samplerOf({ topK: 2 }), logits);
    expect(found[1] as number).toBeCloseTo(2 / 3, 1);
  });

  // holds: api-samplers
  it("min_p: keeps tokens of a share of the likeliest one's probability", () => {
    const logits = logitsFor([0.05, 0.4, 0.2, 0.1, 0.05, 0.1, 0.1]);
    expect(drawnTokens(samplerOf({ minP: 0.6 }), logits)).toEqual([1]);
    expect(drawnTokens(samplerOf({ minP: 0.45 }), logits)).toEqual([1, 2]);
    expect(drawnTokens(samplerOf({ minP: 0.2 }), logits)).toEqual([1, 2, 3, 5, 6]);
    expect(drawnTokens(samplerOf({ minP: 0.2, topK: 3 }), logits)).toEqual([1, 2, 3]);
    expect(drawnTokens(samplerOf({ minP: 1 }), logits)).toEqual([1]);
  });

  // holds: api-samplers
  it("repetition_penalty: tokens of the prompt and the answer, each once", () => {
    const sampler = samplerOf({ repetitionPenalty: 2 }, [0, 1]);
    sampler.accept(2);
    sampler.accept(2);
    const logits = new Float32Array(VOCABULARY);
    logits.set([4, -4, 3, 5]);
    sampler.adjust(logits);
    expect([...logits.subarray(0, 4)]).toEqual([2, -8, 1.5, 5]);
  });

  it("gives ties at the nucleus's edge to the lower id", () => {
    const logits = new Float32Array(VOCABULARY).fill(-100);
    logits.fill(5, 10, 20);
    const found = shares(samplerOf({ topP: 0.5 }), logits);
    expect([...found].flatMap((share, token) => (share > 0 ? [token] : []))).toEqual([
      10, 11, 12, 13, 14,
    ]);
  });

  it("never draws a token that was taken out", () => {
    const logits = new Float32Array(VOCABULARY).fill(Number.NEGATIVE_INFINITY);
    logits[5] = 1;
    logits[900] = 1;
    const found = shares(samplerOf({ temperature: 2 }), logits);
    expect((found[5] as number) + (found[900] as number)).toBeCloseTo(1);
  });

  it("subtracts the penalties as OpenAI defines them", () => {
    const sampler = samplerOf({ presencePenalty: 0.5, frequencyPenalty: 0.25 });
    for (const token of [3, 3, 4]) sampler.accept(token);
    const logits = new Float32Array(VOCABULARY);
    sampler.adjust(logits);
    expect([...logits.subarray(2, 6)]).toEqual([0, -1, -0.75, 0]);
  });

  it("adds the bias", () => {
    const biasTokens = Int32Array.of(1, 2);
    const biasValues = Float32Array.of(100, -100);
    const logits = new Float32Array(VOCABULARY);
    samplerOf({ biasTokens, biasValues }).adjust(logits);
    expect([...logits.subarray(0, 4)]).toEqual([0, 100, -100, 0]);
  });

  it("draws the same tokens for the same seed", () => {
    const draw = (seed: number): number[] => {
      const sampler = samplerOf({ seed });
      const logits = logitsOf(4);
      return Array.from({ length: 20 }, () => sampler.draw(logits));
    };
    expect(draw(9)).toEqual(draw(9));
    expect(draw(9)).not.toEqual(draw(10));
  });
});
