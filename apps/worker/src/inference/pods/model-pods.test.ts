import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { until } from "@heddle/base/testing/until";
import { writeTinyModel } from "@heddle/engines/gguf/tiny-model";
import type { EngineLauncher } from "@heddle/engines/llama/parent/engine-link";
import { startLlamaEngine } from "@heddle/engines/llama/parent/llama-engine";
import { EngineSession } from "@heddle/engines/testing/engine-session";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { KubernetesDouble, whyNoPods } from "../../../test/kubernetes-double.ts";
import { openFolder } from "../../../test/test-leader.ts";
import { PodPlace } from "../../tasks/pods/pod-place.ts";
import type { EnginePorts } from "../engine-ports.ts";
import { ModelPods } from "./model-pods.ts";
import { withModelPods } from "./with-model-pods.ts";

const why = whyNoPods();
if (why !== undefined) console.log(`models in Pods are not tested: ${why}`);

const log = { info: () => {}, warn: () => {}, error: () => {} };
const ask = { prompt: "hello", maxTokens: 4 };

describe.skipIf(why !== undefined)("models in Pods", () => {
  const folder = openFolder("heddle-pods-");
  const kubernetes = new KubernetesDouble(folder);
  const weights = join(folder, "models");
  const modelPath = join(weights, "tiny.gguf");
  let place: PodPlace;
  let pods: ModelPods;
  const find = () => ModelPods.find(place, "node-a", join(folder, "worker"), log);
  const wish = { deployment: "Family/A:1", devices: 2, weights: [weights] };
  const start = (launch: EngineLauncher) =>
    EngineSession.over((sink) =>
      startLlamaEngine({ modelPath, options: { threads: 1 }, sink, child: { launch } }),
    );

  beforeAll(async () => {
    mkdirSync(weights);
    await Promise.all([writeTinyModel(modelPath), kubernetes.listen()]);
    const gpus = { by: "plugin", resource: "nvidia.com/gpu" } as const;
    place = await PodPlace.find(kubernetes.settings({ gpus }));
    pods = await find();
  });
  afterAll(() => kubernetes.close());

  it("model pods: an engine answers from its Pod, which goes with it", async () => {
    const session = await start(pods.launcher(wish));
    const answer = await session.ask(ask);
    expect(answer.error).toBeUndefined();
    expect(answer.usage?.completionTokens).toBe(4);
    const [pod] = kubernetes.made;
    expect(pod?.metadata).toMatchObject({
      name: expect.stringMatching(/^heddle-family-a-1-[0-9a-f]{8}$/),
      labels: { "heddle.dev/model-of": "node-a" },
      annotations: { "heddle.dev/deployment": "Family/A:1" },
      ownerReferences: [{ kind: "DaemonSet", name: "w", controller: false }],
    });
    expect(pod?.spec).toMatchObject({
      automountServiceAccountToken: false,
      restartPolicy: "Never",
    });
    const [container] = pod?.spec.containers ?? [];
    expect(container).toMatchObject({
      image: "team/worker:1",
      env: [{ name: "OWN", value: "yes" }],
      resources: { limits: { "nvidia.com/gpu": "2" }, requests: { "nvidia.com/gpu": "2" } },
    });
    const mounts = container?.volumeMounts?.map(({ mountPath, readOnly }) => [mountPath, readOnly]);
    expect(mounts).toContainEqual([weights, true]);
    await session.engine.close();
    await until("the Pod is gone", () => kubernetes.names.length === 0);
  });

  it("model pods: one that is evicted is replaced, and its calls fail", async () => {
    const session = await start(pods.launcher(wish));
    const before = kubernetes.made.length;
    const begun = Promise.withResolvers<void>();
    const call = session.submit({ ...ask, maxTokens: 4_000 }, () => begun.resolve());
    await begun.promise;
    kubernetes.evict(kubernetes.made.at(-1)?.metadata.name ?? "");
    const failed = await call.answer;
    expect(failed.error).toMatchObject({ code: "engine_failed" });
    expect(failed.error?.message).toContain("with its container, as by an eviction");
    const works = async () => (await session.ask(ask)).error === undefined;
    await until("another one answers", works);
    expect(kubernetes.made).toHaveLength(before + 1);
    expect(kubernetes.names).toHaveLength(1);
    await session.engine.close();
  });

  it("model pods: an image that is missing and a refusal are named", async () => {
    kubernetes.missingImages.add("team/worker:1");
    await expect(start(pods.launcher(wish))).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("team/worker:1 could not be pulled"),
    });
    kubernetes.missingImages.clear();
    kubernetes.refusals.push({ status: 403, message: "exceeded quota: small" });
    await expect(start(pods.launcher(wish))).rejects.toThrow(/model's Pod: exceeded quota: small/);
    expect(kubernetes.names).toEqual([]);
  });

  it("model pods: those of an earlier process of the worker are removed", async () => {
    const session = await start(pods.launcher(wish));
    const [name] = kubernetes.names;
    await find();
    expect(name).toBeDefined();
    expect(kubernetes.names).not.toContain(name);
    await session.engine.close();
  });

  it("model pods: an engine sees its own devices; stages stay in the worker", async () => {
    const started: unknown[] = [];
    const ports = {
      startEngine: (given: Parameters<EnginePorts["startEngine"]>[0]) => {
        started.push([given.spec.options.device, given.launchWith !== undefined]);
        return Promise.reject(new Error("not started"));
      },
    } as unknown as EnginePorts;
    const begin = (spec: object) => {
      const given = { spec: { key: "a", engine: "llama", options: {}, ...spec } };
      const { startEngine } = withModelPods(ports, pods);
      return startEngine(given as unknown as Parameters<typeof startEngine>[0]).catch(() => 0);
    };
    await begin({ options: { device: "3,5" } });
    await begin({});
    await begin({ options: { device: "3" }, stage: {} });
    await begin({ engine: "openai" });
    expect(started).toEqual([
      ["0,1", true],
      ["cpu", true],
      ["3", false],
      [undefined, false],
    ]);
  });
});
