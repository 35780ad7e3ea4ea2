/** One logistic regression a category, with weights of eight bits and a scale. */
export interface PackedHeads {
  readonly categories: readonly string[];
  /** For each category as many bytes as there are features, in base64. */
  readonly weights: string;
  readonly scales: readonly number[];
  readonly biases: readonly number[];
}

/** The scores of a text by its features, in the order of the categories. */
export class LogisticHeads {
  readonly #heads: PackedHeads;
  readonly #weights: Int8Array;

  constructor(heads: PackedHeads) {
    this.#heads = heads;
    this.#weights = new Int8Array(Buffer.from(heads.weights, "base64"));
  }

  scores(features: readonly number[]): number[] {
    return this.#heads.scales.map((scale, head) => {
      let sum = 0;
      features.forEach((feature, i) => {
        sum += feature * (this.#weights[head * features.length + i] ?? 0);
      });
      return 1 / (1 + Math.exp(-(sum * scale + (this.#heads.biases[head] ?? 0))));
    });
  }
}
