import { adapterFactors, TINY_ADAPTER } from "../../gguf/tiny-adapter.ts";

const { rank, alpha } = TINY_ADAPTER;

/** For tests: puts the change of a tiny adapter into the model's own weights. */
export function mergeTinyAdapter(seed: number, scale = 1) {
  const factors = adapterFactors(seed);
  return (name: string, weights: Float32Array): void => {
    const change = factors.get(name);
    if (change === undefined) return;
    const { columns, a, b } = change;
    for (let at = 0; at < weights.length; at++) {
      const [row, column] = [Math.floor(at / columns), at % columns];
      let sum = 0;
      for (let i = 0; i < rank; i++) {
        sum += (b[row * rank + i] as number) * (a[i * columns + column] as number);
      }
      weights[at] = (weights[at] as number) + ((sum * alpha) / rank) * scale;
    }
  };
}
