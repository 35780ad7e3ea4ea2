import { expect, test } from "vitest";
import { RECORDS_EVENTS, SCOPES_MODELS } from "./cluster-version.ts";
import type { ControlCommand } from "./command.ts";
import { modelIn, projectOfDeployment } from "./model-names.ts";
import { ReplicatedControl } from "./replicated-control.ts";
import type { ModelRecord } from "./state.ts";

const DEPLOYMENT = {
  replicas: 1,
  spec: { key: "d", engine: "llama", weights: { key: "w", file: "w.gguf", sources: [] } },
};

function model(id: string, project: string | undefined, backing = "b"): ControlCommand {
  const fields = {
    id,
    family: "f",
    contextWindow: 1,
    availability: "a",
    intendedUse: "i",
    ownedBy: "o",
    capabilities: ["chat"],
    createdAtMs: 1,
    deployment: "d",
    backing,
    standIn: false,
    ...(project !== undefined && { project }),
  } satisfies ModelRecord;
  return { type: "model.register", atMs: 1, model: fields, deployment: DEPLOYMENT } as never;
}

function controlAt(version: number) {
  const control = new ReplicatedControl();
  control.state.cluster.set("version", version);
  const apply = (command: ControlCommand) =>
    control.apply({ type: "control", command }, control.index + 1);
  const raise = (to: number) =>
    control.apply({ type: "version.raise", atMs: 1, version: to }, control.index + 1);
  return { control, state: control.state, apply, raise };
}

// holds: access-model-ids
test("model ids: two projects and the cluster use one id, each its own model", () => {
  const { state, apply } = controlAt(SCOPES_MODELS);
  for (const project of ["a", "b", undefined]) {
    expect(apply(model("m", project, `of ${project}`)), `${project}`).toEqual({ ok: true });
    expect(modelIn(state, "m", project)?.backing).toBe(`of ${project}`);
  }
  expect(modelIn(state, "m", "c")?.backing).toBe("of undefined");
  const removal = { type: "model.remove", atMs: 2, id: "m" } as const;
  expect(apply({ ...removal, project: "a" })).toEqual({ ok: true, project: "a" });
  expect(apply({ ...removal, project: "a" })).toMatchObject({ code: "not_found" });
  expect(state.removedModels.has("m")).toBe(false);
  expect(apply(removal)).toEqual({ ok: true });
  expect(state.removedModels.has("m")).toBe(true);
  expect(modelIn(state, "m", "a")).toBeUndefined();
  expect(modelIn(state, "m", "b")?.backing).toBe("of b");
});

test("deployments: have the project of their models, if these have one", () => {
  const { state, apply } = controlAt(SCOPES_MODELS);
  expect(projectOfDeployment(state, "d")).toBeUndefined();
  apply(model("m", "a"));
  apply(model("n", "a"));
  expect(projectOfDeployment(state, "d")).toBe("a");
  apply(model("m", undefined));
  expect(projectOfDeployment(state, "d")).toBeUndefined();
});

test("model ids: a project's model takes no id of the whole cluster", () => {
  const { apply } = controlAt(SCOPES_MODELS);
  expect(apply(model("m", undefined))).toEqual({ ok: true });
  expect(apply(model("m", "a"))).toMatchObject({ code: "conflict" });
});

test("model ids: the raise of the version scopes the models that exist", async () => {
  const { control, state, apply, raise } = controlAt(RECORDS_EVENTS);
  apply(model("m", "a"));
  apply(model("n", undefined));
  expect(apply(model("m", "b"))).toMatchObject({ code: "conflict" });
  expect(raise(SCOPES_MODELS)).toEqual({ ok: true });
  expect(modelIn(state, "m", "a")?.id).toBe("m");
  expect(modelIn(state, "m", "b")).toBeUndefined();
  expect(modelIn(state, "n", "b")?.id).toBe("n");
  expect(apply(model("m", "b"))).toEqual({ ok: true });
  const restored = new ReplicatedControl();
  await restored.restore(control.snapshot());
  expect(modelIn(restored.state, "m", "a")?.project).toBe("a");
});
