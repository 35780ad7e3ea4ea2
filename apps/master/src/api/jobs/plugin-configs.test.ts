// holds: train-plugins

import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";
import { AttachedNode } from "../../nodes/attached-node.ts";

// POST /jobs validates a config against the schemas that workers report for their plugins.

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
beforeEach(() => {
  server.directory.views = [];
});
afterAll(() => server.master.close());

const schemaWith = (maximum: number) =>
  JSON.stringify({
    type: "object",
    properties: { generations: { type: "integer", minimum: 1, maximum } },
  });

/** Registers workers; each with its schema of `evolution`, if any. */
function attach(...schemas: readonly (string | undefined)[]): void {
  server.directory.views = schemas.map((schema, i) => {
    const schemas: Record<string, string> = schema === undefined ? {} : { evolution: schema };
    const register = {
      nodeId: `n${i}`,
      kind: "NODE_KIND_WORKER" as const,
      name: `w${i}`,
      version: "test",
      address: "127.0.0.1:1",
      incarnation: "1",
      hardware: null,
      labels: {},
      taints: [],
      rack: "",
      fabric: "",
      executors: ["training"],
      environments: [],
      algorithms: ["ppo", "evolution"],
      algorithmSchemas: schemas,
      taskIsolation: "",
      maxTasks: 0,
      maxTasksChosen: false,
      engineFeatures: [],
    };
    return new AttachedNode(register, undefined, 0).view(0);
  });
}

async function faultsOf(config: Record<string, unknown>, more = {}) {
  const job = { name: "job", algorithm: "evolution", config, ...more };
  const path = "/api/v1/jobs?dry_run=true";
  const reply = await send(server, "POST", path, job);
  const { errors = [] } = (await reply.json()) as { errors?: { pointer: string }[] };
  return [reply.status, ...errors.map(({ pointer }) => pointer)];
}

it("config: a plugin's own field is refused with its pointer", async () => {
  attach(schemaWith(100));
  expect(await faultsOf({ generations: 5, seed: 3 })).toEqual([200]);
  expect(await faultsOf({ generations: 0, learning_rat: 1 })).toEqual([
    422,
    "#/config/generations",
    "#/config/learning_rat",
  ]);
});

it("config: a fault of a shared field is reported before the plugin's own", async () => {
  attach(schemaWith(100));
  expect(await faultsOf({ generations: 0, seed: -1 })).toEqual([422, "#/config/seed"]);
});

it("config: what one version of the plugin accepts passes, the rest is refused", async () => {
  attach(schemaWith(10), schemaWith(100));
  expect(await faultsOf({ generations: 50 })).toEqual([200]);
  expect(await faultsOf({ generations: 500 })).toEqual([422, "#/config/generations"]);
});

it("config: without a usable schema of a worker it is left to the trainer", async () => {
  attach(schemaWith(100), undefined);
  expect(await faultsOf({ generations: 0 })).toEqual([200]);
  attach('{"type":"object","properties":{"a":{"pattern":"^(a+)+$"}}}');
  expect(await faultsOf({ a: `${"a".repeat(40)}!` })).toEqual([200]);
  attach();
  expect(await faultsOf({ generations: 0 })).toEqual([200]);
});

it("config: that of a user's own program is ignored", async () => {
  attach(schemaWith(100));
  expect(await faultsOf({ generations: 0 }, { command: "true" })).toEqual([200]);
});
