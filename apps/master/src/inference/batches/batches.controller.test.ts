import { AppError } from "@heddle/base/errors";
import { eventually } from "@heddle/base/testing/eventually";
import OpenAI, { toFile } from "openai";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
let openai: OpenAI;
let otherKey: OpenAI;
const MODEL = "FamilyA-1-2B";

beforeAll(async () => {
  server = await startTestMaster();
  openai = clientOf(server.adminKey);
  otherKey = clientOf((await server.addKey()).text);
});
afterAll(() => server.master.close());
afterEach(() => {
  server.dispatch.script = {};
});

const clientOf = (apiKey: string) =>
  new OpenAI({ baseURL: `${server.url}/api/v1`, apiKey, maxRetries: 0 });

interface Line {
  readonly custom_id?: string;
  readonly method?: string;
  readonly url?: string;
  readonly body?: unknown;
}

const CHAT = "/v1/chat/completions";
const chatLine = (id: string, more: object = {}): Line => ({
  custom_id: id,
  method: "POST",
  url: CHAT,
  body: {
    model: MODEL,
    messages: [{ role: "user", content: `say ${id}` }],
    max_tokens: 2,
    ...more,
  },
});

async function create(
  lines: readonly (Line | string)[],
  {
    client = openai,
    url = CHAT,
    window = "24h",
  }: { client?: OpenAI; url?: string; window?: string } = {},
): Promise<OpenAI.Batch> {
  const text = lines.map((line) => (typeof line === "string" ? line : JSON.stringify(line)));
  const file = await client.files.create({
    file: await toFile(Buffer.from(`${text.join("\n")}\n`), "in.jsonl"),
    purpose: "batch",
  });
  return client.batches.create({
    input_file_id: file.id,
    endpoint: url as OpenAI.BatchCreateParams["endpoint"],
    completion_window: window as "24h",
    metadata: { run: "1" },
  });
}

async function ended(id: string, client = openai): Promise<OpenAI.Batch> {
  let batch = await client.batches.retrieve(id);
  await eventually(async () => {
    batch = await client.batches.retrieve(id);
    return /^(completed|failed|expired|cancelled)$/.test(batch.status);
  });
  return batch;
}

interface ResultLine {
  readonly id: string;
  readonly custom_id: string;
  readonly response: {
    status_code: number;
    request_id: string;
    body: Record<string, { code: string }>;
  } | null;
  readonly error: { code: string } | null;
}

async function resultsOf(file: string | null | undefined, client = openai): Promise<ResultLine[]> {
  if (!file) return [];
  const text = await (await client.files.content(file)).text();
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as ResultLine);
}

// holds: api-batches
describe("batches: their lines", () => {
  it("have one result each, in two files, with the counts", async () => {
    const lines = Array.from({ length: 40 }, (_, at) => chatLine(`c${at}`));
    const bad = [chatLine("unknown", { model: "none" }), chatLine("hot", { temperature: 9 })];
    const created = await create([...lines, "", ...bad]);
    expect(created).toMatchObject({
      object: "batch",
      status: "validating",
      metadata: { run: "1" },
    });
    const batch = await ended(created.id);
    expect(batch).toMatchObject({
      status: "completed",
      endpoint: CHAT,
      errors: null,
      request_counts: { total: 42, completed: 40, failed: 2 },
    });
    expect((batch.expires_at ?? 0) - batch.created_at).toBe(86_400);
    const output = await resultsOf(batch.output_file_id);
    expect(output.map(({ custom_id }) => custom_id).sort()).toEqual(
      lines.map(({ custom_id }) => custom_id).sort(),
    );
    const first = output.find(({ custom_id }) => custom_id === "c7");
    expect(first?.response).toMatchObject({ status_code: 200, request_id: /^req_/ });
    expect(first?.response?.body).toMatchObject({
      object: "chat.completion",
      choices: [{ message: { content: "say c7" } }],
    });
    const errors = await resultsOf(batch.error_file_id);
    const codes = errors.map((line) => [
      line.custom_id,
      line.response?.status_code,
      line.response?.body["error"]?.code,
    ]);
    expect(codes.sort()).toEqual([
      ["hot", 400, "invalid_value"],
      ["unknown", 404, "model_not_found"],
    ]);
    const ids = [...output, ...errors].map(({ id }) => id);
    expect(new Set(ids).size).toBe(42);
    const file = await openai.files.retrieve(batch.output_file_id ?? "");
    expect(file).toMatchObject({ purpose: "batch_output", filename: `${batch.id}_output.jsonl` });
  });

  it("call each endpoint, with and without our prefix", async () => {
    const bodies: Record<string, object> = {
      "/v1/completions": { model: MODEL, prompt: "one two", max_tokens: 2 },
      "/api/v1/embeddings": { model: MODEL, input: ["a", "b"] },
      "/v1/responses": { model: MODEL, input: "one two" },
      "/v1/moderations": { input: "hello" },
    };
    for (const [url, body] of Object.entries(bodies)) {
      const line = { custom_id: "a", method: "POST", url, body };
      const batch = await ended((await create([line], { url })).id);
      expect([url, batch.request_counts]).toEqual([url, { total: 1, completed: 1, failed: 0 }]);
      const [result] = await resultsOf(batch.output_file_id);
      expect(result?.response?.status_code).toBe(200);
      expect(Object.keys(result?.response?.body ?? {}).length).toBeGreaterThan(1);
    }
  });

  it("run by the permissions and limits of their key", async () => {
    const { text } = await server.addKey({
      scopes: ["inference:create", "files:*", "batches:*"],
      models: ["other"],
    });
    const limited = clientOf(text);
    const batch = await ended((await create([chatLine("a")], { client: limited })).id, limited);
    const [denied] = await resultsOf(batch.error_file_id, limited);
    expect(denied?.response?.body["error"]).toMatchObject({ code: "permission_denied" });
  });

  // holds: access-batch-project
  it("run in the project that the call named, and count there", async () => {
    const { id, text } = await server.addKey({ scopes: [], role: "developer", project: "vision" });
    const binding = { kind: "key", subject: id, role: "developer", project: "speech" };
    expect((await send(server, "POST", "/api/v1/bindings", binding)).status).toBe(200);
    const inSpeech = new OpenAI({
      baseURL: `${server.url}/api/v1`,
      apiKey: text,
      defaultHeaders: { "x-heddle-project": "speech" },
    });
    const { id: batch } = await create([chatLine("one")], { client: inSpeech });
    expect((await ended(batch, inSpeech)).request_counts).toMatchObject({ completed: 1 });
    expect(server.rows.filter(({ key }) => key === id)).toMatchObject([{ project: "speech" }]);
  });

  it("that find no room are tried again until they have an answer", async () => {
    server.dispatch.script.refuseWith = new AppError("overloaded", "full", { retryAfterMs: 10 });
    const { id } = await create([chatLine("a"), chatLine("b")]);
    await eventually(() => server.dispatch.calls.length > 2);
    expect((await openai.batches.retrieve(id)).request_counts?.completed).toBe(0);
    server.dispatch.script = {};
    expect((await ended(id)).request_counts).toEqual({ total: 2, completed: 2, failed: 0 });
  });
});

