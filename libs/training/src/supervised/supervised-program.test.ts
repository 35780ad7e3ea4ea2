import { seededRandom } from "@heddle/base/random";
import { expect, test } from "vitest";
import { initialParameters } from "../initialize.ts";
import { runReference } from "../reference/reference-backend.ts";
import { gradientsOf } from "../training-program.ts";
import { supervisedModel, supervisedProgram } from "./supervised-program.ts";

test("supervised: hidden layers begin by He's deviation, the last by 1 / sqrt(inputs)", () => {
  const shape = { features: 8, outputs: 2, task: "classification", hidden: [32, 50] } as const;
  const { parameters } = supervisedProgram(shape, 4);
  const deviations = parameters.flatMap(({ init }) =>
    init.kind === "normal" ? [init.deviation] : [],
  );
  expect(deviations).toEqual([Math.sqrt(2 / 8), Math.sqrt(2 / 32), Math.sqrt(1 / 50)]);
});

test.each(["regression", "classification"] as const)(
  "supervised: the model alone gives the outputs of its loss: %s",
  (task) => {
    const shape = { features: 3, outputs: 2, task, hidden: [4] };
    const program = supervisedProgram(shape, 2);
    const parameters = initialParameters(program.parameters, seededRandom(1));
    parameters["dense.0.bias"]?.set([0.1, -0.2, 0.3, -0.4]);
    parameters["dense.1.bias"]?.set([0.5, -0.5]);
    const features = [1, -2, 0.5, -0.3, 0.7, 2];
    const rows = [features.slice(0, 3), features.slice(3)].map((row) => {
      const layer = (inputs: readonly number[], at: number, size: number) =>
        Array.from({ length: size }, (_, column) =>
          inputs.reduce(
            (sum, each, i) =>
              sum + each * (parameters[`dense.${at}.weight`]?.[i * size + column] ?? 0),
            parameters[`dense.${at}.bias`]?.[column] ?? 0,
          ),
        );
      const hidden = layer(row, 0, 4).map((each) => Math.max(0, each));
      return layer(hidden, 1, 2);
    });
    const model = supervisedModel(shape, parameters, 2);
    expect(model.inputs).toEqual([{ name: "features", shape: [2, 3], type: "f32" }]);
    const { output = [] } = runReference(model, { features });
    for (const [i, value] of rows.flat().entries()) expect(output[i]).toBeCloseTo(value, 8);
    const target = task === "regression" ? [1, 2, 3, 4] : [1, 0];
    const mean = (losses: readonly number[]) =>
      losses.reduce((sum, each) => sum + each, 0) / losses.length;
    const crossEntropy = rows.map((row, i) => {
      const all = row.reduce((sum, each) => sum + Math.exp(each), 0);
      return Math.log(all) - (row[target[i] ?? 0] ?? 0);
    });
    const squares = rows.flat().map((each, i) => (each - (target[i] ?? 0)) ** 2);
    const { loss = [] } = runReference(gradientsOf(program), { ...parameters, features, target });
    expect(loss[0]).toBeCloseTo(task === "regression" ? mean(squares) / 2 : mean(crossEntropy), 8);
  },
);
