// holds: train-weave

import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { ModelAverage } from "./model-average.ts";

const random = seededRandom(4);
const draw = () => ({ a: Float32Array.of(random(), random()), b: Float32Array.of(random()) });
/** The first number alone, and the others. */
const RANGES = [
  [{ parameter: "a", begin: 0, end: 1 }],
  [
    { parameter: "a", begin: 1, end: 2 },
    { parameter: "b", begin: 0, end: 1 },
  ],
];
/** Both fragments after each of some steps. */
const addAll = (average: ModelAverage, rounds: readonly ReturnType<typeof draw>[], from = 0) => {
  for (const [i, one] of rounds.entries()) {
    for (const fragment of [0, 1]) average.add(fragment, one, (from + i + 1) * 8 + fragment);
  }
};

interface Seen {
  readonly value: number;
  /** The worker's steps at that time. */
  readonly step: number;
}

/** Weights that fall by e for each `horizon` steps since, in float64. */
function definition(seen: readonly Seen[], horizon: number): number {
  const last = seen.at(-1)?.step ?? 0;
  let [sum, weights] = [0, 0];
  for (const [i, { value, step }] of seen.entries()) {
    const passed = step - (seen[i - 1]?.step ?? 0);
    const weight = (1 - Math.exp(-passed / horizon)) * Math.exp((step - last) / horizon);
    sum += weight * value;
    weights += weight;
  }
  return sum / weights;
}

test("average: of a fragment equals the definition, over rounds of any length", () => {
  const average = new ModelAverage(draw(), RANGES, 40);
  average.add(0, draw(), 1);
  const seen: Seen[] = [];
  for (const step of [4, 8, 12, 44, 76, 83]) {
    const parameters = draw();
    average.add(1, parameters, step);
    seen.push({ value: parameters.b[0] ?? 0, step });
    const left = draw();
    average.copyTo(left);
    expect(left.b[0]).toBeCloseTo(definition(seen, 40), 6);
  }
});

test("average: resumes bit by bit, and begins again with another model's", () => {
  const rounds = Array.from({ length: 9 }, draw);
  const whole = new ModelAverage(draw(), RANGES, 50);
  addAll(whole, rounds);
  const first = new ModelAverage(draw(), RANGES, 50);
  addAll(first, rounds.slice(0, 4));
  const second = new ModelAverage(draw(), RANGES, 50, structuredClone(first.state));
  addAll(second, rounds.slice(4), 4);
  expect(second.state).toEqual(whole.state);
  const other = new ModelAverage({ a: new Float32Array(3) }, RANGES, 50, whole.state);
  expect(other.state["average_weights"]).toEqual(Float32Array.of(0, 0));
});

test("average: values of no new step change nothing", () => {
  const average = new ModelAverage(draw(), RANGES, 10);
  const before = structuredClone(average.state);
  average.add(0, draw(), 0);
  expect(average.state).toEqual(before);
});

test("average: parameters of a fragment without an average stay unchanged", () => {
  const parameters = draw();
  const before = structuredClone(parameters);
  const average = new ModelAverage(parameters, RANGES, 10);
  average.add(0, draw(), 8);
  average.copyTo(parameters);
  expect(parameters).toEqual(before);
});

test("average: of a worker ahead of the parameters it waits, then continues", () => {
  const all = (value: number) => ({ a: Float32Array.of(value, value), b: Float32Array.of(value) });
  const addBoth = (average: ModelAverage, value: number, step: number): number => {
    for (const fragment of [0, 1]) average.add(fragment, all(value), step);
    const left = draw();
    average.copyTo(left);
    return left.b[0] as number;
  };
  const horizon = 2;
  const ahead = new ModelAverage(draw(), RANGES, horizon);
  expect(addBoth(ahead, 5, 100)).toBe(5);
  const average = new ModelAverage(draw(), RANGES, horizon, ahead.state);
  expect(addBoth(average, 9, 50)).toBe(5);
  expect(addBoth(average, 9, 80)).toBeCloseTo(9, 4);
});