describe("batches: the end of their window", () => {
  const HOUR_S = 3_600;

  it("keeps what was done, and gives every other line an error", async () => {
    const key = clientOf((await server.addKey()).text);
    const gate = Promise.withResolvers<void>();
    server.dispatch.script = { startAfter: gate.promise };
    const asked = { client: key, window: "1h" };
    // A key's third batch waits until one of two has ended.
    const calls = server.dispatch.calls.length;
    const holding = [await create([chatLine("a")], asked), await create([chatLine("b")], asked)];
    const slow = Array.from({ length: 4 }, (_, at) => chatLine(`slow${at}`, { max_tokens: 9_000 }));
    const late = await create([chatLine("quick"), ...slow], asked);
    expect((late.expires_at ?? 0) - late.created_at).toBe(HOUR_S);
    await eventually(() => server.dispatch.calls.length > calls);
    vi.useFakeTimers({ toFake: ["Date"], now: (late.expires_at ?? 0) * 1000 - 3_000 });
    try {
      server.dispatch.script = { tokenDelayMs: 50 };
      gate.resolve();
      for (const { id } of holding) expect((await ended(id, key)).status).toBe("completed");
      const batch = await ended(late.id, key);
      expect(batch.status).toBe("expired");
      expect(batch.expired_at).toBeGreaterThan(0);
      expect(batch.request_counts).toEqual({ total: 5, completed: 1, failed: 4 });
      const output = await resultsOf(batch.output_file_id, key);
      expect(output.map(({ custom_id }) => custom_id)).toEqual(["quick"]);
      const errors = await resultsOf(batch.error_file_id, key);
      expect(errors.map(({ custom_id }) => custom_id)).toEqual(slow.map((each) => each.custom_id));
      expect(errors.every(({ error }) => error?.code === "batch_expired")).toBe(true);
      await eventually(() => server.dispatch.running === 0);
    } finally {
      vi.useRealTimers();
    }
  });
});

