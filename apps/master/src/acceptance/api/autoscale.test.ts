// holds: serving-autoscale, serving-idle-unload, serving-queue-place

import { eventually } from "@heddle/base/testing/eventually";
import type { Model } from "@heddle/contracts/api/models";
import { afterAll, beforeAll, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { NO_END, ProcessCluster } from "../../../test/process-cluster.ts";

// Replicas that follow the load, on real masters, workers and engines.

const ID = "elastic";
const SCALING = { min: 0, max: 2, idle_unload_s: 3, target_queue: 0.5, cool_down_s: 1 };

let cluster: ProcessCluster;
beforeAll(async () => {
  // On a busy machine the calls together take longer than one may wait by default.
  const masterFlags = ["--max-wait-ms", "300000"];
  cluster = await ProcessCluster.start({ workers: 2, masterFlags });
  const body = {
    id: ID,
    source: "builtin://tiny?seed=9",
    scaling: SCALING,
    options: { max_sequences: 1, max_queued: 1, threads: 1, context_tokens: 2048 },
  };
  expect(await model("POST", "/api/v1/models", body)).toMatchObject({
    wanted_replicas: 1,
    scaling: { min: 0, max: 2, idle_unload_s: 3, scaled_at: null },
  });
});
afterAll(() => cluster.close());

async function model(method = "GET", path = `/api/v1/models/${ID}`, body?: unknown) {
  const reply = await send(cluster, method, path, body);
  return (await reply.json()) as Model;
}

function ask(maxTokens: number, stream = false): Promise<Response> {
  return send(cluster, "POST", "/api/v1/chat/completions", {
    model: ID,
    messages: [{ role: "user", content: "Hello" }],
    max_tokens: maxTokens,
    logit_bias: NO_END,
    stream,
  });
}

async function asleep(): Promise<void> {
  const isAsleep = async () => {
    const { status, wanted_replicas, replicas } = await model();
    return status === "idle" && wanted_replicas === 0 && replicas.length === 0;
  };
  await eventually(isAsleep, "no replica stays");
}

it("autoscaling: a model without calls is unloaded, and a call starts it again", async () => {
  await asleep();
  expect((await model()).scaling?.reason).toBe("idle for 3 s");
  const answer = await ask(8);
  expect([answer.status, answer.headers.get("x-heddle-queue-position")]).toEqual([200, "1"]);
  expect(Number(answer.headers.get("x-heddle-queued-ms"))).toBeGreaterThan(0);
  expect(await answer.json()).toMatchObject({ usage: { completion_tokens: 8 } });
  const { wanted_replicas, scaling } = await model();
  expect([wanted_replicas, scaling?.reason]).toEqual([1, "1 calls wait and no replica runs"]);
});

it("autoscaling: a stream to a sleeping model is answered whole", async () => {
  await asleep();
  const text = await (await ask(8, true)).text();
  expect(text.trimEnd().endsWith("data: [DONE]")).toBe(true);
});

it("autoscaling: replicas grow with the queue, lose no call, and go one by one", async () => {
  let most = 0;
  // A slow machine starts the second replica long after the first calls have ended.
  const askUntilGrown = async () => {
    const answers: Response[] = [];
    for (let tries = 0; tries === 0 || (most < 2 && tries < 50); tries++) {
      answers.push(await ask(400));
      const { replicas } = await model();
      most = Math.max(most, replicas.filter(({ phase }) => phase === "ready").length);
    }
    return answers;
  };
  const answers = (await Promise.all(Array.from({ length: 24 }, askUntilGrown))).flat();
  const statuses = answers.map(({ status }) => status);
  expect(statuses).toEqual(statuses.map(() => 200));
  const bodies = await Promise.all(answers.map((answer) => answer.json()));
  for (const body of bodies) expect(body).toMatchObject({ usage: { completion_tokens: 400 } });
  expect(most).toBe(2);
  await asleep();
});

it("autoscaling: bounds are set over HTTP, and a fixed number ends it", async () => {
  const path = `/api/v1/models/${ID}/scaling`;
  const faults = [
    [{}, "scaling"],
    [{ replicas: 1, scaling: SCALING }, "scaling"],
    [{ scaling: { min: 3, max: 2 } }, "scaling.max"],
    [{ scaling: { min: 1, max: 2, idle_unload_s: 5 } }, "scaling.idle_unload_s"],
    [{ scaling: { min: 0, most: 2 } }, "scaling.most"],
  ] as const;
  for (const [body, param] of faults) {
    const reply = await send(cluster, "PUT", path, body);
    expect([reply.status, await reply.json()]).toMatchObject([400, { error: { param } }]);
  }
  expect(await model("PUT", path, { scaling: { min: 1, max: 2 } })).toMatchObject({
    wanted_replicas: 1,
    scaling: { min: 1, max: 2, target_queue: 2, idle_unload_s: null },
  });
  expect(await model("PUT", path, { replicas: 0 })).toMatchObject({
    wanted_replicas: 0,
    scaling: null,
  });
  const again = { id: "other", source: "builtin://tiny?seed=9", scaling: { min: 1, max: 2 } };
  expect(await model("POST", "/api/v1/models", again)).toMatchObject({ wanted_replicas: 1 });
  const other = { ...again, id: "third", scaling: { min: 1, max: 3 } };
  const refused = await send(cluster, "POST", "/api/v1/models", other);
  expect([refused.status, await refused.json()]).toMatchObject([
    409,
    { error: { param: "scaling" } },
  ]);
});
