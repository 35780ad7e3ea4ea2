import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll } from "vitest";
import { DrivenProcess } from "./driven-process.ts";

export const MAIN = fileURLToPath(new URL("../main.ts", import.meta.url));
export const NOWHERE = join(tmpdir(), "heddle-there-is-no-such-directory");
export const MODELS = {
  data: [
    {
      id: "m-1",
      status: "pulling",
      context_window: 131072,
      served_context_tokens: 8192,
      backing: "a small model",
      stand_in: true,
      visibility: "cluster",
      project: null,
      family: "A",
      replicas: [{ node: "w1", phase: "pulling", pulled_bytes: 1, total_bytes: 2 }],
    },
    {
      id: "m-2",
      status: "ready",
      context_window: 4096,
      chat_template: "plain",
      replicas: [{ node: "w1", phase: "ready" }],
      waiting_for: ["InsufficientGpu: one", "NodesLost: two"],
    },
  ],
};
const BROKEN = { node: "w1", phase: "failed", message: "m-3.gguf is not a usable GGUF file" };
const WITH_BROKEN = { data: [...MODELS.data, { id: "m-3", status: "failed", replicas: [BROKEN] }] };
const GROUP = {
  leader: "master-2",
  answered_by: "master-1",
  term: 7,
  commit: 20,
  applied: 20,
  snapshot_index: 11,
  state_hash: "00ff",
  cluster_version: 1,
  authority_sha256: "a".repeat(64),
  supported_cluster_version: 2,
  health: "degraded",
  quorum: { voters: 2, required: 2, reachable: 1, has_quorum: false },
  masters: [
    { id: "master-1", member: 1, role: "follower", connected: true, lag: 3, address: "h:1" },
    { id: "master-2", member: 2, role: "leader", connected: true, lag: 0, address: "h:2" },
  ],
};
const AMOUNT = { offered: 4, in_use: 1, measured: 0.5 };
const MEMORY = { offered: 2 ** 31, in_use: 2 ** 30, measured: 2 ** 30 };
const NODE = { cpu_cores: AMOUNT, memory_bytes: MEMORY, local_ssd_bytes: MEMORY };
const GPUS = [{ type: "H100", count: 2, in_use: 1, memory_bytes_each: 80 }];
/** The response of all routes below /cluster; each command reads its own part. */
export const CLUSTER = {
  ...GROUP,
  token: "hdlj_made",
  secrets_key: "0123456789abcdef",
  workers: { total: 3, by_state: { ready: 2, suspect: 1, draining: 0 } },
  gpus: { total: 8, used: 3 },
  cpu: { cores: 64, used_cores: 1.5 },
  memory: { total_bytes: 2 ** 32, used_bytes: 2 ** 30 },
  totals: { ...NODE, gpus: GPUS },
  nodes: [{ ...NODE, name: "w1", kind: "worker", state: "ready", gpus: GPUS }],
};
const WORKER = { id: "w1", name: "worker-1", kind: "worker", status: "ready", gpus: [] };
const SILENT = {
  ...WORKER,
  id: "w2",
  name: "worker-2",
  status: "suspect",
  silent_seconds: 45,
  executor_fault: "no offer",
};
export const HEALTH = { status: "ok", version: "0.1.0", uptime: 12.3, detail: "" };
export const KEY = {
  id: "abcdefgh",
  name: "ci",
  scopes: ["jobs:read"],
  key: "hdl_live_abcdefgh_x",
};

export const ROTATED = {
  ...KEY,
  id: "newnewne",
  key: "hdl_live_newnewne_x",
  replaces: { ...KEY, expires_at: "2030-01-01T00:00:00.000Z" },
};
export const JOB = {
  id: "job_1",
  job_id: "job_1",
  name: "a",
  state: "succeeded",
  phase: "SUCCEEDED",
};
export const USAGE = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };

interface Call {
  readonly method: string;
  readonly url: string;
  readonly body: unknown;
}

/** Serves fixed answers to the tests of one file, and keeps what was called. */
export class ScriptedApi {
  readonly calls: Call[] = [];
  endpoint = "";

  constructor() {
    const server = createServer((request, response) => void answer(this.calls, request, response));
    beforeAll(async () => {
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      this.endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    });
    afterAll(() => {
      server.closeAllConnections();
      server.close();
    });
  }

  /** What a command of the CLI prints against this API, and its exit code. */
  async heddle(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
    const driven = new DrivenProcess([process.execPath, MAIN, ...args], {
      HEDDLE_DATA: NOWHERE,
      HEDDLE_ENDPOINT: this.endpoint,
      HEDDLE_API_KEY: "good",
      ...env,
    });
    return { code: await driven.end(), stdout: driven.stdout, stderr: driven.stderr };
  }
}

async function answer(
  calls: Call[],
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  let body = "";
  for await (const piece of request) body += piece;
  const { method = "", url = "" } = request;
  calls.push({ method, url, body: body === "" ? undefined : JSON.parse(body) });
  const json = (value: object, status = 200) =>
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
  if (!["Bearer good", `Bearer ${KEY.key}`].includes(request.headers.authorization ?? "")) {
    json({ error: { code: "invalid_api_key", message: "Bad key.", request_id: "req_7" } }, 401);
  } else if (url === "/api/v1/models") {
    json(calls.some((call) => call.url === "/api/v1/models/m-3/pull") ? WITH_BROKEN : MODELS);
  } else if (url === "/api/v1/cluster/status") json(CLUSTER);
  else if (url.startsWith("/api/v1/cluster/")) json(CLUSTER, 202);
  else if (url === "/health") json(HEALTH);
  else if (url.startsWith("/api/v1/jobs")) json(JOB);
  else if (url === "/api/v1/workers") json({ data: [WORKER, SILENT] });
  else if (url === "/api/v1/keys" && method === "POST")
    json({ ...KEY, unknown_models: ["later"] }, 201);
  else if (url === "/api/v1/keys") json({ data: [KEY] });
  else if (url === "/api/v1/keys/abcdefgh/rotate") json(ROTATED);
  else if (/models\/m-[23]\/pull$/.test(url)) {
    const progress = { pulled_bytes: 5e6, total_bytes: 1e7, source: "file:///x", done: false };
    response.end(`event: progress\ndata: ${JSON.stringify(progress)}\n\nevent: done\ndata: {}\n\n`);
  } else if (url === "/api/v1/models/m-2") json({ id: "m-2", deleted: true });
  else if (url.startsWith("/api/v1/models/")) {
    json({ error: { code: "model_not_found", message: "No such model." } }, 404);
  } else if (method === "DELETE") response.writeHead(204).end();
  else chatAnswer(response);
}

function chatAnswer(response: ServerResponse): void {
  const chunk = { choices: [{ delta: { content: "Hello." }, finish_reason: "stop" }] };
  const usage = { choices: [], usage: USAGE };
  const events = [chunk, usage].map((event) => `data: ${JSON.stringify(event)}\n\n`);
  response.end(`${events.join("")}data: [DONE]\n\n`);
}
