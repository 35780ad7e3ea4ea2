// holds: api-fuzz

import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { JUNK, type Schema, type Schemas, valuesOf } from "../../../test/fuzz/schema-values.ts";
import { MasterGroup, REAL_MASTER } from "../../../test/master-group.ts";

// Random requests made from the API's own document, to a master as a process.

/** `.ci/nightly` sends more, by another seed each night. */
const REQUESTS = Number(process.env["HEDDLE_FUZZ_REQUESTS"] ?? 400);
const SEED = Number(process.env["HEDDLE_FUZZ_SEED"] ?? 7);
/** Requests at once. */
const CALLERS = 8;
const ANSWER_MS = 30_000;
const MAX_IDS = 256;
/** They change what all later requests are answered, and so come last. */
const LAST: ReadonlySet<string> = new Set(["limits.set", "settings.set"]);
/** What a master without workers may say, and when it has no room. */
const PASSING: ReadonlySet<string> = new Set([
  "unavailable",
  "overloaded",
  "insufficient_storage",
  "overloaded_error",
]);

interface Parameter {
  readonly name: string;
  readonly in: "path" | "query" | "header";
  readonly required?: boolean;
  readonly schema?: Schema;
}

interface Operation {
  readonly id: string;
  readonly method: string;
  readonly path: string;
  readonly parameters: readonly Parameter[];
  readonly body: Schema | undefined;
}

interface Call {
  readonly operation: Operation;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | undefined;
}

type Document = {
  readonly paths: Readonly<
    Record<
      string,
      Readonly<
        Record<
          string,
          {
            readonly operationId: string;
            readonly parameters?: readonly Parameter[];
            readonly requestBody?: {
              readonly content: Readonly<Record<string, { readonly schema: Schema }>>;
            };
          }
        >
      >
    >
  >;
  readonly components: { readonly schemas: Schemas };
};

const FILE = new URL("../../../../../libs/contracts/openapi.json", import.meta.url);
const DOCUMENT = JSON.parse(readFileSync(FILE, "utf8")) as Document;
const { schemas } = DOCUMENT.components;
const OPERATIONS: readonly Operation[] = Object.entries(DOCUMENT.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, { operationId: id, parameters = [], requestBody }]) => {
    const body = requestBody?.content["application/json"]?.schema;
    return { id, method: method.toUpperCase(), path, parameters, body };
  }),
);

const group = new MasterGroup(
  1,
  [],
  () => ({ env: { HEDDLE_SECRETS_KEY: randomBytes(32).toString("base64") } }),
  REAL_MASTER,
);
let url = "";
let adminId = "";
beforeAll(async () => {
  await group.startAll();
  url = group.url("master-1") ?? "";
  adminId = group.adminKey.split("_")[2] ?? "";
});
afterAll(() => group.close());

/** Ids and names of earlier answers: most requests with random ones end at once. */
const ids: string[] = ["default", "max_concurrent_jobs", "viewer"];

function remember(text: string): void {
  for (const [, id = ""] of text.matchAll(/"(?:id|job_id|name|sequence)":"([^"\\]{1,80})"/g)) {
    if (id === adminId || ids.includes(id)) continue;
    if (ids.length >= MAX_IDS) ids.splice(3, 1);
    ids.push(id);
  }
}

const textOf = (value: unknown): string =>
  typeof value === "string" ? value : (JSON.stringify(value) ?? "");
const texts = (schema: Schema = {}) => valuesOf(schema, schemas).map(textOf);

/** A header may have no line ends, and `fetch` refuses more than that. */
const headerOf = (value: string) =>
  value
    .replace(/[^\x20-\x7e]/g, "")
    .trim()
    .slice(0, 500);

