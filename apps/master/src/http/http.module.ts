import type { Server as TlsServer } from "node:tls";
import { InferenceMetrics } from "@heddle/observability/inference-metrics";
import type { Logger } from "@heddle/observability/logger";
import { PluginSet } from "@heddle/plugin-kit/host/plugin-set";
import { Inject, Module, type Type } from "@nestjs/common";
import { APP_FILTER, HttpAdapterHost, ModulesContainer } from "@nestjs/core";
import type { FastifyAdapter } from "@nestjs/platform-fastify";
import type { FastifyInstance } from "fastify";
import { Registry } from "prom-client";
import { readAuthFile } from "../config/auth-file.ts";
import { LOGGER, MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { PEPPER } from "../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { MetricsModule } from "../metrics/metrics.module.ts";
import { pluginOperationsOf } from "../plugins/plugin-operations.ts";
import { UsageBook } from "../usage/usage-book.ts";
import { AccessCheck, type OnLimited } from "./access.ts";
import { auditCalls } from "./audit/audit-hooks.ts";
import { exposeAudit } from "./audit/audit-metrics.ts";
import { AuditTrail } from "./audit/audit-trail.ts";
import { CertificateWatch, exposeCertificate } from "./connections/certificate-watch.ts";
import { ErrorFilter } from "./error-filter.ts";
import { guardRoutes } from "./fastify-server.ts";
import { IdempotentChanges } from "./idempotent-changes.ts";
import { Authenticator } from "./identity/authenticator.ts";
import { ConsoleSessions } from "./identity/console-sessions.ts";
import {
  AUTH_SETTINGS,
  openAuthenticator,
  openSessions,
  openTokenVerifier,
  TOKENS,
} from "./identity/open-authenticator.ts";
import { InProcessCalls } from "./in-process-calls.ts";
import { LastUsed } from "./last-used.ts";
import { CallLimiter } from "./limits/call-limiter.ts";
import { MasterLimits } from "./limits/master-limits.ts";
import { listRoutes, ROUTES } from "./route-table.ts";
import { traceRequests } from "./trace-hooks.ts";

/** What every route has: access by keys, their limits, repeated changes, errors. */
@Module({
  imports: [MetricsModule],
  providers: [
    IdempotentChanges,
    InProcessCalls,
    LastUsed,
    {
      provide: MasterLimits,
      inject: [CONTROL_PLANE, UsageBook, MASTER_CONFIG, Registry, LOGGER],
      useFactory: (
        control: ControlPlane,
        book: UsageBook,
        config: MasterConfig,
        registry: Registry,
        logger: Logger,
      ) => MasterLimits.open({ control, book, config, registry, logger }),
    },
    {
      provide: CallLimiter,
      inject: [MasterLimits],
      useFactory: ({ limiter }: MasterLimits) => limiter,
    },
    {
      provide: AUTH_SETTINGS,
      inject: [MASTER_CONFIG],
      useFactory: ({ authFile }: MasterConfig) => (authFile ? readAuthFile(authFile) : null),
    },
    { provide: TOKENS, inject: [AUTH_SETTINGS, LOGGER], useFactory: openTokenVerifier },
    {
      provide: ConsoleSessions,
      inject: [AUTH_SETTINGS, CONTROL_PLANE, PEPPER],
      useFactory: openSessions,
    },
    {
      provide: Authenticator,
      inject: [CONTROL_PLANE, PEPPER, InProcessCalls, TOKENS, ConsoleSessions],
      useFactory: openAuthenticator,
    },
    {
      provide: AccessCheck,
      inject: [Authenticator, LastUsed, CallLimiter, InferenceMetrics, MASTER_CONFIG],
      useFactory: openAccess,
    },
    {
      provide: AuditTrail,
      inject: [CONTROL_PLANE, MASTER_CONFIG, LOGGER],
      useFactory: (control: ControlPlane, { masterId: master }: MasterConfig, log: Logger) =>
        new AuditTrail({ control, master, log }),
    },
    {
      provide: CertificateWatch,
      inject: [HttpAdapterHost, MASTER_CONFIG, LOGGER, Registry],
      useFactory: watchCertificate,
    },
    { provide: ROUTES, inject: [ModulesContainer, PluginSet], useFactory: routesOf },
    { provide: APP_FILTER, useClass: ErrorFilter },
  ],
  exports: [
    IdempotentChanges,
    InProcessCalls,
    CallLimiter,
    LastUsed,
    AUTH_SETTINGS,
    TOKENS,
    ConsoleSessions,
    ROUTES,
  ],
})
export class HttpModule {
  /** Guards the routes of all modules: they are added after all modules were made. */
  constructor(
    @Inject(HttpAdapterHost) { httpAdapter }: HttpAdapterHost<FastifyAdapter>,
    @Inject(AccessCheck) access: AccessCheck,
    @Inject(MASTER_CONFIG) settings: MasterConfig,
    @Inject(AuditTrail) trail: AuditTrail,
    @Inject(Registry) registry: Registry,
  ) {
    const instance = httpAdapter.getInstance<FastifyInstance>();
    exposeAudit(registry, trail);
    traceRequests(instance);
    auditCalls(instance, trail, settings.auditMode);
    guardRoutes(instance, access, settings);
  }
}

/** Null where HTTP is served in the clear. */
function watchCertificate(
  { httpAdapter }: HttpAdapterHost<FastifyAdapter>,
  { httpTls: files }: MasterConfig,
  log: Logger,
  registry: Registry,
): CertificateWatch | null {
  if (!files) return null;
  const server = httpAdapter.getHttpServer<TlsServer>();
  const watch = new CertificateWatch({ server, files, log });
  exposeCertificate(registry, watch);
  return watch;
}

function openAccess(
  authenticator: Authenticator,
  lastUsed: LastUsed,
  limits: CallLimiter,
  metrics: InferenceMetrics,
  { fixedTimes }: MasterConfig,
): AccessCheck {
  const onLimited: OnLimited = (permission, { code }) => {
    if (permission === "inference:create") metrics.failed("", code);
  };
  return new AccessCheck(authenticator, lastUsed, limits, onLimited, fixedTimes.rightsCheckMs);
}

function routesOf(modules: ModulesContainer, plugins: PluginSet) {
  const controllers = [...modules.values()].flatMap((each) => [...each.controllers.values()]);
  return listRoutes(
    controllers.map(({ metatype }) => metatype as Type),
    pluginOperationsOf(plugins),
  );
}
