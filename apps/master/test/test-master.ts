import { createSecretKey } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createApiKey, hashApiKey } from "@heddle/auth/api-key";
import type { SecretKeys } from "@heddle/base/secret-keys";
import type { ControlCommand } from "@heddle/control/command";
import type { DocumentIndex } from "@heddle/control/documents/document-index";
import type { JobIndex } from "@heddle/control/jobs/index/job-index";
import type { ApiKeyRecord } from "@heddle/control/state";
import { newestControl } from "@heddle/control/testing/newest-control";
import { createLogger } from "@heddle/observability/logger";
import type { DynamicModule } from "@nestjs/common";
import { Registry } from "prom-client";
import type { ControlPlane, Once } from "../src/control-plane/control-plane.ts";
import {
  INFERENCE_DISPATCH,
  type InferenceDispatch,
} from "../src/inference/dispatch/inference-port.ts";
import { masterModule } from "../src/master.module.ts";
import { NODE_DIRECTORY, type NodeDirectory } from "../src/nodes/node-directory.ts";
import { type Master, startMaster } from "../src/start-master.ts";
import { TaskSecrets } from "../src/task-output/task-secrets.ts";
import { UsageLedger } from "../src/usage/usage-ledger.ts";
import type { UsageRow } from "../src/usage/usage-row.ts";
import { DEPLOYMENT, ListedNodes, MODEL } from "./fixtures.ts";
import { ScriptedDispatch } from "./scripted-dispatch.ts";
import { type TestSettings, testConfig } from "./test-config.ts";

export const TEST_PEPPER = createSecretKey(Buffer.alloc(32, 7));
export const SECRETS = new TaskSecrets(TEST_PEPPER, { clusterToken: "unused" }, () => "");

/** A control plane without a disk: it applies every proposal at once. */
export class VolatileControl implements ControlPlane {
  readonly #replicated = newestControl();
  readonly state = this.#replicated.state;
  readonly #listeners = new Set<(command: ControlCommand) => void>();

  get jobs(): JobIndex {
    return this.#replicated.jobs;
  }

  get documents(): DocumentIndex {
    return this.#replicated.documents;
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

  get logTimeMs(): number {
    return this.#replicated.logTimeMs;
  }

  keptAnswer(id: string) {
    return this.#replicated.keptAnswer(id);
  }

  secret(name: string): string | undefined {
    return this.#replicated.secret(name);
  }

  async keepSecret(name: string, value: string) {
    const entry = { type: "secret.keep" as const, atMs: Date.now(), name, value };
    return this.#replicated.apply(entry, this.appliedIndex + 1);
  }

  useSecretsKey(id: string): void {
    this.#replicated.apply({ type: "secrets.key", atMs: 0, id }, this.appliedIndex + 1);
  }

  /** All replicated state as lines of JSON. */
  snapshot(): Iterable<string> {
    return this.#replicated.snapshot();
  }

  async close(): Promise<void> {}
}

export interface TestMaster {
  readonly master: Pick<Master, "close">;
  readonly url: string;
  readonly dispatch: ScriptedDispatch;
  readonly directory: ListedNodes;
  readonly control: VolatileControl;
  readonly adminKey: string;
  readonly rows: UsageRow[];
  addKey(record?: Partial<ApiKeyRecord>): Promise<{ id: string; text: string }>;
}

/** Nest's module with scripted nodes and answers in place of attached workers. */
export function scriptedCluster(
  directory: NodeDirectory,
  dispatch: InferenceDispatch,
): DynamicModule {
  const providers = [
    { provide: NODE_DIRECTORY, useValue: directory },
    { provide: INFERENCE_DISPATCH, useValue: dispatch },
  ];
  return { module: ScriptedCluster, global: true, providers, exports: providers };
}

class ScriptedCluster {}

/**
 * A master over real HTTP; `more` are modules beside the scripted cluster, the first of `keys`
 * encrypts.
 */
export async function startTestMaster(
  settings: TestSettings = {},
  more: NonNullable<DynamicModule["imports"]> = [],
  keys?: SecretKeys,
): Promise<TestMaster> {
  const folder = mkdtempSync(join(tmpdir(), "heddle-test-master-"));
  const dispatch = new ScriptedDispatch();
  const directory = new ListedNodes();
  const control = new VolatileControl();
  if (keys) control.useSecretsKey(keys.ids[0] ?? "");
  await control.propose({ type: "model.register", atMs: 0, model: MODEL, deployment: DEPLOYMENT });
  const addKey = async (record: Partial<ApiKeyRecord> = {}) => {
    const { id, text } = createApiKey("test");
    const key = { ...KEY, id, hash: hashApiKey(text, TEST_PEPPER), ...record };
    const reply = await control.propose({ type: "key.create", atMs: 0, key });
    if (!reply.ok) throw new Error(reply.message);
    return { id, text };
  };
  const { text: adminKey } = await addKey();
  const config = testConfig(folder, settings);
  const logger = createLogger({ service: "master-test", level: "silent" });
  const credentials = { clusterToken: "unused" };
  const open = { control, pepper: TEST_PEPPER, credentials, keys, authorityHash: undefined };
  const cluster = [scriptedCluster(directory, dispatch), ...more];
  const { app, url, close } = await startMaster(
    masterModule(config, logger, open, cluster),
    config,
  );
  app.get(Registry, { strict: false }).setDefaultLabels({});
  const rows = recordedRows(app.get(UsageLedger, { strict: false }));
  const master = {
    close: async () => {
      await close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
  return { master, url, dispatch, directory, control, adminKey, rows, addKey };
}

/** The rows that the ledger records from now on. */
function recordedRows(ledger: UsageLedger): UsageRow[] {
  const rows: UsageRow[] = [];
  const record = ledger.record.bind(ledger);
  ledger.record = (row) => {
    rows.push(row);
    record(row);
  };
  return rows;
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
