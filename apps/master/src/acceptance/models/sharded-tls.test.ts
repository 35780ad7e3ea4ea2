// holds: shard-tls

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ServiceError } from "@grpc/grpc-js";
import type { Model } from "@heddle/contracts/api/models";
import type { Worker } from "@heddle/contracts/api/workers";
import { writeTinyModel } from "@heddle/engines/gguf/tiny-model";
import { readMaterial } from "@heddle/pki/tls-files";
import { TlsIdentity } from "@heddle/pki/tls-identity";
import { Peer } from "@heddle/rpc/peer";
import { joinStageMethod } from "@heddle/rpc/proto";
import { fromStatus } from "@heddle/rpc/status";
import { afterAll, beforeAll, expect, it } from "vitest";
import { NO_END, ProcessCluster } from "../../../test/process-cluster.ts";

// Masters and workers that know each other by certificates alone.

const ID = "divided";
const TOKENS = 40;

let cluster: ProcessCluster;
beforeAll(async () => {
  cluster = await ProcessCluster.start({ workers: 0, isBare: true, masterFlags: ["--tls"] });
  for (const name of ["one", "two", "three"]) await start(name);
});
afterAll(() => cluster?.close());

async function start(name: string): Promise<void> {
  const token = join(cluster.data, `${name}.token`);
  const path = "/api/v1/cluster/join-tokens";
  const reply = await cluster.request("POST", path, { role: "worker", name });
  writeFileSync(token, ((await reply.json()) as { token: string }).token);
  const flags = ["--tls", "--join-token-file", token, "--name", name, "--memory-mib", "600"];
  await cluster.startWorker(flags, name);
}

const model = async () =>
  (await (await cluster.request("GET", `/api/v1/models/${ID}`)).json()) as Model;
const workers = async () => {
  const reply = await cluster.request("GET", "/api/v1/workers");
  return ((await reply.json()) as { data: Worker[] }).data;
};

it("stages with TLS: workers with certificates divide a model, and answer as one", async () => {
  const file = join(cluster.data, "six.gguf");
  await writeTinyModel(file, { blocks: 6 });
  const options = { context_tokens: 512, kv_tokens: 1_024, max_sequences: 2, threads: 1 };
  const asked = { id: ID, source: `file://${file}`, options, placement: "sharded", max_stages: 2 };
  const registered = await cluster.request("POST", "/api/v1/models", asked);
  expect(await registered.text()).toContain('"object":"model"');
  await cluster.until(async () => (await model()).status === "ready", "it is ready");
  const { usage } = await cluster.openai.completions.create({
    model: ID,
    prompt: "hello there",
    max_tokens: TOKENS,
    temperature: 0,
    logit_bias: NO_END,
  });
  expect(usage?.completion_tokens).toBe(TOKENS);
});

it("stages with TLS: one serves only the certificate of the last one's worker", async () => {
  const { deployment, replicas } = await model();
  const [first, last] = (replicas[0]?.stages ?? []).map(({ node }) => node);
  const all = await workers();
  const other = all.find(({ id }) => id !== first && id !== last)!;
  const { address } = all.find(({ id }) => id === first)!;
  const material = await readMaterial(join(cluster.data, other.name));
  const identity = { clusterToken: "", tls: new TlsIdentity(material!) };
  const peer = new Peer(address, identity, "worker");
  const call = peer.duplex(joinStageMethod);
  const { promise: refusal, resolve } = Promise.withResolvers<ServiceError>();
  call.on("error", resolve);
  call.write({ open: { deployment: `${deployment}#${last}/0`, build: "" } });
  const { code, message } = fromStatus(await refusal, address);
  peer.close();
  expect(code).toBe("permission_denied");
  expect(message).toContain(`and not ${other.name}`);
});
