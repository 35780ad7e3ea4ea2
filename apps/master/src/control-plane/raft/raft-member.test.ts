import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { NO_SECRET_KEYS } from "@heddle/base/secret-keys";
import { lockDirectory } from "@heddle/consensus/member/directory-lock";
import { createLogger } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { closeContext } from "@heddle/rpc/nest/close-context";
import { Peer } from "@heddle/rpc/peer";
import { locateMethod } from "@heddle/rpc/proto";
import { afterEach, beforeEach, expect, test } from "vitest";
import { testConfig } from "../../../test/test-config.ts";
import { EnrollmentController } from "../enrollment/enrollment.controller.ts";
import { startRaftMember } from "./raft-member.module.ts";
import { RaftMember } from "./raft-member.ts";
import { readOrCreateClusterToken } from "./secrets.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-raft-member-"));
});
afterEach(() => rmSync(folder, { recursive: true }));

async function start(tls: boolean) {
  const config = testConfig(folder, { tls, grpcPort: 0 });
  const directory = join(folder, "control");
  mkdirSync(directory);
  const raise = (error: Error) => {
    throw error;
  };
  const context = await startRaftMember({
    config,
    directory,
    keys: NO_SECRET_KEYS,
    seed: undefined,
    logger: createLogger({ service: "master-test", level: "silent" }),
    lock: await lockDirectory(directory),
    onFatal: raise,
    onRemoved: raise,
  });
  return { config, context, member: context.get(RaftMember) };
}

test("member: serves other masters before its control plane opens, and after", async () => {
  const { config, context, member } = await start(false);
  const clusterToken = await readOrCreateClusterToken(config.clusterTokenFile);
  const node = { role: "master", name: "m2" } as const;
  const credentials: NodeCredentials = { clusterToken, node };
  const peer = new Peer(member.server.address, credentials, "master");
  const locate = () => peer.unary(locateMethod, {}, { deadlineMs: 5_000 });
  await expect(locate()).rejects.toMatchObject({
    code: "unavailable",
    message: "this master is still starting",
  });
  const { control, shownKey } = await member.open();
  expect((await locate()).port).toBeGreaterThan(0);
  expect(control.state.keys.size).toBe(1);
  expect(shownKey).toBeDefined();
  peer.close();
  await closeContext(context);
  expect(existsSync(join(folder, "control", "lock"))).toBe(false);
});

test("member: a join while it opens is refused; a close frees the lock", async () => {
  const { context } = await start(true);
  const request = { secret: "s", role: "worker", name: "w", csr: "" };
  await expect(context.get(EnrollmentController).join(request)).rejects.toMatchObject({
    code: "unavailable",
  });
  await closeContext(context);
  expect(existsSync(join(folder, "control", "lock"))).toBe(false);
});
