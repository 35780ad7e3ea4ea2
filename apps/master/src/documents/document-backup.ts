import { toAppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import type { BackupContent } from "@heddle/storage/backup-file";
import type { BlobStore } from "@heddle/storage/blob-store";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import type { ContentReplicas } from "./content-replicas.ts";

interface DocumentBackupOptions {
  readonly store: BlobStore;
  readonly replicas: ContentReplicas;
  readonly control: Pick<ControlPlane, "documents">;
  readonly log: Log;
}

/** The contents of documents for a backup, from this disk or else another master's. */
export class DocumentBackup {
  readonly #options: DocumentBackupOptions;

  constructor(options: DocumentBackupOptions) {
    this.#options = options;
  }

  /** The digests of all present documents. */
  digests(): string[] {
    return [...this.#options.control.documents.digests.keys()];
  }

  /** One at a time, as the reader takes them. */
  async *contents(digests: Iterable<string>): AsyncGenerator<BackupContent, void> {
    for (const digest of digests) yield { digest, file: await this.#file(digest) };
  }

  async #file(digest: string): Promise<Uint8Array | undefined> {
    const { store, replicas, log } = this.#options;
    try {
      const own = await store.file(digest).catch(() => undefined);
      if (own) return own;
      await replicas.heal(digest);
      return await store.file(digest);
    } catch (error) {
      const { message } = toAppError(error);
      log.warn({ digest, err: message }, "a content is missing in a backup");
      return undefined;
    }
  }
}
