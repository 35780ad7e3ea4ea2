import {
  type ApiFile,
  type FilePage,
  type FilesQuery,
  fileOperations,
} from "@heddle/contracts/api/inference/files";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { responseDrained } from "../../http/drained.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { Serves } from "../../http/serves.ts";
import { byteRange } from "../../task-output/byte-range.ts";
import { FileStore } from "./file-store.ts";
import { FileUploads } from "./file-uploads.ts";

@Controller()
export class FilesController {
  readonly #files: FileStore;
  readonly #uploads: FileUploads;

  constructor(@Inject(FileStore) files: FileStore, @Inject(FileUploads) uploads: FileUploads) {
    this.#files = files;
    this.#uploads = uploads;
  }

  @Serves(fileOperations.create)
  create(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<ApiFile> {
    return this.#uploads.receive(request, reply);
  }

  @Serves(fileOperations.list)
  list(@Req() request: CallerRequest, @Query() query: FilesQuery): Promise<FilePage> {
    return this.#files.list(this.#files.placeOf(requestCaller(request)), query);
  }

  @Serves(fileOperations.retrieve)
  retrieve(@Req() request: CallerRequest, @Param("id") id: string): Promise<ApiFile> {
    return this.#files.get(this.#files.placeOf(requestCaller(request)), id);
  }

  @Serves(fileOperations.delete)
  async delete(@Req() request: CallerRequest, @Param("id") id: string) {
    await this.#files.delete(this.#files.placeOf(requestCaller(request)), id);
    return { id, object: "file" as const, deleted: true as const };
  }

  @Serves(fileOperations.content)
  async content(
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
    @Param("id") id: string,
  ): Promise<void> {
    const { file, read } = await this.#files.open(this.#files.placeOf(requestCaller(request)), id);
    reply.headers({ "accept-ranges": "bytes", "cache-control": "private, no-transform" });
    const range = byteRange(request.headers.range, file.bytes);
    if (range === "unsatisfiable") {
      await reply.code(416).header("content-range", `bytes */${file.bytes}`).send();
      return;
    }
    const { offset, maxBytes } = range ?? { offset: 0, maxBytes: file.bytes };
    const parts = read(offset, maxBytes);
    // Read before the head is sent, so that a lost part still has its status.
    const first = await parts.next();
    const last = offset + maxBytes - 1;
    const head = {
      ...reply.getHeaders(),
      "content-type": "application/octet-stream",
      "content-disposition": `attachment; filename*=UTF-8''${encodeURIComponent(file.filename)}`,
      "content-length": String(maxBytes),
      ...(range && { "content-range": `bytes ${offset}-${last}/${file.bytes}` }),
    };
    const { raw } = reply;
    reply.hijack();
    raw.writeHead(range ? 206 : 200, head as Record<string, string>);
    try {
      for (let item = first; !item.done; item = await parts.next()) {
        if (!raw.write(item.value)) await responseDrained(raw);
      }
      raw.end();
    } catch {
      // The head is sent: a body that ends early is the only sign left.
      raw.destroy();
    }
  }
}
