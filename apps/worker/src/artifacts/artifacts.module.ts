import { join } from "node:path";
import type { ArtifactBytes } from "@heddle/engines/weights/fetch-source";
import { NodeAgent } from "@heddle/node-agent/node-agent";
import type { Log } from "@heddle/observability/logger";
import { Inject, Module, type OnModuleDestroy, type OnModuleInit } from "@nestjs/common";
import {
  maxArtifactBytesOf,
  WORKER_OPTIONS,
  type WorkerOptions,
} from "../config/worker-options.ts";
import { ArtifactFilesController } from "./artifact-files.controller.ts";
import { ARTIFACT_BYTES, artifactSource } from "./artifact-source.ts";
import { ArtifactStore } from "./artifact-store.ts";
import { openReplica } from "./open-replica.ts";
import { ARTIFACT_REPLICA, type ArtifactReplica } from "./replica.ts";

/** As long as the masters keep an ended job. */
const DEFAULT_MAX_AGE_MS = 7 * 24 * 3_600_000;
const PRUNE_EVERY_MS = 3_600_000;

/** The artifacts of tasks on this worker's disk, and their copies in a second place. */
@Module({
  controllers: [ArtifactFilesController],
  providers: [
    {
      provide: ARTIFACT_REPLICA,
      inject: [WORKER_OPTIONS],
      useFactory: ({ artifactReplica, maxArtifactAgeMs = DEFAULT_MAX_AGE_MS }: WorkerOptions) =>
        artifactReplica ? openReplica(artifactReplica, maxArtifactAgeMs) : null,
    },
    {
      provide: ArtifactStore,
      inject: [WORKER_OPTIONS, ARTIFACT_REPLICA, NodeAgent],
      useFactory: openStore,
    },
    {
      provide: ARTIFACT_BYTES,
      inject: [ArtifactStore, NodeAgent],
      useFactory: (store: ArtifactStore, { credentials, masters }: NodeAgent): ArtifactBytes =>
        artifactSource({ store, masters: () => masters.addresses, credentials }),
    },
  ],
  exports: [ARTIFACT_REPLICA, ArtifactStore, ARTIFACT_BYTES],
})
export class ArtifactsModule implements OnModuleInit, OnModuleDestroy {
  readonly #store: ArtifactStore;
  readonly #log: Log;
  #pruning: NodeJS.Timeout | undefined;

  constructor(@Inject(ArtifactStore) store: ArtifactStore, @Inject(NodeAgent) node: NodeAgent) {
    this.#store = store;
    this.#log = node.options.log;
  }

  onModuleInit(): void {
    this.#pruning = setInterval(() => void this.#prune(), PRUNE_EVERY_MS).unref();
  }

  onModuleDestroy(): void {
    clearInterval(this.#pruning);
  }

  async #prune(): Promise<void> {
    try {
      await this.#store.prune();
      await this.#store.replicate();
    } catch (error) {
      const fact = "old artifacts could not be removed, or not copied";
      this.#log.warn({ error: String(error) }, fact);
    }
  }
}

function openStore(
  options: WorkerOptions,
  replica: ArtifactReplica | null,
  { options: { log } }: NodeAgent,
): ArtifactStore {
  return new ArtifactStore({
    root: join(options.dataDirectory, "artifacts"),
    maxBytes: maxArtifactBytesOf(options),
    maxAgeMs: options.maxArtifactAgeMs ?? DEFAULT_MAX_AGE_MS,
    replica: replica ?? undefined,
    onUncopied: (error) => log.warn({ error: String(error) }, "artifacts have no second copy yet"),
  });
}
