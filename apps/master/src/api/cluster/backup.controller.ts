import { Readable } from "node:stream";
import { AppError } from "@heddle/base/errors";
import { clusterOperations } from "@heddle/contracts/api/cluster";
import type { QueryOf } from "@heddle/contracts/api/operation";
import { backupBytes } from "@heddle/storage/backup-file";
import { Controller, Inject, Query, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { DocumentBackup } from "../../documents/document-backup.ts";
import { Serves } from "../../http/serves.ts";

@Controller()
export class BackupController {
  readonly #control: ControlPlane;
  readonly #documents: DocumentBackup;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(DocumentBackup) documents: DocumentBackup,
  ) {
    this.#control = control;
    this.#documents = documents;
  }

  @Serves(clusterOperations.backup)
  async backup(
    @Query() { consistency, documents }: QueryOf<typeof clusterOperations.backup>,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const { group } = this.#control;
    if (!group) throw new AppError("precondition_failed", "This master is not part of a group.");
    const { cluster } = group.status();
    const before = this.#documents.digests();
    const { index, bytes, content } = await group.takeBackup(consistency === "stale");
    const isWhole = documents === "true";
    reply.headers({
      "content-type": "application/octet-stream",
      ...(isWhole ? {} : { "content-length": bytes }),
      "content-disposition": `attachment; filename="heddle-${cluster.slice(0, 8)}-${index}.backup"`,
      "x-heddle-cluster": cluster,
      "x-raft-index": index,
    });
    // The state may have documents that were deleted since, and those that were just stored.
    const digests = new Set([...before, ...this.#documents.digests()]);
    const whole = () => backupBytes(content, this.#documents.contents(digests));
    // A failure here shows at the client: the file lacks its last frame.
    await reply.send(isWhole ? Readable.from(whole(), { objectMode: false }) : content);
  }
}
