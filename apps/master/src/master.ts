import "reflect-metadata";
import type { AddressInfo } from "node:net";
import { KeyVerifier } from "@heddle/auth/key-verifier";
import { RateLimiter } from "@heddle/auth/rate-limiter";
import { MAX_KEYS } from "@heddle/control/apply";
import type { ApiKeyRecord } from "@heddle/control/state";
import { InferenceMetrics } from "@heddle/observability/inference-metrics";
import type { Logger } from "@heddle/observability/logger";
import { NestFactory } from "@nestjs/core";
import type { NestFastifyApplication } from "@nestjs/platform-fastify";
import { Registry } from "prom-client";
import { AccessGuard, KEY_VERIFIER } from "./http/access.ts";
import { ErrorFilter } from "./http/error-filter.ts";
import { createHttpAdapter, type HttpLimits } from "./http/fastify-server.ts";
import { listRoutes } from "./http/route-table.ts";
import { Accounting, type UsageSink } from "./inference/accounting.ts";
import { ChatCompletions } from "./inference/chat-completions.ts";
import { InFlight } from "./inference/in-flight.ts";
import { CONTROLLERS, MasterModule } from "./master.module.ts";
import { ModelCatalog } from "./models/model-catalog.ts";
import type { ControlPlane, InferenceDispatch, NodeDirectory } from "./ports.ts";

export interface MasterOptions {
  readonly control: ControlPlane;
  readonly dispatch: InferenceDispatch;
  readonly directory: NodeDirectory;
  readonly pepper: Uint8Array;
  readonly logger: Logger;
  readonly usageSink: UsageSink;
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  readonly http: HttpLimits;
  readonly maxCalls: number;
  readonly deadlineMs: number;
}

export interface Master {
  readonly url: string;
  /** Stops listening, lets calls end for `graceMs`, ends the rest. */
  close(graceMs: number): Promise<void>;
}

/** Builds the HTTP side on the given ports and listens. */
export async function createMaster(options: MasterOptions): Promise<Master> {
  const { control, directory, logger } = options;
  const inFlight = new InFlight(options.maxCalls);
  const registry = new Registry();
  const metrics = new InferenceMetrics(registry, () => []);
  const accounting = new Accounting(metrics, options.usageSink);
  const models = new ModelCatalog(control, directory);
  const limiter = new RateLimiter({ now: () => performance.now(), maxKeys: MAX_KEYS });
  const verifier = new KeyVerifier<ApiKeyRecord>({
    lookup: (id) => control.state.keys.get(id),
    pepper: options.pepper,
    now: Date.now,
  });
  const chat = new ChatCompletions({
    models,
    limiter,
    accounting,
    inFlight,
    dispatch: options.dispatch,
    deadlineMs: options.deadlineMs,
  });
  const app = await NestFactory.create<NestFastifyApplication>(
    MasterModule.with([
      { provide: KEY_VERIFIER, useValue: verifier },
      { provide: ChatCompletions, useValue: chat },
      { provide: ModelCatalog, useValue: models },
    ]),
    createHttpAdapter(options.http),
    { bodyParser: false, logger: false, abortOnError: false, forceCloseConnections: true },
  );
  app.useGlobalGuards(new AccessGuard(verifier));
  app.useGlobalFilters(new ErrorFilter(listRoutes(CONTROLLERS), logger));
  await app.listen(options.port, options.host);
  const { port } = app.getHttpServer().address() as AddressInfo;
  return {
    url: `http://${options.host}:${port}`,
    close: async (graceMs) => {
      await inFlight.close(graceMs);
      await app.close();
    },
  };
}
