import { AppError } from "@heddle/base/errors";
import { eventually } from "@heddle/base/testing/eventually";
import { Heddle } from "@heddle/client/heddle";
import OpenAI from "openai";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { eventsOf, send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
let openai: OpenAI;
let otherKey: OpenAI;
const hello = { model: "FamilyA-1-2B", input: "one two three" };
const TEXT = "one two three word3 word4";

beforeAll(async () => {
  server = await startTestMaster();
  const clientOf = (apiKey: string) =>
    new OpenAI({ baseURL: `${server.url}/api/v1`, apiKey, maxRetries: 0 });
  openai = clientOf(server.adminKey);
  otherKey = clientOf((await server.addKey()).text);
});
afterAll(() => server.master.close());
afterEach(() => {
  server.dispatch.script = {};
});

const call = (method: string, path: string, body?: unknown) =>
  send(server, method, `/api/v1${path}`, body);

/** The messages that the last call asked the model with. */
function asked(): (string | null)[] {
  const { request } = server.dispatch.calls.at(-1) ?? {};
  if (request?.kind === "embed" || request?.input.kind !== "chat") throw new Error("no chat");
  return request.input.messages.map(({ content }) => content);
}

async function set(name: string, value: number): Promise<void> {
  expect((await call("PUT", `/cluster/settings/${name}`, { value })).status).toBe(200);
}

async function streamOf(path: string) {
  const text = await (await call("GET", path)).text();
  return eventsOf(text).map(({ data }) => JSON.parse(data) as OpenAI.Responses.ResponseStreamEvent);
}

async function ended(id: string): Promise<OpenAI.Responses.Response> {
  let response = await openai.responses.retrieve(id);
  await eventually(async () => {
    response = await openai.responses.retrieve(id);
    return response.status !== "queued" && response.status !== "in_progress";
  });
  return response;
}

// holds: api-responses-stored
describe("responses: stored ones", () => {
  it("are found again as they were, with their input, until they are deleted", async () => {
    const input = ["a", "b", "c"].map((content) => ({ role: "user" as const, content }));
    const created = await openai.responses.create({ ...hello, input, metadata: { run: "1" } });
    expect(await openai.responses.retrieve(created.id)).toEqual(created);
    const texts: string[] = [];
    const page = { limit: 2, order: "asc" as const };
    for await (const item of openai.responses.inputItems.list(created.id, page)) {
      if (item.type === "message") texts.push(JSON.stringify(item.content));
    }
    expect(texts).toHaveLength(3);
    expect(texts[0]).toContain('"a"');
    const [newest] = (await openai.responses.inputItems.list(created.id, { limit: 1 })).data;
    expect(newest).toMatchObject({ content: [{ type: "input_text", text: "c" }] });
    await openai.responses.delete(created.id);
    await expect(openai.responses.retrieve(created.id)).rejects.toMatchObject({ status: 404 });
    await expect(openai.responses.delete(created.id)).rejects.toMatchObject({ status: 404 });
  });

  it("are none with store: false", async () => {
    const before = server.control.state.documents.size;
    const { id } = await openai.responses.create({ ...hello, store: false });
    await openai.responses.stream({ ...hello, store: false }).finalResponse();
    expect(server.control.state.documents.size).toBe(before);
    await expect(openai.responses.retrieve(id)).rejects.toMatchObject({ status: 404 });
  });

  it("are another key's for no other one", async () => {
    const { id } = await openai.responses.create(hello);
    const next = otherKey.responses.create({ ...hello, previous_response_id: id });
    await expect(next).rejects.toMatchObject({ code: "previous_response_not_found" });
    await expect(otherKey.responses.retrieve(id)).rejects.toMatchObject({ status: 404 });
    await expect(otherKey.responses.delete(id)).rejects.toMatchObject({ status: 404 });
    await expect(otherKey.responses.cancel(id)).rejects.toMatchObject({ status: 404 });
    expect(await openai.responses.retrieve(id)).toMatchObject({ id });
  });

  it("expire after the days of the setting", async () => {
    await set("response_days", 2);
    const { id } = await openai.responses.create(hello);
    await set("response_days", 30);
    const records = [...server.control.state.documents.values()];
    const inDays = (record: (typeof records)[number]) =>
      Math.round(((record.expiresAtMs ?? 0) - Date.now()) / 86_400_000);
    expect(records.filter((record) => record.id === id).map(inDays)).toEqual([2]);
  });

  it("are refused before generation where the store is full", async () => {
    await set("owner_documents", 0);
    const calls = server.dispatch.calls.length;
    for (const more of [{}, { stream: true }, { background: true }]) {
      const reply = await call("POST", "/responses", { ...hello, ...more });
      expect(reply.status).toBe(507);
      expect(await reply.json()).toMatchObject({ error: { code: "insufficient_storage" } });
    }
    expect(server.dispatch.calls).toHaveLength(calls);
    expect((await call("POST", "/responses", { ...hello, store: false })).status).toBe(200);
    await set("owner_documents", 50_000);
  });
});

describe("responses: those that continue from others", () => {
  it("have all items of a chain of 50, and no instructions of it", async () => {
    let previous_response_id: string | null = null;
    for (let link = 0; link < 50; link++) {
      const body = { ...hello, input: `q${link}`, instructions: `rule ${link}` };
      const response: OpenAI.Responses.Response = await openai.responses.create({
        ...body,
        previous_response_id,
        max_output_tokens: 1,
      });
      previous_response_id = response.id;
    }
    const messages = asked();
    expect(messages).toHaveLength(1 + 49 * 2 + 1);
    expect(messages.slice(0, 2)).toEqual(["rule 49", "q0"]);
    expect(messages.at(-1)).toBe("q49");
    expect(messages.some((text) => text === "rule 0")).toBe(false);
  });

  it("have the items of one that is in a conversation, at any link", async () => {
    const { id } = await openai.conversations.create({});
    let last = await openai.responses.create({ ...hello, input: "a", conversation: id });
    for (const input of ["b", "c"]) {
      last = await openai.responses.create({ ...hello, input, previous_response_id: last.id });
    }
    expect(asked().filter((text) => /^[abc]$/.test(text ?? ""))).toEqual(["a", "b", "c"]);
  });

  it("list what they continue from with their input, each item once", async () => {
    const first = await openai.responses.create({ ...hello, input: "a" });
    const reference = { type: "item_reference" as const, id: first.output[0]?.id ?? "" };
    const second = await openai.responses.create({
      ...hello,
      previous_response_id: first.id,
      input: [reference, { role: "user", content: "b" }, reference, { role: "user", content: "c" }],
    });
    const { id } = await openai.responses.create({
      ...hello,
      previous_response_id: second.id,
      input: "d",
    });
    const listed = async () => {
      const texts: (string | undefined)[] = [];
      const page = { limit: 1, order: "asc" as const };
      for await (const item of openai.responses.inputItems.list(id, page)) {
        const [content] = item.type === "message" ? item.content : [];
        texts.push(content && "text" in content ? content.text : undefined);
      }
      return texts;
    };
    const [answer, next] = [first.output_text, second.output_text];
    expect(await listed()).toEqual(["a", answer, "b", "c", next, "d"]);
    await openai.responses.delete(first.id);
    expect(await listed()).toEqual([answer, "b", "c", next, "d"]);
  });

  it("take an item by its id, and name what is not there", async () => {
    const { output } = await openai.responses.create(hello);
    const reference = { type: "item_reference" as const, id: output[0]?.id ?? "" };
    await openai.responses.create({
      ...hello,
      input: [reference, { role: "user", content: "go" }],
    });
    expect(asked()).toEqual([TEXT, "go"]);
    const refused = async (body: object, param: string) => {
      const reply = await call("POST", "/responses", { ...hello, ...body });
      const { error } = (await reply.json()) as { error: { param: string } };
      expect(error.param).toBe(param);
      return reply.status;
    };
    const unknown = { input: [{ type: "item_reference", id: "msg_none_0" }] };
    expect(await refused(unknown, "input[0].id")).toBe(400);
    const both = { previous_response_id: "resp_none", conversation: "conv_none" };
    expect(await refused(both, "previous_response_id")).toBe(400);
    expect(await refused({ previous_response_id: "resp_x" }, "previous_response_id")).toBe(400);
    expect(await refused({ background: true, store: false }, "background")).toBe(400);
  });

  it("are bounded in the characters and the items that they take of others", async () => {
    const refused = async (body: object, param: string) => {
      const reply = await call("POST", "/responses", { ...hello, ...body });
      expect(await reply.json()).toMatchObject({ error: { code: "invalid_value", param } });
    };
    const large = { ...hello, input: "x ".repeat(1.5 * 2 ** 20), max_output_tokens: 1 };
    const { id } = await openai.responses.create(large);
    const [item] = (await openai.responses.inputItems.list(id)).data;
    const reference = { type: "item_reference", id: item?.id };
    await refused({ input: Array.from({ length: 6 }, () => reference) }, "input[5].id");
    const called = { type: "function_call" as const, call_id: "c", name: "f", arguments: "" };
    const input = Array.from({ length: 4_096 }, () => called);
    let previous_response_id: string | null = null;
    for (let link = 0; link < 3; link++) {
      const body = { ...hello, input, previous_response_id, max_output_tokens: 1 };
      const response: OpenAI.Responses.Response = await openai.responses.create(body);
      previous_response_id = response.id;
    }
    await refused({ input, previous_response_id }, "input");
  });

  it("count the tokens of their prompts without an answer", async () => {
    const { id } = await openai.responses.create(hello);
    const generated = server.dispatch.generatedTokens;
    const body = { ...hello, previous_response_id: id, input: "four five" };
    const { input_tokens } = await openai.responses.inputTokens.count(body);
    expect(input_tokens).toBeGreaterThan(0);
    expect(asked()).toEqual(["one two three", TEXT, "four five"]);
    expect(server.dispatch.generatedTokens).toBe(generated);
  });

  it("are added to their conversation with their input", async () => {
    const { id } = await openai.conversations.create({
      items: [{ role: "developer", content: "rule" }],
      metadata: { topic: "a" },
    });
    await openai.responses.create({ ...hello, conversation: id, max_output_tokens: 1 });
    const stream = openai.responses.stream({ ...hello, input: "next", conversation: { id } });
    expect(await stream.finalResponse()).toMatchObject({ conversation: { id } });
    // The script answers with the first word of what it is asked.
    expect(asked()).toEqual(["rule", "one two three", "rule", "next"]);
    const { data } = await openai.conversations.items.list(id, { order: "asc" });
    expect(data.map((item) => (item.type === "message" ? item.role : item.type))).toEqual([
      "developer",
      "user",
      "assistant",
      "user",
      "assistant",
    ]);
    const added = await openai.conversations.items.create(id, {
      items: [{ role: "user", content: "last" }],
    });
    const item = added.data[0]?.id ?? "";
    const one = { conversation_id: id };
    expect(await openai.conversations.items.retrieve(item, one)).toMatchObject({ id: item });
    await openai.conversations.items.delete(item, one);
    const gone = openai.conversations.items.retrieve(item, one);
    await expect(gone).rejects.toMatchObject({ status: 404 });
    const updated = await openai.conversations.update(id, { metadata: { topic: "b" } });
    expect(await openai.conversations.retrieve(id)).toEqual(updated);
    await expect(otherKey.conversations.retrieve(id)).rejects.toMatchObject({ status: 404 });
    expect(await openai.conversations.delete(id)).toMatchObject({ deleted: true });
    const late = openai.responses.create({ ...hello, conversation: id });
    await expect(late).rejects.toMatchObject({ status: 404 });
  });
});

describe("responses: streams that are read again", () => {
  it("have the same events, and those after a number alone", async () => {
    const reply = await call("POST", "/responses", { ...hello, stream: true });
    const events = eventsOf(await reply.text()).map(({ data }) => JSON.parse(data));
    const path = `/responses/${events[0].response.id}?stream=true`;
    expect(await streamOf(path)).toEqual(events);
    expect(await streamOf(`${path}&starting_after=4`)).toEqual(events.slice(5));
    const alone = await call("GET", path.replace("stream=true", "starting_after=4"));
    expect(alone.status).toBe(400);
  });

  it("have their failure at the end, which is stored", async () => {
    server.dispatch.script.failAfter = { tokens: 2, error: new AppError("worker_lost", "died") };
    const reply = await call("POST", "/responses", { ...hello, stream: true });
    const events = eventsOf(await reply.text()).map(({ data }) => JSON.parse(data));
    const { id } = events[0].response;
    await eventually(async () => (await call("GET", `/responses/${id}`)).status === 200);
    expect(await streamOf(`/responses/${id}?stream=true`)).toEqual(events);
    expect(await ended(id)).toMatchObject({ status: "failed", error: { message: "died" } });
  });
});

// holds: api-responses-background
describe("responses: in the background", () => {
  const slow = { ...hello, background: true, max_output_tokens: 20 };

  it("continue without their client, and are read while they run and after", async () => {
    server.dispatch.script.tokenDelayMs = 10;
    const { id, status } = await openai.responses.create(slow);
    expect(status).toBe("queued");
    const heddle = new Heddle({ endpoint: server.url, auth_token: server.adminKey });
    const numbers: number[] = [];
    for await (const event of heddle.responses.follow(id)) numbers.push(event.sequence_number);
    expect(numbers).toEqual([...numbers.keys()]);
    const response = await ended(id);
    expect(response).toMatchObject({ status: "incomplete", usage: { output_tokens: 20 } });
    await eventually(() => server.rows.at(-1)?.completionTokens === 20);
    expect(server.rows.at(-1)?.errorCode).toBeUndefined();
  });

  it("outlive the client of their stream, which resumes after a number", async () => {
    server.dispatch.script.tokenDelayMs = 10;
    const stream = await openai.responses.create({ ...slow, stream: true });
    let id = "";
    let last = -1;
    for await (const event of stream) {
      last = event.sequence_number;
      if (event.type === "response.created") id = event.response.id;
      if (event.type === "response.output_text.delta") break;
    }
    const rest = await streamOf(`/responses/${id}?stream=true&starting_after=${last}`);
    expect(rest.map(({ sequence_number }) => sequence_number)).toEqual(
      rest.map((_, index) => last + 1 + index),
    );
    expect(rest.at(-1)?.type).toBe("response.incomplete");
    const whole = await streamOf(`/responses/${id}?stream=true`);
    expect(whole.slice(last + 1)).toEqual(rest);
    expect(whole.slice(0, 3).map(({ type }) => type)).toEqual([
      "response.created",
      "response.queued",
      "response.in_progress",
    ]);
  });

  it("are cancelled, once and for all, and free their slot", async () => {
    server.dispatch.script.tokenDelayMs = 10;
    const { id } = await openai.responses.create({ ...slow, max_output_tokens: 5000 });
    await eventually(() => server.dispatch.running === 1);
    const cancelled = await openai.responses.cancel(id);
    expect(cancelled.status).toBe("cancelled");
    expect(server.dispatch.running).toBe(0);
    expect(await openai.responses.cancel(id)).toEqual(cancelled);
    expect(await openai.responses.retrieve(id)).toMatchObject(cancelled);
    await eventually(() => server.rows.at(-1)?.errorCode === "cancelled");
    const { id: foreground } = await openai.responses.create(hello);
    await expect(openai.responses.cancel(foreground)).rejects.toMatchObject({ status: 400 });
  });

  it("end where they are deleted, and cannot be gone on from before their end", async () => {
    server.dispatch.script.tokenDelayMs = 10;
    const { id } = await openai.responses.create({ ...slow, max_output_tokens: 5000 });
    await eventually(() => server.dispatch.running === 1);
    const next = openai.responses.create({ ...hello, previous_response_id: id });
    await expect(next).rejects.toMatchObject({ status: 400, param: "previous_response_id" });
    await openai.responses.delete(id);
    await eventually(() => server.dispatch.running === 0);
    await eventually(async () => (await call("GET", `/responses/${id}`)).status === 404);
  });

  it("have failed where no replica takes them, or at their deadline", async () => {
    server.dispatch.script.refuseWith = new AppError("overloaded", "no room");
    const { id } = await openai.responses.create(slow);
    expect(await ended(id)).toMatchObject({ status: "failed", error: { message: "no room" } });
    const types = (await streamOf(`/responses/${id}?stream=true`)).map(({ type }) => type);
    expect(types).toEqual(["response.created", "response.queued", "response.failed"]);
    const hasty = await startTestMaster({ deadlineMs: 100 });
    hasty.dispatch.script.tokenDelayMs = 20;
    const heddle = new Heddle({ endpoint: hasty.url, auth_token: hasty.adminKey });
    const { id: late } = await heddle.responses.create({ ...slow, max_output_tokens: 5000 });
    await eventually(async () => (await heddle.responses.retrieve(late)).status === "failed");
    await hasty.master.close();
  });
});
