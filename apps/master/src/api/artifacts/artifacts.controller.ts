import { type JobArtifact, jobOperations } from "@heddle/contracts/api/job-operations";
import type { QueryOf } from "@heddle/contracts/api/operation";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { CallerRequest } from "../../http/access.ts";
import { responseDrained } from "../../http/drained.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { Serves } from "../../http/serves.ts";
import { ArtifactReader, type KnownArtifact } from "../../task-output/artifact-reader.ts";
import { byteRange } from "../../task-output/byte-range.ts";
import type { ByteRange } from "../../task-output/checked-bytes.ts";
import { jobOfCaller } from "../jobs/job-access.ts";

/** The artifacts of a job's tasks: `GET /jobs/{id}/artifacts` and `.../artifacts/{name}`. */
@Controller()
export class ArtifactsController {
  readonly #artifacts: ArtifactReader;
  readonly #control: ControlPlane;

  constructor(
    @Inject(ArtifactReader) artifacts: ArtifactReader,
    @Inject(CONTROL_PLANE) control: ControlPlane,
  ) {
    this.#artifacts = artifacts;
    this.#control = control;
  }

  #check(id: string, request: CallerRequest): void {
    jobOfCaller(this.#control.state, id, requestCaller(request), "jobs:read");
  }

  @Serves(jobOperations.artifacts)
  list(@Param("id") id: string, @Req() request: CallerRequest) {
    this.#check(id, request);
    return { object: "list" as const, data: this.#artifacts.list(id).map(viewArtifact) };
  }

  @Serves(jobOperations.artifact)
  async download(
    @Param("id") id: string,
    @Param("name") name: string,
    @Query() { rank }: QueryOf<typeof jobOperations.artifact>,
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    this.#check(id, request);
    const known = this.#artifacts.find(id, name, rank);
    const etag = `"${known.artifact.sha256}"`;
    reply.headers({ etag, "accept-ranges": "bytes", "cache-control": "private, no-transform" });
    if (matches(request.headers["if-none-match"], etag)) {
      await reply.code(304).send();
      return;
    }
    const ifRange = request.headers["if-range"];
    const wanted = ifRange === undefined || ifRange === etag ? request.headers.range : undefined;
    const { bytes } = known.artifact;
    const range = byteRange(wanted, bytes);
    if (range === "unsatisfiable") {
      await reply.code(416).header("content-range", `bytes */${bytes}`).send();
      return;
    }
    await this.#send(known, range, reply);
  }

  async #send(known: KnownArtifact, range: ByteRange | undefined, reply: FastifyReply) {
    const { bytes } = known.artifact;
    const { raw } = reply;
    const gone = new AbortController();
    raw.once("close", () => gone.abort());
    const { offset, maxBytes } = range ?? { offset: 0, maxBytes: bytes };
    const chunks = this.#artifacts.read(known, { offset, maxBytes }, gone.signal);
    // Read before the head is sent, so that a refusal still has its status.
    const first = await chunks.next();
    const head = { ...reply.getHeaders(), ...headOf(known, range) };
    reply.hijack();
    raw.writeHead(range ? 206 : 200, head as Record<string, string>);
    try {
      for (let item = first; !item.done; item = await chunks.next()) {
        if (!raw.write(item.value)) await responseDrained(raw);
      }
      raw.end();
    } catch (error) {
      // The head is sent: only a broken stream can report the error.
      raw.destroy(error instanceof Error ? error : undefined);
    }
  }
}

function headOf({ artifact }: KnownArtifact, range: ByteRange | undefined) {
  const { bytes, name, sha256 } = artifact;
  const file = encodeURIComponent(name.slice(name.lastIndexOf("/") + 1));
  const base = {
    "content-type": "application/octet-stream",
    "content-disposition": `attachment; filename*=UTF-8''${file}`,
    "repr-digest": `sha-256=:${Buffer.from(sha256, "hex").toString("base64")}:`,
  };
  if (!range) return { ...base, "content-length": String(bytes) };
  const { offset, maxBytes } = range;
  return {
    ...base,
    "content-length": String(maxBytes),
    "content-range": `bytes ${offset}-${offset + maxBytes - 1}/${bytes}`,
  };
}

/** An artifact as the API shows it. */
function viewArtifact({ task, artifact }: KnownArtifact): JobArtifact {
  const { name, bytes, sha256 } = artifact;
  const { rank, attempt, nodeId: node } = task;
  return { object: "artifact", name, bytes, sha256, rank, attempt, node };
}

function matches(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false;
  const tags = ifNoneMatch.split(",").map((tag) => tag.trim().replace(/^W\//, ""));
  return tags.includes("*") || tags.includes(etag);
}
