import type { KeyObject } from "node:crypto";
import { fileURLToPath } from "node:url";
import type { IdentityAdapter } from "@heddle/auth/identity/identity-adapter";
import type { Logger } from "@heddle/observability/logger";
import { Inject, Module, NotFoundException } from "@nestjs/common";
import { HttpAdapterHost } from "@nestjs/core";
import type { FastifyAdapter } from "@nestjs/platform-fastify";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { AuthSettings } from "../config/auth-file.ts";
import { LOGGER } from "../config/config.module.ts";
import { PEPPER } from "../control-plane/control-plane.module.ts";
import { HttpModule } from "../http/http.module.ts";
import { ConsoleSessions } from "../http/identity/console-sessions.ts";
import { AUTH_SETTINGS, TOKENS } from "../http/identity/open-authenticator.ts";
import { SessionRoutes } from "./session/session-routes.ts";
import { ConsoleSite } from "./site.ts";

const FOLDER = fileURLToPath(new URL("../../../console/dist/site", import.meta.url));
/** The files have no secret: readers sign in on the page. */
const PUBLIC = { operation: { permission: "public" } };

/** Where browsers sign in with a key alone. */
const NO_SIGN_IN = { sign_in: false, signed_in: false };

/** Serves the web console. Its files are no operations of the API, and in no list of its routes. */
@Module({ imports: [HttpModule] })
export class ConsoleModule {
  readonly #site = new ConsoleSite(FOLDER);

  constructor(
    @Inject(HttpAdapterHost) { httpAdapter }: HttpAdapterHost<FastifyAdapter>,
    @Inject(ConsoleSessions) sessions: ConsoleSessions | null,
    @Inject(TOKENS) tokens: IdentityAdapter | null,
    @Inject(AUTH_SETTINGS) settings: AuthSettings | null,
    @Inject(PEPPER) pepper: KeyObject,
    @Inject(LOGGER) log: Logger,
  ) {
    const instance = httpAdapter.getInstance<FastifyInstance>();
    const serve = (request: FastifyRequest, reply: FastifyReply) => this.#serve(request, reply);
    instance.get("/", { config: PUBLIC }, toConsole);
    instance.get("/console", { config: PUBLIC }, serve);
    if (sessions && tokens && settings?.oauth2) {
      new SessionRoutes(sessions, tokens, settings.oauth2, pepper, log).serve(instance);
    } else {
      instance.get("/console/session", { config: PUBLIC }, () => NO_SIGN_IN);
    }
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
