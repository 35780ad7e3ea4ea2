import { afterAll, beforeAll, expect, test } from "vitest";
import { send } from "../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../test/test-master.ts";
import { isOrchestration } from "./error-reply.ts";
import type { RouteInfo } from "./route-table.ts";

let server: TestMaster;
let routes: readonly RouteInfo[];
beforeAll(async () => {
  server = await startTestMaster();
  const reply = await send(server, "GET", "/api/v1/endpoints");
  const { data } = (await reply.json()) as { data: RouteInfo[] };
  routes = data.filter(({ path }) => isOrchestration(path));
  expect(routes.length).toBeGreaterThan(30);
});
afterAll(() => server.master.close(0));

/** A name that stands wherever one is asked for before the input is read. */
const NAME = "job_timeout";

/** The refusal's places, as the caller is told them. */
async function pointersOf(method: string, path: string, body?: unknown) {
  const reply = await send(server, method, path.replace(/:\w+/g, NAME), body);
  expect(reply.headers.get("content-type"), `${method} ${path}`).toContain("problem+json");
  const { status, errors } = (await reply.json()) as {
    status: number;
    errors: readonly { pointer: string }[];
  };
  return { route: `${method} ${path}`, status, pointers: errors.map(({ pointer }) => pointer) };
}

test("every route of the orchestration API refuses each parameter that it does not know", async () => {
  for (const { method, path } of routes) {
    const { route, status, pointers } = await pointersOf(method, `${path}?bogus=1&fake=2`);
    expect({ route, status }).toEqual({ route, status: 400 });
    expect(pointers, route).toEqual(["#/bogus", "#/fake"]);
  }
});

test("every route that changes something refuses each field of a body that it does not know", async () => {
  for (const { method, path } of routes.filter((each) => each.method !== "GET")) {
    const { route, status, pointers } = await pointersOf(method, path, { bogus: 1 });
    expect({ route, status }).toEqual({ route, status: 400 });
    expect(pointers, route).toContain("#/bogus");
  }
});

test("a body without fields is none, and the parameters that a route knows are taken", async () => {
  const empty = await pointersOf("POST", "/api/v1/jobs/:id/suspend", {});
  expect(empty).toMatchObject({ status: 404, pointers: [] });
  const known = await send(server, "GET", "/api/v1/events?after=0.0&limit=1&consistency=strong");
  expect(known.status).toBe(200);
  expect(known.headers.get("x-consistency")).toBe("strong");
});
