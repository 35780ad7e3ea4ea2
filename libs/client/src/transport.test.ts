import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { AuthenticationError, ConflictError, ConnectionError, TimeoutError } from "./errors.ts";
import { Heddle } from "./heddle.ts";

type Answer = (request: IncomingMessage, response: ServerResponse) => void;

const servers: (() => void)[] = [];
afterEach(() => {
  for (const close of servers.splice(0)) close();
});

/**
 * A server that gives the n-th answer to the n-th request, and the last one to all later requests.
 */
async function serve(...answers: [Answer, ...Answer[]]) {
  const seen: { method: string; url: string; headers: IncomingMessage["headers"] }[] = [];
  const server = createServer((request, response) => {
    const answer = answers[Math.min(seen.length, answers.length - 1)]!;
    seen.push({ method: request.method ?? "", url: request.url ?? "", headers: request.headers });
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  servers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { seen, endpoint: `http://127.0.0.1:${port}` };
}

/** An endpoint on which nothing listens. */
async function closedEndpoint(): Promise<string> {
  const { endpoint } = await serve(hangUp);
  servers.pop()?.();
  return endpoint;
}

const json =
  (value: unknown, status = 200, headers: Record<string, string> = {}): Answer =>
  (_request, response) =>
    void response.writeHead(status, headers).end(JSON.stringify(value));
const reported = json({ job_id: "job_1", state: "accepted" }, 202);
const busy = json({ code: "unavailable", detail: "busy", retryable: true }, 503, {
  "retry-after-ms": "1",
});
const hangUp: Answer = (request) => void request.socket.destroy();
const spec = { name: "a", command: "true" };

describe("a call", () => {
  // holds: client-retries
  it("is retried with the same idempotency key", async () => {
    const { seen, endpoint } = await serve(busy, hangUp, reported);
    const heddle = new Heddle({ endpoint, auth_token: "secret" });
    expect(await heddle.jobs.create(spec)).toMatchObject({ job_id: "job_1" });
    expect(seen).toHaveLength(3);
    const keys = new Set(seen.map(({ headers }) => headers["idempotency-key"]));
    expect([...keys]).toEqual([expect.stringMatching(/^[0-9a-f]{32}$/)]);
    expect(seen[0]?.headers.authorization).toBe("Bearer secret");
    await heddle.jobs.create(spec, { idempotencyKey: "mine" });
    expect(seen.at(-1)?.headers["idempotency-key"]).toBe("mine");
    await heddle.jobs.create(spec);
    expect(keys).not.toContain(seen.at(-1)?.headers["idempotency-key"]);
  });

  // holds: access-projects
  it("names the client's project and role, if it has them", async () => {
    const { seen, endpoint } = await serve(reported);
    await new Heddle({ endpoint, project: "vision", role: "developer" }).jobs.create(spec);
    await new Heddle({ endpoint }).jobs.create(spec);
    expect(seen.map(({ headers }) => headers["x-heddle-project"])).toEqual(["vision", undefined]);
    expect(seen.map(({ headers }) => headers["x-heddle-role"])).toEqual(["developer", undefined]);
  });

  // holds: client-retries
  it("fails after two retries, or after the configured number", async () => {
    const { seen, endpoint } = await serve(busy);
    const call = (maxRetries?: number) => new Heddle({ endpoint, maxRetries }).models.list();
    await expect(call()).rejects.toMatchObject({ name: "ServerError", status: 503 });
    expect(seen).toHaveLength(3);
    await expect(call(0)).rejects.toThrow("busy");
    expect(seen).toHaveLength(4);
  });

  // holds: client-retries
  it("is not retried after a 4xx, and reports the request id and the faults", async () => {
    const fault = { pointer: "#/name", code: "invalid_value", detail: "expected text" };
    const refusal = { code: "conflict", detail: "taken", request_id: "req_1", errors: [fault] };
    const { seen, endpoint } = await serve(
      json(refusal, 409),
      json({ error: { message: "who?", code: "invalid_api_key", request_id: "req_2" } }, 401),
      json("<html>", 404, { "x-request-id": "req_3" }),
    );
    const heddle = new Heddle({ endpoint });
    const error = await heddle.jobs.create(spec).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ConflictError);
    expect(error).toMatchObject({ code: "conflict", request_id: "req_1", errors: [fault] });
    const second = await heddle.models.list().catch((thrown: unknown) => thrown);
    expect(second).toBeInstanceOf(AuthenticationError);
    expect(second).toMatchObject({ message: "who?", request_id: "req_2", status: 401 });
    await expect(heddle.models.get("x")).rejects.toMatchObject({
      name: "NotFoundError",
      code: "not_found",
      request_id: "req_3",
    });
    expect(seen).toHaveLength(3);
  });

  // holds: cli-next-master
  it("goes to the next endpoint if one does not answer", async () => {
    const dead = await serve(hangUp);
    const live = await serve(json({ data: [] }));
    const heddle = new Heddle({ endpoint: [dead.endpoint, `${live.endpoint}/api/v1`] });
    expect(await heddle.workers.list()).toEqual([]);
    expect(await heddle.workers.list()).toEqual([]);
    expect([dead.seen.length, live.seen.length]).toEqual([1, 2]);
  });

  it("gets the key for each request if it changes", async () => {
    const { seen, endpoint } = await serve(json({ data: [] }));
    let calls = 0;
    const heddle = new Heddle({ endpoint, auth: async () => `key-${++calls}` });
    await heddle.workers.list();
    await heddle.workers.list();
    expect(seen.map(({ headers }) => headers.authorization)).toEqual([
      "Bearer key-1",
      "Bearer key-2",
    ]);
  });

  it("is not sent with a key that no header can carry, which no error contains", async () => {
    const { seen, endpoint } = await serve(json({ data: [] }));
    for (const auth_token of ["hdl_live\nsecret", "secret…", "two keys"]) {
      const error = await new Heddle({ endpoint, auth_token }).workers.list().catch((e) => e);
      expect(error).toBeInstanceOf(AuthenticationError);
      expect(error.message).toContain("characters that are invalid in a key");
      expect(error.message).not.toMatch(/secret|two/);
    }
    const auth = () => Promise.reject(new Error("the vault is sealed"));
    const sealed = new Heddle({ endpoint, auth }).workers.list();
    await expect(sealed).rejects.toThrow("`auth` gave no key: the vault is sealed");
    expect(seen).toEqual([]);
  });

  it("reports the endpoint of a response that is not JSON, and is not retried", async () => {
    const page: Answer = (_request, response) => void response.end("<html>");
    const { seen, endpoint } = await serve(page);
    await expect(new Heddle({ endpoint }).workers.list()).rejects.toThrow(
      `${endpoint}/api/v1/workers answered with something that is not JSON. Is it Heddle?`,
    );
    expect(seen).toHaveLength(1);
  });

  it("goes to another endpoint if nothing listens on the first, also a change", async () => {
    const gone = await serve(hangUp);
    servers.pop()?.();
    const live = await serve(json({ deleted: true }));
    const heddle = new Heddle({ endpoint: [gone.endpoint, live.endpoint] });
    await heddle.models.remove("m-1");
    expect(live.seen).toMatchObject([{ method: "DELETE", url: "/api/v1/models/m-1" }]);
    expect(live.seen[0]?.headers).not.toHaveProperty("idempotency-key");
  });

  it("stays at its endpoint after a connection was established, if it is a change", async () => {
    let asked = 0;
    const fetch = () => {
      asked++;
      const lost = Object.assign(new Error("lost"), { code: "EHOSTUNREACH", syscall: "read" });
      return Promise.reject(new TypeError("fetch failed", { cause: lost }));
    };
    const heddle = new Heddle({ endpoint: ["http://a:1", "http://b:1"], fetch });
    await expect(heddle.models.remove("m-1")).rejects.toThrow("(EHOSTUNREACH)");
    expect(asked).toBe(1);
  });

  it("ends at its time limit, at the caller's signal, and if nothing listens", async () => {
    const { endpoint } = await serve(() => {});
    const late = new Heddle({ endpoint, timeout: 30, maxRetries: 0 }).workers.list();
    await expect(late).rejects.toBeInstanceOf(TimeoutError);
    const controller = new AbortController();
    const left = new Heddle({ endpoint }).workers.list({ signal: controller.signal });
    controller.abort();
    await expect(left).rejects.toMatchObject({ name: "AbortedError", code: "cancelled" });
    const gone = await serve(hangUp);
    servers.pop()?.();
    const unreachable = new Heddle({ endpoint: gone.endpoint, maxRetries: 0 }).workers.list();
    await expect(unreachable).rejects.toBeInstanceOf(ConnectionError);
    await expect(unreachable).rejects.toThrow(`No answer from ${gone.endpoint} (ECONNREFUSED).`);
    expect(() => new Heddle({ endpoint: "localhost" })).toThrow(
      '"localhost" is not a valid endpoint',
    );
  });

  it("tries each endpoint once, even with fewer retries", async () => {
    const unreachable = await closedEndpoint();
    const hung = await serve(() => {});
    const good = await serve(json({ id: "m", data: [] }));
    const heddle = new Heddle({ endpoint: [unreachable, good.endpoint], maxRetries: 0 });
    expect(await heddle.workers.list()).toEqual([]);
    const read = { endpoint: [hung.endpoint, good.endpoint], maxRetries: 0, timeout: 1_000 };
    expect(await new Heddle(read).workers.list()).toEqual([]);
    const change = new Heddle(read).models.remove("m");
    await expect(change).rejects.toMatchObject({ code: "deadline_exceeded" });
    expect(good.seen.map(({ method }) => method)).toEqual(["GET", "GET"]);
    const last = await closedEndpoint();
    const none = new Heddle({ endpoint: [unreachable, last], maxRetries: 0 }).workers.list();
    await expect(none).rejects.toThrow(`No answer from ${last} (ECONNREFUSED).`);
  });

  // holds: cli-refused
  it("retryRefused: false ends a call that every endpoint of this machine refuses", async () => {
    const closed = [await closedEndpoint(), await closedEndpoint()] as const;
    const asked: string[] = [];
    const fetch = (url: string | URL | Request, init?: RequestInit) => {
      asked.push(new URL(new Request(url).url).origin);
      return globalThis.fetch(url, init);
    };
    const call = (endpoint: readonly string[], retryRefused?: boolean) =>
      new Heddle({ endpoint, retryRefused, fetch }).workers.list();
    await expect(call(closed, false)).rejects.toThrow("(ECONNREFUSED)");
    expect(asked.splice(0)).toEqual(closed);
    await expect(call([closed[0]])).rejects.toThrow("(ECONNREFUSED)");
    expect(asked.splice(0)).toHaveLength(3);
    const flaky = await serve(hangUp, json({ data: [] }));
    expect(await call([flaky.endpoint, closed[0]], false)).toEqual([]);
    expect(asked).toEqual([flaky.endpoint, closed[0], flaky.endpoint]);
  });

  it("reports the source of its endpoint, and why no key was sent", async () => {
    const hints = { endpointSource: "--endpoint", noKey: "No key was found." };
    const refusal = json({ error: { code: "invalid_api_key", message: "Send a header." } }, 401);
    const { endpoint } = await serve(refusal);
    const unreachable = new Heddle({ endpoint: await closedEndpoint(), hints, maxRetries: 0 });
    await expect(unreachable.workers.list()).rejects.toThrow("; the address is from --endpoint).");
    const keyless = new Heddle({ endpoint, hints }).workers.list();
    await expect(keyless).rejects.toBeInstanceOf(AuthenticationError);
    await expect(keyless).rejects.toMatchObject({ message: "No key was found.", status: 401 });
    const keyed = new Heddle({ endpoint, hints, auth_token: "k" }).workers.list();
    await expect(keyed).rejects.toThrow("Send a header.");
  });

  it("reports a port that fetch refuses, and is not retried", async () => {
    const blocked = new Heddle({ endpoint: "http://127.0.0.1:6000" }).workers.list();
    await expect(blocked).rejects.toThrow(/port, which the Fetch standard blocks/);
    await expect(blocked).rejects.toMatchObject({ retryable: false });
  });

  it("is retried if its response ended early, and at last reports the path", async () => {
    const torn: Answer = (_request, response) => {
      response.writeHead(200, { "content-length": "20" });
      response.write("{", () => response.destroy());
    };
    const { seen, endpoint } = await serve(torn, json({ data: [] }), torn);
    expect(await new Heddle({ endpoint }).workers.list()).toEqual([]);
    const once = new Heddle({ endpoint, maxRetries: 0 }).workers.list();
    await expect(once).rejects.toThrow("The answer to /workers broke off.");
    expect(seen).toHaveLength(3);
  });

  it("is refused for an id that is empty or would change the path", async () => {
    const { seen, endpoint } = await serve(json({ object: "list", data: [] }));
    const heddle = new Heddle({ endpoint });
    for (const id of ["", ".", ".."]) {
      await expect(heddle.jobs.get(id), id).rejects.toThrow("an id or a name was expected");
      await expect(async () => heddle.jobs.cancel(id), id).rejects.toThrow(TypeError);
      await expect(async () => heddle.models.get(id), id).rejects.toThrow(TypeError);
    }
    expect(seen).toEqual([]);
  });

  it("iterates over the pages of a list with its filters", async () => {
    const page = (ids: string[], next_cursor: string | null) =>
      json({ object: "list", data: ids.map((id) => ({ id })), has_more: true, next_cursor });
    const { seen, endpoint } = await serve(page(["c", "b"], "x y"), page(["a"], null));
    const ids: string[] = [];
    const list = new Heddle({ endpoint }).jobs.list({ state: ["pending", "running"], limit: 2 });
    for await (const { id } of list) ids.push(id);
    expect(ids).toEqual(["c", "b", "a"]);
    expect(seen.map(({ url }) => url)).toEqual([
      "/api/v1/jobs?limit=2&state=pending%2Crunning",
      "/api/v1/jobs?limit=2&state=pending%2Crunning&cursor=x+y",
    ]);
  });
});

// holds: client-logs
describe("log lines", () => {
  const line = (text: string, cursor?: string) =>
    `${cursor ? `id: ${cursor}\n` : ""}data: ${JSON.stringify({ type: "line", text, cursor })}\n\n`;

  it("are returned once if a batch broke off, from the cursor before it", async () => {
    const broken: Answer = (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(line("a") + line("b", "C1") + line("c"), () => response.destroy());
    };
    const rest: Answer = (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(`${line("c")}${line("d", "C2")}event: end\ndata: {}\n\n`);
    };
    const { seen, endpoint } = await serve(broken, rest);
    const lines: string[] = [];
    const logs = new Heddle({ endpoint }).jobs.logs("job_1", { follow: true, rank: [0, 2] });
    for await (const entry of logs) if (entry.type === "line") lines.push(entry.text);
    expect(lines).toEqual(["a", "b", "c", "d"]);
    expect(seen.map(({ headers }) => headers["last-event-id"])).toEqual([undefined, "C1"]);
    expect(seen[0]?.url).toBe("/api/v1/jobs/job_1/logs?follow=true&rank=0%2C2");
  });
});
