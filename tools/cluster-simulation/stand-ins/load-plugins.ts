import { COUNTING, countingAlgorithm } from "../training/counting-algorithm.ts";

/** The only plugin of simulated trainers. */
export async function loadPlugins() {
  return { environments: new Map(), algorithms: new Map([[COUNTING, countingAlgorithm]]) };
}
