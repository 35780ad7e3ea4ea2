import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@heddle/observability/logger";
import { Health } from "@heddle/rpc/health";
import { bindServer, closeServer } from "@heddle/rpc/server";
import { FastifyAdapter } from "@nestjs/platform-fastify";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { testConfig } from "../test/test-config.ts";
import { TEST_PEPPER, VolatileControl } from "../test/test-master.ts";
import { StateChanges } from "./api/jobs/state-changes.ts";
import { ReplicaDispatch } from "./inference/dispatch/inference-dispatch.ts";
import { InFlight } from "./inference/in-flight.ts";
import { masterModule } from "./master.module.ts";
import { NodeRegistry } from "./nodes/node-registry.ts";
import { LeaderLoop } from "./orchestration/leader-loop.ts";
import { TaskDispatch } from "./orchestration/tasks/task-dispatch.ts";
import { startMaster } from "./start-master.ts";
import { ThreadedLogStore } from "./task-output/log-thread/threaded-log-store.ts";
import { UsageLedger } from "./usage/usage-ledger.ts";

const credentials = { clusterToken: "the token of this test" };
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-start-master-"));
});
afterEach(() => {
  vi.restoreAllMocks();
  rmSync(folder, { recursive: true });
});

/** A whole master on a control plane without a log, and the server of its gRPC services. */
async function start() {
  const { server } = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  const config = testConfig(folder, { drainMs: 100 });
  const logger = createLogger({ service: "master-test", level: "silent" });
  const control = new VolatileControl();
  const open = { control, pepper: TEST_PEPPER, credentials, authorityHash: undefined };
  const master = await startMaster(masterModule(config, logger, open), config, server);
  return { master, server };
}

/** The closed parts in order, each once. */
function recordCloses(): string[] {
  const closed: string[] = [];
  const watch = <Name extends string>(
    part: { readonly name: string; readonly prototype: Record<Name, (...a: never[]) => unknown> },
    method: Name,
  ) => {
    const close = part.prototype[method];
    part.prototype[method] = function (this: unknown, ...args: never[]) {
      if (!closed.includes(part.name)) closed.push(part.name);
      return close.apply(this, args);
    };
    restore.push(() => {
      part.prototype[method] = close;
    });
  };
  watch(StateChanges, "onModuleDestroy");
  watch(InFlight, "close");
  watch(FastifyAdapter as never, "close");
  watch(LeaderLoop, "close");
  watch(TaskDispatch, "close");
  watch(ThreadedLogStore, "close");
  watch(ReplicaDispatch, "close");
  watch(Health, "stopServing");
  watch(NodeRegistry, "close");
  watch(UsageLedger, "onApplicationShutdown");
  return closed;
}

const restore: (() => void)[] = [];
afterEach(() => {
  for (const each of restore.splice(0)) each();
});

test("shutdown: drains, closes HTTP, then parts before those that they use", async () => {
  const { master, server } = await start();
  const closed = recordCloses();
  await master.close();
  await closeServer(server, 0);
  const first = ["StateChanges", "InFlight", "FastifyAdapter"];
  expect(closed.slice(0, first.length)).toEqual(first);
  const last = ["ReplicaDispatch", "Health", "NodeRegistry", "UsageLedger"];
  expect(closed.slice(-last.length)).toEqual(last);
  expect(closed.slice(first.length, -last.length).sort()).toEqual([
    "LeaderLoop",
    "TaskDispatch",
    "ThreadedLogStore",
  ]);
  expect(closed.indexOf("TaskDispatch")).toBeLessThan(closed.indexOf("ThreadedLogStore"));
});

test("shutdown: closes the other parts, then rejects with what one of them threw", async () => {
  const { master, server } = await start();
  vi.spyOn(ThreadedLogStore.prototype, "close").mockRejectedValue(new Error("its disk is gone"));
  const closed = recordCloses();
  await expect(master.close()).rejects.toThrow("its disk is gone");
  await closeServer(server, 0);
  expect(closed).toContain("UsageLedger");
});

test("start: closes what it has started when the HTTP port is taken", async () => {
  const { master, server } = await start();
  const second = await bindServer({ host: "127.0.0.1", port: 0, credentials });
  const config = testConfig(folder, { httpPort: Number(new URL(master.url).port) });
  const logger = createLogger({ service: "master-test", level: "silent" });
  const control = new VolatileControl();
  const open = { control, pepper: TEST_PEPPER, credentials, authorityHash: undefined };
  const closed = recordCloses();
  const starting = startMaster(masterModule(config, logger, open), config, second.server);
  await expect(starting).rejects.toThrow("EADDRINUSE");
  expect(closed).toContain("NodeRegistry");
  await master.close();
  for (const each of [server, second.server]) await closeServer(each, 0);
});