describe("batches: a store that is full", () => {
  const setRoom = (mib: number) =>
    send(server, "PUT", "/api/v1/cluster/settings/owner_documents_mib", { value: mib });

  it("refuses new ones, and results wait for room without being lost", async () => {
    const key = clientOf((await server.addKey()).text);
    const gate = Promise.withResolvers<void>();
    server.dispatch.script = { startAfter: gate.promise };
    // Together over a mebibyte of results.
    const lines = Array.from({ length: 40 }, (_, at) => chatLine(`c${at}`, { max_tokens: 5_000 }));
    const { id } = await create(lines, { client: key });
    await setRoom(1);
    try {
      gate.resolve();
      await eventually(async () => (await key.batches.retrieve(id)).errors?.data?.length === 1);
      const waiting = await key.batches.retrieve(id);
      expect(waiting.status).toBe("in_progress");
      expect(waiting.errors?.data?.[0]).toMatchObject({
        code: "insufficient_storage",
        message: expect.stringMatching(/^Results wait to be stored\. This key's documents are/),
      });
      await setRoom(0);
      await expect(create([chatLine("a")], { client: key })).rejects.toMatchObject({ status: 507 });
    } finally {
      await setRoom(5_120);
    }
    const calls = server.dispatch.calls.length;
    const batch = await ended(id, key);
    expect(batch).toMatchObject({ status: "completed", errors: null });
    const output = await resultsOf(batch.output_file_id, key);
    expect(output.map(({ custom_id }) => custom_id).sort()).toEqual(
      lines.map(({ custom_id }) => custom_id).sort(),
    );
    // No line ran twice.
    expect(server.dispatch.calls.length - calls).toBeLessThanOrEqual(8);
  });
});

describe("batches: their callers", () => {
  it("cancel them, once and for all, and keep what was done", async () => {
    const { id } = await create([
      ...Array.from({ length: 5 }, (_, at) => chatLine(`c${at}`)),
      ...Array.from({ length: 5 }, (_, at) => chatLine(`slow${at}`, { max_tokens: 500 })),
    ]);
    await eventually(async () => {
      const running = server.dispatch.calls.length > 0;
      server.dispatch.script.tokenDelayMs = 20;
      return running && (await openai.batches.retrieve(id)).status === "in_progress";
    });
    const cancelled = await openai.batches.cancel(id);
    expect(cancelled.status).toBe("cancelling");
    const batch = await ended(id);
    expect(batch.status).toBe("cancelled");
    const output = await resultsOf(batch.output_file_id);
    expect(output).toHaveLength(batch.request_counts?.completed ?? -1);
    await eventually(() => server.dispatch.running === 0);
    await expect(openai.batches.cancel(id)).rejects.toMatchObject({ status: 409 });
  });

  it("see their own ones only, in pages, and need the permissions of batches", async () => {
    const owner = clientOf((await server.addKey()).text);
    const ids: string[] = [];
    for (let at = 0; at < 3; at++) ids.push((await create([chatLine("a")], { client: owner })).id);
    const listed: string[] = [];
    for await (const { id } of owner.batches.list({ limit: 2 })) listed.push(id);
    expect(listed).toEqual(ids.toReversed());
    await expect(otherKey.batches.retrieve(ids[0] ?? "")).rejects.toMatchObject({ status: 404 });
    await expect(otherKey.batches.cancel(ids[0] ?? "")).rejects.toMatchObject({ status: 404 });
    const { text: key } = await server.addKey({ scopes: ["inference:create"] });
    expect((await send(server, "GET", "/api/v1/batches", undefined, { key })).status).toBe(403);
  });
});

describe("batches: bad input", () => {
  it("fails with the line, the code and the parameter of each fault", async () => {
    const { id } = await create([
      chatLine("a"),
      "{no json",
      chatLine("a"),
      { ...chatLine("b"), method: "GET" },
      { ...chatLine("c"), url: "/v1/embeddings" },
      { custom_id: "d", method: "POST", url: CHAT },
      chatLine("e", { stream: true }),
      chatLine(""),
    ]);
    const batch = await ended(id);
    expect(batch).toMatchObject({ status: "failed", output_file_id: null });
    const faults = batch.errors?.data?.map(({ line, code, param }) => [line, code, param]);
    expect(faults).toEqual([
      [2, "invalid_json_line", null],
      [3, "duplicate_custom_id", "custom_id"],
      [4, "invalid_value", "method"],
      [5, "invalid_value", "url"],
      [6, "missing_required_parameter", "body"],
      [7, "invalid_value", "body.stream"],
      [8, "invalid_value", "custom_id"],
    ]);
  });

  it("fails for no lines and for more than 50,000", async () => {
    const empty = await ended((await create([""])).id);
    expect(empty.errors?.data?.[0]).toMatchObject({ code: "empty_file", line: null });
    const line = (at: number) =>
      `{"custom_id":"${at}","method":"POST","url":"${CHAT}","body":{"model":"m"}}`;
    const many = await create(Array.from({ length: 50_001 }, (_, at) => line(at)));
    const batch = await ended(many.id);
    expect(batch.errors?.data?.[0]).toMatchObject({ code: "too_many_lines", line: 50_001 });
  });

  it("is 400 with the parameter where the request is wrong", async () => {
    const post = async (body: object) => {
      const reply = await send(server, "POST", "/api/v1/batches", body);
      const { error } = (await reply.json()) as { error: { param: string } };
      return [reply.status, error.param];
    };
    const file = await openai.files.create({
      file: await toFile(Buffer.from("{}"), "a"),
      purpose: "user_data",
    });
    const good = { input_file_id: "file-none", endpoint: CHAT, completion_window: "24h" };
    expect(await post(good)).toEqual([400, "input_file_id"]);
    expect(await post({ ...good, input_file_id: file.id })).toEqual([400, "input_file_id"]);
    expect(await post({ ...good, endpoint: "/v1/models" })).toEqual([400, "endpoint"]);
    expect(await post({ ...good, completion_window: "8d" })).toEqual([400, "completion_window"]);
    expect(await post({ endpoint: CHAT, completion_window: "24h" })).toEqual([
      400,
      "input_file_id",
    ]);
  });
});
