import { join } from "node:path";
import { SecretKeys } from "@heddle/base/secret-keys";
import type { Logger } from "@heddle/observability/logger";
import type { NodeCredentials } from "@heddle/rpc/credentials";
import { BlobStore } from "@heddle/storage/blob-store";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import {
  Global,
  Inject,
  Module,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
} from "@nestjs/common";
import { Registry } from "prom-client";
import { LOGGER, MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { CREDENTIALS } from "../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { ContentCopies } from "./content-copies.ts";
import { ContentReplicas } from "./content-replicas.ts";
import { DocumentBackup } from "./document-backup.ts";
import { DocumentContentsController } from "./document-contents.controller.ts";
import { exposeDocumentMetrics } from "./document-metrics.ts";
import { DocumentUpkeep } from "./document-upkeep.ts";
import { DOCUMENTS } from "./documents.ts";
import { ReplicatedDocuments } from "./replicated-documents.ts";

/** The masters' store of documents: responses, conversations, files and batches. */
@Global()
@Module({
  controllers: [DocumentContentsController],
  providers: [
    {
      provide: BlobStore,
      inject: [MASTER_CONFIG, SecretKeys],
      useFactory: ({ dataDirectory }: MasterConfig, keys: SecretKeys) =>
        BlobStore.open({
          files: nodeStorageFiles,
          directory: join(dataDirectory, "documents"),
          keys,
        }),
    },
    {
      provide: ContentReplicas,
      inject: [BlobStore, CONTROL_PLANE, CREDENTIALS, LOGGER],
      useFactory: (
        store: BlobStore,
        control: ControlPlane,
        credentials: NodeCredentials,
        log: Logger,
      ) => new ContentReplicas({ store, control, credentials, log }),
    },
    {
      provide: DocumentUpkeep,
      inject: [BlobStore, ContentReplicas, CONTROL_PLANE, LOGGER],
      useFactory: (
        store: BlobStore,
        replicas: ContentReplicas,
        control: ControlPlane,
        log: Logger,
      ) => new DocumentUpkeep({ store, replicas, control, log }),
    },
    {
      provide: DocumentBackup,
      inject: [BlobStore, ContentReplicas, CONTROL_PLANE, LOGGER],
      useFactory: (
        store: BlobStore,
        replicas: ContentReplicas,
        control: ControlPlane,
        log: Logger,
      ) => new DocumentBackup({ store, replicas, control, log }),
    },
    {
      provide: ContentCopies,
      inject: [ContentReplicas, CONTROL_PLANE],
      useFactory: (replicas: ContentReplicas, control: ControlPlane) =>
        new ContentCopies(replicas, control),
    },
    {
      provide: DOCUMENTS,
      inject: [CONTROL_PLANE, ContentReplicas],
      useFactory: (control: ControlPlane, contents: ContentReplicas) =>
        new ReplicatedDocuments(control, contents),
    },
  ],
  exports: [DOCUMENTS, DocumentBackup, ContentCopies],
})
export class DocumentsModule implements OnApplicationBootstrap, OnApplicationShutdown {
  readonly #upkeep: DocumentUpkeep;
  readonly #replicas: ContentReplicas;

  constructor(
    @Inject(DocumentUpkeep) upkeep: DocumentUpkeep,
    @Inject(ContentReplicas) replicas: ContentReplicas,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(Registry) registry: Registry,
  ) {
    this.#upkeep = upkeep;
    this.#replicas = replicas;
    exposeDocumentMetrics(registry, { control, upkeep, replicas });
  }

  onApplicationBootstrap(): void {
    void this.#upkeep.run();
  }

  onApplicationShutdown(): void {
    this.#upkeep.close();
    this.#replicas.close();
  }
}
