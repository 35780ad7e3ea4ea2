import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { planCluster, WORKSPACE_PROGRAMS } from "./cluster-plan.ts";
import { DataDirectory } from "./data-directory.ts";
import { parseUpOptions } from "./options.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-plan-"));
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

test("secrets key: only masters get it, by flag and by environment", () => {
  vi.stubEnv("HEDDLE_SECRETS_KEY", "the key itself");
  const flags = { masters: "1", workers: "1", parameterServers: "1", port: "8080", data: folder };
  const options = parseUpOptions({ ...flags, logLevel: "warn", secretsKeyFile: "key-file" }, {});
  const data = new DataDirectory(folder);
  const specs = planCluster({
    options,
    profile: "tiny",
    data,
    ports: [{ http: 8080, grpc: 9080 }],
    tls: undefined,
    secrets: data.secrets(["http://127.0.0.1:8080"]),
    programs: WORKSPACE_PROGRAMS,
  });
  const reported = specs.map(({ kind, command, env }) => [
    kind,
    command.includes("--secrets-key-file"),
    env["HEDDLE_SECRETS_KEY"],
  ]);
  expect(reported).toEqual([
    ["master", true, "the key itself"],
    ["worker", false, undefined],
    ["parameter-server", false, undefined],
  ]);
});
