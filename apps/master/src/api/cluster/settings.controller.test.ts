// holds: masters-quorum-lost, jobs-consistency

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { send } from "../../../test/http.ts";
import { startTestMaster, type TestMaster } from "../../../test/test-master.ts";

let server: TestMaster;
beforeAll(async () => {
  server = await startTestMaster();
});
afterAll(() => server.master.close());

const path = (name = "") => `/api/v1/cluster/settings${name && `/${name}`}`;

function put(name: string, body: unknown, ifMatch?: string): Promise<Response> {
  return fetch(server.url + path(name), {
    method: "PUT",
    headers: {
      authorization: `Bearer ${server.adminKey}`,
      "content-type": "application/json",
      ...(ifMatch !== undefined && { "if-match": ifMatch }),
    },
    body: JSON.stringify(body),
  });
}

describe("the cluster's settings", () => {
  it("have their defaults and the version 0 until they are set", async () => {
    const reply = await send(server, "GET", path("overcommit_ratio"));
    expect(reply.headers.get("etag")).toBe('"0"');
    expect(await reply.json()).toMatchObject({
      object: "cluster_setting",
      name: "overcommit_ratio",
      value: 1,
      default: 1,
      version: 0,
      type: "number",
      minimum: 0.1,
      maximum: 10,
      updated_at: null,
    });
    const list = await (await send(server, "GET", path())).json();
    const names = (list as { data: { name: string }[] }).data.map(({ name }) => name);
    expect(names).toEqual([
      "max_concurrent_jobs",
      "job_timeout",
      "unsatisfiable_wait",
      "overcommit_ratio",
      "shared_storage_gb",
      "job_spec_kib",
      "state_mib",
      "documents",
      "documents_mib",
      "owner_documents",
      "owner_documents_mib",
      "file_mib",
      "response_days",
      "event_days",
      "event_mib",
      "shared_prefix_cache",
    ]);
  });

  it("are set if the ETag matches, and otherwise answer 412", async () => {
    const first = await put("job_timeout", { value: 60 }, '"0"');
    expect([first.status, first.headers.get("etag")]).toEqual([200, '"1"']);
    expect(await first.json()).toMatchObject({ value: 60, version: 1 });
    const late = await put("job_timeout", { value: 70 }, '"0"');
    expect(late.status).toBe(412);
    expect(await late.json()).toMatchObject({ code: "precondition_failed", retryable: false });
    expect((await put("job_timeout", { value: 80 })).headers.get("etag")).toBe('"2"');
    expect((await put("job_timeout", { value: 90 }, "*")).headers.get("etag")).toBe('"3"');
    const now = await (await send(server, "GET", path("job_timeout"))).json();
    expect(now).toMatchObject({ value: 90, version: 3, updated_at: expect.stringMatching(/Z$/) });
  });

  it.each<[number, string, string, unknown, string | undefined]>([
    [404, "not_found", "colour", { value: 1 }, undefined],
    [400, "invalid_value", "job_timeout", { value: 0 }, undefined],
    [400, "invalid_value", "job_timeout", { value: 1.5 }, undefined],
    [400, "invalid_value", "job_timeout", { value: "1" }, undefined],
    [400, "missing_required_parameter", "job_timeout", {}, undefined],
    [400, "invalid_value", "job_timeout", { value: 1, unit: "h" }, undefined],
    [400, "invalid_value", "overcommit_ratio", { value: 11 }, undefined],
    [400, "invalid_value", "job_timeout", { value: 1 }, "W/3"],
  ])("answer %i %s where %s is set to %j, If-Match %s", async (status, code, name, body, match) => {
    const reply = await put(name, body, match);
    expect(reply.status).toBe(status);
    expect(await reply.json()).toMatchObject({ code });
  });

  it("are read with cluster:read and set with cluster:admin only", async () => {
    const { text } = await server.addKey({ scopes: ["cluster:read"] });
    expect((await send(server, "GET", path(), undefined, { key: text })).status).toBe(200);
    const refused = await send(server, "PUT", path("job_timeout"), { value: 1 }, { key: text });
    expect(refused.status).toBe(403);
  });

  it("state the consistency of an answer, and refuse unknown values", async () => {
    for (const wanted of ["strong", "stale"]) {
      const reply = await send(server, "GET", `${path()}?consistency=${wanted}`);
      expect(reply.headers.get("x-consistency")).toBe(wanted);
    }
    const plain = await send(server, "GET", "/api/v1/keys");
    expect(plain.headers.get("x-consistency")).toBe("stale");
    const refused = await send(server, "GET", "/api/v1/models?consistency=eventual");
    expect(refused.status).toBe(400);
    expect(await refused.text()).toContain("expected `strong` or `stale`");
  });
});
