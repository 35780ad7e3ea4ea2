import type { writeTinyAdapter } from "../../gguf/tiny-adapter.ts";

/** For tests: puts the change of a tiny adapter into the model's own weights. */
export function mergeAdapter(factors: Awaited<ReturnType<typeof writeTinyAdapter>>) {
  return (name: string, weights: Float32Array): void => {
    const change = factors.get(name);
    if (change === undefined) return;
    const { columns, a, b, rank, factor } = change;
    for (let at = 0; at < weights.length; at++) {
      const [row, column] = [Math.floor(at / columns), at % columns];
      let sum = 0;
      for (let i = 0; i < rank; i++) {
        sum += (b[row * rank + i] as number) * (a[i * columns + column] as number);
      }
      weights[at] = (weights[at] as number) + sum * factor;
    }
  };
}