/** A call of an operation. Ids are chosen by number when it is sent, among those known then. */
function callsOf(operation: Operation): fc.Arbitrary<() => Call> {
  const given = fc.tuple(
    ...operation.parameters.map((parameter) =>
      fc.tuple(fc.constant(parameter), texts(parameter.schema), fc.boolean(), fc.nat()),
    ),
  );
  const body = operation.body ? valuesOf(operation.body, schemas) : fc.constant(undefined);
  const raw = fc.oneof(
    { weight: 30, arbitrary: fc.constant(undefined) },
    { weight: 1, arbitrary: JUNK.map(textOf) },
  );
  return fc.tuple(given, body, raw).map(([parameters, value, text]) => () => {
    let path = operation.path;
    const query = new URLSearchParams();
    const headers: Record<string, string> = { authorization: `Bearer ${group.adminKey}` };
    for (const [{ name, in: place, required }, random, isGiven, at] of parameters) {
      const known = ids[at % ids.length] ?? "x";
      if (place === "path") {
        const chosen = at % 4 === 0 ? random.toWellFormed().slice(0, 300) || "x" : known;
        path = path.replace(`{${name}}`, encodeURIComponent(chosen));
      } else if (isGiven || required) {
        if (place === "header") headers[name] = headerOf(random) || "x";
        else query.set(name, at % 4 === 0 ? known : random.slice(0, 2_000));
      }
    }
    const sent = text ?? (value === undefined ? undefined : JSON.stringify(value));
    if (sent !== undefined) headers["content-type"] = "application/json";
    const hasBody = operation.method !== "GET" && sent !== undefined;
    const search = query.size > 0 ? `?${query}` : "";
    return { operation, url: `${url}${path}${search}`, headers, body: hasBody ? sent : undefined };
  });
}

/** The status; throws with what is wrong with the answer. */
async function statusOf({ operation, url: at, headers, body }: Call): Promise<number> {
  const shown = `${operation.method} ${at.slice(url.length)} ${body?.slice(0, 2_000) ?? ""}`;
  const signal = AbortSignal.timeout(ANSWER_MS);
  const ended = new AbortController();
  const reply = await fetch(at, {
    method: operation.method,
    headers,
    signal: AbortSignal.any([signal, ended.signal]),
    ...(body !== undefined && { body }),
  }).catch((error: unknown) => {
    throw new Error(`no answer to ${shown}`, { cause: error });
  });
  const type = reply.headers.get("content-type") ?? "";
  if (!/json/.test(type) || type.includes("ndjson")) {
    // A stream may have no end.
    ended.abort();
    if (reply.status >= 500) throw new Error(`${reply.status} to ${shown}`);
    return reply.status;
  }
  const text = await reply.text();
  if (reply.ok) remember(text);
  const code = /"code":"([a-z_]+)"/.exec(text)?.[1] ?? /"type":"([a-z_]+)"/.exec(text)?.[1];
  if (reply.status < 500 || PASSING.has(code ?? "")) return reply.status;
  throw new Error(`${reply.status} to ${shown}: ${text.slice(0, 2_000)}`);
}

async function fuzz(operations: readonly Operation[], requests: number): Promise<Set<string>> {
  const answered = new Set<string>();
  // Made once: to make the values of a large body takes longer than to send it.
  const calls = fc.oneof(...operations.map(callsOf));
  let hasFailed = false;
  const property = fc.asyncProperty(calls, async (make) => {
    if (hasFailed) return;
    const call = make();
    const status = await statusOf(call).catch((error: unknown) => {
      hasFailed = true;
      throw error;
    });
    answered.add(`${call.operation.id} ${status < 300 ? "done" : "refused"}`);
  });
  const numRuns = Math.ceil(requests / CALLERS);
  const callers = Array.from({ length: CALLERS }, (_, caller) =>
    fc.assert(property, { numRuns, seed: SEED * CALLERS + caller, endOnFailure: true }),
  );
  for (const ended of await Promise.allSettled(callers)) {
    if (ended.status === "rejected") throw ended.reason;
  }
  return answered;
}

test(
  "fuzz: every request made from the document is answered, and none by a failure",
  async () => {
    const early = OPERATIONS.filter(({ id }) => !LAST.has(id));
    const answered = await fuzz(early, REQUESTS);
    await fuzz(
      OPERATIONS.filter(({ id }) => LAST.has(id)),
      Math.ceil(REQUESTS / 20),
    );
    // A run that only meets refusals at the door would show nothing.
    const done = [...answered].filter((each) => each.endsWith("done"));
    expect(answered.size).toBeGreaterThan(60);
    expect(done.length).toBeGreaterThan(25);
    const health = await fetch(`${url}/livez`);
    expect(health.status).toBe(200);
  },
  Math.max(180_000, REQUESTS * 500),
);
