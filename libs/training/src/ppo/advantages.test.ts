// holds: train-advantages

import fc from "fast-check";
import { expect, test } from "vitest";
import { estimateAdvantages, type Rollout } from "./advantages.ts";

/** How a step may end: the episode continues, has ended, or was cut off. */
type Ending = "continues" | "ended" | "cut off";

interface Step {
  readonly reward: number;
  readonly value: number;
  readonly ending: Ending;
  /** The critic's value of the last observation. */
  readonly following: number;
}

const number = () => fc.double({ min: -100, max: 100, noNaN: true }).map(Math.fround);
const stepOf = (ending: fc.Arbitrary<Ending>) =>
  fc.record({ reward: number(), value: number(), ending, following: number() });
const endings = fc.constantFrom<Ending>("continues", "continues", "ended", "cut off");
const share = () => fc.double({ min: 0, max: 1, noNaN: true });
/** Some environments with equally many steps, and what follows the last step of each. */
const worlds = fc.integer({ min: 1, max: 12 }).chain((steps) =>
  fc.array(
    fc.record({
      steps: fc.array(stepOf(endings), { minLength: steps, maxLength: steps }),
      last: number(),
    }),
    { minLength: 1, maxLength: 4 },
  ),
);
type World = { readonly steps: readonly Step[]; readonly last: number };

function rolloutOf(environments: readonly World[]): Rollout {
  const steps = environments[0]?.steps.length ?? 0;
  const each = (of: (step: Step) => number) =>
    Float32Array.from({ length: steps * environments.length }, (_, at) => {
      const world = environments[at % environments.length];
      return of(world?.steps[Math.floor(at / environments.length)] as Step);
    });
  return {
    steps,
    environments: environments.length,
    rewards: each(({ reward }) => reward),
    values: each(({ value }) => value),
    dones: each(({ ending }) => Number(ending !== "continues")),
    cutValues: each(({ ending, following }) => (ending === "cut off" ? following : 0)),
    lastValues: Float32Array.from(environments, ({ last }) => last),
  };
}

/** The definition, summed in float64: each episode's errors, discounted, up to its end. */
function definition({ steps, last }: World, gamma: number, lambda: number): number[] {
  const errors = steps.map(({ reward, value, ending, following }, at) => {
    const next = {
      continues: steps[at + 1]?.value ?? last,
      ended: 0,
      "cut off": following,
    }[ending];
    return reward + gamma * next - value;
  });
  return steps.map((_, from) => {
    let sum = 0;
    for (let at = from; at < steps.length; at++) {
      sum += (gamma * lambda) ** (at - from) * (errors[at] ?? 0);
      if (steps[at]?.ending !== "continues") break;
    }
    return sum;
  });
}

test("advantages: equal the float64 definition, wherever episodes end or are cut", () => {
  fc.assert(
    fc.property(worlds, share(), share(), (environments, gamma, lambda) => {
      const rollout = rolloutOf(environments);
      const { advantages, returns } = estimateAdvantages(rollout, gamma, lambda);
      for (const [i, world] of environments.entries()) {
        for (const [step, expected] of definition(world, gamma, lambda).entries()) {
          const at = step * environments.length + i;
          // Sums of at most 12 numbers of at most 300, rounded to float32 once.
          expect(Math.abs((advantages[at] ?? Number.NaN) - expected)).toBeLessThan(1e-3);
          const target = expected + (world.steps[step]?.value ?? 0);
          expect(Math.abs((returns[at] ?? Number.NaN) - target)).toBeLessThan(1e-3);
        }
      }
    }),
    { seed: 5, numRuns: 500 },
  );
});

test("advantages: a cut episode gives what a rollout that ends there gives", () => {
  const going = fc.array(stepOf(fc.constant<Ending>("continues")), { minLength: 1, maxLength: 8 });
  fc.assert(
    fc.property(going, going, number(), share(), share(), (before, after, last, gamma, lambda) => {
      const cut = before.at(-1) as Step;
      const whole = [...before.slice(0, -1), { ...cut, ending: "cut off" as const }, ...after];
      const some = rolloutOf([{ steps: whole, last }]);
      const alone = rolloutOf([{ steps: before, last: cut.following }]);
      const [one, other] = [some, alone].map((it) => estimateAdvantages(it, gamma, lambda));
      // Zeros are equal, whatever their sign.
      const plain = (numbers: ArrayLike<number> = []) => Array.from(numbers, (it) => it + 0);
      expect(plain(one?.advantages).slice(0, before.length)).toEqual(plain(other?.advantages));
    }),
    { seed: 6, numRuns: 300 },
  );
});

test("advantages: with endless rewards a cut costs nothing, an end costs the value", () => {
  const endless = 1 / (1 - 0.9);
  const worldWith = (ending: Ending): World => ({
    steps: (["continues", ending, "continues"] as const).map((one) => ({
      reward: 1,
      value: endless,
      ending: one,
      following: endless,
    })),
    last: endless,
  });
  const { advantages } = estimateAdvantages(
    rolloutOf([worldWith("cut off"), worldWith("ended")]),
    ...([0.9, 0.95] as const),
  );
  for (const step of [0, 1, 2]) expect(advantages[2 * step]).toBeCloseTo(0, 4);
  expect(advantages[2 * 1 + 1]).toBeCloseTo(1 - endless, 4);
});
