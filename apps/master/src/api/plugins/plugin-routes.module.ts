import { toAppError } from "@heddle/base/errors";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { Inject, Module } from "@nestjs/common";
import { HttpAdapterHost } from "@nestjs/core";
import type { FastifyAdapter } from "@nestjs/platform-fastify";
import type { FastifyInstance, FastifyReply } from "fastify";
import { MASTER_CONFIG } from "../../config/config.module.ts";
import type { MasterConfig } from "../../config/config.ts";
import type { CallerRequest } from "../../http/access.ts";
import { EventStream } from "../../http/event-stream.ts";
import { HttpModule } from "../../http/http.module.ts";
import { bodyOf } from "../../http/route-input.ts";
import { routePath } from "../../http/serves.ts";
import { pluginRoutes, type ServedRoute } from "../../plugins/plugin-operations.ts";

const JSON_TYPE = "application/json; charset=utf-8";

/** Serves the routes of plugins, with the access check and the limits of all other routes. */
@Module({ imports: [HttpModule] })
export class PluginRoutesModule {
  readonly #times: MasterConfig["fixedTimes"];

  constructor(
    @Inject(HttpAdapterHost) { httpAdapter }: HttpAdapterHost<FastifyAdapter>,
    @Inject(PluginSet) plugins: PluginSet,
    @Inject(MASTER_CONFIG) { fixedTimes }: MasterConfig,
  ) {
    this.#times = fixedTimes;
    const instance = httpAdapter.getInstance<FastifyInstance>();
    for (const each of pluginRoutes(plugins)) {
      const { method, path } = each.operation;
      instance.route({
        method,
        url: routePath(path),
        config: { operation: each.operation },
        handler: (request, reply) => this.#answer(each, request as CallerRequest, reply),
      });
    }
  }

  async #answer(
    { plugin, route, operation }: ServedRoute,
    request: CallerRequest,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    const { body, isBodyOptional } = operation;
    const call = {
      point: "route" as const,
      key: route.key,
      params: request.params as Readonly<Record<string, string>>,
      query: request.query,
      body: body && bodyOf({ body, isBodyOptional }, request),
      caller: callerOf(request),
    };
    const onStart = (cancel: () => void) => {
      // Its client may have left while the call was checked.
      if (reply.raw.destroyed) cancel();
      else reply.raw.on("close", cancel);
    };
    const limits = { timeoutMs: route.timeoutMs, onStart };
    if (route.events) return this.#stream(plugin.stream(call, limits), reply);
    const text = String(await plugin.call(call, limits));
    return text === "" ? reply.code(204).send() : reply.type(JSON_TYPE).send(text);
  }

  /** A failure before the first event is answered as such; later it can only be an event. */
  async #stream(texts: AsyncGenerator<string>, reply: FastifyReply): Promise<FastifyReply> {
    const first = await texts.next();
    const stream = new EventStream(reply.raw, {
      heartbeatMs: this.#times.streamHeartbeatMs,
      stallMs: this.#times.streamStallMs,
      onOpen: () => ({ "x-request-id": reply.request.id }),
    });
    reply.hijack();
    let last = "";
    try {
      for (let next = first; !next.done; next = await texts.next()) {
        if (!stream.write(next.value)) await stream.drained();
      }
    } catch (error) {
      const { code, message } = toAppError(error);
      last = `event: error\ndata: ${JSON.stringify({ code, message })}\n\n`;
    } finally {
      await texts.return(undefined);
      stream.end(last);
    }
    return reply;
  }
}

function callerOf({ caller }: CallerRequest) {
  if (!caller) return undefined;
  const { id, name, project, scopes } = caller;
  return { id, name, project, permissions: [...scopes] };
}
