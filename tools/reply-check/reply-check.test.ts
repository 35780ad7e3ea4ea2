// holds: jobs-openapi-replies

import { expect, test } from "vitest";
import { checkedFetch } from "./checked-fetch.ts";
import { ReplyCheck } from "./reply-check.ts";

const check = new ReplyCheck(new URL("../../libs/contracts/openapi.json", import.meta.url));

/** A master's reply to a GET. */
interface Sent {
  readonly status?: number;
  readonly type?: string;
  readonly body: string;
}

/** The faults of a reply that is read whole. */
async function faultsOf(path: string, sent: Sent): Promise<string[]> {
  const { status = 200, type = "application/json", body } = sent;
  const headers = { "content-type": type, "x-request-id": "req_1" };
  const faults: string[] = [];
  const send = checkedFetch(
    async () => new Response(body, { status, headers }),
    () => Promise.resolve(check),
    (fault) => faults.push(fault),
  );
  const response = await send(`http://127.0.0.1:1${path}`);
  if (type === "text/event-stream") await response.body?.pipeTo(new WritableStream());
  else await response.text();
  return faults;
}

const HEALTH = { status: "ok", version: "1", uptime: 1 };
const ERROR = { message: "m", type: "t", param: null, code: "c", request_id: "r", retryable: true };

test("reply check: a reply that fits the document has no fault", async () => {
  expect(await faultsOf("/health", { body: JSON.stringify(HEALTH) })).toEqual([]);
  const error = { status: 404, body: JSON.stringify({ error: ERROR }) };
  expect(await faultsOf("/api/v1/models/none", error)).toEqual([]);
  expect(await faultsOf("/api/v1/nowhere", error)).toEqual([]);
});

test("reply check: a fault names the route, the status and the pointer", async () => {
  const missing = { body: JSON.stringify({ ...HEALTH, uptime: "1" }) };
  expect(await faultsOf("/health", missing)).toEqual([
    "GET /health answered 200: /uptime must be number",
  ]);
  const extra = { body: JSON.stringify({ ...HEALTH, extra: 1 }) };
  expect(await faultsOf("/health", extra)).toEqual([
    "GET /health answered 200: / must NOT have additional properties: extra",
  ]);
  const status = { status: 201, body: JSON.stringify(HEALTH) };
  expect(await faultsOf("/health", status)).toEqual([
    "GET /health answered 201: the document has no such reply",
  ]);
});

test("reply check: an error without its envelope is a fault", async () => {
  const [fault] = await faultsOf("/api/v1/jobs", { status: 400, body: '{"message":"no"}' });
  expect(fault).toContain("GET /api/v1/jobs answered 400: /");
});

test("reply check: the events of a stream are checked as they are read", async () => {
  const type = "text/event-stream";
  const body = 'event: node\ndata: {"type":"node"}\n\nevent: other\ndata: {}\n\n: heartbeat\n\n';
  expect(await faultsOf("/api/v1/events", { type, body })).toEqual([
    "GET /api/v1/events answered 200: / must have required property 'id'",
    "GET /api/v1/events answered 200: the document has no event `other` of it",
  ]);
});
