import { fileURLToPath } from "node:url";
import { Inject, Module, NotFoundException } from "@nestjs/common";
import { HttpAdapterHost } from "@nestjs/core";
import type { FastifyAdapter } from "@nestjs/platform-fastify";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { HttpModule } from "../http/http.module.ts";
import { ConsoleSite } from "./site.ts";

const FOLDER = fileURLToPath(new URL("../../../console/dist/site", import.meta.url));
/** The files have no secret: readers sign in on the page. */
const PUBLIC = { operation: { permission: "public" } };

/** Serves the web console. Its files are no operations of the API, and in no list of its routes. */
@Module({ imports: [HttpModule] })
export class ConsoleModule {
  readonly #site = new ConsoleSite(FOLDER);

  constructor(@Inject(HttpAdapterHost) { httpAdapter }: HttpAdapterHost<FastifyAdapter>) {
    const instance = httpAdapter.getInstance<FastifyInstance>();
    const serve = (request: FastifyRequest, reply: FastifyReply) => this.#serve(request, reply);
    instance.get("/", { config: PUBLIC }, toConsole);
    instance.get("/console", { config: PUBLIC }, serve);
    instance.get("/console/*", { config: PUBLIC }, serve);
  }

  async #serve({ params, headers }: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { "*": path = "" } = params as { readonly "*"?: string };
    const { headers: own, bytes, zipped } = await this.#site.file(path);
    reply.headers(own);
    if (headers["if-none-match"] === own["etag"]) return reply.code(304).send();
    if (!/\bgzip\b/.test(String(headers["accept-encoding"] ?? ""))) return reply.send(bytes);
    return reply.header("content-encoding", "gzip").send(zipped);
  }
}

/** For people who open the master's address in a browser; programs get the usual answer. */
function toConsole({ headers }: FastifyRequest, reply: FastifyReply): FastifyReply {
  if (!headers.accept?.includes("text/html")) throw new NotFoundException();
  return reply.redirect("/console/", 302);
}
