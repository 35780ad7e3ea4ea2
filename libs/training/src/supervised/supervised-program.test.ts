import { expect, test } from "vitest";
import { supervisedProgram } from "./supervised-program.ts";

test("supervised: hidden layers begin by He's deviation, the last by 1 / sqrt(inputs)", () => {
  const shape = { features: 8, outputs: 2, task: "classification", hidden: [32, 50] } as const;
  const { parameters } = supervisedProgram(shape, 4);
  const deviations = parameters.flatMap(({ init }) =>
    init.kind === "normal" ? [init.deviation] : [],
  );
  expect(deviations).toEqual([Math.sqrt(2 / 8), Math.sqrt(2 / 32), Math.sqrt(1 / 50)]);
});
