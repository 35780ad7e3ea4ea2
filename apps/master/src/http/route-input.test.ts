// holds: jobs-unknown-input

import type { Route } from "@heddle/contracts/api/cluster";
import { isOrchestration } from "@heddle/contracts/api/operations";
import { afterAll, beforeAll, expect, test } from "vitest";
import { send } from "../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../test/test-master.ts";

let server: TestMaster;
let routes: readonly Route[];
beforeAll(async () => {
  server = await startTestMaster();
  const reply = await send(server, "GET", "/api/v1/endpoints");
  const { data } = (await reply.json()) as { data: Route[] };
  routes = data.filter(({ path }) => isOrchestration(path));
  expect(routes.length).toBeGreaterThan(30);
});
afterAll(() => server.master.close());

/** Valid values of the names in a path, which are checked before the input. */
const NAME = "job_timeout";
const KIND = "project";

/** Required parameters, which are checked before the body. */
const QUERIES: Readonly<Record<string, string>> = {
  "DELETE /api/v1/bindings": "?kind=user&subject=alice&role=viewer",
};

/** The locations of the refusal, as in its response. */
async function pointersOf(method: string, path: string, body?: unknown) {
  const filled = path.replace(/:\w+/g, (name) => (name === ":kind" ? KIND : NAME));
  const reply = await send(server, method, filled, body);
  expect(reply.headers.get("content-type"), `${method} ${path}`).toContain("problem+json");
  const { status, errors } = (await reply.json()) as {
    status: number;
    errors: readonly { pointer: string }[];
  };
  return { route: `${method} ${path}`, status, pointers: errors.map(({ pointer }) => pointer) };
}

test("route input: orchestration routes refuse unknown query parameters", async () => {
  for (const { method, path } of routes) {
    const { route, status, pointers } = await pointersOf(method, `${path}?bogus=1&fake=2`);
    expect({ route, status }).toEqual({ route, status: 400 });
    expect(pointers, route).toEqual(["#/bogus", "#/fake"]);
  }
});

test.each([
  ["GET", "/api/v1/jobs?lable=a", "Did you mean 'label'?"],
  ["GET", "/api/v1/events?aftr=0.0", "Did you mean 'after'?"],
  ["POST", "/api/v1/jobs?dryrun=true", "Did you mean 'dry_run'?"],
  ["PUT", "/api/v1/projects/default", "There is no field 'weigt'. Did you mean 'weight'?"],
])("route input: %s %s is refused with advice", async (method, path, advice) => {
  const body = method === "GET" ? undefined : { bogus: 1, weigt: 2 };
  const reply = await send(server, method, path, body);
  expect(reply.status).toBe(400);
  expect(await reply.text()).toContain(advice);
});

test("route input: every changing route refuses unknown fields of a body", async () => {
  for (const { method, path } of routes.filter((each) => each.method !== "GET")) {
    const query = QUERIES[`${method} ${path}`] ?? "";
    const body = { bogus: 1 };
    const { route, status, pointers } = await pointersOf(method, `${path}${query}`, body);
    expect({ route, status }).toEqual({ route, status: 400 });
    expect(pointers, route).toContain("#/bogus");
  }
});

test("route input: an empty body is none, and known parameters are accepted", async () => {
  const empty = await pointersOf("POST", "/api/v1/jobs/:id/suspend", {});
  expect(empty).toMatchObject({ status: 404, pointers: [] });
  const known = await send(server, "GET", "/api/v1/events?after=0.0&limit=1&consistency=strong");
  expect(known.status).toBe(200);
  expect(known.headers.get("x-consistency")).toBe("strong");
});

test("route input: the length and the characters of an event's names are explained", async () => {
  const detailOf = async (method: string, path: string, body?: object) => {
    const reply = await send(server, method, `/api/v1/events/log${path}`, body);
    expect(reply.status, path).toBe(400);
    return ((await reply.json()) as { detail: string }).detail;
  };
  for (const type of ["", "x".repeat(501)]) {
    const detail = await detailOf("GET", `?type=${type}`);
    expect(detail).toBe("Invalid value for 'type': expected 1 to 500 characters.");
  }
  const body = { type: "VISIT", subject: "ward\n7" };
  expect(await detailOf("POST", "", body)).toBe(
    "Invalid value for 'subject': expected 1 to 512 printable ASCII characters without spaces.",
  );
});
