import type { DeploymentRecord, ModelRecord } from "@heddle/control/state";
import type { NodeDirectory, NodeView } from "../src/nodes/node-directory.ts";

/** A directory of a master that knows of no divided model. */
export const NO_DIVISIONS: NodeDirectory["divisions"] = {
  of: () => ({}),
  all: new Map(),
  fresh: async () => {},
};

/** A directory of the nodes that a test sets; it pulls ten bytes in two steps. */
export class ListedNodes implements NodeDirectory {
  divisions = NO_DIVISIONS;
  views: NodeView[] = [];
  readonly workersLost = 0;
  /** Keyed by node; the others report all the time. */
  readonly silences = new Map<string, number>();
  nodes(): readonly NodeView[] {
    return this.views;
  }
  silentMs(nodeId: string): number {
    return this.silences.get(nodeId) ?? 0;
  }
  replicasOf(deployment: string) {
    const all = this.views.flatMap(({ replicas }) => replicas);
    return all.filter((replica) => replica.deployment === deployment);
  }
  async *pull() {
    yield { pulledBytes: 5, totalBytes: 10, source: "builtin://tiny", done: false };
    yield { pulledBytes: 10, totalBytes: 10, source: "builtin://tiny", done: true };
  }
}

export const MODEL: ModelRecord = {
  id: "FamilyA-1-2B",
  family: "A",
  contextWindow: 131_072,
  availability: "Free (Beta)",
  intendedUse: "tests",
  ownedBy: "heddle",
  capabilities: ["chat"],
  createdAtMs: 1_700_000_000_000,
  deployment: "tiny",
  backing: "tiny random model (cpu)",
  standIn: true,
};

export const DEPLOYMENT: DeploymentRecord = {
  replicas: "every-worker",
  spec: {
    key: "tiny",
    engine: "llama",
    weights: { key: "tiny", file: "tiny.gguf", sources: ["builtin://tiny"] },
    options: {},
  },
};

/** A node with one replica in a phase, with its engine's context if one is given. */
export function replicaOn(
  id: string,
  deployment: string,
  phase: NodeView["replicas"][number]["phase"],
  contextTokens?: number,
): NodeView {
  const load = { running: 2, waiting: 1, maxSequences: 4, maxQueued: 8, kvUsedTokens: 25 };
  const totals = { promptTokens: 0, cachedTokens: 0, generatedTokens: 0, residentBytes: 0 };
  const engine = { engine: "llama.cpp", device: "cpu", vocabularySize: 1, parameters: 1 };
  const file = { fileType: "F32", chatTemplate: "plain" } as const;
  const info = contextTokens ? { ...engine, contextTokens, ...file } : undefined;
  return {
    id,
    kind: "worker",
    incarnation: "1",
    name: id,
    address: "127.0.0.1:1",
    version: "0.0.0-test",
    state: "ready",
    attachedAtMs: 1,
    lastSeenMs: 2,
    cpuPercent: 12,
    cpuCount: 2,
    memoryBytes: 100,
    memoryUsedBytes: 50,
    diskBytes: 1000,
    diskUsedBytes: 400,
    gpus: [],
    deviceReadings: 0,
    replicas: [
      {
        deployment,
        phase,
        pulledBytes: 3,
        totalBytes: 9,
        message: "",
        info,
        load: { ...load, ...totals, kvTokens: 100, restarts: 0 },
      },
    ],
  };
}
