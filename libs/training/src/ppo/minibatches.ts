import type { Random } from "@heddle/base/random";
import type { Tensors } from "../backend.ts";
import type { Experience } from "./rollout-collector.ts";

/** The numbers 0 to count - 1 in a random order, in place (Fisher and Yates). */
export function shuffle(order: Int32Array, random: Random): void {
  for (let i = order.length - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    const other = order[i] ?? 0;
    order[i] = order[j] ?? 0;
    order[j] = other;
  }
}

/** The rows of each tensor of the experience in the given order. */
export function gatherExperience(experience: Experience, order: Int32Array): Tensors {
  const steps = experience.value.length;
  return Object.fromEntries(
    Object.entries(experience).map(([name, data]: [string, Float32Array | Int32Array]) => {
      const width = data.length / steps;
      const rows =
        data instanceof Int32Array
          ? new Int32Array(order.length * width)
          : new Float32Array(order.length * width);
      for (const [to, from] of order.entries()) {
        if (width === 1) rows[to] = data[from] ?? 0;
        else rows.set(data.subarray(from * width, (from + 1) * width), to * width);
      }
      return [name, rows];
    }),
  );
}
