// holds: access-foreign-ids

import { Grants } from "@heddle/auth/access/grants";
import { afterAll, beforeAll, expect, test } from "vitest";
import { replicaOn } from "../../../test/fixtures.ts";
import { JobApi } from "../../../test/job-api.ts";
import type { Caller } from "../../http/identity/caller.ts";
import { requireLogsOf } from "../jobs/job-access.ts";

let api: JobApi;
beforeAll(async () => {
  api = await JobApi.start();
});
afterAll(() => api.close());

test("foreign ids: nodes show tasks to those alone who may know of their jobs", async () => {
  await api.join("w1", { gpuCount: 2 });
  api.master.directory.views = [replicaOn("w1", "tiny", "ready")];
  const id = await api.submit({ project: "canary-tenant" });
  await api.run(id);
  const keyOf = async (project: string | undefined, ...scopes: string[]) => {
    const key = { scopes: ["cluster:read", ...scopes], ...(project && { project }) };
    return (await api.master.addKey(key)).text;
  };
  const knows = [await keyOf("canary-tenant", "jobs:read"), api.master.adminKey];
  const others = [await keyOf("other", "jobs:read"), await keyOf("canary-tenant")];
  for (const path of ["/workers", "/workers/w1", "/cluster/resources"]) {
    const seen = async (key: string) => {
      const { status, body } = await api.call("GET", path, undefined, {}, key);
      expect(status).toBe(200);
      return JSON.stringify(body).includes(id);
    };
    for (const key of knows) expect(await seen(key), path).toBe(true);
    for (const key of others) expect(await seen(key), path).toBe(false);
  }
});

test("foreign ids: logs that outlive their job are for readers of all projects' jobs", () => {
  const ask = (...ofCluster: string[]) => {
    const grants = new Grants().allow(ofCluster, undefined).allow(["jobs:read"], "other");
    return () => requireLogsOf({ jobs: new Map() }, "job_gone", { grants } as Caller);
  };
  expect(ask("jobs:read")).not.toThrow();
  for (const permissions of [[], ["models:read"], ["cluster:read"]]) {
    expect(ask(...permissions), String(permissions)).toThrow("No job has the id job_gone.");
  }
});
