import { tmpdir } from "node:os";
import { join } from "node:path";
import { createApiKey, hashApiKey } from "@heddle/auth/api-key";
import type { ControlCommand } from "@heddle/control/command";
import type { JobIndex } from "@heddle/control/jobs/index/job-index";
import type { ApiKeyRecord } from "@heddle/control/state";
import { newestControl } from "@heddle/control/testing/newest-control";
import { createLogger } from "@heddle/observability/logger";
import { Registry } from "prom-client";
import type { ControlPlane, Once } from "../src/control-plane/control-plane.ts";
import { DEFAULT_HTTP_LIMITS } from "../src/http/fastify-server.ts";
import type { UsageRow } from "../src/inference/accounting.ts";
import { createMaster, type Master, type MasterOptions } from "../src/master.ts";
import { ArtifactReader } from "../src/task-output/artifact-reader.ts";
import { LogReader } from "../src/task-output/log-reader.ts";
import { LogRepair } from "../src/task-output/log-repair.ts";
import { LogStore } from "../src/task-output/log-store.ts";
import { TaskSecrets } from "../src/task-output/task-secrets.ts";
import { DEPLOYMENT, ListedNodes, MODEL } from "./fixtures.ts";
import { ScriptedDispatch } from "./scripted-dispatch.ts";

/** A reader over an empty store: none of these tests runs a task. */
function noLogs(control: ControlPlane): LogReader {
  const log = createLogger({ service: "master-test", level: "silent" });
  const directory = join(tmpdir(), "heddle-no-task-logs");
  const store = new LogStore({ directory, maxBytes: 0, maxAgeMs: 0, log });
  const repair = new LogRepair({
    store,
    credentials: { clusterToken: "unused" },
    sources: () => [],
    log,
  });
  return new LogReader({ store, repair, state: () => control.state, isAttached: () => false });
}

export const TEST_PEPPER = Buffer.alloc(32, 7);
export const SECRETS = new TaskSecrets(TEST_PEPPER, { clusterToken: "unused" }, () => "");

/** A control plane without a disk: it applies every proposal at once. */
export class VolatileControl implements ControlPlane {
  readonly #replicated = newestControl();
  readonly state = this.#replicated.state;
  readonly #listeners = new Set<(command: ControlCommand) => void>();

  get jobs(): JobIndex {
    return this.#replicated.jobs;
  }

  get appliedIndex(): number {
    return this.#replicated.index;
  }

  async propose(command: ControlCommand, once: Once = {}) {
    const reply = this.#replicated.apply(
      { type: "control", command, ...once },
      this.appliedIndex + 1,
    );
    for (const listener of this.#listeners) listener(command);
    return reply;
  }

  onApplied(listener: (command: ControlCommand) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  keptAnswer(id: string) {
    return this.#replicated.keptAnswer(id);
  }

  /** All replicated state as lines of JSON. */
  snapshot(): Iterable<string> {
    return this.#replicated.snapshot();
  }

  async close(): Promise<void> {}
}

/** The parts under a master, for tests that share them. */
interface Parts {
  readonly control: VolatileControl;
  readonly directory: ListedNodes;
}

export interface TestMaster {
  readonly master: Master;
  readonly url: string;
  readonly dispatch: ScriptedDispatch;
  readonly directory: ListedNodes;
  readonly control: VolatileControl;
  readonly adminKey: string;
  readonly rows: UsageRow[];
  addKey(record?: Partial<ApiKeyRecord>): Promise<{ id: string; text: string }>;
}

export async function startTestMaster(
  overrides: Partial<MasterOptions> | ((of: Parts) => Partial<MasterOptions>) = {},
): Promise<TestMaster> {
  const dispatch = new ScriptedDispatch();
  const directory = new ListedNodes();
  const control = new VolatileControl();
  const rows: UsageRow[] = [];
  await control.propose({ type: "model.register", atMs: 0, model: MODEL, deployment: DEPLOYMENT });
  const addKey = async (record: Partial<ApiKeyRecord> = {}) => {
    const { id, text } = createApiKey("test");
    const key = { ...KEY, id, hash: hashApiKey(text, TEST_PEPPER), ...record };
    const reply = await control.propose({ type: "key.create", atMs: 0, key });
    if (!reply.ok) throw new Error(reply.message);
    return { id, text };
  };
  const { text: adminKey } = await addKey();
  const master = await createMaster({
    control,
    dispatch,
    directory,
    logs: noLogs(control),
    artifacts: new ArtifactReader({ control, directory, credentials: { clusterToken: "unused" } }),
    pepper: TEST_PEPPER,
    logger: createLogger({ service: "master-test", level: "silent" }),
    registry: new Registry(),
    queued: () => 0,
    masterId: "master-test",
    version: "0.0.0-test",
    dataDirectory: tmpdir(),
    usageSink: (row) => rows.push(row),
    host: "127.0.0.1",
    port: 0,
    http: DEFAULT_HTTP_LIMITS,
    maxCalls: 1000,
    deadlineMs: 20_000,
    ...(typeof overrides === "function" ? overrides({ control, directory }) : overrides),
  });
  return { master, url: master.url, dispatch, directory, control, adminKey, rows, addKey };
}

const KEY: ApiKeyRecord = {
  id: "",
  name: "test",
  hash: "",
  scopes: ["*"],
  models: [],
  limits: {},
  createdAtMs: 0,
};
